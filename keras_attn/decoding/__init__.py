"""Decoding: sentences in batches through a compiled search, and back as translations.

`TextSearch` and the arrays that it makes need no Keras; `Engine`, the compiled models and `Documents` are imported on
first use.
"""

from keras_attn.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "batching": ("padded", "token_ids_of"),
        "documents": ("Documents",),
        "engine": ("Engine",),
        "quantization": ("quantize",),
        "search_models": ("ScoreModel", "SearchModel"),
        "shortlist": ("Shortlist", "with_shortlist"),
        "text_search": ("TextSearch",),
        "voting": ("vote",),
    },
)
