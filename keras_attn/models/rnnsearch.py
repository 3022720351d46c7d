"""RNNsearch, the model that made attention."""

from functools import partial

import keras
from keras.initializers import RandomNormal

from keras_attn.layers import Attention, AttentionDecoder, BahdanauAttention, BiGRUEncoder, DeepOutput, get_attention
from keras_attn.models import builders as parts
from keras_attn.models.seq2seq import RecurrentSeq2Seq, arguments


@keras.saving.register_keras_serializable(package="keras_attn")
class RNNSearch(RecurrentSeq2Seq):
    """Bahdanau's RNNsearch: a bidirectional GRU reads, additive attention looks back before every word is written.

        h_j = [->h_j ; <-h_j]                                            (section 3.2)
        s_0 = tanh(W_s <-h_1)                                            (appendix A.2.2)
        e_ij = v^T tanh(W s_{i-1} + U h_j),  c_i = sum_j alpha_ij h_j    (A.1.2, eqs. 5 and 6)
        s_i = GRU([E y_{i-1} ; c_i], s_{i-1})                            (A.2.2)
        p(y_i) = softmax(W_o maxout(U_o s_{i-1} + V_o E y_{i-1} + C_o c_i))

    The defaults are the paper's. They suit its millions of sentence pairs; for some ten thousand see
    `recipes/rnnsearch.py`.

    Arguments:
        source_vocabulary_size, target_vocabulary_size: Ids on either side, the four special ones included.
        units: n, GRU units of each direction of the encoder, and of the decoder unless `decoder_units` is given.
        embedding_size: m. readout_size: l. attention_units: n'.
        attention: "additive", as in the paper; the name of another score function ("concat", "cosine", "dot",
            "general", "location", "scaled_dot") or of local attention ("local_m", "local_p"); or an `Attention` layer.
        readout_activation: "maxout", or an activation's name for a plain layer.
        read_previous_state: The read-out sees s_{i-1}, as in the paper, rather than s_i.
        tie_embeddings: None; "target": the output projection is the transposed target embedding (needs
            `readout_size == embedding_size`); "source": source and target share one embedding (one joint vocabulary);
            "all": both.
        initializer: None: appendix A (orthogonal recurrent matrices, N(0, 0.001^2) for W and U of the attention, zero
            v and biases, N(0, 0.01^2) elsewhere); else an initialiser for every matrix that is not recurrent, with
            embeddings ~ N(0, 1 / m): drawn by Glorot's rule, over the vocabulary, they would be too small to learn from
            (Multi30k, 250 updates: training perplexity 207, against 59).
        scale_embeddings: Embeddings enter times sqrt(m) (Vaswani 2017, section 3.4): those ~ N(0, 1 / m), right for an
            output that is tied to them, are too small for what reads them, above all for a stack of LSTMs.
        embedding_dropout, memory_dropout, output_dropout: Shares dropped of the embeddings, of h, and of the read-out.

    Raises:
        ValueError: for sizes or ties that cannot be.

    Example:
        >>> model = keras_attn.models.RNNSearch(31, 37, units=5, embedding_size=7, readout_size=11)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: the update gate is Keras', one minus the paper's; the read-out has a bias.

    Reference: Bahdanau, Cho, Bengio. Neural Machine Translation by Jointly Learning to Align and Translate. ICLR 2015,
    arXiv:1409.0473.
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        *,
        units: int = 1000,
        embedding_size: int = 620,
        readout_size: int = 500,
        attention: str | Attention = "additive",
        attention_units: int = 1000,
        decoder_units: int | None = None,
        readout_activation: str = "maxout",
        read_previous_state: bool = True,
        tie_embeddings: str | None = None,
        initializer=None,
        scale_embeddings: bool = False,
        embedding_dropout: float = 0.0,
        memory_dropout: float = 0.0,
        output_dropout: float = 0.0,
        **kwargs,
    ):
        given = arguments(locals())
        decoder_units = decoder_units or units
        plain, vectors = parts.initializers(initializer, embedding_size, partial(RandomNormal, stddev=0.01))
        source_embedding, target_embedding = parts.embeddings(
            source_vocabulary_size, target_vocabulary_size, embedding_size, vectors, tie_embeddings, readout_size
        )
        cell = keras.layers.GRUCell(decoder_units, reset_after=False, kernel_initializer=plain.clone(), name="cell")
        attention = (
            get_attention(attention, attention_units)
            if attention != "additive"
            else BahdanauAttention(
                attention_units,
                query_initializer=RandomNormal(stddev=0.001) if initializer is None else plain.clone(),
                key_initializer=RandomNormal(stddev=0.001) if initializer is None else plain.clone(),
                score_initializer="zeros" if initializer is None else "glorot_uniform",
                name="attention",
            )
        )
        super().__init__(
            given,
            source_embedding=source_embedding,
            target_embedding=target_embedding,
            encoder=BiGRUEncoder(units, kernel_initializer=plain.clone(), name="encoder"),
            bridge=keras.layers.Dense(
                decoder_units, "tanh", use_bias=False, kernel_initializer=plain.clone(), name="bridge"
            ),
            decoder=AttentionDecoder(cell, attention, name="decoder"),
            readout=DeepOutput(
                readout_size, activation=readout_activation, kernel_initializer=plain.clone(), name="readout"
            ),
            output=parts.output_layer(target_vocabulary_size, plain, tie_embeddings),
            embedding_dropout=embedding_dropout,
            memory_dropout=memory_dropout,
            output_dropout=output_dropout,
            read_previous_state=read_previous_state,
            scale_embeddings=scale_embeddings,
            **kwargs,
        )
