"""An attention layer is one class in one place: defined here, used by its name, trained, saved, loaded and exported.

docs/architecture.md says so under "Where to add".
"""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from keras_attn.losses import SmoothedCrossentropy

LINES = [f"t{i} t{i + 1} t{(7 * i) % 19}" for i in range(19)]


@keras_attn.register_attention("nearness")
class NearnessAttention(keras_attn.layers.Attention):
    """e_ij = -|W s_i - h_j|^2: words whose annotation is near a projection of the state."""

    def build(self, query_shape, values_shape, **_):
        self.kernel = self.add_weight(name="kernel", shape=(query_shape[-1], values_shape[-1]))

    def scores(self, query, keys):
        query = ops.matmul(query, self.kernel)  # (B, M) or (B, T, M)
        return -ops.sum(ops.square(query[..., None, :] - (keys if len(query.shape) == 2 else keys[:, None])), axis=-1)


@pytest.fixture(scope="module", params=["nearness"])
def translator(request):
    tokenizer = keras_attn.Tokenizer.train(LINES, level="word")
    sizes = {"units": 5, "embedding_size": 7, "readout_size": 11, "initializer": "glorot_uniform"}
    model = keras_attn.models.RNNSearch(*[tokenizer.vocabulary_size] * 2, attention=request.param, **sizes)
    model.compile("adam", SmoothedCrossentropy())
    data = keras_attn.ParallelDataset.from_text(LINES, LINES, tokenizer, tokenizer, batch_size=10)
    kernel = model.decoder.attentions[0].weights[0]
    before = ops.convert_to_numpy(kernel).copy()
    assert np.isfinite(model.fit(data, epochs=1, verbose=0).history["loss"]).all()  # two steps
    assert np.abs(ops.convert_to_numpy(kernel) - before).max() > 0
    return keras_attn.Translator(model, tokenizer, tokenizer)


def test_it_trains_saves_and_loads(translator, tmp_path):
    translator.model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again.decoder.attentions[0]) is NearnessAttention
    ids = {name: np.array([[4, 5, 6]]) for name in ("encoder_token_ids", "decoder_token_ids")}
    np.testing.assert_array_equal(again.predict_on_batch(ids), translator.model.predict_on_batch(ids))
    translator.save_to_preset(tmp_path / "preset")
    found = keras_attn.Translator.from_preset(tmp_path / "preset").generate(LINES[:3])
    assert [t.text for t in found] == [t.text for t in translator.generate(LINES[:3])]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="from others: tests/export/test_process.py")
@pytest.mark.parametrize("translator", ["nearness", "additive_monotonic"], indirect=True)
def test_it_is_exported_and_so_is_one_with_a_state(translator, tmp_path):
    """`export` itself translates with the SavedModel and compares the strings with `generate`."""
    folder = translator.export(tmp_path, beam_size=2, max_source_length=5)
    assert (folder / "saved_model.pb").stat().st_size > 1000
