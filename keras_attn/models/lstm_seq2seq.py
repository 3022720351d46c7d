"""Sutskever's sequence to sequence learning: deep LSTMs without attention."""

from functools import partial

import keras
from keras.initializers import RandomUniform

from keras_attn.layers import AttentionDecoder, RNNEncoder
from keras_attn.models.builders import make_first_layers, make_lstm_stack, make_output_projection
from keras_attn.models.recurrent import RecurrentSeq2Seq


@keras.saving.register_keras_serializable(package="keras_attn")
class LSTMSeq2Seq(RecurrentSeq2Seq):
    """A deep LSTM encoder that reads the source backwards, and a deep LSTM decoder that starts from its last states.

        (h^l_j, c^l_j) = LSTM^l(h^{l-1}_j, (h^l_{j+1}, c^l_{j+1})),  h^0_j = E x_j    (sections 2 and 3.3, reversed)
        (s^l_0, d^l_0) = (h^l_1, c^l_1)                                              (section 2)
        (s^l_i, d^l_i) = LSTM^l(s^{l-1}_i, (s^l_{i-1}, d^l_{i-1})),  s^0_i = E y_{i-1}
        p(y_i) = softmax(W_o s^L_i)                                                  (eq. 1)

    Layer l of the decoder starts from h and c of layer l of the encoder. There is no attention.

    The defaults are the paper's; see `recipes/lstm_seq2seq.py` for sizes that suit some ten thousand sentence pairs.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes, including the four special ids.
        units: LSTM units of each layer.
        num_layers: Layers of the encoder, and of the decoder.
        embedding_size: Width of E.
        reverse_source: Reads the source from its last word to its first, without its padding.
        tie_embeddings: As in `RNNSearch`; "target" and "all" need `units == embedding_size`.
        initializer: None: uniform in [-0.08, 0.08] for every matrix (section 3.4). Otherwise an initialiser for
            matrices that are neither recurrent (orthogonal) nor embeddings (N(0, 1 / embedding_size)).
        layer_dropout: Dropout rate between the encoder's layers.
        recurrent_dropout: As in `RNNSearch`.
        embedding_dropout, output_dropout, word_dropout, scale_embeddings, scheduled_sampling, source_special_ids,
            target_special_ids, mask_padding, source_length: As in `RecurrentSeq2Seq`.
        name, trainable, dtype: As in `keras.layers.Layer`; `dtype` applies to every layer.

    The alignment of `step` is zero.

    Raises:
        ValueError: for an unknown argument, or sizes and ties that do not fit together.

    Example:
        >>> model = keras_attn.models.LSTMSeq2Seq(31, 37, units=5, num_layers=2, embedding_size=7)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: the source's end token is read first, not last; forget gates start with a bias of 1.

    Reference: Sutskever, Vinyals, Le. Sequence to Sequence Learning with Neural Networks. NeurIPS 2014,
    arXiv:1409.3215.
    """

    shared_arguments = ("embedding_dropout", "output_dropout", "word_dropout", "scale_embeddings", "scheduled_sampling")

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        *,
        units: int = 1000,
        num_layers: int = 4,
        embedding_size: int = 1000,
        reverse_source: bool = True,
        tie_embeddings: str | None = None,
        initializer=None,
        layer_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **kwargs,
    ):
        dtype = self.set_arguments(locals())
        paper = partial(RandomUniform, -0.08, 0.08)
        kernel, embeddings = make_first_layers(self, paper, units, dtype)
        options = {"initializer": initializer, "paper": paper, "dtype": dtype, "recurrent_dropout": recurrent_dropout}
        reader, cell = (make_lstm_stack(units, num_layers, name=name, **options) for name in ("reader", "cell"))
        super().__init__(
            **embeddings,
            encoder=RNNEncoder(reader, reverse=reverse_source, dropout=layer_dropout, dtype=dtype, name="encoder"),
            decoder=AttentionDecoder(cell, [], dtype=dtype, name="decoder"),
            output_projection=make_output_projection(self, kernel, dtype),
            **kwargs,
        )
