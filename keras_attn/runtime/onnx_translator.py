"""A translator on onnxruntime: encoding and one step of the decoder are graphs in ONNX, the search is NumPy's."""

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_attn.requirements import require
from keras_attn.runtime.beam import beam_search
from keras_attn.runtime.onnx_graphs import ENCODE, STEP, OnnxGraphs
from keras_attn.saving import manifest
from keras_attn.search import SearchOptions
from keras_attn.text import Tokenizer
from keras_attn.translation import TextSearch

MANIFEST = "manifest.json"
FORMAT = {"format": "keras_attn.onnx", "version": 1}


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
    if not isinstance(pointer, bool) or not isinstance(source_length, int | None):
        raise ValueError
    return pointer, source_length, manifest.length_arguments(found)
