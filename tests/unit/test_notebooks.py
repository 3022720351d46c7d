"""The notebooks of docs/notebooks: their programs run and print what is committed, and their outputs are whole.

Output of a cell with the tag `nbval-ignore-output` follows from training and may differ from machine to machine.
`python .ci/run_notebooks.py` makes the outputs.
"""

import contextlib
import io
import json
import re
from pathlib import Path

import keras
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
LONG = ("lab", "scores")  # which run at night
MAY_DIFFER = "nbval-ignore-output"
MACHINE = re.compile(r"(?<![\w:/.-])/(?:tmp|home|root|work|usr|opt|Users)/|\b0x[0-9a-f]{6,}")
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def source(cell):
    return "".join(cell["source"])


def printed(cell):
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


@each_notebook
def test_its_outputs_are_whole_small_and_without_a_trace_of_the_machine(path):
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    kinds = {(output["output_type"], output.get("name")) for output in outputs}
    assert kinds <= {("stream", "stdout"), ("execute_result", None)}, "an error"
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < 150_000
    assert json.loads(path.read_text("utf-8"))["metadata"]["language_info"] == {"name": "python"}  # no version
    shown = [*map(printed, code), *("".join(output.get("data", {}).get("text/html", "")) for output in outputs)]
    assert not [found for text in shown if (found := MACHINE.search(text))]


@each_notebook
def test_it_begins_with_colab_and_its_links_lead_somewhere(path):
    assert "(https://colab.research.google.com/)" in source(cells(path, "markdown")[0])
    first, other = (source(cells(one, "code")[0]) for one in (path, NOTEBOOKS[0]))
    assert '"google.colab" in sys.modules' in first
    (extras,) = re.findall(r'"\./clone\[([\w,]+)\]"', first)
    assert not set(extras.split(",")) - {"recipes", "tensorflow", "torch"}
    assert re.sub(r"clone\[.*?\]", "", first) == re.sub(r"clone\[.*?\]", "", other)
    links = [link for cell in cells(path, "markdown") for link in re.findall(r"\]\(([^)#]+)", source(cell))]
    assert not [link for link in links if not link.startswith("https:") and not (path.parent / link).exists()]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.nightly] * (path.stem in LONG), id=path.stem) for path in NOTEBOOKS],
)
def test_its_program_runs_and_prints_what_is_committed(path, tmp_path, monkeypatch):
    pytest.importorskip("tensorflow_text", reason="reads checkpoints and SavedModels")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", keras.backend.backend())
    names = {"__name__": "__main__"}
    for cell in cells(path, "code"):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(source(cell), path.name, "exec"), names)
        if MAY_DIFFER not in cell["metadata"].get("tags", []):
            assert out.getvalue() == printed(cell)
