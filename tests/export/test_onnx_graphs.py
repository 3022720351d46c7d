"""The graphs in ONNX compute what the model does, for models of every kind, with any batch size and source length."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.export.onnx import in_float32, write_graphs
from keras_attn.models import RNNSearch
from keras_attn.saving import is_quantized, rounded_model
from tests.contracts import model_rows

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")
pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow makes the graphs")

MODELS = [
    "rnnsearch, additive heads",
    "luong, pointer, scheduled sampling",
    "luong, location-sensitive",
    "hard_monotonic",
    "transformer",  # whose state has room for max_length steps
    *(pytest.param(name, marks=pytest.mark.nightly) for name in ("rnnencdec", "lstm_seq2seq", "nematus")),
]
ROOM = 9


class Graphs:
    """Both graphs of a model, with the methods of a `Seq2Seq` on arrays by name."""

    def __init__(self, model, folder, quantize=None):
        write_graphs(in_float32(model), folder, quantize)
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(str(folder / name)) for name in ("encode.onnx", "step.onnx")
        )

    @staticmethod
    def run(session, **arrays):
        inputs = {value.name: arrays[value.name] for value in session.get_inputs()}
        return dict(zip([value.name for value in session.get_outputs()], session.run(None, inputs), strict=True))

    def encode(self, encoder_token_ids):
        return self.run(self.encoder, encoder_token_ids=encoder_token_ids, max_length=np.array(ROOM, "int32"))

    def step(self, token_ids, arrays):
        found = self.run(self.decoder, token_ids=token_ids, **arrays)
        states = {name.removeprefix("next_"): x for name, x in found.items() if name.startswith("next_")}
        return found["logits"], found["alignment"], arrays | states


def sources(batch: int, length: int) -> np.ndarray:
    """Rows of different lengths, `(B, S)`."""
    token_ids = np.random.default_rng(batch).integers(4, model_rows.VS, (batch, length)).astype("int32")
    for row in range(batch):
        end = max(1, length - 1 - row)
        token_ids[row, end], token_ids[row, end + 1 :] = 3, 0
    return token_ids


def check_equal(model, graphs, atol=1e-5):
    for batch, length in ((3, 7), (1, 2)):
        token_ids = sources(batch, length)
        memory, state = model.encode(ops.convert_to_tensor(token_ids), ROOM)
        arrays = graphs.encode(token_ids)
        np.testing.assert_array_equal(arrays["memory_mask"], ops.convert_to_numpy(memory["mask"]))
        previous = np.full(batch, 2, "int32")
        for position in range(4):
            logits, state, alignment = model.step(ops.convert_to_tensor(previous), memory, state)
            received, aligned, arrays = graphs.step(previous, arrays)
            np.testing.assert_allclose(received, ops.convert_to_numpy(ops.cast(logits, "float32")), atol=atol)
            np.testing.assert_allclose(aligned, ops.convert_to_numpy(ops.cast(alignment, "float32")), atol=atol)
            previous = np.random.default_rng(position).integers(4, model_rows.VT, batch).astype("int32")


@pytest.mark.parametrize("name", MODELS)
def test_graphs_compute_what_the_model_does(name, tmp_path):
    model = model_rows.make(name)
    check_equal(model, Graphs(model, tmp_path))


def test_a_model_of_mixed_precision_becomes_one_of_float32(tmp_path):
    mixed = model_rows.make("rnnsearch", dtype="mixed_bfloat16")
    graphs = Graphs(mixed, tmp_path)
    check_equal(model_rows.make("rnnsearch"), graphs)
    check_equal(mixed, graphs, atol=0.3)


@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_matrices_in_fewer_bits_are_those_of_the_rounded_model(precision, tmp_path):
    keras.utils.set_random_seed(1)
    model = RNNSearch(model_rows.VS, model_rows.VT, units=37, embedding_size=41, readout_size=43)
    rows = [np.linspace(0.1, 1, len(w)).reshape(-1, *[1] * (w.ndim - 1)) for w in model.get_weights()]
    model.set_weights([w * row for w, row in zip(model.get_weights(), rows, strict=True)])  # a scale for each row
    graphs = Graphs(model, tmp_path, precision)
    check_equal(rounded_model(model, precision), graphs)
    for name in ("encode.onnx", "step.onnx"):
        stored = [onnx.numpy_helper.to_array(weight) for weight in onnx.load(tmp_path / name).graph.initializer]
        assert precision in {array.dtype.name for array in stored}
        assert not [array.shape for array in stored if is_quantized(array) and array.dtype == "float32"]
