"""Registers the classes of this library with Keras, without importing Keras first.

`keras.saving.load_model` finds a class by the name that it is registered under, which happens when the module of the
class is imported. `import keras_attn` has to be enough for that. Keras takes seconds to import, though, and the client
of a server and the `--help` of a command have no use for it. So the modules are imported right after Keras is, and a
backend that is installed is chosen right before.
"""

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from keras_attn.requirements import choose_backend

_PACKAGE = __name__.partition(".")[0]


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
                    spec.loader = _Notifying(spec.loader, self)
                return spec
        return None

    def end(self) -> None:
        """Ends an import; after the outermost one, and if Keras is imported, calls `register`."""
        self.depth -= 1
        if not self.depth and sys.modules.get("keras") and self in sys.meta_path:
            sys.meta_path.remove(self)
            self.register()


class _Notifying:
    """A module's own loader, which tells the finder when the module's code begins and ends.

    All else (`get_code` of `python -m`, `get_data`, resources) is the loader's.
    """

    def __init__(self, loader, finder: _AfterKeras):
        self._loader, self._finder = loader, finder

    def __getattr__(self, name: str):
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._finder.depth += 1
        try:
            self._loader.exec_module(module)
        except BaseException:
            self._finder.depth -= 1
            raise
        self._finder.end()
