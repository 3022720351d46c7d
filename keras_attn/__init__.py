"""keras_attn: recurrent attention encoder-decoders for Keras 3, on TensorFlow, JAX and torch.

Glossary of shapes:
    B batch, S source length, T target length, E embedding, H units, M memory width, A attention width,
    V vocabulary, K beams, N heads, L longest output.
Ids: 0 pad, 1 unknown, 2 start, 3 end, unless a `SpecialIds` says others. Masks are boolean, True = real token.

The public names are imported on first use. So the client of a server and the `--help` of a command do not wait for
Keras, and the client works where Keras is not installed. The classes are registered with Keras as soon as both are
imported, in either order. `keras_attn.evaluation` and `keras_attn.plots` are public, too, but no star imports them:
sacreBLEU and matplotlib are slow to import.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from keras_attn.registration import after_keras

if TYPE_CHECKING:
    from keras_attn import losses, metrics, models, search
    from keras_attn.backend import scan, while_loop
    from keras_attn.data import ParallelDataset
    from keras_attn.decoding import Shortlist, quantize, with_shortlist
    from keras_attn.layers import (
        AttentionalLayer,
        AttentionDecoder,
        BahdanauAttention,
        BahdanauMonotonicAttention,
        BiGRUEncoder,
        ConcatAttention,
        ContextGateCell,
        CosineAttention,
        CoverageAttention,
        CoverageLoss,
        DecoderStack,
        DeepOutput,
        DeepTransitionCell,
        DotAttention,
        FixedContextDecoder,
        GeneralAttention,
        GeneralMonotonicAttention,
        LayerNormGRUCell,
        LayerNormLSTMCell,
        LocalMonotonicAttention,
        LocalPredictiveAttention,
        LocationAttention,
        LocationSensitiveAttention,
        LuongAttention,
        MultiHeadAttention,
        NeuralCoverageAttention,
        PointerGenerator,
        ResidualCells,
        RNNEncoder,
        ScaledDotAttention,
        ScheduledSampler,
        ScheduledSampling,
        SelfAttention,
        WordDropout,
        register_attention,
        unroll_steps,
    )
    from keras_attn.text import SpecialIds, Tokenizer
    from keras_attn.translator import Translation, Translator
    from keras_attn.saving import presets

__version__ = "0.1.0"

__all__ = [
    "AttentionDecoder",
    "AttentionalLayer",
    "BahdanauAttention",
    "BahdanauMonotonicAttention",
    "BiGRUEncoder",
    "ConcatAttention",
    "ContextGateCell",
    "CosineAttention",
    "CoverageAttention",
    "CoverageLoss",
    "DecoderStack",
    "DeepOutput",
    "DeepTransitionCell",
    "DotAttention",
    "FixedContextDecoder",
    "GeneralAttention",
    "GeneralMonotonicAttention",
    "LayerNormGRUCell",
    "LayerNormLSTMCell",
    "LocalMonotonicAttention",
    "LocalPredictiveAttention",
    "LocationAttention",
    "LocationSensitiveAttention",
    "LuongAttention",
    "MultiHeadAttention",
    "NeuralCoverageAttention",
    "ParallelDataset",
    "PointerGenerator",
    "RNNEncoder",
    "ResidualCells",
    "ScaledDotAttention",
    "ScheduledSampler",
    "ScheduledSampling",
    "SelfAttention",
    "Shortlist",
    "SpecialIds",
    "Tokenizer",
    "Translation",
    "Translator",
    "WordDropout",
    "losses",
    "metrics",
    "models",
    "presets",
    "quantize",
    "register_attention",
    "scan",
    "search",
    "unroll_steps",
    "while_loop",
    "with_shortlist",
]

_ORIGINS = {
    "ParallelDataset": "data",
    "SpecialIds": "text",
    "Tokenizer": "text",
    "Translation": "translation",
    "Translator": "translator",
    "presets": "saving",
    "Shortlist": "decoding",
    "quantize": "decoding",
    "with_shortlist": "decoding",
    "scan": "backend",
    "while_loop": "backend",
}
_PACKAGES = ("losses", "metrics", "models", "search")


def __getattr__(name: str):
    """Returns a public name, or a submodule, imported on first use."""
    if name in __all__ and name not in _PACKAGES:
        value = globals()[name] = getattr(import_module(f"{__name__}.{_ORIGINS.get(name, 'layers')}"), name)
        return value
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _register() -> None:
    """Imports the modules that define serialisable classes."""
    for name in ("layers", *_PACKAGES):
        import_module(f"{__name__}.{name}")


after_keras(_register)
