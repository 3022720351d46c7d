"""A search with a shortlist: that it is the search of a vocabulary without the others."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from keras_attn import Shortlist
from keras_attn.backend import int8_products
from keras_attn.models import copy_model
from keras_attn.translation import shortlist as module
from tests.translation.test_options import LINES, texts

NONE = module.NONE
numpy = ops.convert_to_numpy


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    monkeypatch.setattr(module, "_LEAST", 8)


def of(translator, known=(), least=3, always=()):
    """A shortlist that gives each known source token three target tokens, and no other one any."""
    sizes = translator.model.source_vocabulary_size, translator.model.target_vocabulary_size
    candidates = np.full((sizes[0], 4), NONE, "int32")
    for token_id in known:
        candidates[token_id, :least] = [4 + (token_id * k) % (sizes[1] - 4) for k in (1, 3, 5)][:least]
    return Shortlist(candidates, np.array(always, "int32"), sizes[1])


def all_known(translator, **options):
    return of(translator, range(4, translator.model.source_vocabulary_size), **options)


def test_an_unknown_source_token_opens_the_whole_vocabulary(translator):
    known = of(translator, range(4, 8))
    ids = translator.model.source_special_ids, translator.model.target_special_ids
    size = translator.model.target_vocabulary_size
    new, _, kept = known.reduced({"encoder_token_ids": np.array([[4, 3], [20, 3]], "int32")}, 2, [], ids)
    assert sorted(kept) == list(range(size))
    assert new["allowed"].sum(axis=1).tolist() == [4 + 3, size]
    whole = translator.generate(LINES, beam_size=3)
    found = keras_attn.with_shortlist(translator, of(translator)).generate(LINES, beam_size=3)
    assert texts(found) == texts(whole)
    assert [t.score for t in found] == pytest.approx([t.score for t in whole], rel=1e-5)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_search_is_that_of_logits_without_the_other_tokens(translator, beam_size):
    """Against a model whose logits of all other tokens are -inf."""
    shortlist = all_known(translator, always=(4, 9))
    fast = keras_attn.with_shortlist(translator, shortlist)
    ids = translator.model.source_special_ids, translator.model.target_special_ids
    source = np.array([ids[0].with_end(translator.source_tokenizer.encode(LINES[0]))], "int32")
    new, _, kept = shortlist.reduced({"encoder_token_ids": source}, 1, [], ids)
    own = np.isin(np.arange(translator.model.target_vocabulary_size), kept[new["allowed"][0]])

    def step(token_ids, memory, state):
        logits, state, alignment = translator.model.step(token_ids, memory, state)
        return ops.where(ops.convert_to_tensor(own), logits, float("-inf")), state, alignment

    memory, state = translator.model.encode(source)
    options = {"max_length": translator.limits().longest(source.shape[1]), "special_ids": ids[1]}
    if beam_size == 1:
        expected = keras_attn.search.greedy_search(step, memory, state, **options)
    else:
        expected = keras_attn.search.beam_search(step, memory, state, beam_size=beam_size, **options)
    found = fast.generate(LINES[:1], beam_size=beam_size)[0]
    length = int(numpy(expected.lengths)[0, 0])
    assert list(found.token_ids) == numpy(expected.token_ids)[0, 0, :length].tolist()
    assert found.score == pytest.approx(float(numpy(expected.scores)[0, 0]), rel=1e-4)
    np.testing.assert_allclose(found.alignment, numpy(expected.alignments)[0, 0, :length], atol=1e-5)


@pytest.mark.parametrize("quantized", [False, True])
def test_translations_do_not_depend_on_batch_mates(translator, quantized, monkeypatch):
    """The last sentence alone has a token that the shortlist does not know."""
    monkeypatch.setattr(int8_products, "MIN_WIDTH", 1)
    translator = keras_attn.quantize(translator) if quantized else translator
    known = {i for line in LINES[:-1] for i in translator.source_tokenizer.encode(line)}
    fast = keras_attn.with_shortlist(translator, of(translator, known, always=(4, 9)))
    together = fast.generate(LINES, beam_size=3)
    alone = [fast.generate([line], beam_size=3)[0] for line in LINES[3:]]
    assert texts(together[3:]) == texts(alone)
    assert [t.score for t in together[3:]] == pytest.approx([t.score for t in alone], rel=1e-5)
    assert texts(translator.generate(LINES, beam_size=3)) != texts(together)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float64"])
def test_policies_of_other_dtypes(translator, dtype):
    if dtype == "float64" and keras.backend.backend() == "jax":
        pytest.skip("float64 is switched off for the whole process")
    sizes = translator.model.source_vocabulary_size, translator.model.target_vocabulary_size
    model = keras_attn.models.RNNSearch(
        *sizes, units=5, embedding_size=7, readout_size=6, attention_units=3, tie_embeddings=None, dtype=dtype
    )
    own = keras_attn.Translator(model, translator.source_tokenizer, translator.target_tokenizer)
    found = keras_attn.with_shortlist(own, all_known(own)).generate(LINES, beam_size=2)
    assert all(np.isfinite(one.score) for one in found)
    part = model.output_part(ops.convert_to_tensor(np.array([5, 3])))
    assert {keras.backend.standardize_dtype(one.dtype) for one in part.values()} == {model.compute_dtype}


def test_the_model_can_be_trained_afterwards(translator):
    model, ids = copy_model(translator.model, "trained"), np.array([[5, 6, 3]])
    own = keras_attn.Translator(model, translator.source_tokenizer, translator.target_tokenizer)
    fast = keras_attn.with_shortlist(own, all_known(own))
    before = texts(fast.generate(LINES[:3], beam_size=2))
    model.compile(keras.optimizers.Adam(0.1), keras_attn.losses.SmoothedCrossentropy(0.0))
    batch = {"encoder_token_ids": ids, "decoder_token_ids": np.array([[2, 7, 8]])}
    for _ in range(20):
        model.train_on_batch(batch, np.array([[7, 8, 3]]))
    after = fast.generate(LINES[:3], beam_size=2)
    assert texts(after) != before, "the search has the weights that the model has now"
