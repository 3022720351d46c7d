"""Each kind of model can be served: the exported graph says what `generate` says, and asks nothing of XLA."""

import keras
import numpy as np
import pytest

from keras_attn import LocalPredictiveAttention, models
from keras_attn.tokenizer import END_ID, Tokenizer
from keras_attn.translator import Translator
from tests.serving.conftest import SENTENCES

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is TensorFlow's")
LSTM = {"units": 7, "num_layers": 2, "embedding_size": 11}
MODELS = {
    "rnnencdec": (models.RNNEncoderDecoder, {"units": 7, "embedding_size": 11, "readout_size": 13}),
    "lstm_seq2seq": (models.LSTMSeq2Seq, LSTM),
    "luong": (
        models.LuongSeq2Seq,
        {**LSTM, "readout_size": 13, "attention": LocalPredictiveAttention("concat", window=3)},
    ),
    "transformer": (
        models.TransformerSeq2Seq,
        {"units": 6, "num_layers": 2, "num_heads": 3, "feed_forward_units": 11},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_exported_is_generate_without_xla(name, tmp_path):
    import tensorflow as tf
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    from keras_attn.serving import export_translator

    source = Tokenizer.train(SENTENCES, level="word", lowercase=True)
    target = Tokenizer.train(["un deux trois l’été là où à été rouge vert bleu gris noir blanc"], level="word")
    kind, sizes = MODELS[name]
    model = kind(source.vocabulary_size, target.vocabulary_size, **sizes, initializer="glorot_uniform")
    for i, weight in enumerate(model.trainable_weights):
        weight.assign(0.8 * keras.random.normal(weight.shape, seed=i))
    model.output_projection.bias.assign(-3.0 * (np.arange(target.vocabulary_size) == END_ID))  # no empty sentences
    translator = Translator(model, source, target, max_length_ratio=1.0, max_length_constant=3)
    expected = translator.generate(SENTENCES, beam_size=2)
    assert len({translation.text for translation in expected}) > 1
    folder = export_translator(translator, tmp_path / name, beam_size=2)
    found = tf.saved_model.load(folder).signatures["serving_default"](text=tf.constant(SENTENCES))
    assert [text.decode() for text in found["translation"].numpy()] == [t.text for t in expected]
    np.testing.assert_allclose(found["score"].numpy(), [t.score for t in expected], atol=1e-5)

    graph = SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    kinds = {node.op for node in nodes}
    assert "MatMul" in kinds
    assert not [op for op in kinds if op.startswith("Xla")]
