"""The layout rules of docs/architecture.md, read from the source: nothing here imports `keras_attn`."""

import ast
import functools
import graphlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]

# An import goes to a package further up in this table, never to the same row and never down.
LEVELS = (
    ("files", "lazy"),
    ("backend", "text", "registration", "requirements", "downloads"),
    ("layers", "search", "data", "evaluation", "plots"),
    ("models", "losses"),
    ("converters", "saving", "metrics"),
    ("translation",),
    ("runtime",),
    ("export", "serving"),
    ("",),  # keras_attn itself
    ("training",),
    ("cli",),
    ("__main__",),
)
LEVEL = {package: level for level, packages in enumerate(LEVELS) for package in packages}
# The one import that goes up, inside a method: `Translator.export` calls what is made of translators.
CALLER_OF_EXPORT, EXPORT = "keras_attn.translation.translator", "keras_attn.export"
BACKENDS = ("tensorflow", "torch", "jax")
KNOW_THE_BACKEND = ("backend", "export", "serving")
REPORTS_THE_BACKEND = "keras_attn.training.report"  # its name, beside the versions of the packages
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


def imported(path: Path, lazy: bool):
    """(module, name) of every import: at the top of the file, or with `lazy` also inside functions."""
    for node in ast.walk(syntax(path)) if lazy else syntax(path).body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: expected absolute imports. Received: a relative one in line {node.lineno}"
            yield from ((node.module, alias.name) for alias in node.names)


def exported(path: Path):
    """(module, name) of every public name of a package: those that its `__init__` or the stub beside it imports."""
    stub = path.with_suffix(".pyi")
    yield from imported(stub if stub.exists() else path, lazy=True)


def defining_module(module: str, name: str | None, files: dict[str, Path]) -> str | None:
    """The file that an import reaches: a name re-exported by a package's `__init__` counts where it is defined."""
    if name and f"{module}.{name}" in files:
        return f"{module}.{name}"
    if name and module in files and files[module].name == "__init__.py":
        for origin, public in exported(files[module]):
            if public == name and origin in files:
                return defining_module(origin, name, files)
    return module if module in files else None


@functools.cache
def graph(package: str, lazy: bool) -> dict[str, set[str]]:
    files = modules(package)
    arrows = {
        module: {defining_module(*target, files) for target in imported(path, lazy)} - {None, module}
        for module, path in files.items()
    }
    if CALLER_OF_EXPORT in arrows:
        arrows[CALLER_OF_EXPORT] -= {target for target in arrows[CALLER_OF_EXPORT] if target.startswith(EXPORT)}
    return arrows


def room(module: str) -> str:
    """The package or top-level module that a module belongs to: keras_attn.layers.dot → layers."""
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("package", ["keras_attn", "recipes"])
def test_no_imports_go_in_a_circle_not_even_inside_functions(package):
    graphlib.TopologicalSorter(graph(package, lazy=True)).prepare()  # a circle raises CycleError, and names it


def test_every_package_has_a_level():
    assert {room(module) for module in modules("keras_attn")} == set(LEVEL)


def test_imports_between_packages_go_down():
    arrows = graph("keras_attn", lazy=True)
    upwards = [
        f"{module} imports {target}"
        for module, targets in arrows.items()
        for target in sorted(targets)
        if room(target) != room(module) and LEVEL.get(room(target), 99) >= LEVEL[room(module)]
    ]
    assert not upwards, "\n".join(upwards)


def test_a_package_is_imported_through_its_hub():
    """`from keras_attn.search import beam_search` outside keras_attn/search, the defining file inside it."""
    files = modules("keras_attn")
    packages = {module for module, path in files.items() if path.name == "__init__.py"}
    wrong = []
    for module, path in (files | modules("recipes")).items():
        for target, name in imported(path, lazy=True):
            if not target.startswith("keras_attn."):
                continue
            home = ".".join(target.split(".")[:2])
            inside = module == home or module.startswith(home + ".")
            has_hub = home in packages and room(home) not in NO_HUB and target not in FILES_OF_THEIR_OWN
            if not inside and target not in packages and has_hub:
                wrong.append(f"{module}: from {target} import {name}; expected a name of the package's __init__")
            if inside and module != home and target == home and f"{target}.{name}" not in files:
                wrong.append(f"{module}: from {target} import {name}; expected the file that defines it")
    assert not wrong, "\n".join(wrong)


def test_the_library_does_not_know_the_recipes_or_the_tests():
    known = {target for path in modules("keras_attn").values() for target, _ in imported(path, lazy=True)}
    assert not {target for target in known if target.split(".")[0] in ("recipes", "tests")}


@pytest.mark.parametrize("package", ["keras_attn", "recipes"])
def test_nothing_uses_private_keras(package):
    users = [
        str(path)
        for path in modules(package).values()
        for target, _ in imported(path, lazy=True)
        if target.startswith("keras.src")
    ]
    assert not users


def test_only_the_backend_package_and_serving_know_the_backend():
    offenders = []
    for module, path in modules("keras_attn").items():
        if room(module) in KNOW_THE_BACKEND or module == "keras_attn.training.run":
            continue
        offenders += [
            f"{module} imports {target}" for target, _ in imported(path, lazy=True) if target.split(".")[0] in BACKENDS
        ]
        if module != REPORTS_THE_BACKEND and "backend.backend()" in path.read_text("utf-8"):
            offenders.append(f"{module} calls keras.backend.backend()")
    assert not offenders, "\n".join(offenders)


def test_no_module_outside_serving_imports_a_heavy_package_at_its_top():
    """`import keras_attn` needs the light core alone and is fast: heavy packages are imported where they are used."""
    heavy = {*BACKENDS, "tensorflow_text", "keras_nlp", "keras_hub", "matplotlib", "sacrebleu"}
    files = {m: p for m, p in modules("keras_attn").items() if room(m) not in KNOW_THE_BACKEND}
    arrows = graph("keras_attn", lazy=False)
    reached, waiting = set(), {"keras_attn"}
    while waiting:  # everything that `import keras_attn` runs, packages on the way included
        module = waiting.pop()
        reached.add(module)
        parents = {module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1)}
        waiting |= (arrows[module] | parents) - reached
    offenders = [
        f"{module} imports {target}"
        for module, path in files.items()
        if module in reached
        for target, _ in imported(path, lazy=False)
        if target.split(".")[0] in heavy
    ]
    assert not offenders, "\n".join(offenders)


def test_a_recipe_needs_the_package_alone():
    """The wheel has the recipes as keras_attn/recipes, where no module `recipes` is installed."""
    recipes = {
        m: p for m, p in modules("recipes").items() if m.count(".") == 1 and "\ndef build(" in p.read_text("utf-8")
    }
    assert len(recipes) >= 9
    roots = {target.split(".")[0] for path in recipes.values() for target, _ in imported(path, lazy=True)}
    assert roots <= {"dataclasses", "keras", "keras_attn"}
