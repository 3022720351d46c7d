"""The public surface as a type checker sees it: a user's program passes, and each of its mistakes is named."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit import user_script

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(user_script.__file__).read_text("utf-8")
MISTAKES = {  # after -> before, rule
    "keras_attn.BahdanauAtention(5)": ("keras_attn.BahdanauAttention(5)", "reportAttributeAccessIssue"),
    'train(LINES, levels="word")': ('train(LINES, level="word")', "reportCallIssue"),
    "save_to_preset(7)": ('save_to_preset(folder / "preset")', "reportArgumentType"),
    "first.txt, first": ("first.alignment, first", "reportAttributeAccessIssue"),
    "[one.token_ids for one in translations]": ("[one.text for one in translations]", "reportReturnType"),
}
pytestmark = pytest.mark.skipif(find_spec("basedpyright") is None, reason="basedpyright is not installed")


def test_a_users_program_has_no_error_and_mistakes_in_it_are_found():
    assert not re.search(r"type: ignore|pyright: ignore", PROGRAM)
    program, expected = PROGRAM, []
    for wrong, (right, rule) in MISTAKES.items():
        assert program.count(right) == 1, right
        program = program.replace(right, wrong)
        expected.append((program[: program.index(wrong)].count("\n") + 1, rule))
    path = ROOT / "tests" / "unit" / "user_script_with_mistakes.py"
    path.write_text(program, "utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    try:
        done = subprocess.run(
            [*command, user_script.__file__, path], cwd=ROOT, capture_output=True, text=True, timeout=300
        )
    finally:
        path.unlink()
    found = [one for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    assert {Path(one["file"]).name for one in found} == {path.name}
    assert sorted({(one["range"]["start"]["line"] + 1, one["rule"]) for one in found}) == sorted(expected)


def test_a_users_program_runs(tmp_path):
    assert user_script.main(tmp_path) == pytest.approx(100)
    assert (tmp_path / "alignment.png").exists()
