"""Checks for packages that only some users need, and the choice of a backend; needs neither Keras nor a backend."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

BACKENDS = ("tensorflow", "jax", "torch")


def require(extra: str, *modules: str, purpose: str = "") -> None:
    """Refuses to go on if a module is not installed, and says how to install it.

    Args:
        extra: The extra of `keras_attn` that installs the modules.
        modules: Names of modules. They are not imported.
        purpose: What needs them.

    Raises:
        ModuleNotFoundError: If one is not installed.
    """
    if missing := [name for name in modules if not is_installed(name)]:
        names, needed = " and ".join(missing), f" for {purpose}" if purpose else ""
        raise ModuleNotFoundError(
            f'Expected {names} to be installed{needed}: pip install "keras_attn[{extra}]".', name=missing[0]
        )


def is_installed(module: str) -> bool:
    """Returns whether there is a module of this name; does not import it."""
    try:
        return find_spec(module) is not None
    except (ValueError, ModuleNotFoundError):  # the module, or the package that it is in, is blocked or missing
        return False


def choose_backend() -> None:
    """Sets `KERAS_BACKEND` to a backend that is installed, where Keras would choose one that is not.

    Keras takes the backend of `KERAS_BACKEND`, then that of its configuration file, then TensorFlow. A variable that is
    set is left as it is. It has an effect before Keras is imported.

    Raises:
        ModuleNotFoundError: If no backend is installed.
    """
    if os.environ.get("KERAS_BACKEND"):
        return
    path = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "keras.json"
    try:
        default = json.loads(path.read_text(encoding="utf-8")).get("backend", BACKENDS[0])
    except (OSError, ValueError, AttributeError):
        default = BACKENDS[0]
    installed = [name for name in (default, *BACKENDS) if is_installed(name)]
    if not installed:
        raise ModuleNotFoundError(
            'Expected a backend of Keras: pip install "keras_attn[tensorflow]", "keras_attn[jax]" or '
            '"keras_attn[torch]".'
        )
    if installed[0] != default:
        os.environ["KERAS_BACKEND"] = installed[0]
