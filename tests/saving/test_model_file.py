"""Models stored in float16 and int8, and the presets of `saved_models/presets/`, on every backend."""

import io
import zipfile

import h5py
import keras
import numpy as np
import pytest

import keras_attn
from keras_attn import Tokenizer, Translator
from keras_attn.models import RNNSearch
from keras_attn.saving import rounded_model

LINES = ["ein hund läuft", "eine frau liest ein buch", "zwei hunde lesen"]
SIZES = {"units": 37, "embedding_size": 31, "readout_size": 29, "attention_units": 41, "decoder_units": 43}


@pytest.fixture(scope="module")
def words():
    return Tokenizer.train(LINES, level="word")


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_stored_model_has_the_quantized_weights(words, dtype, tmp_path):
    model = RNNSearch(words.vocabulary_size, words.vocabulary_size, **SIZES)
    Translator(model, words, words).save_to_preset(tmp_path / "narrow", dtype=dtype)
    loaded = Translator.from_preset(tmp_path / "narrow").model
    expected, changed = rounded_model(model, dtype), 0
    for weight, other, before in zip(loaded.weights, expected.weights, model.get_weights(), strict=True):
        assert keras.backend.standardize_dtype(weight.dtype) == "float32"
        value = keras.ops.convert_to_numpy(weight)
        np.testing.assert_array_equal(value, keras.ops.convert_to_numpy(other), err_msg=weight.path)
        changed += not np.array_equal(value, before)
    assert changed > 5


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_model_in_bfloat16_is_stored_narrow_too(words, dtype, tmp_path):
    model = RNNSearch(words.vocabulary_size, words.vocabulary_size, **SIZES, dtype="bfloat16")
    Translator(model, words, words).save_to_preset(tmp_path / "narrow", dtype=dtype)
    stored = zipfile.ZipFile(tmp_path / "narrow" / "model.keras").read("model.weights.h5")
    with h5py.File(io.BytesIO(stored)) as weights:
        found = []
        weights.visititems(lambda _, one: found.append(one.dtype) if isinstance(one, h5py.Dataset) else None)
    assert np.dtype(dtype) in found
    loaded = Translator.from_preset(tmp_path / "narrow").model
    for one, other in zip(loaded.weights, model.weights, strict=True):
        assert keras.backend.standardize_dtype(one.dtype) == "bfloat16"
        values = [keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")) for x in (one, other)]
        np.testing.assert_allclose(*values, atol=0.02 * np.abs(values[1]).max())


EXAMPLES = {
    "bible_en_es": (
        "In the beginning God created the heaven and the earth.",
        "En el principio crió Dios los cielos y la tierra.",
    ),
    "g2p_arm_e": ("խ ա շ ն", "χ ɑ ʃ ə n"),
    "g2p_bul": ("Хляб", "x lʲ a p"),
    "g2p_dut": ("g e w a s s e n", "ɣ ə ʋ ɑ s ə n"),
    "g2p_en_us": ("Knight", "N AY1 T"),
    "g2p_fre": ("RE\u0301USSITE", "ʁ e y s i t"),
    "g2p_geo": ("წ ყ ა ლ ი", "t͡sʼ qʼ ɑ l i"),
    "g2p_jpn_hira": ("が っ こ う", "ɡ a̠ k̚ k o̞ː"),
    "g2p_kor": ("학교", "h a̠ k̚ k͈ j o"),  # which the model reads as NFD code points
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
