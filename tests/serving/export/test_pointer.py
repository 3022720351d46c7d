"""A served model with a pointer writes words that are in no vocabulary, as Python does, also in the C program."""

import keras
import numpy as np
import pytest

from keras_attn import models
from keras_attn.export import ExportOptions
from keras_attn.text import Tokenizer
from keras_attn.translation import Translator
from tests.serving import fresh, loader
from tests.serving.export.test_every_model import assert_n_best, assert_same

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is TensorFlow's"),
]
LINES = ["Zoë sah Ümit und ZOË", "zwei Hunde sahen Bo , Bo und bo", "", " ", "Ann", "und sah"]
TARGETS = ["Zoë und Zoë", "bo hunde", "", "Bo", "Bo", "und"]
BEAM = 3


@pytest.fixture(scope="module", params=["word", "character"])
def served(request, tmp_path_factory):
    from keras_attn.export.signatures import ServedTranslator

    tokenizer = Tokenizer.train(["und sah sahen zwei Hunde"], level=request.param, lowercase=True)
    size = tokenizer.vocabulary_size
    sizes = {"units": 5, "embedding_size": 7, "readout_size": 11, "attention_units": 3}
    model = models.RNNSearch(size, size, **sizes, initializer="glorot_uniform", pointer=True)
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(1.6 * random.normal(size=weight.shape))
    model.pointer_generator.bias.assign([-20.0])
    translator = Translator(model, tokenizer, tokenizer, max_length_ratio=1.0, max_length_constant=3)
    folder = tmp_path_factory.mktemp("served")
    ServedTranslator(translator, ExportOptions(beam_size=BEAM)).save(str(folder))
    return translator, folder


def test_every_signature_says_what_python_says(served, program):
    translator, folder = served
    text, targets = [line.encode() for line in LINES], [line.encode() for line in TARGETS]
    ids = [*translator.source_tokenizer.encode("sah und"), 3]
    ids = [ids, [99, 1, *[3] * (len(ids) - 2)]]
    calls = [
        ("translate", {"text": text}),
        ("translate_n_best", {"text": text}),
        ("score", {"source": text, "target": targets}),
        ("translate_token_ids", {"token_ids": ids, "lengths": [len(ids[0]), 3]}),
    ]
    ((best, n_best, score, token_ids),) = fresh.run([(folder, calls)])
    expected = translator.generate(LINES, beam_size=BEAM, n_best=BEAM)
    size = translator.target_tokenizer.vocabulary_size
    assert any(token_id >= size for one in expected for token_id in one.token_ids)
    assert [line.decode() for line in best["translation"]] == [one.text for one in expected]
    assert_n_best(n_best, expected)
    given = translator.score(LINES, TARGETS)
    log_probs = [float(one.token_log_probs.sum()) if one.token_ids else 0.0 for one in given]
    np.testing.assert_allclose(score["log_prob"], log_probs, rtol=1e-5)
    known = translator.generate(["sah und"], beam_size=BEAM)[0].token_ids
    assert token_ids["token_ids"][0, : len(known)].tolist() == list(known)
    assert token_ids["token_ids"].max() < size  # without text there are no words to copy but those of the vocabulary

    done, found = loader.run(program, folder, [line for pair in zip(text, targets, strict=True) for line in pair])
    assert done.returncode == 0, done.stderr
    assert_same(found["translate"], best, step=2)
    assert_same(found["translate_n_best"], n_best, step=2)
    assert_same(found["score"], score)
