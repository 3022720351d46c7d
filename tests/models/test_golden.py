"""One committed set of weights and inputs: the same logits on every backend, and in NumPy.

`tests/fixtures/rnnsearch.npz` contains the weights of a small RNNSearch under their paths, the inputs, and the logits
that the oracle gave for them. `python -m tests.models.test_golden` writes it anew when the model is meant to change.
"""

from pathlib import Path

import numpy as np
from keras import ops

from keras_attn.models import RNNSearch
from tests.oracles import rnnsearch

PATH = Path(__file__).parents[1] / "fixtures" / "rnnsearch.npz"
SOURCE, TARGET = 31, 37
SIZES = {"units": 7, "embedding_size": 11, "readout_size": 13, "attention_units": 17, "decoder_units": 19}


def load():
    with np.load(PATH, allow_pickle=False) as file:
        arrays = dict(file)
    inputs = {name: arrays.pop(name) for name in ("encoder_token_ids", "decoder_token_ids")}
    return inputs, arrays.pop("logits"), arrays


def model_with(weights):
    model = RNNSearch(SOURCE, TARGET, **SIZES)
    variables = {variable.path: variable for variable in model.trainable_weights}
    assert {path: tuple(v.shape) for path, v in variables.items()} == {p: a.shape for p, a in weights.items()}
    for path, array in weights.items():
        variables[path].assign(array)
    return model


def test_logits_equal_the_committed_ones():
    inputs, logits, weights = load()
    np.testing.assert_allclose(ops.convert_to_numpy(model_with(weights)(inputs)), logits, atol=1e-5)


def test_the_committed_logits_are_the_oracles():
    inputs, logits, weights = load()
    expected = rnnsearch(weights, inputs["encoder_token_ids"], inputs["decoder_token_ids"])
    np.testing.assert_allclose(logits, expected, atol=1e-6)
    assert logits.std() > 0.5  # weights large enough for a mistake to show


if __name__ == "__main__":
    rng = np.random.default_rng(2015)
    source, target = rng.integers(4, SOURCE, (5, 9)), rng.integers(4, TARGET, (5, 8))
    source[1, 5:], source[2, :3], source[3, 1:] = 0, 0, 0
    weights = {
        v.path: rng.normal(scale=0.4, size=v.shape).astype("float32")
        for v in RNNSearch(SOURCE, TARGET, **SIZES).trainable_weights
    }
    np.savez_compressed(
        PATH,
        encoder_token_ids=source.astype("int32"),
        decoder_token_ids=target.astype("int32"),
        logits=rnnsearch(weights, source, target).astype("float32"),
        **weights,
    )
