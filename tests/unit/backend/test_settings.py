"""The precision that training chooses, and the name of a processor."""

import pytest

from keras_attn.backend import preferred_precision, settings


@pytest.mark.parametrize(
    ("capabilities", "policy"),
    [
        ([], "float32"),
        (["7.5"], "float32"),
        (["8.0"], "mixed_bfloat16"),
        (["9.0", "7.0"], "float32"),
        (["", "12.0", "gfx90a"], "mixed_bfloat16"),
    ],
)
def test_the_precision_depends_on_all_accelerators(capabilities, policy, monkeypatch):
    assert preferred_precision() in ("float32", "mixed_bfloat16")
    monkeypatch.setattr(settings, "_capabilities", lambda: capabilities)
    assert preferred_precision() == policy


def test_a_processor_that_the_system_does_not_list_has_a_name(monkeypatch):
    def missing(*arguments):
        raise FileNotFoundError

    monkeypatch.setattr(settings.Path, "read_text", missing)
    names = set()
    for name in ("arm", "i386"):
        monkeypatch.setattr(settings.platform, "processor", lambda name=name: name)
        names.add(settings._processor())
    assert len(names) == 2
