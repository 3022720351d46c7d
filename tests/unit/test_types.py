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


def errors(path: Path) -> list[tuple[int, str]]:
    """(line, rule) of each error in a file."""
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [(one["range"]["start"]["line"] + 1, one["rule"]) for one in found if one["severity"] == "error"]


def test_mistakes_of_a_user_are_found():
    program, expected = PROGRAM, []
    for wrong, (right, rule) in MISTAKES.items():
        assert program.count(right) == 1, right
        program = program.replace(right, wrong)
        expected.append((program[: program.index(wrong)].count("\n") + 1, rule))
    path = ROOT / "tests" / "unit" / "user_script_with_mistakes.py"
    path.write_text(program, "utf-8")
    try:
        assert sorted(set(errors(path))) == sorted(expected)
    finally:
        path.unlink()


def test_a_users_program_has_none():
    assert errors(Path(user_script.__file__)) == []
    assert not re.search(r"type: ignore|pyright: ignore", PROGRAM)


def test_a_users_program_runs(tmp_path):
    assert user_script.main(tmp_path) == pytest.approx(100)
    assert (tmp_path / "alignment.png").exists()
