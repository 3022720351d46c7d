"""The presets that are in `saved_models/presets/`: whole, small, described, and loaded on every backend."""

from pathlib import Path

import pytest

import keras_attn
from keras_attn import files
from recipes import corpora, publish

PRESETS = Path(__file__).parents[2] / "saved_models" / "presets"
EXAMPLES = {"phrases_en_fr": ("The queen forgot the black orange.", "La reine a oublié l'orange noire.")}


@pytest.mark.parametrize("name", keras_attn.presets())
def test_a_shipped_preset_translates(name, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))  # nothing comes from the cache
    monkeypatch.delenv("KERAS_ATTN_PRESETS", raising=False)
    translator = keras_attn.Translator.from_preset(name)
    source, target = EXAMPLES[name]
    assert translator.generate([source])[0].text == target


@pytest.mark.once
@pytest.mark.parametrize("name", keras_attn.presets())
def test_its_entry_and_its_card_say_what_it_is(name):
    entry = keras_attn.presets()[name]
    assert files.digests(PRESETS / name) == entry.files
    licences = {origin.licence for origin in corpora.origins(entry.corpus)}
    assert None not in licences
    assert entry.licence == " and ".join(sorted(licences))
    card = (PRESETS / name / "README.md").read_text("utf-8")
    for part in (f'from_preset("{name}")', f"Licence: {entry.licence}", entry.signature.replace("|", "\\|")):
        assert part in card


@pytest.mark.once
def test_the_folder_has_the_registered_presets_and_no_more_bytes_than_allowed():
    registered = keras_attn.presets()
    assert {path.name for path in PRESETS.iterdir() if path.is_dir()} == set(registered)
    assert sum(entry.size for entry in registered.values()) <= publish.LARGEST
