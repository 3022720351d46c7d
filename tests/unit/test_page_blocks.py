"""Every fenced block of README and the pages: programs run, output is compared.

The Python of a page is one program, in one folder. A `text` block that follows a block is its output, with `...` for
parts that may vary. Shell lines run, or are listed with the reason why not. Parts of programs that cannot run here, as
on a cluster, are parsed: `py`, `bash` and `yaml`, and `js` where node is installed.
"""

import ast
import contextlib
import doctest
import gzip
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

from keras_attn.cli.main import main
from tests.unit.test_docs import PAGES, ROOT, blocks, shell_lines, text_of

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# Pages whose Python runs in a test of their subject.
ELSEWHERE = {f"docs/{name}.md" for name in ("decoders", "scaling", "without-keras")}
ELSEWHERE |= {"docs/migrating-from-tfa.md"}
SHORTER = {"README.md": ("model.fit(data, epochs=20)", "model.fit(data, epochs=20, verbose=0)")}
QUICK_SHELL = r"keras-attn presets|echo .* \| keras-attn (translate|g2p) \w+( --html \S+)?"
# Other shell lines, each with the reason why it does not run here. tests/unit/test_docs.py compares flags with --help.
LONG_SHELL = {
    r"(pip install|python -m build|pre-commit install|export |cd )": "prepares an environment; .ci/run does the same",
    r"(\w+=\S+ )*(python -m recipes\.train|keras-attn train)\b": "trains for minutes; tests/recipes trains each recipe",
    r"python -m recipes\.": "needs a run, or trains for hours",
    r"(\w+=\S+ )*python -m tests\.benchmarks\.": "a benchmark, or a peer in an environment of its own",
    r"((\w+=\S+ )*pytest|\.ci/(run|nightly))\b": "the tests themselves",
    r"(echo .* \| )?keras-attn .*(runs/|[A-Z]{3,}|saved_models/)": "needs a run; the tests of commands call each",
    r"(docker|curl|mkdocs|\s*--model_config_file|\s*\{?\"(inputs|signature_name))\b": "needs a server or its image",
    r"gcloud ": "needs machines in a cloud",
}


def python_of(page):
    return [(code, output) for language, code, output in blocks(page) if language == "python"]


def check_printed(printed, output):
    if output is not None and not doctest.OutputChecker().check_output(output, printed, OPTIONS):
        pytest.fail(f"Expected:\n{output}\nReceived:\n{printed}", pytrace=False)


def check_shell(script):
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_language_that_is_run_or_parsed(page, tmp_path):
    shell = ""
    for language, content, _ in blocks(page):
        assert language in ("", "python", "text", "py", "bash", "yaml", "js")
        assert language == "text" or max(map(len, content.splitlines())) <= 88
        if language in ("py", "python"):
            ast.parse(content, page)
        elif language == "js":  # tests/unit/test_playground.py calls what it calls
            (tmp_path / "block.mjs").write_text(content, "utf-8")
            if shutil.which("node"):
                subprocess.run(["node", "--check", tmp_path / "block.mjs"], check=True, timeout=60)
        elif language == "yaml":
            described = pytest.importorskip("yaml").safe_load(content)
            for container in described["spec"]["template"]["spec"]["containers"]:
                check_shell(container["command"][-1])
        elif language != "text":
            shell += content
    check_shell(shell)


@pytest.mark.parametrize("page", sorted(ELSEWHERE))
def test_a_page_that_runs_elsewhere_is_read_there(page):
    assert python_of(page)
    tests = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__))
    assert any(f'"{Path(page).name}"' in text for text in tests)


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


@pytest.mark.parametrize("page", [page for page in PAGES if python_of(page) and page not in ELSEWHERE])
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    prepare(page, tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    long, shorter = SHORTER.get(page, ("", ""))
    assert long in text_of(page)
    for code, output in python_of(page):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code.replace(long, shorter) if long else code, page, "exec"), names)
        check_printed(printed.getvalue(), output)


def test_every_shell_line_runs_or_has_a_reason_not_to():
    lines = [line for _, line, _ in shell_lines() if not re.fullmatch(QUICK_SHELL, line)]
    assert not [line for line in lines if not any(re.match(pattern, line) for pattern in LONG_SHELL)]
    assert not [pattern for pattern in LONG_SHELL if not any(re.match(pattern, line) for line in lines)]


@pytest.mark.parametrize(
    ("page", "line", "output"), [each for each in shell_lines() if re.fullmatch(QUICK_SHELL, each[1])]
)
def test_a_quick_shell_line_runs(page, line, output, tmp_path, monkeypatch, capfd):
    said, _, command = line.rpartition("keras-attn ")
    text = " ".join(shlex.split(said)[1:-1]) + "\n"  # of `echo TEXT |`
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(text.encode()))))
    assert main(shlex.split(command)) == 0
    printed = capfd.readouterr().out
    assert printed
    check_printed(printed, output)


def test_the_readmes_results_are_those_of_the_reports():
    """The same command with the same score, which the page of results shows, too."""
    rows = re.findall(r"^\| .*\| ([\d.]+) (BLEU|% words wrong) \| `(.*)` \|$", text_of("README.md"), flags=re.M)
    reports = [json.loads(path.read_text("utf-8")) for path in (ROOT / "recipes" / "reports").glob("*/*.json")]
    assert len(rows) == 5
    for score, unit, command in rows:
        (report,) = (one for one in reports if one["command"] == command)
        assert f"{report['bleu' if unit == 'BLEU' else 'wer']['score']:.2f}" == score
        assert re.search(rf"^\|[^|]*\|[^|]*\| {score}( ± [\d.]+)? \|", text_of("recipes/README.md"), flags=re.M)
