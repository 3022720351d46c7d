"""Encoding and one step of a model as graphs in ONNX, run by onnxruntime."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_attn.requirements import require
from keras_attn.runtime.candidates import Arrays

ENCODE, STEP = "encode.onnx", "step.onnx"
_DTYPES = {"float": "float32", "double": "float64"}  # ONNX' names that are not NumPy's


class OnnxGraphs:
    """The methods `encode` and `step` of a `keras_attn.models.Seq2Seq`, on arrays by name.

    Args:
        directory: The folder with both graphs.
        threads: Processor cores that one operation may use; None: all.

    Raises:
        ModuleNotFoundError: if onnxruntime is not installed.
    """

    def __init__(self, directory: str | PathLike, threads: int | None):
        if threads is not None and (type(threads) is not int or threads < 1):
            raise ValueError(f"Expected threads to be a whole number above 0, or None. Received: {threads!r}")
        require("runtime", "onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(str(Path(directory) / name), options, providers=["CPUExecutionProvider"])
            for name in (ENCODE, STEP)
        )
        self._encoded = [output.name for output in self._encoder.get_outputs()]
        self._decoder_inputs = {value.name for value in self._decoder.get_inputs()}
        self._states = [name for name in self._encoded if name.startswith("state_")]

    def encode(self, source: Any, max_length: int) -> tuple[Arrays, Arrays]:
        """The memory and the first state of a source, by name; see `keras_attn.models.Seq2Seq`.

        Args:
            source: An array, or a dict of the inputs' names.
            max_length: The largest number of steps that will follow.

        Raises:
            ValueError: if an input is missing, or floats are given where ids are expected.
        """
        specs = {value.name: value.type for value in self._encoder.get_inputs()}
        given = source if isinstance(source, dict) else {name: source for name in specs if name != "max_length"}
        arrays = {**given, "max_length": np.array(max_length, "int32")}
        if missing := sorted(specs.keys() - arrays.keys()):
            raise ValueError(f"Expected a source with {', '.join(missing)}. Received: {', '.join(sorted(given))}")
        known = {name: _cast(name, arrays[name], spec) for name, spec in specs.items()}
        arrays = dict(zip(self._encoded, self._encoder.run(None, known), strict=True))
        memory = {name.removeprefix("memory_"): x for name, x in arrays.items() if name.startswith("memory_")}
        return memory, {name: arrays[name] for name in self._states}

    def step(self, token_ids: np.ndarray, memory: Arrays, state: Arrays) -> tuple[np.ndarray, Arrays, np.ndarray]:
        """The logits, the next state and the alignment of one step; see `keras_attn.models.Seq2Seq`.

        Raises:
            ValueError: if the logits are NaN.
        """
        inputs = {"token_ids": token_ids, **{f"memory_{name}": array for name, array in memory.items()}, **state}
        known = {name: array for name, array in inputs.items() if name in self._decoder_inputs}
        outputs = ["logits", "alignment", *(f"next_{name}" for name in self._states)]
        logits, alignment, *states = self._decoder.run(outputs, known)
        if np.isnan(logits.max(initial=-np.inf)):
            raise ValueError("Expected a model with finite logits. Received: logits that are NaN.")
        return logits, dict(zip(self._states, states, strict=True)), alignment


def _cast(name: str, array: Any, type_: str) -> np.ndarray:
    word = type_.removeprefix("tensor(").removesuffix(")")
    array, dtype = np.asarray(array), np.dtype(_DTYPES.get(word, word))
    if dtype.kind in "iu" and array.dtype.kind == "f":
        raise ValueError(f"Expected {name} of dtype {dtype}. Received: dtype {array.dtype}")
    return array.astype(dtype, copy=False)
