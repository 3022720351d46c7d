"""Decoding: sentences in batches through a compiled search, and back as translations.

`TextSearch` and the arrays that it makes need no Keras; `Engine` and the compiled models are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from keras_attn.decoding.batching import padded, token_ids_of
from keras_attn.decoding.text_search import TextSearch
from keras_attn.decoding.voting import vote

if TYPE_CHECKING:
    from keras_attn.decoding.engine import Engine
    from keras_attn.decoding.quantization import quantize
    from keras_attn.decoding.search_models import ScoreModel, SearchModel
    from keras_attn.decoding.shortlist import Shortlist, with_shortlist

__all__ = [
    "Engine",
    "ScoreModel",
    "SearchModel",
    "Shortlist",
    "TextSearch",
    "padded",
    "quantize",
    "token_ids_of",
    "vote",
    "with_shortlist",
]

_MODULES = {
    "Engine": "engine",
    "ScoreModel": "search_models",
    "SearchModel": "search_models",
    "Shortlist": "shortlist",
    "quantize": "quantization",
    "with_shortlist": "shortlist",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
