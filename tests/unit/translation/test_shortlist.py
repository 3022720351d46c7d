"""Shortlists: learnt and batched by hand, in every model, with other options, in files, and what is refused."""

import zipfile

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from keras_attn import Shortlist, SpecialIds
from keras_attn.models import copy_model
from keras_attn.translation import shortlist as module
from tests import oracles
from tests.contracts.model_rows import MODELS, make, some_inputs
from tests.translation.test_options import LINES, texts
from tests.translation.test_shortlist import NONE, all_known, numpy, of, small_ones_too  # noqa: F401 (used by all tests)


def test_learnt_by_hand(translator):
    """Words that always go together become each other's; the frequent ones are any sentence's."""
    source, target = translator.source_tokenizer, translator.target_tokenizer
    words = [source.vocabulary[i] for i in (5, 6, 7)], [target.vocabulary[i] for i in (8, 9, 10)]
    pairs = [((0, 1), (0, 1)), ((1, 2), (1, 2)), ((0, 2), (0, 2)), ((1,), (1,))]
    sides = [[" ".join(words[side][n] for n in pair[side]) for pair in pairs] for side in (0, 1)]
    learnt = Shortlist.learn(translator, *sides, candidates=1, frequent=1, iterations=20)
    assert [learnt.candidates[i].tolist() for i in (5, 6, 7)] == [[8], [9], [10]]
    assert 9 in learnt.always, "the most frequent one"
    assert (learnt.candidates[11:] == NONE).all()
    assert learnt.target_vocabulary_size == target.vocabulary_size


def test_a_batch_by_hand():
    ids = SpecialIds(pad=11, unknown=9, start=7, end=2)
    candidates = np.full((6, 2), NONE, "int32")
    candidates[4], candidates[5, 0] = (0, 5), 6
    shortlist = Shortlist(candidates, np.array([1]), 32)
    batch = {
        "encoder_token_ids": np.array([[4, 3, 0], [5, 4, 3]], "int32"),
        "forced_prefix": np.array([[10, 11], [5, 11]], "int32"),
    }
    sides = SpecialIds(pad=0, unknown=1, start=2, end=3), ids
    new, arguments, kept = shortlist.reduced(batch, 2, [8], sides)
    order = [11, 9, 7, 2, 8, 0, 1, 5, 6, 10]  # the special and the banned ones, then all others
    assert kept.tolist() == order + [11] * 6
    assert arguments == {"special_ids": SpecialIds(pad=0, unknown=1, start=2, end=3), "banned_token_ids": [4]}
    own = [{order[n] for n in np.flatnonzero(row)} for row in new["allowed"]]
    assert own == [{11, 9, 7, 2, 1, 0, 5, 10}, {11, 9, 7, 2, 1, 0, 5, 6}], "a banned one is nobody's"
    assert new["forced_prefix"].tolist() == [[9, 0], [7, 0]]
    assert new["encoder_token_ids"] is batch["encoder_token_ids"]
    new, _, kept = shortlist.reduced(batch, 1, [0, 8], sides)
    own = [{int(kept[n]) for n in np.flatnonzero(row)} for row in new["allowed"]]
    assert own == [{11, 9, 7, 2, 1, 0, 5, 10}, {11, 9, 7, 2}], "the second row only fills the batch"
    with pytest.raises(ValueError, match="without the end token 2"):
        shortlist.reduced(batch, 2, [2], sides)


def test_options_of_a_search_hold(translator):
    fast = keras_attn.with_shortlist(translator, all_known(translator))
    line = next(line for line in LINES if len(translator.source_tokenizer.encode(line)) > 2)
    first = fast.generate([line], beam_size=3)[0]
    other = next(t for t in translator.target_tokenizer.vocabulary[4:] if t not in first.tokens)
    begun = fast.generate([line], prefixes=[other], beam_size=3)[0]
    assert begun.tokens[0] == other, "a prefix outside the shortlist"
    without = fast.generate([line], banned_tokens=[first.tokens[0]], beam_size=3, n_best=3)[0]
    assert len(without.n_best) == 3
    assert not any(first.tokens[0] in t.tokens for t in without.n_best)
    unused = [t for t in translator.target_tokenizer.vocabulary[4:] if t not in first.tokens][:5]
    banned = fast.generate([line], banned_tokens=unused, beam_size=3)[0]
    assert (banned.token_ids, banned.score) == (first.token_ids, pytest.approx(first.score, rel=1e-5))
    sampled = [one.sample([line], seed=3)[0] for one in (translator, fast)]
    assert sampled[0].text == sampled[1].text, "samples are of the whole vocabulary"
    scored = [one.score([line], [first.token_ids])[0].score for one in (translator, fast)]
    assert scored[0] == scored[1] <= first.score


@pytest.mark.parametrize("name", MODELS)
def test_every_model_searches_in_it_or_says_why_not(name):
    model, inputs = make(name), some_inputs()
    ids = np.array([3, 0, 11, 5], "int32")
    if model.pointer or type(model).__name__ == "HardMonotonicSeq2Seq":
        with pytest.raises(ValueError, match="search in a part of its vocabulary"):
            model.output_part(ops.convert_to_tensor(ids))
        return
    memory, state = model.encode(inputs["encoder_token_ids"])
    tokens = ops.convert_to_tensor(inputs["decoder_token_ids"][:, 0])
    whole, *expected = model.step(tokens, memory, state)
    columns = numpy(whole)[:, ids]
    memory["allowed"] = ops.ones(columns.shape, dtype="bool")
    part, *found = model.step(tokens, memory, state, model.output_part(ops.convert_to_tensor(ids)))
    if isinstance(model, keras_attn.models.Ensemble):  # whose models' probabilities are those among the part
        whole = [one.step(tokens, *two)[0] for one, *two in zip(model.models, memory["models"], state, strict=True)]
        parts = np.array([oracles.softmax(numpy(logits)[:, ids]) for logits in whole])  # (N, B, n)
        columns = np.log(parts.mean(0)) if model.average == "probability" else np.log(parts).mean(0)
    np.testing.assert_allclose(numpy(part), columns, atol=1e-5)
    for a, b in zip(keras.tree.flatten(expected), keras.tree.flatten(found), strict=True):
        np.testing.assert_array_equal(numpy(a), numpy(b))


def test_projections_of_a_users_own():
    ids, x = np.array([3, 1]), np.random.default_rng(7).normal(size=(2, 5)).astype("float32")
    untied = keras.layers.ReversibleEmbedding(7, 5, tie_weights=False)
    untied.build()
    dense = keras.layers.Dense(7, bias_initializer="normal")
    for layer, whole in ((untied, untied(x, reverse=True)), (dense, dense(x))):
        part = keras_attn.layers.projection_part(layer, None, ops.convert_to_tensor(ids))
        np.testing.assert_allclose(numpy(keras_attn.layers.project(x, part)), numpy(whole)[:, ids], atol=1e-6)
    for layer in (keras.layers.Dense(7, "tanh"), keras.layers.ReversibleEmbedding(7, 5, logit_soft_cap=3.0)):
        with pytest.raises(ValueError, match="a product and a bias"):
            keras_attn.layers.projection_part(layer, None, ops.convert_to_tensor(ids))


@pytest.mark.parametrize("average", ["probability", "log_probability"])
def test_an_ensembles_translations_do_not_depend_on_batch_mates(translator, average):
    other = copy_model(translator.model, "other")
    other.set_weights([-weight for weight in translator.model.get_weights()])
    ensemble = keras_attn.models.Ensemble([translator.model, other], average=average)
    both = keras_attn.Translator(ensemble, translator.source_tokenizer, translator.target_tokenizer)
    fast = keras_attn.with_shortlist(both, all_known(both, always=(4, 9)))
    together = fast.generate(LINES, beam_size=3)
    alone = [fast.generate([line], beam_size=3)[0] for line in LINES]
    assert texts(together) == texts(alone)
    assert [t.score for t in together] == pytest.approx([t.score for t in alone], rel=1e-5)


def test_a_preset_has_none(translator, tmp_path):
    fast = keras_attn.with_shortlist(translator, all_known(translator))
    expected = fast.generate(LINES[:3], beam_size=2)
    fast.save_to_preset(tmp_path / "preset")
    loaded = keras_attn.Translator.from_preset(tmp_path / "preset")
    assert loaded.shortlist is None
    again = keras_attn.with_shortlist(loaded, fast.shortlist).generate(LINES[:3], beam_size=2)
    assert [one.score for one in again] == pytest.approx([one.score for one in expected], rel=1e-5)


def test_files(translator, tmp_path):
    shortlist = all_known(translator, always=(5, 4))
    shortlist.save(tmp_path / "s.npz")
    again = Shortlist.load(tmp_path / "s.npz")
    assert again.fingerprint == shortlist.fingerprint != of(translator).fingerprint
    with pytest.raises(FileNotFoundError):
        Shortlist.load(tmp_path / "none.npz")
    whole = (tmp_path / "s.npz").read_bytes()
    np.savez(tmp_path / "other.npz", candidates=np.zeros((2, 2)))
    objects = {"candidates": np.array([[{}]], object), "always": np.zeros(1, "int32"), "target_vocabulary_size": 5}
    np.savez(tmp_path / "objects.npz", **objects)
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.npz").write_text("no archive")
    changed = bytearray(whole)
    changed[whole.index(b"always.npy") - 40] ^= 255  # within the compressed candidates
    (tmp_path / "changed.npz").write_bytes(changed)
    for name in ("other", "objects", "cut", "text", "changed"):
        with pytest.raises(ValueError, match=r"to be a file of `Shortlist.save`"):
            Shortlist.load(tmp_path / f"{name}.npz")
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("candidates.npy", b"\0" * 3_000_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_BYTES", 2_000_000)
        with pytest.raises(ValueError, match="at most 1 GiB"):
            Shortlist.load(tmp_path / "bomb.npz")
        with pytest.raises(ValueError, match="at most 1 GiB"):
            Shortlist(np.full((1000, 1000), NONE), np.zeros(1, int), 5).to_bytes()


def test_bad_ones_are_refused(translator):
    size = translator.model.target_vocabulary_size
    with pytest.raises(ValueError, match="`candidates` to be ids below"):
        Shortlist(np.array([[size]]), np.zeros(1, "int32"), size)
    with pytest.raises(ValueError, match="`always` to be ids below"):
        Shortlist(np.array([[1]]), np.array([NONE]), size)
    with pytest.raises(ValueError, match="`candidates` to be ids below"):
        Shortlist(np.array([[1.0]]), np.zeros(1, "int32"), size)
    with pytest.raises(ValueError, match="of two tokenizers"):
        Shortlist(np.array([[1]]), np.zeros(1, "int32"), size, ("one",))
    with pytest.raises(ValueError, match="a shortlist of vocabularies of"):
        keras_attn.with_shortlist(translator, Shortlist(np.array([[1]]), np.zeros(1, "int32"), size))
    with pytest.raises(ValueError, match=r"a keras_attn\.Shortlist"):
        keras_attn.with_shortlist(translator, "file.npz")
    other = all_known(translator)
    other.fingerprints = (translator.source_tokenizer.fingerprint, "another")
    with pytest.raises(ValueError, match="for another target"):
        keras_attn.with_shortlist(translator, other)
    memory, state = translator.model.encode(np.array([[5, 3]]))
    with pytest.raises(ValueError, match=r"Without: \['allowed', 'output'\]"):
        keras_attn.search.greedy_search(translator.model.step, memory, state, max_length=3, shortlist={"token_ids": 0})
    with pytest.raises(ValueError, match=r"each of 2 sentences\. Received: 1"):
        Shortlist.learn(translator, ["a", "b"], ["c"])


class ThreeArguments(keras_attn.models.RNNSearch):
    def step(self, token_ids, memory, state):
        return super().step(token_ids, memory, state)


class OtherLogits(keras_attn.models.RNNSearch):
    def _logits(self, *arguments, part=None, **options):
        logits = super()._logits(*arguments, part=part, **options)
        return logits if part is not None else 9 * ops.tanh(logits)


@pytest.mark.parametrize(
    ("kind", "sentence"), [(ThreeArguments, "takes a part"), (OtherLogits, "a product and a bias")]
)
def test_models_of_a_users_own_are_tried_first(translator, kind, sentence):
    sizes = [translator.model.source_vocabulary_size, translator.model.target_vocabulary_size]
    initializer = keras.initializers.RandomNormal(stddev=2.0)
    model = kind(*sizes, units=5, embedding_size=7, readout_size=6, attention_units=3, initializer=initializer)
    own = keras_attn.Translator(model, translator.source_tokenizer, translator.target_tokenizer)
    with pytest.raises(ValueError, match=sentence):
        keras_attn.with_shortlist(own, all_known(own))
