"""TransformerSeq2Seq: the paper's defaults, and which packages it needs; test_recurrent.py has what is refused."""

import keras
import pytest

from keras_attn.models import TransformerSeq2Seq
from tests.unit.absent import run_without


def test_defaults_are_the_papers():
    model = TransformerSeq2Seq(50, 50, tie_embeddings="all", num_layers=1)
    shapes = {w.path: tuple(w.shape) for w in model.trainable_weights}
    assert shapes["target_embedding/embeddings"] == (50, 512)
    assert shapes["encoder_0/self_attention_layer/query/kernel"] == (512, 8, 64)
    assert shapes["decoder_0/cross_attention/value/kernel"] == (512, 8, 64)
    assert shapes["decoder_0/feedforward_intermediate_dense/kernel"] == (512, 2048)
    assert model.get_config()["dropout"] == 0.1


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="there TensorFlow is the backend")
def test_the_transformer_runs_without_tensorflow():
    program = (
        "import keras_attn, numpy as np\n"
        "model = keras_attn.models.TransformerSeq2Seq(5, 6, units=2, num_heads=1, num_layers=1, feed_forward_units=3)\n"
        "ids = np.array([[4, 3]])\n"
        "print(model.predict({'encoder_token_ids': ids, 'decoder_token_ids': ids}, verbose=0).shape)\n"
    )
    assert run_without(("tensorflow", "tensorflow_text", "keras_nlp"), program) == "(1, 2, 6)"
