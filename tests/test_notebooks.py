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

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MAY_DIFFER = "nbval-ignore-output"
MACHINE = re.compile(r"(?<![\w:/.-])/(?:tmp|home|root|work|usr|opt|Users)/|\b0x[0-9a-f]{6,}")


def cells(path, kind):
    return [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


def source(cell):
    return "".join(cell["source"])


def printed(cell):
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
class TestOutputs:
    def test_every_cell_has_run_in_order_and_without_an_error(self, path):
        code = cells(path, "code")
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        kinds = {(output["output_type"], output.get("name")) for cell in code for output in cell["outputs"]}
        assert kinds <= {("stream", "stdout"), ("execute_result", None)}

    def test_there_is_a_picture(self, path):
        outputs = [output for cell in cells(path, "code") for output in cell["outputs"]]
        assert any("image/png" in output.get("data", {}) for output in outputs)

    def test_they_are_small_and_have_nothing_of_the_machine(self, path):
        assert path.stat().st_size < 150_000
        notebook = json.loads(path.read_text("utf-8"))
        assert notebook["metadata"]["language_info"] == {"name": "python"}  # no version
        for cell in cells(path, "code"):
            shown = [printed(cell), *("".join(o.get("data", {}).get("text/html", "")) for o in cell["outputs"])]
            assert not [found for text in shown if (found := MACHINE.search(text))]

    def test_it_begins_with_a_link_to_colab_and_what_to_install_there(self, path):
        assert "(https://colab.research.google.com/)" in source(cells(path, "markdown")[0])
        first = source(cells(path, "code")[0])
        assert '"google.colab" in sys.modules' in first
        (extras,) = re.findall(r'"\./clone\[([\w,]+)\]"', first)
        assert not set(extras.split(",")) - {"recipes", "tensorflow", "torch"}
        other = source(cells(NOTEBOOKS[0], "code")[0])
        assert re.sub(r"clone\[.*?\]", "", first) == re.sub(r"clone\[.*?\]", "", other)

    def test_its_links_lead_somewhere(self, path):
        links = [link for cell in cells(path, "markdown") for link in re.findall(r"\]\(([^)#]+)", source(cell))]
        links = [link for link in links if not link.startswith("https:")]
        assert not [link for link in links if not (path.parent / link).exists()]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
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
