"""The layout rules of docs/architecture.md, read from the source: nothing here imports `keras_attn`."""

import ast
import functools
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# An import goes to a package further up in this table, never to the same row and never down.
LEVELS = (
    ("files", "requirements", "suggestions"),
    ("lazy",),
    ("backend", "text", "downloads"),
    ("layers", "search", "data", "evaluation", "plots"),
    ("models", "losses"),
    ("converters", "saving", "metrics"),
    ("translation",),
    ("runtime", "pronunciation"),
    ("export", "serving"),
    ("",),  # keras_attn itself
    ("training",),
    ("cli",),
    ("__main__",),
)
LEVEL = {package: level for level, packages in enumerate(LEVELS) for package in packages}
# The one import that goes up, inside a method: `Translator.export` calls what is made of translators.
CALLER_OF_EXPORT, EXPORT = "keras_attn.translation.translator", "keras_attn.export"
BACKENDS = {"tensorflow", "torch", "jax"}
OPTIONAL = {"tensorflow_text", "keras_nlp", "keras_hub", "matplotlib", "sacrebleu"}
KNOW_THE_BACKEND = ("backend", "export", "serving")
ASK_FOR_THE_BACKEND = ("keras_attn.training.report", "keras_attn.training.run")  # its name, and how it distributes
NO_HUB = ("cli", "serving")  # commands and servers: importing one must not import the others
FILES_OF_THEIR_OWN = ("keras_attn.plots.plot_style",)  # shared with the figures of the studies; imports matplotlib


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules(package: str) -> dict[str, Path]:
    return {module_name(path): path for path in sorted((ROOT / package).rglob("*.py"))}


@functools.cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@functools.cache
def imported(path: Path, top: bool = False) -> list[tuple[str, str | None]]:
    """(module, name) of every import, also inside functions, or with `top` of those at the top of the file."""
    found = []
    for node in syntax(path).body if top else ast.walk(syntax(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: expected absolute imports. Received: a relative one in line {node.lineno}"
            found += [(node.module, alias.name) for alias in node.names]
    return found


@functools.cache
def graph(package: str) -> dict[str, set[str]]:
    """The files that each file imports; a name of a package counts as the package's `__init__`."""
    files = modules(package)
    arrows = {
        module: {(f"{target}.{name}" if f"{target}.{name}" in files else target) for target, name in imported(path)}
        for module, path in files.items()
    }
    if CALLER_OF_EXPORT in arrows:
        arrows[CALLER_OF_EXPORT] -= {target for target in arrows[CALLER_OF_EXPORT] if target.startswith(EXPORT)}
    return {module: (targets & files.keys()) - {module} for module, targets in arrows.items()}


def room(module: str) -> str:
    """The package or top-level module that a module belongs to: keras_attn.layers.dot → layers."""
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("package", ["keras_attn", "recipes"])
def test_no_imports_go_in_a_circle_and_none_is_of_private_keras(package):
    graphlib.TopologicalSorter(graph(package)).prepare()  # a circle raises CycleError, and names it
    targets = {target for path in modules(package).values() for target, _ in imported(path)}
    assert not {target for target in targets if target.startswith("keras.src")}


def test_imports_between_packages_go_down():
    assert {room(module) for module in modules("keras_attn")} == set(LEVEL)
    assert not [
        f"{module} imports {target}"
        for module, targets in graph("keras_attn").items()
        for target in sorted(targets)
        if room(target) != room(module) and LEVEL[room(target)] >= LEVEL[room(module)]
    ]


def test_a_package_is_imported_through_its_hub():
    """`from keras_attn.search import beam_search` outside keras_attn/search, the defining file inside it."""
    files = modules("keras_attn")
    packages = {module for module, path in files.items() if path.name == "__init__.py"}
    wrong = []
    for module, path in (files | modules("recipes")).items():
        for target, name in imported(path):
            if not target.startswith("keras_attn."):
                continue
            home = ".".join(target.split(".")[:2])
            inside = module == home or module.startswith(home + ".")
            has_hub = home in packages and room(home) not in NO_HUB and target not in FILES_OF_THEIR_OWN
            if not inside and target not in packages and has_hub:
                wrong.append(f"{module}: from {target} import {name}; expected a name of the package's __init__")
            if inside and module != home and target == home and f"{target}.{name}" not in files:
                wrong.append(f"{module}: from {target} import {name}; expected the file that defines it")
    assert not wrong


def test_only_some_packages_know_the_backend_or_import_heavy_packages_at_the_top():
    for module, path in modules("keras_attn").items():
        roots = {target.split(".")[0] for target, _ in imported(path)}
        assert not roots & {"recipes", "tests"}, module
        if room(module) not in KNOW_THE_BACKEND:
            assert not roots & BACKENDS, module
            assert module in ASK_FOR_THE_BACKEND or "backend.backend()" not in path.read_text("utf-8"), module
            if room(module) not in ("plots", "evaluation"):
                assert not OPTIONAL & {target.split(".")[0] for target, _ in imported(path, top=True)}, module


def test_a_recipe_needs_the_package_alone():
    """The wheel has the recipes as keras_attn/recipes, where no module `recipes` is installed."""
    recipes = [p for m, p in modules("recipes").items() if m.count(".") == 1 and "\nCONFIGS = " in p.read_text("utf-8")]
    assert len(recipes) >= 9
    roots = {target.split(".")[0] for path in recipes for target, _ in imported(path)}
    assert roots <= {"dataclasses", "keras", "keras_attn"}
