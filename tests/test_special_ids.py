"""Other special ids than 0 to 3: a permuted vocabulary changes nothing but ids, from the loss to the served graph.

Padding that is not masked is a word like any other.
"""

import json

import keras
import numpy as np
import pytest

from keras_attn import ParallelDataset, SpecialIds, Tokenizer, Translator
from keras_attn.export import ExportOptions
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import LSTMSeq2Seq, RNNSearch, copy_model
from tests.export.small import run
from tests.translation.test_endless import SIZES, endless_translator

SOURCE = ["<pad>", "<unk>", "<s>", "</s>", *"abcdefg"]
TARGET = ["<pad>", "<unk>", "<s>", "</s>", *"pqrstuvwxyz"]
LINES = ["a b c", "d", "", "g f e d c b a", "b h b", "c c a e", "f"]
REFERENCES = ["p q", "r s t", "u", "z z", "x y z h p", "q", "w w w w"]


def permuted(tokens, seed):
    """The tokens in another order, and for each new id the old one."""
    order = np.random.default_rng(seed).permutation(len(tokens))
    return [tokens[i] for i in order], order


def of_a_shape(weights, source, target):
    """Rows (embeddings) and columns (outputs) of a vocabulary in its new order; 11 source and 15 target tokens."""
    for weight in weights:
        if weight.shape[0] in (len(source), len(target)):
            weight = weight[source if weight.shape[0] == len(source) else target]
        elif weight.shape[-1] == len(target):
            weight = weight[:, target]
        yield weight


def permuted_pair():
    """A translator with the usual ids, and the same one with all ids permuted."""
    keras.utils.set_random_seed(5)
    # No size is that of a vocabulary, 11 or 15.
    sizes = SIZES | {"units": 6, "readout_size": 8, "initializer": keras.initializers.RandomNormal(stddev=0.9)}
    model = RNNSearch(len(SOURCE), len(TARGET), **sizes)
    (source, source_order), (target, target_order) = permuted(SOURCE, 1), permuted(TARGET, 2)
    tokenizers = [Tokenizer.from_vocabulary(tokens) for tokens in (source, target)]
    ids = {f"{side}_special_ids": t.special_ids for side, t in zip(("source", "target"), tokenizers, strict=True)}
    assert 0 not in (tokenizers[0].special_ids.pad, tokenizers[1].special_ids.pad)
    other = RNNSearch(len(SOURCE), len(TARGET), **sizes, **ids)
    other.set_weights(list(of_a_shape(model.get_weights(), source_order, target_order)))
    limits = {"max_length_ratio": 1.5, "max_length_constant": 3}
    usual = [Tokenizer.from_vocabulary(tokens) for tokens in (SOURCE, TARGET)]
    assert all(t.special_ids == SpecialIds() for t in usual)
    return Translator(model, *usual, **limits), Translator(other, *tokenizers, **limits)


@pytest.fixture(scope="module")
def pair():
    return permuted_pair()


def coded(texts):
    return [text.encode() for text in texts]


def check_equal(found, expected):
    assert [t.text for t in found] == [t.text for t in expected]
    assert [t.tokens for t in found] == [t.tokens for t in expected]
    np.testing.assert_allclose([t.score for t in found], [t.score for t in expected], atol=1e-5)
    for one, other in zip(found, expected, strict=True):
        if other.alignment is not None:
            np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-5)
        if other.n_best:
            check_equal(one.n_best, other.n_best)


SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 3, "n_best": 3, "coverage_penalty": 0.2},
    "constraints": {
        "beam_size": 2,
        "banned_tokens": ["<unk>", "z"],
        "no_repeat_ngram_size": 2,
        "min_length": 4,
        "prefixes": ["q", "", "p", "r s", "t t t", "", "x h"],
    },
}


@pytest.mark.parametrize("name", SEARCHES)
def test_search_gives_the_same_text_and_scores(pair, name):
    usual, other = pair
    expected = usual.generate(LINES, **SEARCHES[name])
    check_equal(other.generate(LINES, **SEARCHES[name]), expected)
    assert len({t.text for t in expected}) > 3


def test_scores_of_given_translations_are_the_same(pair):
    usual, other = pair
    check_equal(other.score(LINES, REFERENCES), usual.score(LINES, REFERENCES))


def test_samples_end_with_the_end_token_and_have_no_other_special_one(pair):
    _, other = pair
    special = other.target_tokenizer.special_ids
    for translation in other.sample(LINES, seed=3, num_samples=4, max_length=9):
        for drawn in translation.n_best:
            *inner, end = drawn.token_ids
            assert end == special.end
            assert not special.reserved.intersection(inner)


@pytest.mark.parametrize("ends", [True, False])
def test_training_has_the_same_loss(pair, ends):
    losses = []
    for translator in pair:
        tokenizers = [translator.source_tokenizer, translator.target_tokenizer]
        rows = [[t.encode(line) for line in side] for t, side in zip(tokenizers, (LINES, REFERENCES), strict=True)]
        ids = [t.special_ids if ends else SpecialIds(**t.special_ids.get_config() | {"end": None}) for t in tokenizers]
        sides = {"source_special_ids": ids[0], "target_special_ids": ids[1]}
        data = ParallelDataset(*rows, **sides, batch_size=4, shuffle=False)
        assert ends == any((batch[1] == tokenizers[1].special_ids.end).any() for batch in data)
        model = copy_model(translator.model, "copy")
        eagerly = keras.backend.backend() == "tensorflow"  # tracing takes longer
        model.compile(keras.optimizers.SGD(0.02), SmoothedCrossentropy(0.1), run_eagerly=eagerly)
        history = model.fit(data, epochs=3, shuffle=False, verbose=0).history["loss"]
        losses.append([model.evaluate(data, verbose=0), *history])
    np.testing.assert_allclose(*losses, rtol=2e-5)
    assert losses[0][-1] < losses[0][1]


# In a graph


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is TensorFlow's")
def test_the_served_graphs_have_the_ids_or_no_end_token(pair, tmp_path):
    from keras_attn.export.signatures import ServedTranslator

    expected, endless = pair[0].generate(LINES, beam_size=3, return_alignments=False), endless_translator()
    ServedTranslator(pair[1], ExportOptions(beam_size=3)).save(str(tmp_path / "permuted"))
    source, target = coded(LINES), coded(REFERENCES)
    requests = [("translate", {"text": source}), ("score", {"source": source, "target": target})]
    ids = pair[1].source_tokenizer.encode(LINES[0])
    requests += [("translate_token_ids", {"token_ids": [ids], "lengths": [len(ids)]})]
    lines, targets = ["a b c", "", "f x", "d e a a"], ["p q", "", "", "t"]  # x is unknown
    folder = endless.export(tmp_path / "endless", beam_size=3)
    record = json.loads((folder / "assets.extra" / "keras_attn.json").read_text())["tokenizers"]
    assert record["source"]["special_ids"] == {"pad": 0, "unknown": 1, "start": None, "end": None}
    assert record["target"]["special_ids"] == {"pad": 0, "unknown": None, "start": 1, "end": None}
    source, target = coded(lines), coded(targets)
    others = [("translate_n_best", {"text": source}), ("score", {"source": source, "target": target})]

    translated, scored, of_ids = run(tmp_path / "permuted", requests)
    assert [text.decode() for text in translated["translation"]] == [t.text for t in expected]
    np.testing.assert_allclose(translated["score"], [t.score for t in expected], atol=1e-4)
    scores = pair[0].score(LINES, REFERENCES, length_penalty=0.0)
    np.testing.assert_allclose(scored["log_prob"], [t.score for t in scores], atol=1e-4)
    (alone,) = pair[1].generate(LINES[:1], beam_size=3, return_alignments=False)
    assert of_ids["token_ids"][0].tolist() == list(alone.token_ids)

    translated, scored = run(folder, others)
    for row, translation in enumerate(endless.generate(lines, beam_size=3, n_best=3)):
        texts = [t.text for t in translation.n_best] or ["", "", ""]
        assert [text.decode() for text in translated["translations"][row]] == texts
    expected = endless.score(lines, targets, length_penalty=0.0)
    np.testing.assert_allclose(scored["log_prob"], [t.score for t in expected], atol=1e-4)


def test_padding_that_is_not_masked_is_a_word_like_any_other():
    """An LSTM of Keras that reads all of a fixed length is the oracle."""
    ids = SpecialIds(pad=4, unknown=3, start=1, end=2)
    model = LSTMSeq2Seq(
        11, 13, units=5, num_layers=1, embedding_size=7, reverse_source=False, mask_padding=False, source_length=6,
        initializer="glorot_uniform", source_special_ids=ids, target_special_ids=ids,
    )  # fmt: skip
    tokens = np.array([[5, 6, 2, 4], [7, 2, 4, 4]], "int32")
    memory, _ = model.encode(keras.ops.convert_to_tensor(tokens))
    assert keras.ops.convert_to_numpy(memory["mask"]).tolist() == [[True] * 6] * 2
    plain = keras.layers.LSTM(5, return_sequences=True, recurrent_activation="sigmoid")
    embedded = keras.ops.take(
        model.source_embedding.weights[0], np.pad(tokens, [(0, 0), (0, 2)], constant_values=4), axis=0
    )
    plain.build(embedded.shape)
    cell = next(layer for layer in model.encoder._flatten_layers() if isinstance(layer, keras.layers.LSTMCell))
    plain.set_weights(cell.get_weights())
    _, state = model.encode(keras.ops.convert_to_tensor(tokens))
    expected = keras.ops.convert_to_numpy(plain(embedded))[:, -1]
    found = [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(state)]
    assert any(x.shape == expected.shape and np.allclose(x, expected, atol=1e-5) for x in found)
    again = type(model).from_config(model.get_config())
    assert (again.mask_padding, again.source_length, again.source_special_ids) == (False, 6, ids)


def test_padding_that_is_not_masked_gives_the_same_in_any_batch():
    source, target = Tokenizer.from_vocabulary(SOURCE), Tokenizer.from_vocabulary(TARGET)
    sizes = SIZES | {"initializer": keras.initializers.RandomNormal(stddev=0.9)}
    model = RNNSearch(len(SOURCE), len(TARGET), **sizes, mask_padding=False, source_length=10)
    translator = Translator(model, source, target)
    together = translator.generate([*LINES, "a b c d e f g a b c d e f g"])
    for line, translation in zip(LINES, together, strict=False):
        check_equal(translator.generate([line]), [translation])
    assert len(together[-1].source_tokens) == 10  # cut, with its end token
