"""Every kind of model can be served: each signature gives what Python gives, in a fresh process and without XLA.

So does the C program, which loads a model as the stock server does.
"""

import itertools

import keras
import numpy as np
import pytest

from keras_attn import LocalPredictiveAttention, models
from keras_attn.export import ExportOptions
from keras_attn.text import END_ID, Tokenizer
from keras_attn.translation import Translator
from tests.serving import fresh, loader
from tests.serving.conftest import SENTENCES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is TensorFlow's"),
]
LSTM = {"units": 7, "num_layers": 2, "embedding_size": 11}
RNNSEARCH = {"units": 5, "embedding_size": 7, "readout_size": 11, "attention_units": 3, "decoder_units": 13}
MODELS = {
    "rnnsearch": (models.RNNSearch, RNNSEARCH),
    "rnnencdec": (models.RNNEncoderDecoder, {"units": 7, "embedding_size": 11, "readout_size": 13}),
    "lstm_seq2seq": (models.LSTMSeq2Seq, LSTM),
    "luong": (models.LuongSeq2Seq, {**LSTM, "readout_size": 13}),
    "luong, local-p": (
        models.LuongSeq2Seq,
        {
            **LSTM,
            "readout_size": 13,
            "attention": LocalPredictiveAttention("concat", window=3),
            "scale_embeddings": True,
        },
    ),
    "nematus": (models.NematusSeq2Seq, {"units": 7, "embedding_size": 11}),
    "gnmt": (models.GNMTSeq2Seq, {"units": 7, "embedding_size": 11, "encoder_layers": 3, "decoder_layers": 3}),
    # Of few layers: with weights as large as these, the norms of many enlarge what float32 rounds, to 2e-5.
    "rnmt_plus": (
        models.RNMTPlusSeq2Seq,
        {"units": 6, "embedding_size": 11, "encoder_layers": 1, "decoder_layers": 2, "num_heads": 2},
    ),
    "hard_monotonic": (models.HardMonotonicSeq2Seq, {**LSTM, "order": 1, "readout_size": 13}),
    "transformer": (
        models.TransformerSeq2Seq,
        {"units": 6, "num_layers": 2, "num_heads": 3, "feed_forward_units": 11},
    ),
}
BEAM = 3
LINES = [*SENTENCES, " ", "ein Hund"]
TARGETS = ["un deux trois", "là", "", "où à été rouge vert bleu", "gris", "noir blanc Hund"]
REQUEST = {"length_penalty": 0.6, "max_length": 0, "max_length_ratio": 0.7, "min_length": 3, "min_length_ratio": 0.4}


def build(name: str) -> Translator:
    source = Tokenizer.train(SENTENCES, level="word", lowercase=True)
    target = Tokenizer.train(["un deux trois l’été là où à été rouge vert bleu gris noir blanc"], level="word")
    kind, sizes = MODELS[name]
    model = kind(source.vocabulary_size, target.vocabulary_size, **sizes, initializer="glorot_uniform")
    translator = Translator(model, source, target, max_length_ratio=1.0, max_length_constant=3)
    bias = model.output_projection.bias
    for attempt in range(9):
        for i, weight in enumerate(model.trainable_weights):
            weight.assign(keras.random.normal(weight.shape, stddev=1.6, seed=1000 * attempt + i))
        random = keras.ops.convert_to_numpy(bias)
        for end in (-2, -5, -20, -999):  # until there are more than endless sentences and empty ones
            bias.assign(np.where(np.arange(target.vocabulary_size) == END_ID, end, random))
            translations = translator.generate(LINES, beam_size=BEAM, n_best=BEAM, return_alignments=False)
            if len({t.text for t in translations}) > 3:
                break
        # Hypotheses of nearly the same score may change places when a sum is computed in another order.
        gaps = [a.score - b.score for t in translations for a, b in itertools.pairwise(t.n_best)]
        if min(gaps) > 1e-4:
            return translator
    raise AssertionError(f"{name} gives hypotheses of nearly the same score, whatever its weights")


def calls(translator: Translator) -> list:
    text = [line.encode() for line in LINES]
    ids = [[*translator.source_tokenizer.encode(line), END_ID] if line.strip() else [] for line in LINES]
    longest = max(map(len, ids))
    # The server pads with a request's first element, whatever it is.
    padded = [row + [ids[0][0]] * (longest - len(row)) for row in ids]
    return [
        ("serving_default", {"text": text}),
        ("translate", {"text": text}),
        ("translate_n_best", {"text": text}),
        ("translate_with_options", {"text": text} | REQUEST),
        ("translate_token_ids", {"token_ids": padded, "lengths": [len(row) for row in ids]}),
        ("score", {"source": text, "target": [line.encode() for line in TARGETS]}),
    ]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """`{name: (translator, folder, outputs of each call)}`."""
    from keras_attn.export.signatures import ServedTranslator

    translators, requests = {}, []
    for name in MODELS:
        translators[name] = build(name)
        folder = tmp_path_factory.mktemp("served")
        ServedTranslator(translators[name], ExportOptions(beam_size=BEAM)).save(str(folder))
        requests.append((folder, calls(translators[name])))
    folders = [folder for folder, _ in requests]
    found = fresh.run(requests)
    return {name: (t, f, a) for (name, t), f, a in zip(translators.items(), folders, found, strict=True)}


@pytest.mark.parametrize("name", MODELS)
def test_every_signature_says_what_python_says(served, name):
    translator, _, (default, translate, n_best, options, token_ids, score) = served[name]
    expected = translator.generate(LINES, beam_size=BEAM, n_best=BEAM)
    assert len({t.text for t in expected}) > 3
    for found in (default, translate):
        assert [text.decode() for text in found["translation"]] == [t.text for t in expected]
        np.testing.assert_allclose(found["score"], [t.score for t in expected], rtol=1e-5)
    assert_n_best(n_best, expected)
    for row, t in enumerate(expected):
        length = token_ids["lengths"][row]
        assert tuple(token_ids["token_ids"][row, :length]) == t.token_ids
        assert not token_ids["token_ids"][row, length:].any()
    np.testing.assert_allclose(token_ids["score"], default["score"], rtol=1e-6)

    limits = {key: value for key, value in REQUEST.items() if value}
    limited = translator.generate(LINES, beam_size=BEAM, **limits)
    assert [text.decode() for text in options["translation"]] == [t.text for t in limited]
    np.testing.assert_allclose(options["score"], [t.score for t in limited], rtol=1e-5)
    assert [t.text for t in limited] != [t.text for t in expected]

    given = translator.score(LINES, TARGETS)
    log_probs = [float(t.token_log_probs.sum()) if t.token_ids else 0.0 for t in given]
    np.testing.assert_allclose(score["log_prob"], log_probs, rtol=1e-5)
    assert score["log_prob"][4] == -np.inf  # no text has that translation
    assert score["lengths"].tolist() == [len(t.token_ids) for t in given]


def assert_n_best(found, expected):
    """Padded arrays against the tuples of `generate`."""
    for row, translation in enumerate(expected):
        source_length = len(translation.source_tokens)
        assert found["source_lengths"][row] == source_length
        tokens = [token.decode() for token in found["source_tokens"][row]]
        assert tokens == [*translation.source_tokens, *[""] * (len(tokens) - source_length)]
        for n, one in enumerate(translation.n_best or [translation]):
            length = found["target_lengths"][row, n]
            assert length == len(one.tokens)
            assert found["translations"][row, n].decode() == one.text
            tokens = [token.decode() for token in found["target_tokens"][row, n]]
            assert tokens == [*one.tokens, *[""] * (len(tokens) - length)]
            np.testing.assert_allclose(found["scores"][row, n], one.score, rtol=1e-5)
            alignment = found["alignments"][row, n]
            if length:
                np.testing.assert_allclose(alignment[:length, :source_length], one.alignment, atol=1e-5)
            assert not alignment[length:].any()
            assert not alignment[:, source_length:].any()


# test_export.py has an RNNSearch. Of the rest these have the operations that the others have.
@pytest.mark.parametrize("name", ["luong, local-p", "rnmt_plus", "hard_monotonic", "transformer"])
def test_the_c_program_says_the_same(served, program, name):
    _, folder, (default, translate, n_best, *_, score) = served[name]
    pairs = [line.encode() for pair in zip(LINES, TARGETS, strict=True) for line in pair]  # `score` reads them as such
    # `serving_default`, `translate` and `translate_with_options` call one function: test_export.py runs all three.
    signatures = ("translate_with_options", "translate_n_best", "score")
    done, found = loader.run(program, folder, pairs, *(word for name in signatures for word in ("--signature", name)))
    assert done.returncode == 0, done.stderr
    assert found.keys() == set(signatures)
    assert_same(found["translate_with_options"], default, step=2)  # its options left to their defaults
    assert_same(translate, default)
    assert_same(found["translate_n_best"], n_best, step=2)
    assert_same(found["score"], score)


def assert_same(found, expected, step=1):
    """Equal strings and close numbers in every `step`-th row, as far as the other lines of its batch let both reach."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        rows = found[name][::step]
        both = tuple(map(slice, np.minimum(rows.shape, values.shape)))
        if values.dtype == object:
            np.testing.assert_array_equal(rows[both], values[both], name)
        else:
            # A batch of another size sums in another order: 1.3e-5 was seen in a score of 13 tokens.
            np.testing.assert_allclose(rows[both], values[both], rtol=3e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_the_stock_server_has_the_operations(served, name):
    import tensorflow as tf
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    _, folder, _ = served[name]
    (graph,) = SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs
    functions = graph.graph_def.library.function
    nodes = [*graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    ops = {node.op for node in nodes} - {function.signature.name for function in functions}
    assert all(op.startswith("_") or hasattr(tf.raw_ops, op) for op in ops), "ops of other libraries"
    assert not [op for op in ops if "PyFunc" in op or "Mutable" in op or op.startswith("Xla")]
    assert not any(part.attr["_XlaMustCompile"].b for part in [*nodes, *functions])
    assert not any("GPU" in node.device or "TPU" in node.device for node in nodes)
    for signature_name, signature in graph.signature_def.items():
        for tensor_name, info in [*signature.inputs.items(), *signature.outputs.items()]:
            is_number = signature_name == "translate_with_options" and tensor_name in signature.defaults
            if not is_number and not signature_name.startswith("__"):  # the loader's own, for initialization
                assert info.tensor_shape.dim[0].size == -1, f"{signature_name}: {tensor_name} has no free batch axis"
    assert sum("search_rows" in function.signature.name for function in functions) == 2, "shared by the signatures"
