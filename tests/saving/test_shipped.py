"""The presets that are in `saved_models/presets/`: whole, small, described, and loaded on every backend."""

from pathlib import Path

import pytest

import keras_attn
from keras_attn import files
from recipes import named_corpora, publish
from recipes.pages import presets

pytestmark = pytest.mark.by_turns

PRESETS = Path(__file__).parents[2] / "saved_models" / "presets"
EXAMPLES = {
    "bible_en_es": (
        "In the beginning God created the heaven and the earth.",
        "En el principio crió Dios los cielos y la tierra.",
    ),
    "g2p_arm_e": ("խ ա շ ն", "χ ɑ ʃ ə n"),
    "g2p_bul": ("х л я б", "x lʲ a p"),
    "g2p_dut": ("g e w a s s e n", "ɣ ə ʋ ɑ s ə n"),
    "g2p_en_us": ("k n i g h t", "N AY T"),
    "g2p_fre": ("r é u s s i t e", "ʁ e y s i t"),
    "g2p_geo": ("წ ყ ა ლ ი", "t͡sʼ qʼ ɑ l i"),
    "g2p_jpn_hira": ("が っ こ う", "ɡ a̠ k̚ k o̞ː"),
    "g2p_kor": ("\u1112 \u1161 \u11a8 \u1100 \u116d", "h a̠ k̚ k͈ j o"),  # as NFD code points
    "g2p_multilingual": ("<2ice> h e s t u r", "h ɛ s t ʏ r"),
    "tatoeba_en_fr": ("Where is the train station?", "Où se trouve la gare ?"),
    "phrases_en_fr": ("The queen forgot the black orange.", "La reine a oublié l'orange noire."),
}


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
    licences = {origin.licence for origin in named_corpora.origins(entry.corpus)}
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


@pytest.mark.once
def test_the_page_has_the_table_that_follows_from_the_registry():
    """Otherwise: `python -m recipes.pages.presets`."""
    page = presets.PAGE.read_text("utf-8")
    assert presets.with_table(page) == page


@pytest.mark.once
@pytest.mark.parametrize("page", ["no table\n\n", "\n\n| name | x |\n\n| name | y |\n\n"])
def test_a_page_with_no_table_or_two_is_refused(page):
    with pytest.raises(ValueError, match="Expected one table"):
        presets.with_table(page)
