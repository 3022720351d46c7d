"""Public names of a package, each imported on first use (PEP 562), so that importing the package is quick.

They are written once, in the stub `__init__.pyi` beside the package's `__init__.py`, where type checkers find them.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


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
