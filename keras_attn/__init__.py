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

from keras_attn.lazy import exports
from keras_attn.registration import after_keras

__version__ = "0.1.0"

_PACKAGES = ("losses", "metrics", "models", "search")
_get, _names, __all__ = exports(
    __name__,
    {
        "backend": ("scan", "while_loop"),
        "data": ("ParallelDataset",),
        "layers": (
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
            "PointerGenerator",
            "RNNEncoder",
            "ResidualCells",
            "ScaledDotAttention",
            "ScheduledSampler",
            "ScheduledSampling",
            "SelfAttention",
            "WordDropout",
            "register_attention",
            "unroll_steps",
        ),
        "models": ("check_ids",),
        "saving": ("presets",),
        "text": ("SpecialIds", "Tokenizer"),
        "translation": ("Shortlist", "Translation", "Translator", "quantize", "with_shortlist"),
    },
)
__all__ += _PACKAGES


def __getattr__(name: str):
    """Returns a public name, or a submodule, imported on first use."""
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    return _get(name)


def __dir__() -> list[str]:
    return sorted({*_names(), *_PACKAGES})


def _register() -> None:
    """Imports the modules that define serialisable classes."""
    for name in ("layers", *_PACKAGES):
        import_module(f"{__name__}.{name}")


after_keras(_register)
