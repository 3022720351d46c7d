"""Every kind of model can be served: each signature of a version gives what Python gives.

So does the C program, which loads a version as the stock server does, without Python and XLA. The rows also have what
an export can add to a model: a pointer, a shortlist, sources of one length.
"""

import itertools
from functools import partial

import keras
import numpy as np
import pytest

from keras_attn import LocalPredictiveAttention, models, with_shortlist
from keras_attn.export import ExportOptions
from keras_attn.text import END_ID, Tokenizer
from keras_attn.translation import Translator
from tests.contracts.model_rows import make
from tests.export.small import NEEDS_TENSORFLOW, SENTENCES, run, shortlist_of
from tests.serving import loader

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason=NEEDS_TENSORFLOW)
BEAM = 3
MODELS = {
    "luong, local-p, of one length": partial(
        make,
        "luong",
        attention=LocalPredictiveAttention("concat", window=3),
        scale_embeddings=True,
        mask_padding=False,
        source_length=7,
    ),
    "ensemble, shortlist": lambda **sizes: models.Ensemble(
        [make("rnnsearch", **sizes), make("nematus", **sizes, tie_embeddings="target")]
    ),
    "hard_monotonic": partial(make, "hard_monotonic", order=1),
    "transformer": partial(make, "transformer"),
    "pointer": partial(make, "rnnsearch", pointer=True),
}
SELDOM = {"pointer, characters": MODELS["pointer"]}
SELDOM |= {name: partial(make, name) for name in ("rnnencdec", "lstm_seq2seq", "luong", "gnmt")}
# Of few layers: with weights as large as these, the norms of many enlarge what float32 rounds, to 2e-5.
SELDOM |= {"rnmt_plus": partial(make, "rnmt_plus", encoder_layers=1, decoder_layers=2)}
every_model = pytest.mark.parametrize(
    "served", [*MODELS, *(pytest.param(name, marks=pytest.mark.nightly) for name in SELDOM)], indirect=True
)
PAIRS = [
    ("ein Mann läuft über die Straße .", "un deux trois"),
    ("zwei Hunde sahen Zoë , Bo und ZOË", "Zoë und Zoë"),
    ("Eine Frau liest ein Buch , und der Mann schläft .", ""),
    ("drei Kinder laufen durch den Wald", "où à été rouge vert bleu"),
    (" ", "gris"),
    ("ein Hund", "noir blanc Hund"),
]
LINES, TARGETS = map(list, zip(*PAIRS, strict=True))
REQUEST = {"length_penalty": 0.6, "max_length": 0, "max_length_ratio": 0.7, "min_length": 3, "min_length_ratio": 0.4}


def build(name: str) -> Translator:
    if "pointer" in name:
        level = "character" if "characters" in name else "word"
        source = target = Tokenizer.train(["und sah sahen zwei Hunde"], level=level, lowercase=True)
    else:
        source = Tokenizer.train(SENTENCES, level="word", lowercase=True)
        target = Tokenizer.train(["un deux trois l’été là où à été rouge vert bleu gris noir blanc"], level="word")
    sizes = {"source_vocabulary_size": source.vocabulary_size, "target_vocabulary_size": target.vocabulary_size}
    model = (MODELS | SELDOM)[name](**sizes)
    translator = Translator(model, source, target, max_length_ratio=1.0, max_length_constant=3)
    if "shortlist" in name:
        translator = with_shortlist(translator, shortlist_of(model, unknown=99))
    return with_varied_translations(translator)


def with_varied_translations(translator: Translator) -> Translator:
    """With large random weights that write neither endless sentences nor empty ones, nor two of nearly one score."""
    model, size = translator.model, translator.target_tokenizer.vocabulary_size
    for attempt in range(9):
        for i, weight in enumerate(model.trainable_weights):
            weight.assign(keras.random.normal(weight.shape, stddev=1.6, seed=1000 * attempt + i))
        if model.pointer:
            model.pointer_generator.bias.assign([-20.0])
        biases = [weight for weight in model.trainable_weights if tuple(weight.shape) == (size,)]
        for end in (-2, -5, -20, -999):
            for bias in biases:
                bias.assign(np.where(np.arange(size) == END_ID, end, keras.ops.convert_to_numpy(bias)))
            found = translator.generate(LINES, beam_size=BEAM, n_best=BEAM, return_alignments=False)
            gaps = [a.score - b.score for t in found for a, b in itertools.pairwise(t.n_best)]
            if min(gaps) > 1e-4 and len({t.text for t in found}) > 3:
                return translator
    raise AssertionError("hypotheses of nearly the same score, whatever the weights")


@pytest.fixture(scope="module")
def served(request, tmp_path_factory):
    """The translator, its version, and the outputs of each call."""
    from keras_attn.export.signatures import ServedTranslator

    translator, folder = build(request.param), tmp_path_factory.mktemp("served")
    ServedTranslator(translator, ExportOptions(beam_size=BEAM)).save(str(folder))
    text, target = ([line.encode() for line in lines] for lines in (LINES, TARGETS))
    ids = [[*translator.source_tokenizer.encode(line), END_ID] if line.strip() else [] for line in LINES]
    longest = max(map(len, ids))
    # The server pads with a request's first element, whatever it is; ids from elsewhere are unknown.
    padded = [row + [ids[0][0]] * (longest - len(row)) for row in ids]
    calls = [
        ("serving_default", {"text": text}),
        ("translate", {"text": text}),
        ("translate_n_best", {"text": text}),
        ("translate_with_options", {"text": text} | REQUEST),
        ("translate_token_ids", {"token_ids": padded, "lengths": [len(row) for row in ids]}),
        ("score", {"source": text, "target": target}),
    ]
    return translator, folder, run(folder, calls)


@every_model
def test_every_signature_gives_what_python_gives(served):
    translator, _, (default, translate, n_best, options, token_ids, score) = served
    expected = translator.generate(LINES, beam_size=BEAM, n_best=BEAM)
    for found in (default, translate):
        assert [text.decode() for text in found["translation"]] == [t.text for t in expected]
        np.testing.assert_allclose(found["score"], [t.score for t in expected], rtol=1e-5)
    assert_n_best(n_best, expected, translator.model.mask_padding)
    size = translator.target_tokenizer.vocabulary_size
    if translator.model.pointer:  # ids come without text, whose words could be copied
        assert any(token_id >= size for t in expected for token_id in t.token_ids)
        assert token_ids["token_ids"].max() < size
    else:
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
    if translator.shortlist is not None:
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        whole = Translator(translator.model, *tokenizers, **translator.length_arguments).generate(LINES, beam_size=BEAM)
        assert [t.text for t in whole] != [t.text for t in expected], "a shortlist worth comparing"


def assert_n_best(found, expected, mask_padding):
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
            assert not (mask_padding and alignment[:, source_length:].any())


@every_model
def test_the_c_program_gives_the_same(served, program):
    """`serving_default`, `translate` and `translate_with_options` call one function."""
    _, folder, (default, _, n_best, *_, score) = served
    pairs = [line.encode() for pair in PAIRS for line in pair]  # `score` reads them as such
    signatures = ("translate_with_options", "translate_n_best", "score")
    done, found = loader.run(program, folder, pairs, *(word for name in signatures for word in ("--signature", name)))
    assert done.returncode == 0, done.stderr
    assert found.keys() == set(signatures)
    assert_same(found["translate_with_options"], default, step=2)  # its options left to their defaults
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


@every_model
def test_the_stock_server_has_the_operations(served):
    import tensorflow as tf
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    _, folder, _ = served
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
