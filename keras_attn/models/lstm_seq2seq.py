"""The deep LSTM that translated with nothing but its states, reading backwards."""

from functools import partial

import keras
from keras.initializers import RandomUniform

from keras_attn.layers import AttentionDecoder, RNNEncoder
from keras_attn.models import builders as parts
from keras_attn.models.seq2seq import RecurrentSeq2Seq, arguments


@keras.saving.register_keras_serializable(package="keras_attn")
class LSTMSeq2Seq(RecurrentSeq2Seq):
    """Sutskever's sequence to sequence learning: a deep LSTM reads the source from its end, another goes on from there.

        (h^l_j, c^l_j) = LSTM^l(h^{l-1}_j, (h^l_{j+1}, c^l_{j+1})),  h^0_j = E x_j    (sections 2 and 3.3, reversed)
        (s^l_0, d^l_0) = (h^l_1, c^l_1)                                              (section 2)
        (s^l_i, d^l_i) = LSTM^l(s^{l-1}_i, (s^l_{i-1}, d^l_{i-1})),  s^0_i = E y_{i-1}
        p(y_i) = softmax(W_o s^L_i)                                                  (eq. 1)

    Each layer of the decoder starts from h and c of the encoder's layer at its height. There is no attention.

    The defaults are the paper's; see `recipes/lstm_seq2seq.py` for sizes that suit some ten thousand sentence pairs.

    Arguments:
        source_vocabulary_size, target_vocabulary_size: Ids on either side, the four special ones included.
        units, num_layers: LSTM units of a layer, and layers, on either side.
        embedding_size: Width of E.
        reverse_source: The source is read from its last word to its first; padding is left out of it.
        tie_embeddings: As in `RNNSearch`; "target" and "all" need `units == embedding_size`.
        initializer: None: uniform in [-0.08, 0.08] for every matrix (section 3.4); else an initialiser for those that
            are neither recurrent (orthogonal) nor embeddings (N(0, 1 / embedding_size)).
        scale_embeddings: As in `RNNSearch`.
        embedding_dropout, layer_dropout, output_dropout: Shares dropped of the embeddings, between the encoder's
            layers, and of the decoder's output.

    The alignment of `step` is zero.

    Raises:
        ValueError: for sizes or ties that cannot be.

    Example:
        >>> model = keras_attn.models.LSTMSeq2Seq(31, 37, units=5, num_layers=2, embedding_size=7)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: the source's end token is read first, not last; forget gates begin with a bias of 1; no
    dropout by default, and none in the paper.

    Reference: Sutskever, Vinyals, Le. Sequence to Sequence Learning with Neural Networks. NeurIPS 2014,
    arXiv:1409.3215.
    """

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
        scale_embeddings: bool = False,
        embedding_dropout: float = 0.0,
        layer_dropout: float = 0.0,
        output_dropout: float = 0.0,
        **kwargs,
    ):
        given = arguments(locals())
        paper = partial(RandomUniform, -0.08, 0.08)
        plain, vectors = parts.initializers(initializer, embedding_size, paper)
        source_embedding, target_embedding = parts.embeddings(
            source_vocabulary_size, target_vocabulary_size, embedding_size, vectors, tie_embeddings, units
        )
        reader, cell = (parts.lstm_stack(units, num_layers, initializer, paper, name) for name in ("reader", "cell"))
        super().__init__(
            given,
            source_embedding=source_embedding,
            target_embedding=target_embedding,
            encoder=RNNEncoder(reader, reverse=reverse_source, dropout=layer_dropout, name="encoder"),
            decoder=AttentionDecoder(cell, [], name="decoder"),
            output=parts.output_layer(target_vocabulary_size, plain, tie_embeddings),
            embedding_dropout=embedding_dropout,
            output_dropout=output_dropout,
            scale_embeddings=scale_embeddings,
            **kwargs,
        )
