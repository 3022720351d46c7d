"""Finds recipes, and the named corpora beside them: in the wheel in the package, in a clone beside it."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from keras_attn.suggestions import did_you_mean

PACKAGE = "keras_attn.recipes" if importlib.util.find_spec("keras_attn.recipes") else "recipes"


def named_corpora() -> ModuleType:
    """Returns the module with the corpora that have a name."""
    return importlib.import_module(f"{PACKAGE}.named_corpora")


def load_recipe(name: str) -> ModuleType:
    """Returns a recipe: a module with `Config`, `CONFIGS` and `build`.

    Args:
        name: A recipe of this project, such as "rnnsearch", a file, "my/recipe.py", or a module, "my.recipe".

    Raises:
        ValueError: If there is none of that name; the message lists the recipes.
    """
    if name.endswith(".py"):
        recipe = _from_file(Path(name)) if Path(name).is_file() else None
    else:
        recipe = _from_module(name if "." in name else f"{PACKAGE}.{name}")
    if hasattr(recipe, "build"):
        return recipe
    folder = Path(importlib.import_module(PACKAGE).__path__[0])
    known = sorted(path.stem for path in folder.glob("*.py") if "\nCONFIGS = " in path.read_text("utf-8"))
    raise ValueError(
        f"Expected a recipe among: {', '.join(known)}; or a module or file of your own with Config, CONFIGS and build. "
        f"Received: {name!r}{did_you_mean(name, known)}"
    )


def _from_file(path: Path) -> ModuleType:
    name = f"recipe_{path.stem}"  # the module of its classes in a saved model
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType | None:
    if (here := os.getcwd()) not in sys.path:  # the program keras-attn does not look there by itself
        sys.path.append(here)
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # of a parent package
        found = None
    return found and importlib.import_module(name)
