"""The vocabulary's matrices in parts on six virtual devices of JAX, padded: the course and the files of one device."""

import json

import keras
import numpy as np
import pytest

from tests.data_parallel import finish, start

VS, VT, BOTH, PARTS = 11, 13, 13, 3  # neither size is a multiple of the parts
SCRIPT = """
import json, sys
import keras
import numpy as np
from keras_attn import ParallelDataset
from keras_attn.backend import data_parallel, training_devices
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity
from keras_attn.models import RNNSearch, TransformerSeq2Seq

folder, VS, VT, BOTH, PARTS = sys.argv[1], *map(int, sys.argv[2:])
random = np.random.default_rng(3)
rows = [[random.integers(4, size, 5).tolist() for _ in range(4)] for size in (VS, VT)]
data = ParallelDataset(*rows, batch_size=4, bucket_boundaries=1, shuffle=False)
small = dict(units=6, num_layers=1, num_heads=2, feed_forward_units=7, dropout=0.0)
makers = {
    "rnnsearch": lambda: RNNSearch(VS, VT, units=5, embedding_size=7, readout_size=6, attention_units=3),
    "tied": lambda: TransformerSeq2Seq(BOTH, BOTH, **small, tie_embeddings="all"),
}

def trained(name, parts):
    keras.utils.set_random_seed(5)
    model = makers[name]()
    average = {"use_ema": True, "ema_momentum": 0.5, "epsilon": 1e-3}  # rounding alone moves nothing
    optimizer = keras.optimizers.Adam(0.02, global_clipnorm=1.0, name="adam", **average)
    model.compile(optimizer, SmoothedCrossentropy(0.1), weighted_metrics=[Perplexity()])
    history = model.fit(data, epochs=3, shuffle=False, verbose=0).history
    arrays = {v.path: v.value for v in [*model.variables, *optimizer.variables]}
    weights = {  # looked at now, because predicting takes the memory of the averages that `fit` made the weights
        "parts": {path: [value.shape, value.sharding.shard_shape(value.shape)] for path, value in arrays.items()},
        "padding": [float(np.abs(np.array(a)[VT:]).sum()) for path, a in arrays.items() if "target_embedding" in path],
    }
    bare = type(model).from_config(model.get_config())  # as in presets
    bare.set_weights(model.get_weights())
    bare.save(f"{folder}/{name}-{parts}.keras")
    logits = model.predict_on_batch(data[0][0])
    return {
        "history": history,
        "logits": logits.tolist(),
        **weights,
    }

for name in makers:
    print(json.dumps(trained(name, 1)))
    with data_parallel(training_devices(), PARTS):
        print(json.dumps(trained(name, PARTS)))
        loaded = keras.saving.load_model(f"{folder}/{name}-1.keras")  # into a padded model
        print(json.dumps(loaded.predict_on_batch(data[0][0]).tolist()))
"""


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="Keras divides variables on JAX alone")
def test_parts_of_a_padded_vocabulary_train_as_the_whole(tmp_path):
    command = ("-c", SCRIPT, str(tmp_path), *map(str, (VS, VT, BOTH, PARTS)))
    ((status, output, errors),) = finish(start(*command, XLA_FLAGS="--xla_force_host_platform_device_count=6"))
    assert status == 0, errors
    lines = [json.loads(line) for line in output.splitlines() if line.startswith(("{", "["))]
    for name, (one, parts, loaded) in zip(("rnnsearch", "tied"), (lines[:3], lines[3:]), strict=True):
        for key, values in one["history"].items():
            np.testing.assert_allclose(parts["history"][key], values, rtol=1e-6, err_msg=f"{name} {key}")
        np.testing.assert_allclose(parts["logits"], one["logits"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(loaded, one["logits"], rtol=1e-5, atol=1e-6)
        assert np.shape(parts["logits"])[-1] == VT
        assert parts["padding"] == [0.0] * 4  # of the matrix, its average and its two moments
        _check_parts(parts["parts"])
        saved = [keras.saving.load_model(tmp_path / f"{name}-{kind}.keras") for kind in (1, PARTS)]
        assert [type(layer) for layer in saved[0].layers] == [type(layer) for layer in saved[1].layers]
        for values, expected in zip(saved[1].get_weights(), saved[0].get_weights(), strict=True):
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


def _check_parts(found: dict):
    axes = {"source_embedding_embeddings": 0, "target_embedding_embeddings": 0, "output_kernel": 1, "output_bias": 0}
    divided = 0
    for path, (whole, part) in found.items():
        variable = path.removeprefix("adam/").replace("/", "_")
        axis = next((axis for name, axis in axes.items() if variable.startswith(name)), None)
        expected = list(whole)
        if axis is not None:
            assert whole[axis] in (12, 15)
            expected[axis] //= PARTS
            divided += 1
        assert part == expected, path
    assert divided in (4, 16)  # one matrix or four, each with an average and two moments
