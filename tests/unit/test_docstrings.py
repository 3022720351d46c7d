"""Runs every `>>>` example of the package, each with `keras`, `np` and `keras_attn` at hand.

An example may also use `model`, `source_tokenizer`, `target_tokenizer` and `translator`, which translate a few English
phrases into French, and a server at http://localhost:8501.
"""

import ast
import contextlib
import dataclasses
import doctest
import http.server
import importlib
import inspect
import itertools
import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attn
from tests.web_server import listening

ROOT = Path(keras_attn.__file__).parent
ADDRESS = "http://localhost:8501"
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXTRAS = ("tensorflow", "keras_nlp", "keras_hub", "tensorflow_text", "google", "aiohttp", "matplotlib")


def docstrings():
    """(module, name, docstring, line) of everything documented with an example, read without importing it."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        waiting = [(module.removeprefix("keras_attn."), ast.parse(path.read_text("utf-8")))]
        while waiting:
            name, node = waiting.pop(0)
            docstring = ast.get_docstring(node)
            if docstring and ">>>" in docstring:
                yield pytest.param(module, docstring, getattr(node, "lineno", 1), id=name)
            inner = (n for n in node.body if isinstance(n, ast.ClassDef | ast.FunctionDef))
            waiting += [(f"{name}.{n.name}", n) for n in inner]


class Checker(doctest.OutputChecker):
    """Shapes print as tuples: torch and TensorFlow give them a type of their own."""

    def check_output(self, want, got, flags):
        got = re.sub(r"(?:torch\.Size|TensorShape)\(\[([^]]*)\]\)", lambda m: f"({m[1]}{',' * (',' not in m[1])})", got)
        return super().check_output(want, got, flags)


@pytest.fixture(scope="module")
def translator():
    """Thirty-six phrases learned by heart."""
    keras.utils.set_random_seed(3)
    numbers = {"two": "deux", "three": "trois", "four": "quatre"}
    nouns = {"dogs": "chiens", "cats": "chats", "birds": "oiseaux"}
    verbs = {"": "", "run": "courent", "sleep": "dorment", "sing": "chantent"}
    french = numbers | nouns | verbs
    source = [" ".join(words).strip() for words in itertools.product(numbers, nouns, verbs)]
    target = [" ".join(french[word] for word in line.split()) for line in source]
    tokenizers = [keras_attn.Tokenizer.train(lines, level="word") for lines in (source, target)]
    data = keras_attn.ParallelDataset.from_text(source, target, *tokenizers, batch_size=12)
    sizes = {"units": 16, "embedding_size": 16, "readout_size": 16, "attention_units": 16}
    vocabularies = (tokenizer.vocabulary_size for tokenizer in tokenizers)
    model = keras_attn.models.RNNSearch(*vocabularies, **sizes, initializer="glorot_uniform")
    model.compile(keras.optimizers.Adam(2e-2, global_clipnorm=1.0), keras_attn.losses.SmoothedCrossentropy(0.0))
    model.fit(data, epochs=15, verbose=0)
    return keras_attn.Translator(model, *tokenizers)


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers every request as a served model answers "ein Hund läuft ."."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"outputs": {"translation": ["a dog runs ."], "score": [-0.5]}}).encode())

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(("module", "docstring", "line"), list(docstrings()))
def test_example(module, docstring, line, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        globs = dict(vars(importlib.import_module(module)))
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] not in EXTRAS:
            raise
        pytest.skip(f"needs {error.name}")
    globs |= {"keras": keras, "np": np, "keras_attn": keras_attn}
    if used := {"model", "source_tokenizer", "target_tokenizer", "translator"} & names_read(docstring):
        ready = request.getfixturevalue("translator")
        globs |= {name: ready if name == "translator" else getattr(ready, name) for name in used}
    failures = []
    with listening(Answers) if ADDRESS in docstring else contextlib.nullcontext(ADDRESS) as address:
        docstring = docstring.replace(ADDRESS, address)
        examples = doctest.DocTestParser().get_doctest(docstring, globs, module, f"{module}.py", line)
        doctest.DocTestRunner(Checker(), verbose=False, optionflags=OPTIONS).run(examples, out=failures.append)
    if failures:
        pytest.fail("".join(failures), pytrace=False)


def names_read(docstring):
    """The names that the examples of a docstring read and do not make."""
    code = ast.parse("".join(example.source for example in doctest.DocTestParser().get_examples(docstring)))
    names = [node for node in ast.walk(code) if isinstance(node, ast.Name)]
    return {name.id for name in names} - {name.id for name in names if isinstance(name.ctx, ast.Store)}


def test_summaries_are_imperatives_or_noun_phrases():
    assert len(list(docstrings())) >= 25
    paths = [*ROOT.rglob("*.py"), *(ROOT.parent / "recipes").rglob("*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    documented = (node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    summaries = [(ast.get_docstring(node) or "").partition("\n")[0] for node in documented]
    assert not [one for one in summaries if re.match("(How|That|What|When|Where|Whether|Which|Who|Why) ", one)]


# Completeness: every public name, which a package imports or has in `__all__`

HUBS = [path.parent for path in ROOT.rglob("__init__.py") if "\nfrom keras_attn" in path.read_text("utf-8")]
PACKAGES = sorted(["losses", "metrics", "serving.client", *(".".join(hub.relative_to(ROOT).parts) for hub in HUBS)])
# What other parts of the package are made of: with a summary and its errors, but without an example of its own.
INNER = ("backend", "data", "export", "text", "training", "translation")
WITHOUT_EXAMPLE = {"from_marian", "marian_tokenizer", "from_tfa"}  # need files of other programs
WITHOUT_EXAMPLE |= {"OnnxTranslator", "OnnxSearch"}  # need an export
WITHOUT_EXAMPLE |= {"Attention", "RecurrentSeq2Seq"}  # base classes
WITHOUT_EXAMPLE |= {"PresetEntry", "add_preset", "locate", "upload", "model_card", "task_of"}  # docs/presets.md
WITHOUT_EXAMPLE |= {
    "start_beam_search",
    "run_beam_search",
    "banned_ids",
    "cast_input",
    "check_constraints",
    "check_in_vocabulary",
    "check_numbers",
    "check_sizes",
    "limits_of_rows",
    "option",
}  # parts of others
WITHOUT_EXAMPLE |= {"SearchModel", "ScoreModel", "CompiledSearches", "check_scores"}  # of `generate`
WITHOUT_PAPER = {"Seq2Seq", "Ensemble"}  # no one paper's
CITED = re.compile(r"\b(19|20)\d\d\b|arXiv:\d{4}\.\d{5}")


def is_of(module, value):
    """True for what a module defines, or a package has in one of its files."""
    home = getattr(value, "__module__", None) or ""
    return home.startswith(module.__name__) if hasattr(module, "__path__") else home == module.__name__


def public_objects():
    """(package, object) of each class and function that a package exports, once, where it stands first."""
    seen = set()
    for package in PACKAGES:
        module = importlib.import_module(f"keras_attn.{package}".rstrip("."))
        own = [n for n, value in vars(module).items() if n[0] != "_" and is_of(module, value)]
        for name in getattr(module, "__all__", own):
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and value not in seen:
                seen.add(value)
                yield pytest.param(package, value, id=f"{package}.{name}".lstrip("."))


def is_record(value):
    return dataclasses.is_dataclass(value) or (inspect.isclass(value) and issubclass(value, tuple))


def arguments(value):
    """The names of what a caller passes: the arguments, or the fields of a record that this class adds."""
    if is_record(value):
        return [name for name in value.__annotations__ if not name.startswith("_")]
    if inspect.isclass(value) and "__init__" not in vars(value):
        return []  # those of its base
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [n for n, p in inspect.signature(value).parameters.items() if n != "self" and p.kind not in kinds]


def undescribed(value, docstring):
    """The arguments that no line `name, other: ...` describes, nor code in the text, nor a field's own comment."""
    described = set()
    for line in re.findall(r"^ +(\*{0,2}\w+(?:, [*.\w]+)*)(?: \([^)]*\))?:", docstring, flags=re.M):
        described |= {name.strip("*") for name in line.split(", ")}
    described |= {word for code in re.findall(r"`([^`]+)`", docstring) for word in re.findall(r"\w+", code)}
    if is_record(value):
        described |= set(re.findall(r"^    (\w+):.*  # ", inspect.getsource(value), flags=re.M))
        described |= set(re.findall(r"^    (\w+):.*option\(", inspect.getsource(value), flags=re.M))
    see_others = re.search(r"\.\.\.: See `|For the (other options|arguments) see `", docstring)
    return [] if see_others else [name for name in arguments(value) if name not in described]


def raises(value):
    """True if the function, or the class's constructor, has a `raise` of its own."""
    function = vars(value).get("__init__") if inspect.isclass(value) else value
    try:
        return bool(re.search(r"^ +raise \w", inspect.getsource(function), flags=re.M))
    except (OSError, TypeError):  # made by a decorator
        return False


PUBLIC = list(public_objects())  # before a fixture replaces one


@pytest.mark.parametrize(("package", "value"), PUBLIC)
def test_the_docstring_is_complete(package, value):
    docstring = inspect.cleandoc(value.__doc__ or "")
    assert len(docstring.split("\n\n")[0].split()) >= 3, "a summary is expected"
    assert not raises(value) or re.search("^(Raises|Refuses)\\b", docstring, flags=re.M)
    if package in INNER or (package in ("layers", "losses", "metrics") and inspect.isfunction(value)):
        return
    assert not undescribed(value, docstring)
    assert is_record(value) or (">>>" in docstring) != (value.__name__ in WITHOUT_EXAMPLE)
    of_a_paper = inspect.isclass(value) and issubclass(value, keras_attn.layers.Attention | keras_attn.models.Seq2Seq)
    if of_a_paper and value.__name__ not in WITHOUT_PAPER:
        assert CITED.search(docstring), "a paper is expected"


def test_the_reference_has_every_public_name():
    """Under the name by which it is imported, in the shortest way."""
    pages = "".join(path.read_text("utf-8") for path in (ROOT.parent / "docs" / "reference").rglob("*.md"))
    listed = set(re.findall(r"^::: keras_attn\.(\S+)$", pages, flags=re.M))
    public = {f"{package}.{value.__name__}".lstrip(".") for package, value in (each.values for each in PUBLIC)}
    assert not {name for name in public - listed if not re.match("losses\\.[a-z]", name)}  # its file's own functions
