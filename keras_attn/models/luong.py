"""Luong's model: attention after a stack of LSTMs."""

from functools import partial

import keras
from keras.initializers import RandomUniform

from keras_attn.layers import (
    Attention,
    AttentionalLayer,
    AttentionDecoder,
    RNNEncoder,
    get_attention,
)
from keras_attn.models.builders import make_first_layers, make_lstm_stack, make_output_projection
from keras_attn.models.recurrent import RecurrentSeq2Seq


@keras.saving.register_keras_serializable(package="keras_attn")
class LuongSeq2Seq(RecurrentSeq2Seq):
    """Luong's attention-based model: stacked LSTMs, and attention whose query is the top layer's new state.

        h_j: the top layer's outputs over the source; the decoder starts from the encoder's last states (section 2)
        s_t = LSTMs([E y_{t-1} ; h~_{t-1}], s_{t-1})        (section 3.3; without h~ unless `input_feeding`)
        alpha_t(j) = softmax_j(score(s_t, h_j)),  c_t = sum_j alpha_t(j) h_j   (section 3.1, eqs. 7 and 8)
        h~_t = tanh(W_c [c_t ; s_t]),  p(y_t) = softmax(W_o h~_t)              (section 3, eqs. 5 and 6)

    The defaults are the paper's; see `recipes/luong.py` for sizes that suit some ten thousand sentence pairs.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes, including the four special ids.
        units: LSTM units of each layer.
        num_layers: Layers of the encoder, and of the decoder.
        embedding_size: Width of E.
        readout_size: Width of h~.
        attention: The name of an attention layer ("general", "dot", "concat", "location", "local_m", "local_p", ...),
            or an `Attention` layer such as `LocalPredictiveAttention("dot", window=5)`.
        input_feeding: The cell reads the last h~ beside the embedding. Without it, attention runs outside the loop.
        reverse_source: Reads the source from its last word to its first; h_j stays at position j.
        bidirectional: Not the paper's: each layer of the encoder reads in both directions (as in Bahdanau 2015, section
            3.2), with half of the units each, whatever `reverse_source` is; the decoder starts from the concatenated
            last states.
        tie_embeddings: As in `RNNSearch`.
        initializer: None: uniform in [-0.1, 0.1] for every matrix (section 4.1) but the attention's own. Otherwise an
            initialiser for matrices that are neither recurrent (orthogonal) nor embeddings (N(0, 1 / embedding_size)).
        layer_dropout: Dropout rate between the encoder's layers.
        recurrent_dropout: As in `RNNSearch`.
        embedding_dropout, memory_dropout, output_dropout, word_dropout, scale_embeddings, scheduled_sampling, pointer,
            coverage_loss, source_special_ids, target_special_ids, mask_padding, source_length: As in
            `RecurrentSeq2Seq`.
        name, trainable, dtype: As in `keras.layers.Layer`; `dtype` applies to every layer.

    Raises:
        ValueError: for an unknown argument, sizes and ties that do not fit together, or an odd number of units for two
            directions.

    Example:
        >>> model = keras_attn.models.LuongSeq2Seq(31, 37, units=5, num_layers=2, embedding_size=7, readout_size=11)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: no dropout between the decoder's layers; forget gates start with a bias of 1; positions
    of local attention count from the source's first word even if it is read last.

    Reference: Luong, Pham, Manning. Effective Approaches to Attention-based Neural Machine Translation. EMNLP 2015,
    arXiv:1508.04025.
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        *,
        units: int = 1000,
        num_layers: int = 4,
        embedding_size: int = 1000,
        readout_size: int = 1000,
        attention: str | Attention = "general",
        input_feeding: bool = True,
        reverse_source: bool = True,
        bidirectional: bool = False,
        tie_embeddings: str | None = None,
        initializer=None,
        layer_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **kwargs,
    ):
        dtype = self.set_arguments(locals())
        paper = partial(RandomUniform, -0.1, 0.1)
        kernel, embeddings = make_first_layers(self, paper, readout_size, dtype)
        options = {"initializer": initializer, "paper": paper, "dtype": dtype, "recurrent_dropout": recurrent_dropout}
        lstms = partial(make_lstm_stack, num_layers=num_layers, **options)
        if bidirectional:
            if units % 2:
                raise ValueError(f"Expected an even number of units to read both ways. Received: units={units}")
            reader, backward_reader = (lstms(units // 2, name=name) for name in ("reader", "backward_reader"))
        else:
            reader, backward_reader = lstms(units, name="reader"), None
        super().__init__(
            **embeddings,
            encoder=RNNEncoder(
                reader,
                backward_cell=backward_reader,
                reverse=reverse_source and not bidirectional,
                dropout=layer_dropout,
                dtype=dtype,
                name="encoder",
            ),
            decoder=AttentionDecoder(
                lstms(units, name="cell"),
                get_attention(attention, units, dtype),
                attend="after",
                attentional=AttentionalLayer(
                    readout_size, kernel_initializer=kernel.clone(), dtype=dtype, name="attentional"
                ),
                input_feeding=input_feeding,
                dtype=dtype,
                name="decoder",
            ),
            output_projection=make_output_projection(self, kernel, dtype),
            **kwargs,
        )
