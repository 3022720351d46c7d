"""RNNsearch, the model that made attention."""

import keras
from keras.initializers import RandomNormal

from keras_attn.layers import AttentionDecoder, BahdanauAttention, BiGRUEncoder, DeepOutput
from keras_attn.models.seq2seq import RecurrentSeq2Seq


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
        readout_activation: "maxout", or an activation's name for a plain layer.
        read_previous_state: The read-out sees s_{i-1}, as in the paper, rather than s_i.
        tie_embeddings: None; "target": the output projection is the transposed target embedding (needs
            `readout_size == embedding_size`); "source": source and target share one embedding (one joint vocabulary);
            "all": both.
        initializer: None: appendix A (orthogonal recurrent matrices, N(0, 0.001^2) for W and U of the attention, zero
            v and biases, N(0, 0.01^2) elsewhere); else an initialiser for every matrix that is not recurrent, with
            embeddings ~ N(0, 1 / m): drawn by Glorot's rule, over the vocabulary, they would be too small to learn from
            (Multi30k, 250 updates: training perplexity 207, against 59).
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
        attention_units: int = 1000,
        decoder_units: int | None = None,
        readout_activation: str = "maxout",
        read_previous_state: bool = True,
        tie_embeddings: str | None = None,
        initializer=None,
        embedding_dropout: float = 0.0,
        memory_dropout: float = 0.0,
        output_dropout: float = 0.0,
        **kwargs,
    ):
        ties = _check_ties(tie_embeddings, source_vocabulary_size, target_vocabulary_size, readout_size, embedding_size)
        decoder_units = decoder_units or units
        plain = keras.initializers.get(initializer) or RandomNormal(stddev=0.01)
        paper = initializer is None
        vectors = RandomNormal(stddev=0.01 if paper else embedding_size**-0.5)

        def embedding(size, name):
            return keras.layers.ReversibleEmbedding(
                size, embedding_size, embeddings_initializer=vectors.clone(), name=name
            )

        target_embedding = embedding(target_vocabulary_size, "target_embedding")
        source_embedding = target_embedding if ties["source"] else embedding(source_vocabulary_size, "source_embedding")
        cell = keras.layers.GRUCell(decoder_units, reset_after=False, kernel_initializer=plain.clone(), name="cell")
        attention = BahdanauAttention(
            attention_units,
            query_initializer=RandomNormal(stddev=0.001) if paper else plain.clone(),
            key_initializer=RandomNormal(stddev=0.001) if paper else plain.clone(),
            score_initializer="zeros" if paper else "glorot_uniform",
            name="attention",
        )
        super().__init__(
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
            output=None
            if ties["target"]
            else keras.layers.Dense(target_vocabulary_size, kernel_initializer=plain.clone(), name="output"),
            embedding_dropout=embedding_dropout,
            memory_dropout=memory_dropout,
            output_dropout=output_dropout,
            read_previous_state=read_previous_state,
            **kwargs,
        )

        # Config
        self._config = {
            "source_vocabulary_size": source_vocabulary_size,
            "target_vocabulary_size": target_vocabulary_size,
            "units": units,
            "embedding_size": embedding_size,
            "readout_size": readout_size,
            "attention_units": attention_units,
            "decoder_units": decoder_units,
            "readout_activation": readout_activation,
            "read_previous_state": read_previous_state,
            "tie_embeddings": tie_embeddings,
            "initializer": None if paper else keras.initializers.serialize(plain),
            "embedding_dropout": embedding_dropout,
            "memory_dropout": memory_dropout,
            "output_dropout": output_dropout,
        }

    def get_config(self):
        return {**self._config, "name": self.name, "trainable": self.trainable}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


def _check_ties(tie, source_vocabulary_size, target_vocabulary_size, readout_size, embedding_size):
    """Which embeddings are one: `{"source": bool, "target": bool}`."""
    ties = {None: (), "target": ("target",), "source": ("source",), "all": ("source", "target")}
    if tie not in ties:
        raise ValueError(f'Expected `tie_embeddings` to be None, "source", "target" or "all". Received: {tie!r}')
    if "target" in ties[tie] and readout_size != embedding_size:
        raise ValueError(
            f"Expected `readout_size` to equal `embedding_size` when the output is the target embedding. "
            f"Received: readout_size={readout_size}, embedding_size={embedding_size}"
        )
    if "source" in ties[tie] and source_vocabulary_size != target_vocabulary_size:
        raise ValueError(
            f"Expected one joint vocabulary when source and target share an embedding. Received: "
            f"source_vocabulary_size={source_vocabulary_size}, target_vocabulary_size={target_vocabulary_size}"
        )
    return {side: side in ties[tie] for side in ("source", "target")}
