"""Translation: text to text by a model, two tokenizers and a compiled search.

Each name is imported on first use: a client of a server needs `Translation` without Keras and tokenizers, and
`keras_attn.runtime` needs `TextSearch` without Keras.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_attn.translation.batching import padded, token_ids_of
    from keras_attn.translation.quantization import quantize
    from keras_attn.translation.results import Translation, vote
    from keras_attn.translation.search_models import ScoreModel, SearchModel
    from keras_attn.translation.shortlist import Shortlist, with_shortlist
    from keras_attn.translation.text_search import TextSearch
    from keras_attn.translation.translator import Translator

__all__ = [
    "ScoreModel",
    "SearchModel",
    "Shortlist",
    "TextSearch",
    "Translation",
    "Translator",
    "padded",
    "quantize",
    "token_ids_of",
    "vote",
    "with_shortlist",
]

_MODULES = {
    "ScoreModel": "search_models",
    "SearchModel": "search_models",
    "Shortlist": "shortlist",
    "TextSearch": "text_search",
    "Translation": "results",
    "Translator": "translator",
    "padded": "batching",
    "quantize": "quantization",
    "token_ids_of": "batching",
    "vote": "results",
    "with_shortlist": "shortlist",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
