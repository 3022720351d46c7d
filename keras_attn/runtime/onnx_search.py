"""The search of any model on onnxruntime: from the arrays of its source to ids."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keras_attn.requirements import require
from keras_attn.runtime.beam import beam_search
from keras_attn.runtime.onnx_graphs import ENCODE, STEP, OnnxGraphs
from keras_attn.saving import manifest
from keras_attn.search import SearchOptions, SearchResult
from keras_attn.text import SpecialIds

MANIFEST = "manifest.json"
FORMAT = {"format": "keras_attn.onnx_search", "version": 1}


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
        self.special_ids = manifest.read(path, "a search in ONNX", FORMAT, (ENCODE, STEP), _special_ids)
        super().__init__(directory, threads)

    def generate(
        self, source: Any, *, max_length: int, forced_prefix: Any = None, return_alignments: bool = True, **options
    ) -> SearchResult:
        """Finds target ids as `generate` of the model does; see `keras_attn.models.Seq2Seq`.

        Args:
            source: An array, or a dict of arrays by the inputs' names; parts of nested ones are joined by "_".
            max_length, forced_prefix, return_alignments, **options: As there.

        Returns:
            A `keras_attn.search.SearchResult`, in which L is the length of the longest hypothesis.

        Raises:
            ValueError: if an option is unknown or out of range, an input is missing, or the model's logits are NaN.
        """
        options = SearchOptions.from_keywords(options | {"max_length": max_length})
        arguments = options.arguments_of(beam_search) | {"banned_token_ids": options.banned_tokens}
        arguments |= {"max_length": max_length, "return_alignments": return_alignments}
        memory, state = self.encode(source, max_length)
        rows = len(memory["mask"])
        if forced_prefix is not None:
            arguments["forced_prefix"] = np.asarray(forced_prefix, "int32")
        if options.min_length is not None:
            arguments["row_min_length"] = np.full(rows, options.min_length, "int32")
        return beam_search(self.step, memory, state, **arguments, special_ids=self.special_ids)


def _special_ids(found: dict[str, Any]) -> SpecialIds:
    return SpecialIds(**found["target_special_ids"])
