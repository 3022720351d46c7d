"""Runs every `>>>` example of the package, each with `keras`, `np` and `keras_attn` at hand.

An example may also use `model`, `source_tokenizer`, `target_tokenizer` and `translator`, which translate a few English
phrases into French, and a server at http://localhost:8501.
"""

import ast
import doctest
import http.server
import importlib
import itertools
import json
import re
import threading
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attn

ROOT = Path(keras_attn.__file__).parent
ADDRESS = "http://localhost:8501"
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXTRAS = ("tensorflow", "keras_nlp", "keras_hub", "tensorflow_text", "google", "grpc", "aiohttp", "matplotlib")


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
    """Says to every request what a served model answers to "ein Hund läuft ."."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"outputs": {"translation": ["a dog runs ."], "score": [-0.5]}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


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
    if ADDRESS in docstring:
        docstring = docstring.replace(ADDRESS, request.getfixturevalue("address"))
    examples = doctest.DocTestParser().get_doctest(docstring, globs, module, module.replace(".", "/") + ".py", line)
    code = ast.parse("".join(example.source for example in examples.examples))
    names = [node for node in ast.walk(code) if isinstance(node, ast.Name)]
    missing = {name.id for name in names} - {name.id for name in names if isinstance(name.ctx, ast.Store)}
    if missing & {"model", "source_tokenizer", "target_tokenizer", "translator"}:
        ready = request.getfixturevalue("translator")
        examples.globs |= {"translator": ready, "model": ready.model}
        examples.globs |= {"source_tokenizer": ready.source_tokenizer, "target_tokenizer": ready.target_tokenizer}
    failures = []
    doctest.DocTestRunner(Checker(), verbose=False, optionflags=OPTIONS).run(examples, out=failures.append)
    if failures:
        pytest.fail("".join(failures), pytrace=False)


def test_examples_are_found():
    assert len(list(docstrings())) >= 25
