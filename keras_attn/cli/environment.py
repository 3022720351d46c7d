"""What a command does before it imports Keras."""

import json
import logging
import os
from pathlib import Path

from keras_attn.requirements import is_installed, require

BACKENDS = ("tensorflow", "jax", "torch")


def prepare(backend: str | None = None) -> None:
    """Sets the environment variables of a command; call it before Keras is imported.

    `KERAS_BACKEND` decides, then Keras' configuration file, then Keras' default, TensorFlow. If that one is not
    installed and the variable is unset, a backend that is installed is used.

    Args:
        backend: The backend that the command needs, whatever the variable says.

    Raises:
        ModuleNotFoundError: If the backend is not installed, or if none is.
        ValueError: If the variable names no backend that the package runs on.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # for messages after the import; see `command.quietly`
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # warns of each new shape; buckets bound them
    chosen = backend or os.environ.get("KERAS_BACKEND")
    if not chosen:
        default = _configured_backend()
        installed = [name for name in (default, *BACKENDS) if is_installed(name)]
        if not installed:
            raise ModuleNotFoundError(
                'Expected a backend of Keras: pip install "keras_attn[tensorflow]", "keras_attn[jax]" or '
                '"keras_attn[torch]".'
            )
        chosen = installed[0]
        if chosen == default:
            return
    elif chosen not in BACKENDS:
        raise ValueError(f"Expected KERAS_BACKEND to be one of {', '.join(BACKENDS)}. Received: {chosen!r}")
    else:
        require(chosen, chosen)
    os.environ["KERAS_BACKEND"] = chosen


def _configured_backend() -> str:
    path = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "keras.json"
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("backend", BACKENDS[0])
    except (OSError, ValueError, AttributeError):
        return BACKENDS[0]
