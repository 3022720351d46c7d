"""The presets of `saved_models/presets/` translate on every backend."""

import pytest

import keras_attn

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
