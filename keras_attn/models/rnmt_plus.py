"""RNMT+, Google's recurrent translator of 2018: GNMT with what the Transformer taught."""

from functools import partial

import keras
from keras.initializers import RandomUniform

from keras_attn.layers import (
    Attention,
    ConcatenatedOutput,
    LayerNormLSTMCell,
    MultiHeadAttention,
    ResidualCells,
    RNNEncoder,
    check_size,
)
from keras_attn.models.builders import (
    make_attention,
    make_decoder_stack,
    make_first_layers,
    make_lstm_layers,
    make_output_projection,
)
from keras_attn.models.recurrent import RecurrentSeq2Seq


@keras.saving.register_keras_serializable(package="keras_attn")
class RNMTPlusSeq2Seq(RecurrentSeq2Seq):
    """RNMT+: bidirectional LSTMs below, LSTMs with several attention heads above, both normalised and with skips.

        x^l_j = [->LSTM_l(x^{l-1}_j) ; <-LSTM_l(x^{l-1}_j)] + x^{l-1}_j,  x^0_j = E x_j,  h_j = P x^L_j
        z^1_i = LSTM_1([E y_{i-1} ; c_{i-1}])
        c_i = MultiHead(z^1_i, h),  e^n_ij = v^T tanh(W W^Q_n z^1_i + U W^K_n h_j + b)
        z^l_i = LSTM_l([z^{l-1}_i ; c_i]) + z^{l-1}_i
        p(y_i) = softmax(W_o [z^L_i ; c_i])                                               (Chen 2018, section 4)

    The sums are there from the third layers on. Each gate of an LSTM is normalised, and there is no tanh behind its
    cell: see `LayerNormLSTMCell`. The query is the output of the decoder's lowest layer, which has read the last word.
    The alignment of `step` is the mean of the heads'. The defaults are the paper's; see `recipes/rnmt_plus.py` for
    sizes that suit some ten thousand sentence pairs. Label smoothing is the loss's.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes, including the four special ids.
        units: LSTM units of each layer, in the encoder of each direction, and the width of h and of a context.
        embedding_size: Width of E.
        encoder_layers, decoder_layers: Numbers of layers.
        num_heads: Attention heads, each of width units / num_heads.
        attention: What scores in each head: "additive", as in the paper; another name; or an `Attention` layer.
        tie_embeddings: As in `RNNSearch`; "target" and "all" need `2 * units == embedding_size`.
        initializer: None: uniform in [-0.04, 0.04] for every matrix, as in the authors' program (Lingvo). Otherwise an
            initialiser for matrices that are neither recurrent (orthogonal) nor embeddings (N(0, 1 / embedding_size)).
        layer_dropout: Dropout rate of each layer's output but the last's, in encoder and decoder.
        recurrent_dropout: As in `RNNSearch`.
        embedding_dropout, memory_dropout, output_dropout, word_dropout, scale_embeddings, scheduled_sampling, pointer,
            coverage_loss, source_special_ids, target_special_ids, mask_padding, source_length: As in
            `RecurrentSeq2Seq`.
        name, trainable, dtype: As in `keras.layers.Layer`; `dtype` applies to every layer.

    Raises:
        ValueError: for an unknown argument, or sizes, heads and ties that do not fit together.

    Example:
        >>> sizes = {"units": 6, "embedding_size": 7, "encoder_layers": 3, "decoder_layers": 3, "num_heads": 2}
        >>> model = keras_attn.models.RNMTPlusSeq2Seq(31, 37, **sizes)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: W x, U h and the cell are normalised each by themselves, as in Ba 2016, of which it says
    no more than "per gate"; heads have the projections of `MultiHeadAttention`; no dropout of the alignments.

    Reference: Chen et al. The Best of Both Worlds: Combining Recent Advances in Neural Machine Translation. ACL 2018,
    arXiv:1804.09849.
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        *,
        units: int = 1024,
        embedding_size: int = 1024,
        encoder_layers: int = 6,
        decoder_layers: int = 8,
        num_heads: int = 4,
        attention: str | Attention = "additive",
        tie_embeddings: str | None = None,
        initializer=None,
        layer_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **kwargs,
    ):
        dtype = self.set_arguments(locals())
        for count in ("encoder_layers", "decoder_layers", "num_heads"):
            check_size(count, getattr(self, count))
        paper = partial(RandomUniform, -0.04, 0.04)
        kernel, embeddings = make_first_layers(self, paper, 2 * units, dtype)
        options = {"initializer": initializer, "paper": paper, "dtype": dtype, "recurrent_dropout": recurrent_dropout}
        lstms = partial(make_lstm_layers, units, make=partial(LayerNormLSTMCell, output_nonlinearity=False), **options)
        forward, backward = (
            ResidualCells(lstms(encoder_layers, name=name), first_skip=2, dtype=dtype, name=name)
            for name in ("forward", "backward")
        )
        score = make_attention(attention, max(1, units // num_heads), kernel, dtype)
        heads = MultiHeadAttention(num_heads, score=score, kernel_initializer=kernel, dtype=dtype, name="attention")
        projection = {"use_bias": False, "kernel_initializer": kernel.clone()}
        self.set_layers(projection=keras.layers.Dense(units, **projection, dtype=dtype, name="projection"))
        super().__init__(
            **embeddings,
            encoder=RNNEncoder(forward, backward_cell=backward, dropout=layer_dropout, dtype=dtype, name="encoder"),
            bridge="zeros",
            decoder=make_decoder_stack(lstms(decoder_layers, name="cell"), heads, "after", layer_dropout, dtype),
            readout=ConcatenatedOutput(dtype=dtype, name="readout"),
            output_projection=make_output_projection(self, kernel, dtype),
            **kwargs,
        )

    def _encode_source(self, source, training=None):
        encoded = super()._encode_source(source, training)
        return {**encoded, "values": self.projection(encoded["values"])}
