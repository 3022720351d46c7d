"""`fit` with batches of few static shapes: traced once, under XLA too, in the dataset's order; one seed, one result."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import ParallelDataset
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity
from keras_attn.models import RNNSearch

VOCABULARY, BUCKETS = 23, [7, 13]
SIZES = {"units": 3, "embedding_size": 5, "readout_size": 4, "attention_units": 3}
on_tensorflow = keras.backend.backend() == "tensorflow"


class Recording(ParallelDataset):
    """Notes the indices of the batches that are read."""

    read: list[int]

    def __getitem__(self, index):
        self.read.append(index)
        return super().__getitem__(index)


def dataset(**options) -> Recording:
    """Target = source reversed, 1 to 12 words, in 2 buckets."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(4, VOCABULARY, rng.integers(1, 13)).tolist() for _ in range(60)]
    options = {"batch_size": 8, "bucket_boundaries": BUCKETS} | options
    data = Recording(rows, [row[::-1] for row in rows], **options)
    data.read = []
    return data


def trained(dropout=0.2, jit_compile="auto", epochs=2, **options):
    """A model after some epochs, the history, the shapes for which its loss was traced, and the data."""
    keras.utils.set_random_seed(5)
    model = RNNSearch(VOCABULARY, VOCABULARY, **SIZES, output_dropout=dropout, initializer="glorot_uniform")
    traced, loss, data = [], SmoothedCrossentropy(0.0), dataset()

    def counted(y_true, y_pred):
        traced.append(tuple(y_pred.shape[:2]))
        return loss(y_true, y_pred)

    model.compile(keras.optimizers.Adam(0.01), counted, jit_compile=jit_compile)
    history = model.fit(data, epochs=epochs, verbose=0, **options).history["loss"]
    return model, history, traced, data


@pytest.fixture(scope="module")
def run():
    return trained()


def test_each_shape_is_traced_once_and_the_loss_falls(run):
    _, history, traced, data = run
    assert history[1] < history[0] < np.log(2 * VOCABULARY)
    assert len(data.shapes) == len(BUCKETS)
    if keras.backend.backend() != "torch":
        assert len(traced) == 1 if on_tensorflow else len(traced) <= 1 + len(BUCKETS), "Keras on JAX traces one more"


def test_one_seed_gives_one_set_of_weights(run):
    for a, b in zip(run[0].get_weights(), trained()[0].get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_models_keep_the_order_of_a_dataset_unless_another_is_chosen(run):
    for (_, _, _, data), chosen in ((run, False), (trained(epochs=1, shuffle=True), True)):
        order = data.read[-len(data) :]  # Keras looks at some batches beforehand
        assert (order == list(range(len(data)))) != chosen
        assert sorted(order) == list(range(len(data)))


def epochs_of_steps(model, data, **options):
    """The epoch of the dataset at each step of `fit`."""
    found = []
    note = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: found.append(data.epoch))
    callbacks = [note, *options.pop("callbacks", [])]
    model.fit(data, verbose=0, callbacks=callbacks, **options)
    return found


def test_fit_reads_the_epochs_that_keras_counts_and_evaluate_none(run, tmp_path):
    """With `initial_epoch`, after an interruption with `BackupAndRestore`, and in one call after the other."""
    model = run[0]

    def stop(epoch, logs):
        if epoch == 2:
            raise KeyboardInterrupt

    data, before, after = (dataset(batches_per_epoch=2, bucket_boundaries=1) for _ in range(3))
    assert epochs_of_steps(model, data, epochs=2, validation_data=data) == [0, 0, 1, 1]
    assert (model.evaluate(data, verbose=0) > 0, data.epoch) == (True, 2)
    assert epochs_of_steps(model, data, epochs=1) == [2, 2]
    assert epochs_of_steps(model, data, epochs=6, initial_epoch=5) == [5, 5]
    assert epochs_of_steps(model, data, epochs=1) == [6, 6]
    backup, interrupt = keras.callbacks.BackupAndRestore(tmp_path), keras.callbacks.LambdaCallback(on_epoch_begin=stop)
    with pytest.raises(KeyboardInterrupt):
        epochs_of_steps(model, before, epochs=4, callbacks=[backup, interrupt])
    assert epochs_of_steps(model, after, epochs=4, callbacks=[backup]) == [2, 2, 3, 3]


def test_weights_of_sentences_leave_padding_out(run):
    """Of Keras' loss as of ours: they are the weights of the tokens."""
    model, inputs, labels = run[0], *dataset()[0][:2]
    logits, per_sentence = ops.stop_gradient(model(inputs)), np.linspace(0.5, 2, len(labels)).astype("float32")
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    for loss in (SmoothedCrossentropy(0.0), crossentropy):
        model.compile("adam", loss, weighted_metrics=[Perplexity()])
        found = []
        for weights in (per_sentence, per_sentence[:, None], per_sentence[:, None] * (labels != 0)):
            model.reset_metrics()
            found.append(float(model.compute_loss(inputs, labels, logits, weights)))
            found.append(np.log(float(model.compute_metrics(inputs, labels, logits, weights)["perplexity"])))
        np.testing.assert_allclose(found, found[-1], rtol=1e-5)


def test_predict_of_several_buckets_is_refused_and_of_one_is_an_array(run):
    with pytest.raises(ValueError, match=r"Expected a dataset of one bucket .* Received: batches .*\(8, 7, 7\)"):
        run[0].predict(dataset())
    data = dataset(bucket_boundaries=1)
    assert run[0].predict(data, verbose=0).shape == (64, 13, VOCABULARY)
    assert data.epoch == 0


@pytest.mark.skipif(not on_tensorflow, reason="the other backends have one way each")
def test_tensorflow_with_and_without_xla_agree(run, monkeypatch):
    """With rows of unknown length, and gradients of all kernels after the loop."""
    assert not run[0].jit_compile
    monkeypatch.setattr("keras_attn.backend.tensorflow_loops.LEAST_WIDTH", 1)
    plain, compiled = (trained(dropout=0.0, jit_compile=jit_compile) for jit_compile in ("auto", True))
    assert compiled[0].jit_compile
    np.testing.assert_allclose(plain[1], compiled[1], rtol=1e-4)
    assert len(compiled[2]) == 1
