"""GNMT, Google's translator of 2016: deep LSTMs with skip connections, and attention from the bottom of the decoder."""

from functools import partial

import keras
from keras.initializers import RandomUniform

from keras_attn.layers import Attention, StackedEncoder, check_size
from keras_attn.models.builders import (
    make_attention,
    make_decoder_stack,
    make_first_layers,
    make_lstm_layers,
    make_output_projection,
)
from keras_attn.models.recurrent import RecurrentSeq2Seq


@keras.saving.register_keras_serializable(package="keras_attn")
class GNMTSeq2Seq(RecurrentSeq2Seq):
    """GNMT: a stack of LSTMs whose lowest layer reads both ways, and a stack that attends from its lowest layer.

        x^1_j = [->LSTM(E x_j) ; <-LSTM(E x_j)]                                    (section 3.2)
        x^l_j = LSTM_l(x^{l-1}_j) + x^{l-1}_j  for l >= 3, without the sum for l = 2   (section 3.1, eq. 6)
        h_j = x^L_j,  j = 1 .. S                                                       (section 3, eq. 1)
        e_ij = v^T tanh(W z^1_{i-1} + U h_j + b),  c_i = sum_j alpha_ij h_j            (section 3, eq. 4)
        z^1_i = LSTM_1([E y_{i-1} ; c_i])
        z^l_i = LSTM_l([z^{l-1}_i ; c_i]) + z^{l-1}_i  for l >= 3, without the sum for l = 2
        p(y_i) = softmax(W_o z^L_i)

    The query z^1_{i-1} is the output of the decoder's lowest layer at the step before, as in eq. 4, so that it has not
    read the last word; every layer reads the context. With `attend="after"` the query is z^1_i: the lowest layer reads
    c_{i-1}, which is zero at first, and all others c_i, as in the authors' later program ("gnmt_v2" of tensorflow/nmt).
    The defaults are the paper's; see `recipes/gnmt.py` for sizes that suit some ten thousand sentence pairs.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes, including the four special ids.
        units: LSTM units of each layer, and of each direction of the lowest layer of the encoder.
        embedding_size: Width of E.
        encoder_layers, decoder_layers: Numbers of layers.
        attend: "before": the query is of the step before; "after": of the same step.
        attention: "additive", as in the paper; the name of another attention layer; or an `Attention` layer.
        attention_units: Width of the attention's hidden layer; None: `units`.
        tie_embeddings: As in `RNNSearch`; "target" and "all" need `units == embedding_size`.
        initializer: None: uniform in [-0.04, 0.04] for every matrix (section 8.3). Otherwise an initialiser for
            matrices that are neither recurrent (orthogonal) nor embeddings (N(0, 1 / embedding_size)).
        layer_dropout: Dropout rate of each layer's output but the last's, in encoder and decoder.
        recurrent_dropout: As in `RNNSearch`.
        embedding_dropout, memory_dropout, output_dropout, word_dropout, scale_embeddings, scheduled_sampling, pointer,
            coverage_loss, source_special_ids, target_special_ids, mask_padding, source_length: As in
            `RecurrentSeq2Seq`.
        name, trainable, dtype: As in `keras.layers.Layer`; `dtype` applies to every layer.

    Raises:
        ValueError: for an unknown argument or order, or sizes and ties that do not fit together.

    Example:
        >>> model = keras_attn.models.GNMTSeq2Seq(31, 37, units=5, embedding_size=7, encoder_layers=3, decoder_layers=3)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: forget gates start with a bias of 1; the decoder's states start from zeros, of which the
    paper says nothing. Quantisation, training by reinforcement and the coverage penalty are not parts of the model; the
    last is `coverage_penalty` of the search.

    Reference: Wu et al. Google's Neural Machine Translation System: Bridging the Gap between Human and Machine
    Translation. 2016, arXiv:1609.08144.
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        *,
        units: int = 1024,
        embedding_size: int = 1024,
        encoder_layers: int = 8,
        decoder_layers: int = 8,
        attend: str = "before",
        attention: str | Attention = "additive",
        attention_units: int | None = None,
        tie_embeddings: str | None = None,
        initializer=None,
        layer_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **kwargs,
    ):
        dtype = self.set_arguments(locals())
        for count in ("encoder_layers", "decoder_layers"):
            check_size(count, getattr(self, count))
        paper = partial(RandomUniform, -0.04, 0.04)
        kernel, embeddings = make_first_layers(self, paper, units, dtype)
        options = {"initializer": initializer, "paper": paper, "dtype": dtype, "recurrent_dropout": recurrent_dropout}
        lstms = partial(make_lstm_layers, units, **options)
        super().__init__(
            **embeddings,
            encoder=StackedEncoder(
                lstms(encoder_layers, name="forward"),
                lstms(1, name="backward"),
                order="upwards",
                residual=True,
                dropout=layer_dropout,
                dtype=dtype,
                name="encoder",
            ),
            bridge="zeros",
            decoder=make_decoder_stack(
                lstms(decoder_layers, name="cell"),
                make_attention(attention, units if attention_units is None else attention_units, kernel, dtype),
                attend,
                layer_dropout,
                dtype,
            ),
            output_projection=make_output_projection(self, kernel, dtype),
            **kwargs,
        )
