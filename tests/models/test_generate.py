"""`generate` and `sample` of a model find what the search functions find, whatever the batch."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import ParallelDataset
from keras_attn.models import Ensemble
from keras_attn.search import ShallowFusion, beam_search, sample
from tests.arrays import same
from tests.contracts.model_rows import VT, B, S, inputs_of, make
from tests.search.searching import log_softmax

L = 6
NAMES = ["rnnsearch", "attention, frames", "attention, two memories"]


# What a search of B rows refuses before the model is called; tests/export/test_export_search.py has them for ONNX.
WRONG_LIMITS = [
    ({"max_length": None}, "Expected lengths as numbers of tokens.* Received: max_length=None"),
    ({"max_length_ratio": 2.0}, "Expected lengths as numbers of tokens.*max_length_ratio=2.0"),
    ({"min_length_ratio": 0.5}, "Expected lengths as numbers of tokens.*min_length_ratio=0.5"),
    ({"banned_tokens": [21.5]}, r"^Expected banned_tokens to be ids\. Received: banned_tokens=\[21\.5\]"),
    ({"banned_tokens": ["a"]}, r"^Expected banned_tokens to be ids\. Received: banned_tokens=\['a'\]"),
    ({"banned_tokens": [4, VT]}, f"^Expected banned_tokens from 0 to {VT - 1}, .* Received: {VT}$"),
    ({"banned_tokens": [-1]}, f"^Expected banned_tokens from 0 to {VT - 1}, .* Received: -1$"),
    ({"banned_tokens": [3]}, "^Expected `banned_token_ids` without the end token 3"),
    ({"forced_prefix": np.full((B, 1), VT)}, f"^Expected forced_prefix from 0 to {VT - 1}, .* Received: {VT}$"),
    ({"forced_prefix": np.full((B, 1), -1)}, f"^Expected forced_prefix from 0 to {VT - 1}, .* Received: -1$"),
    ({"forced_prefix": np.full((B, 1), 4.5)}, rf"^Expected `forced_prefix` of ids \(B, P\), with the B={B} rows"),
    ({"forced_prefix": np.full(B, 4)}, rf"^Expected `forced_prefix` of ids \(B, P\), with the B={B} rows"),
    ({"forced_prefix": np.full((1, 1), 4)}, rf"^Expected `forced_prefix` of ids \(B, P\), with the B={B} rows"),
    ({"forced_prefix": np.full((B, L + 1), 4)}, f"^Expected `forced_prefix` of at most max_length={L} tokens"),
]


def check(found, expected):
    for name in ("token_ids", "lengths", "scores", "log_probs", "token_log_probs"):
        value = ops.convert_to_numpy(getattr(expected, name))
        np.testing.assert_allclose(getattr(found, name), value, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_generate_finds_what_the_search_finds_in_batches_of_any_size(name):
    model, inputs = make(name), inputs_of(name)
    source, options = model.source_of(inputs), {"beam_size": 3, "n_best": 2, "length_penalty": 0.5}
    tensors = keras.tree.map_structure(ops.convert_to_tensor, source)
    expected = beam_search(model.step, *model.encode(tensors, L), max_length=L, **options)
    found = model.generate(source, max_length=L, batch_size=2, **options)
    check(found, expected)
    alignments = found.alignments if isinstance(found.alignments, list) else [found.alignments]
    assert [x.shape[-1] for x in alignments] == ([S, S // 2 + 1] if "two" in name else [S])
    for one in alignments:
        np.testing.assert_allclose(one.sum(-1)[found.token_ids > 0], 1, atol=1e-5)


@pytest.mark.parametrize("name", NAMES[1:])
def test_an_ensemble_reads_any_source(name):
    """Two copies find what one finds."""
    model, source = make(name), make(name).source_of(inputs_of(name))
    found, expected = (one.generate(source, max_length=L, beam_size=3) for one in (Ensemble([model, model]), model))
    np.testing.assert_array_equal(found.token_ids, expected.token_ids)
    assert isinstance(found.alignments, list) == isinstance(expected.alignments, list)
    same([found.scores, found.alignments], [expected.scores, expected.alignments])


def test_samples_are_those_of_the_seed_and_limits_hold():
    model, inputs = make("attention, frames"), inputs_of("attention, frames")
    frames = inputs["encoder_inputs"]
    expected = sample(model.step, *model.encode(ops.convert_to_tensor(frames)), max_length=L, seed=5, num_samples=3)
    check(model.sample(frames, max_length=L, seed=5, num_samples=3, length_penalty=0.0), expected)
    found = model.generate(frames, max_length=L, min_length=4, beam_size=1, forced_prefix=np.full((B, 1), 9))
    assert (found.token_ids[:, 0, 0] == 9).all()
    assert found.lengths.min() >= 4
    with pytest.raises(ValueError, match=r"Expected search options among: .*Received: beams"):
        model.generate(frames, max_length=L, beams=3)
    for options, sentence in WRONG_LIMITS:
        for search in (model.generate, model.sample):
            with pytest.raises(ValueError, match=sentence):
                search(frames, **{"max_length": L} | options)
    dataset = ParallelDataset.from_arrays(frames, [[4]] * B, batch_size=2)
    with pytest.raises(ValueError, match=r"Expected a source of arrays.*Received: ParallelDataset"):
        model.generate(dataset, max_length=L)


def only_even(logits, token_ids, position, state):
    """No odd ids but the end, and no token twice."""
    odd = (ops.arange(logits.shape[-1]) % 2 == 1) & (ops.arange(logits.shape[-1]) != 3)
    used = ops.any(ops.one_hot(token_ids, logits.shape[-1]) > 0, axis=1)
    return ops.where(odd | used, -1e9, ops.cast(logits, "float32"))


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_logits_processor_sees_the_tokens_so_far(beam_size):
    model, inputs = make("attention, frames"), inputs_of("attention, frames")
    options = {"max_length": 9, "min_length": 8, "beam_size": beam_size, "logits_processor": only_even}
    found = model.generate(inputs["encoder_inputs"], **options).token_ids[:, 0]
    for row in found:
        words = row[row > 3].tolist()
        assert len(words) >= 7
        assert len(set(words)) == len(words)
        assert not any(word % 2 for word in words)


def test_a_method_is_one_processor():
    """Each access makes a new object of it."""
    model, frames = make("attention, frames"), inputs_of("attention, frames")["encoder_inputs"]
    owner = type("Owner", (), {"process": lambda self, *arguments: only_even(*arguments)})()
    for _ in range(2):
        model.generate(frames, max_length=L, beam_size=1, logits_processor=owner.process)
    assert len(model.searches._models) == 1


def test_the_compiled_search_that_was_not_used_for_longest_goes_first(monkeypatch):
    monkeypatch.setattr("keras_attn.models.search_models._MOST_SEARCHES", 2)
    model, frames = make("attention, frames"), inputs_of("attention, frames")["encoder_inputs"]
    for length in (1, 2, 1, 3):
        model.generate(frames, max_length=length, beam_size=1)
    assert [one.max_length for one in model.searches._models.values()] == [1, 3]


def test_processors_of_one_name_are_searched_with_apart_and_must_return_logits():
    model, frames = make("attention, frames"), inputs_of("attention, frames")["encoder_inputs"]
    models = [keras.Sequential([keras.layers.Embedding(VT, 5), keras.layers.Dense(size)]) for size in (VT, 9)]
    processors = [ShallowFusion(models[0], weight, name="fusion") for weight in (0.0, 9.0)]
    found = [model.generate(frames, max_length=L, logits_processor=one).scores for one in processors]
    assert np.abs(found[0] - found[1]).max() > 1e-3
    np.testing.assert_array_equal(model.generate(frames, max_length=L, logits_processor=processors[0]).scores, found[0])
    processors[0].weight = 9.0  # read by a search that is compiled, too
    np.testing.assert_array_equal(model.generate(frames, max_length=L, logits_processor=processors[0]).scores, found[1])
    assert processors[0].weight == 9.0
    arguments = np.zeros((2, VT), "float32"), np.ones((2, 4), "int32"), np.array(0)
    one, other = (ShallowFusion(models[0], 0.3, dtype=policy)(*arguments) for policy in ("float32", "mixed_bfloat16"))
    np.testing.assert_array_equal(ops.convert_to_numpy(one), ops.convert_to_numpy(other))
    for wrong in (lambda logits, *_: logits[:, :3], lambda *_: None):
        with pytest.raises(ValueError, match=r"Expected `logits_processor` to return logits of shape \(R, V\)"):
            model.generate(frames, max_length=L, logits_processor=wrong)
    with pytest.raises(ValueError, match=r"as many tokens as the model has, 37\. Received: one of 9"):
        model.generate(frames, max_length=L, logits_processor=ShallowFusion(models[1], 1.0))


def test_shallow_fusion_adds_the_language_models_log_probabilities():
    """Greedy search step by step in NumPy."""
    keras.utils.set_random_seed(1)
    gru = keras.layers.GRU(5, return_sequences=True)
    language_model = keras.Sequential([keras.layers.Embedding(VT, 7), gru, keras.layers.Dense(VT)])
    language_model.build((None, None))
    for weight in language_model.weights:
        weight.assign(np.random.default_rng(weight.shape[-1]).normal(size=weight.shape))
    model, frames = make("attention, frames"), inputs_of("attention, frames")["encoder_inputs"]
    found = model.generate(frames, max_length=L, beam_size=1, logits_processor=ShallowFusion(language_model, 0.7))
    assert (found.token_ids != model.generate(frames, max_length=L, beam_size=1).token_ids).any()
    rows = np.full((B, 1), 2)
    for position in range(L - 1):
        inputs = {"encoder_inputs": frames, "decoder_token_ids": rows}
        both = log_softmax(ops.convert_to_numpy(model(inputs))[:, -1]) + 0.7 * log_softmax(
            ops.convert_to_numpy(language_model(rows))[:, -1]
        )
        both[:, [0, 2]] = -np.inf
        best = both.argmax(-1)
        going = found.lengths[:, 0] > position
        np.testing.assert_array_equal(found.token_ids[going, 0, position], best[going])
        rows = np.concatenate([rows, best[:, None]], axis=1)
