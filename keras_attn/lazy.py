"""Public names of a package, each imported on first use (PEP 562), so that importing the package is quick.

They are written once, in the stub `__init__.pyi` beside the package's `__init__.py`, where type checkers find them.

`keras.saving.load_model` finds a class by the name that it is registered under, which happens when the module of the
class is imported. `import keras_attn` has to be enough for that, without the seconds that Keras takes. So the modules
are imported right after Keras is, and a backend that is installed is chosen right before.
"""

import ast
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from keras_attn.requirements import choose_backend

_PACKAGE = __name__.partition(".")[0]


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns the `__getattr__`, `__dir__` and `__all__` of a package from its stub.

    Args:
        package: The package's `__name__`. Its stub has lines `from package.module import name as name`, and
            `from package import module as module` for a module that is a public name itself.
    """
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi").read_text("utf-8")
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    origins = {alias.name: str(node.module) for node in imports for alias in node.names}

    def get(name: str) -> Any:
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if origins[name] == package:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(origins[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    public = sorted(origins)
    return get, public.copy, public


def after_keras(register: Callable[[], object]) -> None:
    """Calls `register` once: now if Keras is imported already, else as soon as it is."""
    if sys.modules.get("keras"):
        register()
    else:
        sys.meta_path.insert(0, _AfterKeras(register))


class _AfterKeras(MetaPathFinder):
    """Waits for the end of an import of Keras, or of the module of this package from which Keras is imported.

    In the second case the package is half imported when the import of Keras ends, too early to import the rest of it.
    """

    def __init__(self, register: Callable[[], object]):
        self.register = register
        self.depth = 0  # of imports that have begun and not ended

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        if name != "keras" and not name.startswith(f"{_PACKAGE}."):
            return None
        if name == "keras":
            choose_backend()
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                if spec.loader:
                    spec.loader.exec_module = partial(self._execute, spec.loader)
                return spec
        return None

    def _execute(self, loader, module: ModuleType) -> None:
        """Runs a module's code; after the outermost one, and if Keras is imported, calls `register`."""
        vars(loader).pop("exec_module", None)  # the loader is as it was
        self.depth += 1
        try:
            loader.exec_module(module)
        finally:
            self.depth -= 1
        if not self.depth and sys.modules.get("keras") and self in sys.meta_path:
            sys.meta_path.remove(self)
            self.register()
