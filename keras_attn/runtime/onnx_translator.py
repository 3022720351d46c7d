"""A translator on onnxruntime: encoding and one step of the decoder are graphs in ONNX, the search is NumPy's."""

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_attn.requirements import require
from keras_attn.runtime.beam import beam_search
from keras_attn.runtime.candidates import Arrays
from keras_attn.saving import manifest
from keras_attn.search import SearchOptions
from keras_attn.text import Tokenizer
from keras_attn.translation import TextSearch

MANIFEST = "manifest.json"
FORMAT = {"format": "keras_attn.onnx", "version": 1}
ENCODE, STEP = "encode.onnx", "step.onnx"


class OnnxTranslator(TextSearch):
    """Translates with what `keras-attn export RUN DIRECTORY --format onnx` wrote, without Keras and TensorFlow.

    `generate` takes the arguments and gives the translations of `keras_attn.Translator.generate`. Two hypotheses of the
    same score, or nearly so, may change places: onnxruntime adds in another order.

    Args:
        directory: The folder.
        threads: Processor cores that one operation may use; None: all.

    Several threads may use one translator.

    Raises:
        ModuleNotFoundError: if onnxruntime is not installed.
        FileNotFoundError: if the manifest or a file is missing.
        ValueError: if a file is truncated or changed, or the format is unknown.

    Example:
        from keras_attn.runtime import OnnxTranslator

        print(OnnxTranslator("de-en.onnx").generate(["zwei Hunde"])[0].text)
    """

    def __init__(self, directory: str | PathLike, *, threads: int | None = None):
        if threads is not None and (type(threads) is not int or threads < 1):
            raise ValueError(f"Expected threads to be a whole number above 0, or None. Received: {threads!r}")
        require("runtime", "onnxruntime")
        import onnxruntime

        directory = Path(directory)
        required = ENCODE, STEP, *manifest.TOKENIZER_FILES
        properties = manifest.read(directory / MANIFEST, "a translator in ONNX", FORMAT, required, _properties)
        pointer, source_length, lengths = properties
        tokenizers = [Tokenizer.load(directory / name) for name in manifest.TOKENIZERS]
        super().__init__(*tokenizers, **lengths, pointer=pointer, source_length=source_length)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(str(directory / name), options, providers=["CPUExecutionProvider"])
            for name in (ENCODE, STEP)
        )
        self._encoded = [output.name for output in self._encoder.get_outputs()]
        self._encoder_inputs, self._decoder_inputs = (
            {value.name for value in session.get_inputs()} for session in (self._encoder, self._decoder)
        )
        self._states = [name for name in self._encoded if name.startswith("state_")]

    def encode(self, encoder_token_ids: np.ndarray, max_length: int) -> tuple[Arrays, Arrays]:
        """The memory and the first state of sentences, by name; see `keras_attn.models.Seq2Seq`."""
        inputs = {"encoder_token_ids": encoder_token_ids, "max_length": np.array(max_length, "int32")}
        known = {name: array for name, array in inputs.items() if name in self._encoder_inputs}
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

    def _search_of(self, options: SearchOptions) -> Callable:
        return beam_search

    def _searched(
        self, search: Callable, inputs: Mapping[str, np.ndarray], longest: int, count: int, **arguments: Any
    ) -> Mapping[str, np.ndarray]:
        rows = {name: array[:count] for name, array in inputs.items()}  # without those that fill the batch
        memory, state = self.encode(rows.pop("encoder_token_ids"), longest)
        arguments |= {"max_length": longest, "special_ids": self.target_tokenizer.special_ids}
        result = search(self.step, memory, state, **rows, **arguments)
        return {name: array for name, array in result._asdict().items() if array is not None}


def _properties(found: Mapping[str, Any]) -> tuple[bool, int | None, dict[str, Any]]:
    """Returns `pointer`, `source_length` and the lengths' arguments of a manifest."""
    pointer, source_length = found["pointer"], found["source_length"]
    if not isinstance(pointer, bool) or not isinstance(source_length, int | None):
        raise ValueError
    return pointer, source_length, manifest.length_arguments(found)
