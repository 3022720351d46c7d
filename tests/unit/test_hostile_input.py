"""Daily guards of SECURITY.md: damaged presets, lines that are no text, and runs that are none.

`tests/nightly` looks for more of the kind, and at servers, kills and full disks.
"""

import json
import math
import random
import re
import shutil
from pathlib import Path

import pytest

from keras_attn import Translator
from keras_attn.cli import translate
from tests import adversarial, hostile, tiny

preset, translator = tiny.preset, tiny.translator


@pytest.fixture
def copy(preset, tmp_path) -> Path:
    return Path(shutil.copytree(preset, tmp_path / "copy"))


# --- presets


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["model.keras", "source_tokenizer", "target_tokenizer", "translator.json"])
def test_another_value_does_no_harm(copy, name, seed):
    """In the config of the model, the file of a tokenizer and the manifest, with digests that fit."""
    path, draw = copy / name, random.Random(seed)
    if name == "model.keras":
        parts = hostile.parts_of(path)
        config = hostile.mutated(json.loads(parts["config.json"]), draw)
        hostile.write_parts(path, parts | {"config.json": json.dumps(config).encode()})
    elif name == "translator.json":
        path.write_text(json.dumps(hostile.mutated(json.loads(path.read_text()), draw)))
    else:
        path = path / "tokenizer.json"
        path.write_bytes(hostile.mended_tokenizer(hostile.mutated(json.loads(path.read_text()), draw)))
    if name != "translator.json":
        hostile.mend(copy)
    assert isinstance(hostile.answer(Translator.from_preset, copy), (Translator, *hostile.REFUSALS))


@pytest.mark.parametrize("part", ["config.json", "model.weights.h5", "the file"])
@pytest.mark.parametrize("kind", ["truncated", "flipped", "zeros", "noise"])
def test_a_damaged_model_does_no_harm_whatever_the_manifest_says(copy, part, kind):
    draw, path = random.Random(f"{part} {kind}"), copy / "model.keras"
    if part == "the file":
        path.write_bytes(hostile.damaged(path.read_bytes(), kind, draw))
    else:
        parts = hostile.parts_of(path)
        hostile.write_parts(path, parts | {part: hostile.damaged(parts[part], kind, draw)})
    hostile.mend(copy)
    assert isinstance(hostile.answer(Translator.from_preset, copy), (Translator, *hostile.REFUSALS))


# --- texts


def test_hostile_lines_are_translated_as_if_alone(translator):
    """Those that are no Unicode are refused."""
    lines = [line.decode(errors="surrogateescape")[:300] for line in adversarial.lines(32, seed=1)]
    valid = [line for line in lines if not re.search("[\udc80-\udcff]", line)]
    assert 20 < len(valid) < len(lines)
    hostile.refused(translator.generate, lines)
    found = translator.generate(valid, beam_size=2, max_length=6)
    for line, one in zip(valid, found, strict=True):
        assert bool(one.token_ids) == bool(line.strip() and one.source_tokens)
        assert not one.token_ids or math.isfinite(one.score)
    alone = [translator.generate([line], beam_size=2, max_length=6)[0].text for line in valid[::4]]
    assert alone == [one.text for one in found[::4]]


# --- commands


@pytest.mark.parametrize("where", ["nosuch", "text", "preset/model.keras", ".", "\x00", "a" * 300])
def test_another_thing_than_a_run_is_refused(where, preset, tmp_path, capfd):
    shutil.copytree(preset, tmp_path / "preset")
    (tmp_path / "text").write_text("s1 s2\ns3\n")
    status, _, error = hostile.called(translate.main, [f"{tmp_path}/{where}", tmp_path / "text"], capfd)
    assert status in (1, 2)
    assert error.count("\n") == 1
