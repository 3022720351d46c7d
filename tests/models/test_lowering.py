"""Every model on JAX as XLA gets it for TPU and CUDA: static shapes, no host callbacks, a program a bucket.

A program is traced once and lowered for each platform, which needs no device of it. What XLA's compiler for that device
then makes of it is not seen here.
"""

import logging
import re

import keras
import numpy as np
import pytest

import keras_attn as ka
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from keras_attn.models import SearchModel
from keras_attn.search import beam_search, greedy_search
from tests.contracts.model_rows import MODELS, ONE_EACH, STATEFUL, VS, VT, B, S, T, make

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="only JAX lowers a program for a device that is not there"
)

PLATFORMS = ("tpu", "cuda")
DYNAMIC = re.compile(r"tensor<[^>]*\?")  # a dimension whose size is known only when the program runs
ON_THE_HOST = re.compile(r"callback|infeed|outfeed|stablehlo\.(?:send|recv)|host_transfer")


def check(traced):
    """Lowers a traced program for both platforms, with a branch for each where they differ, and checks its text."""
    text = traced.lower(lowering_platforms=PLATFORMS).as_text()
    assert "func.func public @main" in text
    assert not DYNAMIC.findall(text)
    assert not ON_THE_HOST.findall(text)


@pytest.mark.parametrize("name", MODELS)
def test_the_training_step_lowers_for_accelerators(name):
    import jax

    model = make(name)
    model.compile(
        keras.optimizers.Adam(1e-3, global_clipnorm=1.0),
        SmoothedCrossentropy(0.1, vocabulary_size=VT),
        weighted_metrics=[Perplexity(), TokenAccuracy()],
    )
    inputs = {"encoder_token_ids": np.ones((B, S), "int32"), "decoder_token_ids": np.ones((B, T), "int32")}
    batch = inputs, np.ones((B, T), "int32"), np.ones((B, T), "float32")
    model.compute_metrics(inputs, batch[1], np.zeros((B, T, VT), "float32"), batch[2])  # makes the metrics' variables
    model.optimizer.build(model.trainable_variables)
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([variable.value for variable in group] for group in groups)
    check(jax.jit(model.train_step).trace(state, batch))


@pytest.mark.parametrize("name", [*ONE_EACH, *STATEFUL])
def test_the_searches_lower_for_accelerators(name, monkeypatch):
    """The program that `generate` compiles is lowered in the place of being compiled and run."""
    import jax

    jit, lowered = jax.jit, []

    def lowering(function):
        def program(*arguments):
            traced = jit(function).trace(*arguments)
            check(traced)
            lowered.append(function.__name__)
            return jax.tree.map(lambda out: np.zeros(out.shape, out.dtype), traced.out_info)

        return program

    model, length = make(name), 8
    inputs = {"encoder_token_ids": np.ones((B, S), "int32"), "row_max_length": np.full(B, length, "int32")}
    monkeypatch.setattr(jax, "jit", lowering)
    for search, options in ((greedy_search, {}), (beam_search, {"beam_size": 3})):
        found = SearchModel(model, search, length, **options, return_alignments=True).predict_on_batch(inputs)
        assert found["token_ids"].shape[0] == B
    assert lowered == ["program"] * 2


@pytest.fixture
def compiled(caplog):
    """Returns the names of the programs that JAX has compiled since it was last called."""
    import jax

    def names():
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return [found[1] for message in messages if (found := re.match(r"Compiling (?:jit\()?(\w+)", message))]

    with jax.log_compiles(), caplog.at_level(logging.WARNING, "jax"):
        yield names


def lines(random, lengths, words):
    return [" ".join(f"w{word}" for word in random.integers(words, size=length)) for length in lengths]


@pytest.mark.parametrize("name", ["rnnsearch", "transformer"])
def test_a_program_a_bucket(name, rng, compiled):
    """`fit` and `generate`; then no later epoch and no other sentence compiles anything."""
    model = make(name)
    pairs = [[rng.integers(4, size, length).tolist() for length in (3, 9) for _ in range(5)] for size in (VS, VT)]
    data = ka.ParallelDataset(*pairs, batch_size=4, bucket_boundaries=[4, 10])
    assert data.shapes == [(4, 4, 4), (4, 10, 10)]
    model.compile("sgd", SmoothedCrossentropy())
    compiled()
    model.fit(data, epochs=1, verbose=0)
    assert compiled().count("train_step") == 2
    model.fit(data, epochs=2, verbose=0)
    assert compiled() == []

    tokenizers = [ka.Tokenizer.train([" ".join(f"w{n}" for n in range(V - 4))], level="word") for V in (VS, VT)]
    translator, lengths = ka.Translator(model, *tokenizers), [3, 7] * 4  # with their ends: buckets of 4 and 8
    for turn, count in enumerate((2, 0)):
        translator.generate(lines(rng, np.roll(lengths, turn), VS - 4), beam_size=2, batch_size=4)
        assert [name for name in compiled() if name == "program" or turn] == ["program"] * count
    for length, count in ((3, 1), (7, 0), (15, 0), (16, 1)):  # alone, with its end: 16 and 32
        translator.generate(*lines(rng, [length], VS - 4), beam_size=2)
        assert [name for name in compiled() if name == "program" or not count] == ["program"] * count
