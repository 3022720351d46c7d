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

from keras_attn.lazy import after_keras, exports

__version__ = "0.1.0"

_get, __dir__, __all__ = exports(__name__)


def __getattr__(name: str):
    """Returns a public name, or a submodule, imported on first use."""
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    return _get(name)


def _register() -> None:
    """Imports the modules that define serialisable classes."""
    for name in ("layers", "losses", "metrics", "models", "search"):
        import_module(f"{__name__}.{name}")


after_keras(_register)
