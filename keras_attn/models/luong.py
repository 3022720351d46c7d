"""Luong's model: attention after a stack of LSTMs."""

from functools import partial

import keras
from keras.initializers import RandomUniform

from keras_attn.layers import Attention, AttentionalLayer, AttentionDecoder, RNNEncoder, get_attention
from keras_attn.models import builders as parts
from keras_attn.models.seq2seq import RecurrentSeq2Seq, arguments


@keras.saving.register_keras_serializable(package="keras_attn")
class LuongSeq2Seq(RecurrentSeq2Seq):
    """Luong's attention-based translation: stacked LSTMs, and attention that asks with the new state of the top one.

        h_j: the top of a stack of LSTMs over the source, whose last states the decoder's stack starts from (section 2)
        s_t = LSTMs([E y_{t-1} ; h~_{t-1}], s_{t-1})                           (section 3.3; without h~ if not fed)
        alpha_t(j) = softmax_j(score(s_t, h_j)),  c_t = sum_j alpha_t(j) h_j   (section 3.1, eqs. 7 and 8)
        h~_t = tanh(W_c [c_t ; s_t]),  p(y_t) = softmax(W_o h~_t)              (section 3, eqs. 5 and 6)

    The defaults are the paper's; see `recipes/luong.py` for sizes that suit some ten thousand sentence pairs.

    Arguments:
        source_vocabulary_size, target_vocabulary_size: Ids on either side, the four special ones included.
        units, num_layers: LSTM units of a layer, and layers, on either side.
        embedding_size, readout_size: Widths of E and of h~.
        attention: The score function's name ("general", "dot", "concat", "location", "scaled_dot", "cosine",
            "additive"), "local_m" or "local_p" (general, window 10), or an `Attention` layer such as
            `LocalPredictiveAttention("dot", window=5)`.
        input_feeding: The last h~ goes into the cell beside the embedding. Without it attention needs no loop.
        reverse_source: The source is read from its last word to its first; h_j stays beside x_j.
        bidirectional: Not the paper's: each of the encoder's layers reads both ways (as in Bahdanau 2015, section 3.2),
            with half of the units either way, whatever `reverse_source` says; its last states side by side are the
            decoder's first.
        tie_embeddings: As in `RNNSearch`.
        initializer: None: uniform in [-0.1, 0.1] for every matrix (section 4.1) but the attention's own; else an
            initialiser for those that are neither recurrent (orthogonal) nor embeddings (N(0, 1 / embedding_size)).
        scale_embeddings: As in `RNNSearch`.
        embedding_dropout, layer_dropout, memory_dropout, output_dropout: Shares dropped of the embeddings, between the
            encoder's layers, of h, and of h~ on the way to the logits.

    Raises:
        ValueError: for sizes, ties or scores that cannot be, such as an odd number of units for two directions.

    Example:
        >>> model = keras_attn.models.LuongSeq2Seq(31, 37, units=5, num_layers=2, embedding_size=7, readout_size=11)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: dropout, where there is any, is none between the decoder's layers; forget gates begin
    with a bias of 1; positions of local attention count from the source's first word even if it is read last.

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
        scale_embeddings: bool = False,
        embedding_dropout: float = 0.0,
        layer_dropout: float = 0.0,
        memory_dropout: float = 0.0,
        output_dropout: float = 0.0,
        **kwargs,
    ):
        given = arguments(locals())
        paper = partial(RandomUniform, -0.1, 0.1)
        plain, vectors = parts.initializers(initializer, embedding_size, paper)
        source_embedding, target_embedding = parts.embeddings(
            source_vocabulary_size, target_vocabulary_size, embedding_size, vectors, tie_embeddings, readout_size
        )
        lstms = partial(parts.lstm_stack, num_layers=num_layers, initializer=initializer, paper=paper)
        if bidirectional:
            if units % 2:
                raise ValueError(f"Expected an even number of units to read both ways. Received: units={units}")
            reader, backward_reader = (lstms(units // 2, name=name) for name in ("reader", "backward_reader"))
        else:
            reader, backward_reader = lstms(units, name="reader"), None
        cell = lstms(units, name="cell")
        super().__init__(
            given,
            source_embedding=source_embedding,
            target_embedding=target_embedding,
            encoder=RNNEncoder(
                reader,
                backward_cell=backward_reader,
                reverse=reverse_source and not bidirectional,
                dropout=layer_dropout,
                name="encoder",
            ),
            decoder=AttentionDecoder(
                cell,
                get_attention(attention, units),
                attend="after",
                attentional=AttentionalLayer(readout_size, kernel_initializer=plain.clone(), name="attentional"),
                input_feeding=input_feeding,
                name="decoder",
            ),
            output=parts.output_layer(target_vocabulary_size, plain, tie_embeddings),
            embedding_dropout=embedding_dropout,
            memory_dropout=memory_dropout,
            output_dropout=output_dropout,
            scale_embeddings=scale_embeddings,
            **kwargs,
        )
