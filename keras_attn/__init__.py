"""keras_attn: recurrent attention encoder-decoders for Keras 3, on TensorFlow, JAX and torch.

Glossary of shapes:
    B batch, S source length, T target length, E embedding, H units, M memory width, A attention width,
    V vocabulary, K beams, N heads, L longest output.
Ids: 0 pad, 1 unknown, 2 start, 3 end. Masks are boolean, True = real token.

The public names are listed in `keras_attn.api`, which is imported on first use. So the client of a server and the
`--help` of a command do not wait for Keras, and the client works where Keras is not installed. The classes are
registered with Keras as soon as both are imported, in either order.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from keras_attn.registration import after_keras

if TYPE_CHECKING:
    from keras_attn.api import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str):
    """Returns a public name, or a submodule, imported on first use."""
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    if not name.startswith("__") or name == "__all__":
        api = import_module(f"{__name__}.api")
        if name in (*api.__all__, "__all__"):
            return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module(f"{__name__}.api").__all__})


after_keras(lambda: import_module(f"{__name__}.api"))
