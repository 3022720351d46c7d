"""The precision that training chooses, and the name of a processor."""

import keras
import pytest

from keras_attn.backend import has_bfloat16_products, preferred_precision, settings


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


@pytest.mark.parametrize("flags", ["", "flags : fma avx512f", "flags : fma avx512_bf16", "flags : amx_bf16"])
def test_products_in_bfloat16_need_an_instruction(flags, monkeypatch):
    monkeypatch.setattr(settings, "_processor_lines", lambda: [flags, "Features : bf16"])
    monkeypatch.setattr(settings, "_capabilities", lambda: [])
    assert has_bfloat16_products() == ("_bf16" in flags and keras.backend.backend() != "jax")
    monkeypatch.setattr(settings, "_capabilities", lambda: ["9.0"])
    assert not has_bfloat16_products()


def test_a_processor_that_the_system_does_not_list_has_a_name(monkeypatch):
    def missing(*arguments):
        raise FileNotFoundError

    monkeypatch.setattr(settings.Path, "read_text", missing)
    names = set()
    for name in ("arm", "i386"):
        monkeypatch.setattr(settings.platform, "processor", lambda name=name: name)
        names.add(settings._processor())
    assert len(names) == 2
