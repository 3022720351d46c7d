"""Models learn to reverse a sequence, and to read symbols once or twice, within a few hundred updates."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import models
from keras_attn.losses import SmoothedCrossentropy
from tests.contracts.model_rows import MODELS

pytestmark = pytest.mark.nightly

REVERSAL = {  # without what is monotonic, which reverses nothing; its task is below
    "rnnsearch": {"units": 24, "embedding_size": 16, "readout_size": 32, "attention_units": 24, "decoder_units": 24},
    "rnnencdec": {"units": 64, "embedding_size": 24, "readout_size": 48},
    "lstm_seq2seq": {"units": 48, "num_layers": 2, "embedding_size": 32},
    "luong": {"units": 32, "num_layers": 1, "embedding_size": 24, "readout_size": 32},
    "nematus": {"units": 24, "embedding_size": 16, "attention_units": 24},
    # One layer: those above read forwards alone, so that h_j knows the words before j, and another h may serve as well.
    "gnmt": {"units": 32, "embedding_size": 24, "encoder_layers": 1, "decoder_layers": 2, "scale_embeddings": True},
    "rnmt_plus": {"units": 24, "embedding_size": 16, "encoder_layers": 1, "decoder_layers": 2, "num_heads": 2},
    "transformer": {"units": 32, "num_layers": 1, "num_heads": 1, "feed_forward_units": 64, "dropout": 0.0},
}
WITHOUT_ATTENTION = ("rnnencdec", "lstm_seq2seq")


@pytest.mark.parametrize("name", REVERSAL)
def test_learns_to_reverse_a_sequence(name):
    """Within 160 updates it copies backwards; with attention, the alignment shows the anti-diagonal."""
    length, symbols = (4, 6) if name in WITHOUT_ATTENTION else (6, 8)
    source = np.random.default_rng(0).integers(4, 4 + symbols, (1000, length)).astype("int32")
    target = source[:, ::-1]
    ids = {
        "encoder_token_ids": source,
        "decoder_token_ids": np.concatenate([np.full((1000, 1), 2), target[:, :-1]], 1).astype("int32"),
    }
    model = MODELS[name][0](4 + symbols, 4 + symbols, **REVERSAL[name], initializer="glorot_uniform")
    rate = keras.optimizers.schedules.CosineDecay(0.01, 160)
    optimizer = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossentropy(0.0), weighted_metrics=["accuracy"])
    model.fit(ids, target, batch_size=50, epochs=8, verbose=0)
    assert model.evaluate(ids, target, batch_size=50, verbose=0, return_dict=True)["accuracy"] > 0.99
    if name not in WITHOUT_ATTENTION:
        first = (ops.convert_to_tensor(array[:50]) for array in ids.values())
        alignments = ops.convert_to_numpy(model.align(*first)[1])  # (B, T, S)
        assert (alignments.argmax(-1) == np.arange(length)[::-1]).mean() > 0.9


SYMBOLS = 11


@pytest.mark.parametrize("order", [0, 1])
def test_learns_to_read_each_symbol_once_or_twice(order):
    """Symbols below 8 are copied, those above twice; with order 0 the posterior finds which was read from which."""
    keras.utils.set_random_seed(7)
    random = np.random.default_rng(7)
    rows = [random.integers(4, SYMBOLS, 4) for _ in range(256)]
    spelled = [[y for x in row for y in [x] * (1 + (x > 7))] for row in rows]
    source = np.array([[*row, 3] for row in rows], "int32")
    target, labels = (np.zeros((256, 9), "int32") for _ in range(2))
    for n, row in enumerate(spelled):
        target[n, : len(row) + 1], labels[n, : len(row) + 1] = [2, *row], [*row, 3]
    model = models.HardMonotonicSeq2Seq(
        SYMBOLS,
        SYMBOLS,
        units=16,
        num_layers=1,
        embedding_size=16,
        readout_size=24,
        order=order,
        initializer="glorot_uniform",
    )
    model.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy(0.0))
    batch = {"encoder_token_ids": source, "decoder_token_ids": target}
    model.fit(batch, labels, sample_weight=(labels > 0) * 1.0, batch_size=32, epochs=12, verbose=0)
    chosen = model.predict(batch, verbose=0).argmax(-1)
    assert (chosen == labels)[labels > 0].mean() > 0.98
    if order == 0:  # with order 1 the encoder may move a symbol to its neighbour's place, and all jumps with it
        ids = [ops.convert_to_tensor(array[:1]) for array in (source, target)]
        posterior = ops.convert_to_numpy(model.align_posterior(*ids))[0, : len(spelled[0])]
        read_from = [j for j, x in enumerate(rows[0]) for _ in range(1 + (x > 7))]
        assert (posterior.argmax(-1) == read_from).mean() > 0.7
