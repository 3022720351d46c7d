"""A SavedModel that `keras-attn export` wrote, run in this process."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_attn.requirements import require
from keras_attn.serving.n_best import N_BEST, from_row
from keras_attn.translation import Translation


def exported_beam_size(version: Path) -> int:
    """Returns the beam size that a version was exported with.

    Raises:
        ValueError: If it has no record of its options.
    """
    path = version / "assets.extra" / "keras_attn.json"
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["options"]["beam_size"])
    except (OSError, ValueError, LookupError, TypeError):
        raise ValueError(
            f"Expected a SavedModel of `keras-attn export`. Received: {str(version)!r}, without a whole {path.name}"
        ) from None


class SavedTranslator:
    """Translates by the signatures of a version, on the processor, with the search that was exported.

    Args:
        version: The version's folder.

    Raises:
        ModuleNotFoundError: If TensorFlow or tensorflow-text is not installed.
        ValueError: If the version does not load.
    """

    def __init__(self, version: Path):
        require("tensorflow", "tensorflow", "tensorflow_text", purpose="a SavedModel")
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 registers its ops

        try:
            with tf.device("CPU"):
                self._model = tf.saved_model.load(str(version))
            self._best, self._n_best = (self._model.signatures[name] for name in ("translate", "translate_n_best"))
        except Exception as error:  # damaged files fail in many ways
            raise ValueError(f"Expected a SavedModel in {str(version)!r}. It does not load: {error}") from error

    def generate(self, texts: Sequence[str], *, return_alignments: bool = True, **fixed) -> list[Translation]:
        """Returns a `Translation` for each text.

        Args:
            texts: Sentences.
            return_alignments: Whether translations have tokens, alignments and all hypotheses.
            **fixed: Options of search, which are those of the export.
        """
        import tensorflow as tf

        if not texts:
            return []
        rows = tf.constant([text.encode(errors="replace") for text in texts])
        if not return_alignments:
            found = self._best(text=rows)
            pairs = zip(found["translation"].numpy(), found["score"].numpy(), strict=True)
            return [Translation(text.decode(errors="replace"), score=float(score)) for text, score in pairs]
        found = self._n_best(text=rows)
        return [from_row(*row) for row in zip(*(_plain(found[name].numpy()) for name in N_BEST), strict=True)]


def _plain(array: np.ndarray) -> list:
    """The array as nested lists, with strings in the place of bytes."""
    decode = np.vectorize(lambda text: text.decode(errors="replace"), otypes=[object])
    return (decode(array) if array.dtype.kind == "O" else array).tolist()
