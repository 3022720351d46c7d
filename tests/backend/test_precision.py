"""The precision that training chooses: bfloat16 where devices multiply it."""

import pytest

from keras_attn.backend import precision, preferred_precision


@pytest.mark.parametrize(
    ("capabilities", "policy"),
    [
        ([], "float32"),
        (["7.5"], "float32"),
        (["8.0"], "mixed_bfloat16"),
        (["12.0"], "mixed_bfloat16"),
        (["9.0", "7.0"], "float32"),
        (["", ""], "mixed_bfloat16"),
        (["gfx90a"], "mixed_bfloat16"),
    ],
)
def test_it_depends_on_all_accelerators(capabilities, policy, monkeypatch):
    monkeypatch.setattr(precision, "_capabilities", lambda: capabilities)
    assert preferred_precision() == policy


def test_there_is_one():
    assert preferred_precision() in ("float32", "mixed_bfloat16")
