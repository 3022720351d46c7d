"""Encoding and one step of a model as graphs in ONNX, run by onnxruntime, and the search and the translator on them."""

import itertools
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_attn.requirements import require
from keras_attn.runtime.beam import Arrays, beam_search
from keras_attn.saving import manifest
from keras_attn.search import SearchOptions, SearchResult, banned_ids, cast_input, check_sizes, limits_of_rows
from keras_attn.text import SpecialIds, Tokenizer
from keras_attn.translation import TextSearch

ENCODE, STEP, MANIFEST = "encode.onnx", "step.onnx", "manifest.json"
FORMAT = {"format": "keras_attn.onnx", "version": 1}
SEARCH_FORMAT = {"format": "keras_attn.onnx_search", "version": 1}
_MOST_THREADS = 1024
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
        if threads is not None:
            check_sizes(threads=threads, maximum=_MOST_THREADS)
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
        self._vocabulary_size = next(one.shape[-1] for one in self._decoder.get_outputs() if one.name == "logits")

    def encode(self, source: Any, max_length: int) -> tuple[Arrays, Arrays]:
        """The memory and the first state of a source, by name; see `keras_attn.models.Seq2Seq`.

        Args:
            source: An array, or a dict of the inputs' names.
            max_length: The largest number of steps that will follow.

        Raises:
            ValueError: if an input is missing or has another shape, or floats are given where ids are expected.
        """
        specs = {value.name: value for value in self._encoder.get_inputs()}
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


def _cast(name: str, array: Any, spec: Any) -> np.ndarray:
    word = spec.type.removeprefix("tensor(").removesuffix(")")
    array, dtype = np.asarray(array), np.dtype(_DTYPES.get(word, word))
    sizes = zip(spec.shape, array.shape, strict=False)  # names of axes, or their sizes
    if array.ndim != len(spec.shape) or not array.size or any(isinstance(n, int) and n != size for n, size in sizes):
        shape = ", ".join(map(str, spec.shape))
        raise ValueError(f"Expected {name} of shape ({shape}), with elements. Received: shape {array.shape}")
    if dtype.kind in "iu" and array.dtype.kind not in "iub":
        raise ValueError(f"Expected {name} of dtype {dtype}. Received: dtype {array.dtype}")
    return cast_input(name, array, dtype)


class OnnxSearch(OnnxGraphs):
    """Searches with what `keras_attn.export.export_onnx` wrote of a model, without Keras and TensorFlow.

    Args:
        directory: The folder.
        threads: Processor cores that one operation may use; None: all.

    Raises:
        ModuleNotFoundError: if onnxruntime is not installed.
        FileNotFoundError: if the manifest or a file is missing.
        ValueError: if a file is truncated or changed, or the format is unknown.

    Example:
        from keras_attn.runtime import OnnxSearch

        print(OnnxSearch("captions.onnx").generate(images, max_length=20).token_ids[:, 0])
    """

    def __init__(self, directory: str | PathLike, *, threads: int | None = None):
        require("runtime", "onnxruntime")
        path = Path(directory) / MANIFEST
        self.special_ids = manifest.read(path, "a search in ONNX", SEARCH_FORMAT, (ENCODE, STEP), _special_ids)
        super().__init__(directory, threads)

    def generate(
        self, source: Any, *, max_length: int, forced_prefix: Any = None, return_alignments: bool = True, **options
    ) -> SearchResult:
        """Finds target ids as `generate` of the model does; see `keras_attn.models.Seq2Seq`.

        Args:
            source: An array, or a dict of arrays by the inputs' names; parts of nested ones are joined by "_".
            max_length, forced_prefix, return_alignments, **options: As there.

        Returns:
            A `keras_attn.search.SearchResult`, in which L is the length of the longest hypothesis. With several
            memories, `alignments` is a list.

        Raises:
            ValueError: if an option is unknown or out of range, an input is missing, an id is outside of the model's
                vocabulary, or the model's logits are NaN.
        """
        options = SearchOptions.for_arrays(options | {"max_length": max_length})
        arguments = options.arguments_of(beam_search) | {"return_alignments": return_alignments}
        memory, state = self.encode(source, options.max_length)
        rows, ids = len(memory["mask"]), self.special_ids
        size = self._vocabulary_size
        if not isinstance(size, int):  # but the name of an axis: it depends on the source
            size = self.step(np.full(rows, ids.start, "int32"), memory, state)[0].shape[-1]
        arguments["banned_token_ids"] = banned_ids(options.banned_tokens, size, ids.end)
        arguments |= limits_of_rows(options, forced_prefix, rows, size, ids.end)
        found = beam_search(
            self.step, memory, state, max_length=options.max_length, **arguments, special_ids=self.special_ids
        )
        names = itertools.takewhile(memory.__contains__, (f"masks_{i}" for i in itertools.count()))
        lengths = [memory[name].shape[1] for name in names]  # of several memories
        if not lengths or found.alignments is None:
            return found
        parts = np.split(found.alignments, np.cumsum(lengths)[:-1], axis=-1)  # (B, N, L, S_i)
        totals = [part.sum(axis=-1, keepdims=True) for part in parts]
        split = [part / np.where(total, total, 1) for part, total in zip(parts, totals, strict=True)]
        return found._replace(alignments=split)


def _special_ids(found: dict[str, Any]) -> SpecialIds:
    return SpecialIds(**found["target_special_ids"])


class OnnxTranslator(OnnxGraphs, TextSearch):
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
        require("runtime", "onnxruntime")
        directory = Path(directory)
        required = ENCODE, STEP, *manifest.TOKENIZER_FILES
        properties = manifest.read(directory / MANIFEST, "a translator in ONNX", FORMAT, required, _properties)
        pointer, source_length, lengths = properties
        tokenizers = [Tokenizer.load(directory / name) for name in manifest.TOKENIZERS]
        TextSearch.__init__(self, *tokenizers, **lengths, pointer=pointer, source_length=source_length)
        OnnxGraphs.__init__(self, directory, threads)

    def _search_of(self, options: SearchOptions) -> Callable:
        return beam_search

    def _searched(
        self, search: Callable, inputs: Mapping[str, np.ndarray], longest: int, count: int, **arguments: Any
    ) -> Mapping[str, np.ndarray]:
        if "logits_processor" in arguments:
            raise ValueError("Expected no `logits_processor`, which works on tensors of Keras. Received: one")
        rows = {name: array[:count] for name, array in inputs.items()}  # without those that fill the batch
        memory, state = self.encode(rows.pop("encoder_token_ids"), longest)
        arguments |= {"max_length": longest, "special_ids": self.target_tokenizer.special_ids}
        result = search(self.step, memory, state, **rows, **arguments)
        return {name: array for name, array in result._asdict().items() if array is not None}


def _properties(found: Mapping[str, Any]) -> tuple[bool, int | None, dict[str, Any]]:
    """Returns `pointer`, `source_length` and the lengths' arguments of a manifest."""
    pointer, source_length = found["pointer"], found["source_length"]
    if not isinstance(pointer, bool):
        raise ValueError
    if source_length is not None:
        check_sizes(source_length=source_length)
    return pointer, source_length, manifest.length_arguments(found)
