"""Translator: blank lines, batches, copies, and presets that are complete."""

import copy
import pickle

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_attn
from keras_attn.models import RNNSearch
from keras_attn.translation import Translator
from keras_attn.translation.batching import batches, bucket
from tests import tiny
from tests.tiny import LINES as PAIRS
from tests.translation.test_options import LINES, texts


@pytest.mark.parametrize(("name", "limit"), [("max_length_ratio", np.nan), ("max_length_constant", "2")])
def test_limits_are_checked_before_they_are_saved(translator, name, limit):
    parts = translator.model, translator.source_tokenizer, translator.target_tokenizer
    with pytest.raises(ValueError, match=f"{name} to be a number of at least 0"):
        Translator(*parts, **{name: limit})


def test_blank_lines_stay_blank(translator):
    found = translator.generate(["", " ", "\t\u3000\n"])
    assert texts(found) == ["", "", ""]
    assert found[0].token_ids == ()
    assert found[0].n_best == ()
    assert translator.generate([]) == []


def test_tokenizer_of_another_size_is_refused(translator):
    with pytest.raises(ValueError, match="target tokenizer"):
        Translator(translator.model, translator.source_tokenizer, translator.source_tokenizer)


def test_fit_trains_on_texts_as_fit_of_the_model_does_on_batches():
    given, expected = tiny.make(), tiny.make()
    pairs, held_out = (PAIRS[:9], PAIRS[9:18]), (PAIRS[18:24], PAIRS[24:30])
    options = {"epochs": 2, "verbose": 0}
    history = given.fit(*pairs, validation_data=held_out, batch_size=4, **options)
    assert isinstance(history, keras.callbacks.History)
    assert {"loss", "perplexity", "accuracy", "val_loss"} <= history.history.keys()
    tokenizers = expected.source_tokenizer, expected.target_tokenizer
    data, validation = (keras_attn.ParallelDataset.from_text(*p, *tokenizers, batch_size=4) for p in (pairs, held_out))
    loss = keras_attn.losses.SmoothedCrossentropy(0.1)
    expected.model.compile(keras.optimizers.Adam(1e-3, global_clipnorm=1.0), loss)
    theirs = expected.model.fit(data, validation_data=validation, **options)
    for name, values in theirs.history.items():
        np.testing.assert_allclose(history.history[name], values, rtol=1e-6, err_msg=name)
    assert given.trained_length >= max(len(one) for line in PAIRS[:9] for one in [tokenizers[0].encode(line)])
    optimizer = given.model.optimizer
    given.fit(*pairs, initial_epoch=1, **options)
    assert given.model.optimizer is optimizer, "a compiled model stays as it is"
    for wrong in (5, PAIRS[0], [(*PAIRS[0],)] * 2, (*held_out, None), held_out[:1]):
        with pytest.raises(ValueError, match=r"Expected validation_data=\(sources, targets\), two lists of texts"):
            given.fit(*pairs, validation_data=wrong, **options)
    with pytest.raises(ValueError, match=r"Expected text as a str\. Received: float"):
        given.fit(pairs[0], [*pairs[1][:-1], float("nan")], **options)
    with pytest.raises(ValueError, match="in floating point to train"):
        keras_attn.quantize(given).fit(*pairs)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 300), max_size=70), st.integers(1, 20), st.integers(1, 900), st.sampled_from([None, 16]))
def test_batches_hold_every_sentence_once_within_bounds(lengths, batch_size, tokens_per_batch, least_alone):
    seen = []
    for rows, (size, width) in batches(lengths, batch_size, tokens_per_batch, least_alone):
        seen += rows
        assert len(rows) <= size <= batch_size
        assert size == batch_size or size & (size - 1) == 0
        assert size == 1 or size * width <= tokens_per_batch
        longest = max(lengths[row] for row in rows)
        if least_alone and len(rows) == 1:
            assert width in (16, 32, 64, 128, 256, 512)
            assert max(16, longest) <= width < max(17, 2 * longest)
        else:
            assert width == bucket(longest)
    assert sorted(seen) == [row for row, length in enumerate(lengths) if length]
    assert len({bucket(length) for length in range(1, 513)}) == 24
    assert all(length <= bucket(length) <= max(4, 1.25 * length + 3) for length in range(1, 513))


def test_preset_gives_the_same_translations_and_leaves_other_files(translator, tmp_path):
    preset = tmp_path / "whole"
    preset.mkdir()
    (preset / "history.csv").write_text("epoch\n")
    translator.save_to_preset(preset)
    again = Translator.from_preset(preset)
    assert (preset / "history.csv").read_text() == "epoch\n"
    assert texts(again.generate(LINES, beam_size=3)) == texts(translator.generate(LINES, beam_size=3))
    assert again.max_length_ratio == 1.5
    assert sorted(p.name for p in preset.parent.iterdir()) == ["whole"], "no temporary folder may remain"


def test_preset_leaves_the_optimizer_out(translator, tmp_path):
    translator.save_to_preset(tmp_path / "plain")
    size = (tmp_path / "plain" / "model.keras").stat().st_size
    model = RNNSearch.from_config(translator.model.get_config())
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    Translator(model, translator.source_tokenizer, translator.target_tokenizer).save_to_preset(tmp_path / "compiled")
    assert (tmp_path / "compiled" / "model.keras").stat().st_size < 1.05 * size


def test_failed_save_leaves_nothing(translator, tmp_path, monkeypatch):
    def fail(directory):
        raise OSError("disk full")

    monkeypatch.setattr(translator.target_tokenizer, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        translator.save_to_preset(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "deepcopy", "pickle"]
)
@pytest.mark.parametrize("quantized", [False, True])
def test_a_copy_translates_alike(translator, copied, quantized):
    original = keras_attn.quantize(translator) if quantized else translator
    expected = original.generate(LINES, beam_size=2)
    other = copied(original)
    found = other.generate(LINES, beam_size=2)
    assert texts(found) == texts(expected)
    assert [t.score for t in found] == pytest.approx([t.score for t in expected], rel=1e-6)
    assert (other.model is original.model) == (copied is copy.copy)
    assert (other.int8_weights is not None) == quantized
    assert other.limits() == original.limits()
    assert texts(original.generate(LINES, beam_size=2)) == texts(expected)  # the original is as before
