"""What a user does to single layers of a model is kept when it is copied, saved and loaded."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from keras_attn import models
from keras_attn.losses import SmoothedCrossentropy
from tests.arrays import same
from tests.contracts.model_rows import some_inputs

SIZES = {"units": 5, "embedding_size": 7, "readout_size": 11}
IDS = some_inputs()


def saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.saving.load_model(tmp_path / "model.keras")


def test_frozen_layers_stay_frozen_and_the_optimizer_goes_on(tmp_path):
    model = models.LuongSeq2Seq(31, 37, **SIZES)
    assert "changed_layers" not in model.get_config()
    model.source_embedding.trainable = False
    model.decoder.attention.trainable = False
    model.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy())
    labels = np.roll(IDS["decoder_token_ids"], -1, axis=1)
    model.train_on_batch(IDS, labels)
    again = saved_and_loaded(model, tmp_path)
    for other in (again, models.copy_model(model, "copy")):
        assert not other.source_embedding.trainable
        assert not other.decoder.attention.trainable
        assert len(other.trainable_weights) == len(model.trainable_weights)
    assert int(again.optimizer.iterations) == 1
    for one in (model, again):
        one.train_on_batch(IDS, labels)
    same(again.get_weights(), model.get_weights(), atol=1e-6)


def test_a_part_of_a_frozen_layer_may_train(tmp_path):
    model = models.NematusSeq2Seq(31, 37, units=5, embedding_size=7, decoder_transitions=2)
    model.decoder.trainable = False
    model.decoder.attention.trainable = True
    expected = [weight.path for weight in model.trainable_weights]
    assert any("attention" in path for path in expected)
    for other in (saved_and_loaded(model, tmp_path), models.copy_model(model, model.name)):
        assert [weight.path for weight in other.trainable_weights] == expected


def test_an_argument_that_was_frozen_may_be_trained_later(tmp_path):
    ids = keras.Input((None,), dtype="int32", name="encoder_token_ids")
    values = keras_attn.RNNEncoder(keras.layers.GRUCell(5), return_state=False)(keras.layers.Embedding(31, 7)(ids))
    encoder, decoder = keras.Model({ids.name: ids}, values), keras_attn.AttentionDecoder(keras.layers.GRUCell(5), "dot")
    encoder.trainable = False
    model = models.AttentionSeq2Seq(encoder, decoder, keras.layers.Embedding(37, 7), keras.layers.Dense(37))
    frozen = len(model.trainable_weights)
    assert len(saved_and_loaded(model, tmp_path).trainable_weights) == frozen
    encoder.trainable = True
    assert len(saved_and_loaded(model, tmp_path).trainable_weights) == len(model.trainable_weights) > frozen


def test_a_layer_attached_to_a_model_is_left_out_of_copies(tmp_path):
    model = models.LuongSeq2Seq(31, 37, **SIZES)
    model.other = keras.layers.Dropout(0.1)
    model.trainable = False
    for other in (saved_and_loaded(model, tmp_path), models.copy_model(model, "copy")):
        np.testing.assert_equal(other.get_weights(), model.get_weights())
        assert not other.trainable_weights


@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_a_model_quantized_by_keras_is_loaded_and_copied(mode, tmp_path):
    model = models.LuongSeq2Seq(31, 37, **SIZES, initializer="glorot_uniform")
    before = model.predict_on_batch(IDS)
    model.quantize(mode, filters=lambda layer: layer.name == "output")
    expected = model.predict_on_batch(IDS)
    assert not np.array_equal(expected, before)
    ensemble = models.Ensemble([model, model])
    for other in (saved_and_loaded(model, tmp_path), models.copy_model(model, "copy")):
        np.testing.assert_allclose(other.predict_on_batch(IDS), expected, rtol=1e-5, atol=1e-6)
    for other in (ensemble, saved_and_loaded(ensemble, tmp_path)):
        same(ops.softmax(other.predict_on_batch(IDS)), ops.softmax(expected))


@keras.saving.register_keras_serializable("tests")
class Stacked(models.LuongSeq2Seq):
    """A user's model with a list of layers among its arguments."""

    def __init__(self, source_vocabulary_size, target_vocabulary_size, *, extra, **kwargs):
        self.set_arguments(locals(), base=models.LuongSeq2Seq)
        super().__init__(source_vocabulary_size, target_vocabulary_size, **SIZES, **kwargs)


def test_a_list_of_layers_among_the_arguments_is_restored(tmp_path):
    stack = keras.layers.StackedRNNCells([keras.layers.GRUCell(3)])  # whose `from_config` empties its config
    model = Stacked(31, 37, extra=[keras.layers.GRUCell(2), stack])
    for other in (models.copy_model(model, "one"), models.copy_model(model, "two"), saved_and_loaded(model, tmp_path)):
        assert other.extra[0].units == 2
        assert [cell.units for cell in other.extra[1].cells] == [3]
