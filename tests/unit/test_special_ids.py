"""Other special ids than 0 to 3: batches without an end, presets, and what is refused."""

import keras
import pytest

from keras_attn import ParallelDataset, SpecialIds, Translator
from keras_attn.models import Ensemble, RNNSearch
from tests.test_special_ids import LINES, SIZES, SOURCE, TARGET, check_equal, permuted_pair


@pytest.fixture(scope="module")
def pair():
    return permuted_pair()


def test_batches_without_an_end_are_the_ids_alone():
    ids = SpecialIds(pad=9, unknown=8, start=7, end=None)
    data = ParallelDataset(
        [[0, 1], [2]], [[3, 4, 5], [6]], source_special_ids=ids, target_special_ids=ids, batch_size=4, shuffle=False
    )
    ((inputs, labels, weights),) = (data[i] for i in range(len(data)))
    assert inputs["encoder_token_ids"].tolist()[:2] == [[0, 1], [2, 9]]
    assert inputs["decoder_token_ids"].tolist()[:2] == [[7, 3, 4], [7, 6, 9]]
    assert labels.tolist()[:2] == [[3, 4, 5], [6, 9, 9]]
    assert weights.tolist()[:2] == [[1, 1, 1], [1, 0, 0]]
    assert (inputs["encoder_token_ids"][2:, 0] != 9).all()  # no row without a real token
    assert data.largest_token_ids == (9, 9)


def test_a_preset_keeps_the_ids(pair, tmp_path):
    _, other = pair
    other.save_to_preset(tmp_path / "preset")
    again = Translator.from_preset(tmp_path / "preset")
    assert again.model.target_special_ids == other.target_tokenizer.special_ids == again.target_tokenizer.special_ids
    check_equal(again.generate(LINES, beam_size=2), other.generate(LINES, beam_size=2))
    check_equal(Translator.from_presets([tmp_path / "preset"] * 2).generate(LINES[:2]), other.generate(LINES[:2]))


def test_wrong_use_is_refused_in_a_sentence(pair):
    usual, other = pair
    sizes = (len(SOURCE), len(TARGET))
    wrong = {
        r"Expected a source tokenizer with the model's SpecialIds\(pad=0": lambda: Translator(
            usual.model, other.source_tokenizer, other.target_tokenizer
        ),
        r"Expected `target_special_ids` below the vocabulary's size, 15\. Received: SpecialIds\(pad=99": lambda: (
            RNNSearch(*sizes, **SIZES, target_special_ids=SpecialIds(pad=99))
        ),
        r"Expected `source_special_ids` to be a keras_attn.SpecialIds. Received: 5": lambda: RNNSearch(
            *sizes, **SIZES, source_special_ids=5
        ),
        r"Expected a target with a start id": lambda: RNNSearch(
            *sizes, **SIZES, target_special_ids=SpecialIds(start=None)
        ),
        r"Expected `end` to be an id, a whole number from 0. Received: end=-1": lambda: SpecialIds(end=-1),
        r"Expected a model with `source_length`": lambda: Translator(
            RNNSearch(*sizes, **SIZES, mask_padding=False), usual.source_tokenizer, usual.target_tokenizer
        ),
        r"Expected a `keras_attn.models.Seq2Seq`. Received: Functional, .*`clone_model`": lambda: Translator(
            keras.models.clone_model(usual.model), usual.source_tokenizer, usual.target_tokenizer
        ),
        r"Expected models with the same source_special_ids": lambda: Ensemble([usual.model, other.model]),
        r"Expected models that have these arguments themselves. Received: mask_padding": lambda: Ensemble(
            [usual.model], mask_padding=False
        ),
    }
    for message, use in wrong.items():
        with pytest.raises(ValueError, match=message):
            use()
