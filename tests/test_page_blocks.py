"""Every fenced block of README and the pages: programs run, output is compared.

Python runs here or in a test named below, shell lines run or are listed with the reason why not, and `text` is output,
or something that is no program.

The Python of a page is one program, in one folder. A `text` block that follows a block is what that one prints, with
`...` for what may vary. Parts of programs that cannot run here, such as those for a cluster, are parsed: `py`, `bash`
and `yaml`.
"""

import ast
import contextlib
import doctest
import gzip
import io
import itertools
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_docs import PAGES, ROOT, text_of

pytestmark = pytest.mark.once

BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", flags=re.M | re.S)
LANGUAGES = ("", "python", "text", "py", "bash", "yaml")  # the first is the shell, the last three are parsed
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# Pages whose Python runs in another test, with what it needs.
ELSEWHERE = {
    "docs/decoders.md": "tests/layers/test_steps.py",
    "docs/migrating-from-tfa.md": "tests/test_tfa_programs.py",
    "docs/scaling.md": "tests/test_scaling_page.py",
    "docs/vocabularies.md": "tests/test_special_ids.py",
    "docs/without-keras.md": "tests/unit/runtime/test_onnx_translator.py",
}
# What is changed so that a page takes seconds, not minutes, and prints no bars of progress.
SHORTER = {
    "README.md": [("model.fit(data, epochs=20)", "model.fit(data, epochs=20, verbose=0)")],
}
# What a page leaves behind.
LEAVES = {
    "README.md": ["alignment.png"],
    "docs/index.md": ["alignment.png"],
    "docs/large-corpora.md": ["cache"],
    "docs/guides/getting-started.md": ["alignment.png", "my-preset/translator.json"],
    "docs/guides/serving.md": ["saved_models/phrases/1/saved_model.pb", "phrases-onnx/step.onnx"],
    "docs/marian.md": ["alignment.png", "fine-tuned/translator.json", "saved_models/marian/1/saved_model.pb"],
}
QUICK_SHELL = (r"keras-attn presets", r"echo .* \| keras-attn translate \w+( --html \S+)?")
# Other shell lines, each with the reason why it does not run here. tests/test_docs.py compares their flags with --help.
LONG_SHELL = {
    r"(pip install|pre-commit install|export |cd )": "prepares an environment; .ci/run does the same",
    r"(\w+=\S+ )*(python -m recipes\.train|keras-attn train)\b": "trains for minutes; tests/recipes checks it",
    r"python -m recipes\.": "needs a run, or trains for hours",
    r"(\w+=\S+ )*python -m tests\.benchmarks\.": "a benchmark, or a peer in an environment of its own",
    r"((\w+=\S+ )*pytest|\.ci/run)\b": "the tests themselves",
    r"(echo .* \| )?keras-attn .*(runs/|[A-Z]{3,}|saved_models/)": "needs a run; tests/cli calls each command",
    r"(docker|curl|mkdocs|\s*--model_config_file)\b": "needs a server or its image",
    r"gcloud ": "needs machines in a cloud",
}


def blocks(page):
    """(language, content, the `text` directly after it or None) of each block."""
    text = text_of(page)
    found = list(BLOCK.finditer(text))
    for block, after in itertools.zip_longest(found, found[1:]):
        follows = after is not None and after[2] == "text" and not text[block.end() : after.start()].strip()
        yield block[2], re.sub(rf"^{block[1]}", "", block[3], flags=re.M), after[3] if follows else None


def python_of(page):
    return [(code, output) for language, code, output in blocks(page) if language == "python"]


def shell_lines():
    """(page, line, output) of each shell command, continued lines joined and comments cut off."""
    for page in PAGES:
        for language, content, output in blocks(page):
            if language == "":
                lines = [line.split(" #")[0].rstrip() for line in content.replace("\\\n", " ").splitlines()]
                lines = [line for line in lines if line and not line.startswith("#")]
                yield from ((page, line, output if line is lines[-1] else None) for line in lines)


def check_printed(printed, output):
    if output is not None and not doctest.OutputChecker().check_output(output, printed, OPTIONS):
        pytest.fail(f"Expected:\n{output}\nReceived:\n{printed}", pytrace=False)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_has_a_language_that_is_run_or_is_output(page):
    assert not {language for language, _, _ in blocks(page)} - set(LANGUAGES)


def blocks_in(*chosen):
    """(page, number of the block, content) of the blocks in these languages."""
    return [
        pytest.param(page, content, id=f"{page}-{n}")
        for page in PAGES
        for n, (language, content, _) in enumerate(blocks(page))
        if language in chosen
    ]


@pytest.mark.parametrize(("page", "content"), blocks_in("py"))
def test_python_that_cannot_run_here_is_python(page, content):
    ast.parse(content, page)


@pytest.mark.parametrize("page", sorted({one.values[0] for one in blocks_in("", "bash")}))
def test_the_shell_takes_every_block(page):
    content = "".join(content for language, content, _ in blocks(page) if language in ("", "bash"))
    done = subprocess.run(["bash", "-n"], input=content, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("page", "content"), blocks_in("yaml"))
def test_yaml_is_a_mapping_whose_shell_the_shell_takes(page, content):
    yaml = pytest.importorskip("yaml")
    described = yaml.safe_load(content)
    assert isinstance(described, dict)
    for container in described["spec"]["template"]["spec"]["containers"]:
        program, option, script = container["command"]
        done = subprocess.run([program, "-n", option, script], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_a_page_that_runs_elsewhere_is_read_there(page, test):
    assert python_of(page)
    assert Path(page).name in (ROOT / test).read_text("utf-8")


def prepare(page, folder, monkeypatch):
    """Files, or a server's answers, that a page begins with."""
    if page == "docs/marian.md":
        pytest.importorskip("tensorflow_text")
        with zipfile.ZipFile(ROOT / "tests" / "fixtures" / "marian.zip") as archive:
            for name in ("s2s.npz", "source.yml", "target.yml"):
                (folder / name.replace("s2s", "model")).write_bytes(archive.read(name))
    if page == "docs/guides/serving.md":
        pytest.importorskip("aiohttp")
        pytest.importorskip("onnxruntime")
    if page == "docs/large-corpora.md":
        for language, line in (("en", "She bought two red books.\n"), ("fr", "Elle a acheté deux livres rouges.\n")):
            (folder / f"news.1.{language}.gz").write_bytes(gzip.compress(line.encode() * 70))
    if page == "saved_models/README.md":
        from keras_attn.serving.client import Client
        from keras_attn.translation import Translation

        monkeypatch.setattr(Client, "translate", lambda self, texts: [Translation(text) for text in texts])


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if python_of(page) and page not in ELSEWHERE])
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    prepare(page, tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    names, shorter = {"__name__": "__main__"}, dict(SHORTER.get(page, []))
    for code, output in python_of(page):
        for long in [long for long in shorter if long in code]:
            code = code.replace(long, shorter.pop(long))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, page, "exec"), names)
        check_printed(printed.getvalue(), output)
    assert not shorter, f"{page} does not say {list(shorter)} any more"
    assert not [path for path in LEAVES.get(page, []) if not (tmp_path / path).exists()]


def is_quick(line):
    return any(re.fullmatch(pattern, line) for pattern in QUICK_SHELL)


def test_every_shell_line_runs_or_has_a_reason_not_to():
    lines = [(page, line) for page, line, _ in shell_lines() if not is_quick(line)]
    assert not [pair for pair in lines if not any(re.match(pattern, pair[1]) for pattern in LONG_SHELL)]
    assert not [pattern for pattern in LONG_SHELL if not any(re.match(pattern, line) for _, line in lines)]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "line", "output"), [each for each in shell_lines() if is_quick(each[1])])
def test_a_quick_shell_line_runs(page, line, output, tmp_path):
    line = line.replace("keras-attn ", f"{sys.executable} -m keras_attn ")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    check_printed(done.stdout, output)


def test_the_readmes_results_are_those_of_the_reports():
    """The same command with the same score, which the page of results shows, too."""
    rows = re.findall(r"^\| .*\| ([\d.]+) (BLEU|% words wrong) \| `(.*)` \|$", text_of("README.md"), flags=re.M)
    reports = [json.loads(path.read_text("utf-8")) for path in (ROOT / "recipes" / "reports").glob("*/*.json")]
    results = text_of("recipes/README.md")
    assert len(rows) == 5
    for score, unit, command in rows:
        (report,) = (one for one in reports if one["command"] == command)
        assert f"{report['bleu' if unit == 'BLEU' else 'wer']['score']:.2f}" == score
        assert re.search(rf"^\|[^|]*\|[^|]*\| {score}( ± [\d.]+)? \|", results, flags=re.M)
