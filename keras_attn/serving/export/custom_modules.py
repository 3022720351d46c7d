"""Custom classes of the user's: a process that loads a model must import the modules that define and register them."""

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import keras

_OURS = ("keras", "keras_attn")  # imported by the process anyway
_TRAINING = (keras.optimizers.Optimizer, keras.losses.Loss, keras.metrics.Metric)  # of `compile`, and not saved


def custom_modules(model: keras.Model) -> list[str]:
    """The modules, other than Keras' and keras_attn's, in which classes of a model's layers are defined.

    They come from the live objects, never from a file. The classes are those of layers, initializers and all else that
    has a Keras config, at any depth.

    Raises:
        ValueError: for a class that is defined in `__main__`, which no other process can import.
    """
    classes = {type(part) for part in _parts(model)}
    modules = set()
    for kind in sorted(classes, key=lambda kind: (kind.__module__, kind.__qualname__)):
        if kind.__module__ == "__main__":
            raise ValueError(
                f"Expected custom layers to be defined in a module that can be imported, because the export runs in "
                f"another process. Received: {kind.__qualname__}, defined in __main__. Move it into a file of its "
                f"own and import it from there."
            )
        if kind.__module__.partition(".")[0] not in _OURS:
            modules.add(kind.__module__)
    return sorted(modules)


def search_path() -> list[str]:
    """This process' `sys.path`, with absolute folders, for `import_modules` in another process."""
    return [os.path.abspath(entry) for entry in sys.path]


def import_modules(names: Iterable[str], path: Iterable[str]) -> None:
    """Imports modules; folders of `path` that this process does not search are searched last.

    Raises:
        ValueError: for a module that cannot be imported.
    """
    sys.path.extend(entry for entry in path if entry not in sys.path)
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise ValueError(
                f"Expected to import {name}, which defines custom layers of the model. "
                f"Received: {type(error).__name__}: {error}"
            ) from error


def _parts(model: keras.Model) -> Iterator[Any]:
    """A model and all objects with a Keras config that its attributes lead to."""
    seen, waiting = set(), [model]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, (list, tuple, set, frozenset)):
            waiting.extend(part)
        elif hasattr(part, "get_config") and not isinstance(part, (type, *_TRAINING)):
            yield part
            waiting.extend(vars(part).values())
