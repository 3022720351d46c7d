"""The presets of `saved_models/presets/`: whole, small and described."""

from pathlib import Path

import pytest

import keras_attn
from keras_attn import files
from recipes import named_corpora, publish
from recipes.pages import presets

PRESETS = Path(__file__).parents[3] / "saved_models" / "presets"


@pytest.mark.parametrize("name", keras_attn.presets())
def test_the_entry_and_the_card_of_a_preset(name):
    entry = keras_attn.presets()[name]
    assert files.digests(PRESETS / name) == entry.files
    licences = {origin.licence for origin in named_corpora.origins(entry.corpus)}
    assert None not in licences
    assert entry.licence == " and ".join(sorted(licences))
    card = (PRESETS / name / "README.md").read_text("utf-8")
    for part in (f'from_preset("{name}")', f"Licence: {entry.licence}", entry.signature.replace("|", "\\|")):
        assert part in card


def test_the_folder_and_the_page_have_the_registered_presets():
    """Otherwise: `python -m recipes.pages.presets`."""
    registered = keras_attn.presets()
    assert {path.name for path in PRESETS.iterdir() if path.is_dir()} == set(registered)
    assert sum(entry.size for entry in registered.values()) <= publish.LARGEST
    page = presets.PAGE.read_text("utf-8")
    assert presets.with_table(page) == page
    for other in ("no table\n\n", "\n\n| name | x |\n\n| name | y |\n\n"):
        with pytest.raises(ValueError, match="Expected one table"):
            presets.with_table(other)
