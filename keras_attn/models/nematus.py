"""Nematus, the translator of Edinburgh: a conditional GRU, and attention between its two transitions."""

from functools import partial

import keras
from keras import ops, tree
from keras.initializers import RandomNormal

from keras_attn.layers import (
    Attention,
    AttentionDecoder,
    BahdanauAttention,
    DeepOutput,
    OutputBias,
    RNNEncoder,
    ScheduledSampling,
    get_attention,
    half_precision_safe,
)
from keras_attn.models.builders import make_embeddings, make_initializers, make_output_projection
from keras_attn.models.recurrent import RecurrentSeq2Seq

_CELLS = {"gru": keras.layers.GRUCell, "lstm": keras.layers.LSTMCell}


@keras.saving.register_keras_serializable(package="keras_attn")
class NematusSeq2Seq(RecurrentSeq2Seq):
    """Nematus: a bidirectional GRU encoder, and a decoder that looks, updates and generates.

        h_j = [->h_j ; <-h_j]
        s_0 = tanh(W_init (1/S) sum_j h_j)                                (Sennrich 2017, section 2)
        s'_i = GRU_1(E y_{i-1}, s_{i-1})
        e_ij = v^T tanh(W s'_i + U h_j + b),  c_i = sum_j alpha_ij h_j
        s_i = GRU_2(c_i, s'_i)
        p(y_i) = softmax(W_o tanh(U_o s_i + V_o E y_{i-1} + C_o c_i))

    The query s'_i has read the last word, which that of RNNsearch, s_{i-1}, has not. Marian's models of type `s2s` and
    `nematus` are the same. The defaults are the toolkit's, for millions of sentence pairs; see `recipes/nematus.py` for
    sizes that suit some ten thousand.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes, including the four special ids.
        units: Units of each direction of the encoder, and of the decoder.
        embedding_size: Width of E, and of the read-out.
        cell: "gru", as in the paper; or "lstm", which starts with s_0 in both of its states, as in Marian.
        decoder_transitions: 2, as in the paper; or 1: no GRU_2, so that c_i is for the read-out alone.
        attention: "additive", as in the paper; the name of another attention layer; or an `Attention` layer.
        attention_units: Width of the attention's hidden layer; None: 2 `units`, that of h.
        tie_embeddings: As in `RNNSearch`. A tied output has its bias, too.
        initializer: None: orthogonal recurrent matrices and N(0, 0.01^2) elsewhere. Otherwise an initialiser for every
            matrix that is not recurrent, with embeddings ~ N(0, 1 / embedding_size).
        embedding_dropout, memory_dropout, output_dropout: Dropout rates of the embeddings, of h, and of the read-out.
        scale_embeddings, scheduled_sampling, pointer: As in `RNNSearch`.
        source_special_ids, target_special_ids, mask_padding, source_length: As in `Seq2Seq`.
        name, trainable, dtype: As in `keras.layers.Layer`; `dtype` applies to every layer.

    Raises:
        ValueError: for an unknown argument or cell, or sizes and ties that do not fit together.

    Example:
        >>> model = keras_attn.models.NematusSeq2Seq(31, 37, units=5, embedding_size=7)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: GRUs have a second bias, which the reset gate multiplies too, as in cuDNN.

    Reference: Sennrich, Firat, Cho, Birch, Haddow, et al. Nematus: a Toolkit for Neural Machine Translation. EACL 2017,
    arXiv:1703.04357.
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        *,
        units: int = 1024,
        embedding_size: int = 512,
        cell: str = "gru",
        decoder_transitions: int = 2,
        attention: str | Attention = "additive",
        attention_units: int | None = None,
        tie_embeddings: str | None = None,
        initializer=None,
        scale_embeddings: bool = False,
        embedding_dropout: float = 0.0,
        memory_dropout: float = 0.0,
        output_dropout: float = 0.0,
        scheduled_sampling: ScheduledSampling | str | float | None = None,
        pointer: bool = False,
        **kwargs,
    ):
        dtype = self.set_arguments(locals())
        if cell not in _CELLS or decoder_transitions not in (1, 2):
            raise ValueError(
                f'Expected `cell` "gru" or "lstm" and `decoder_transitions` 1 or 2. Received: {cell!r} and '
                f"{decoder_transitions!r}"
            )
        kernel, vectors = make_initializers(initializer, embedding_size, partial(RandomNormal, stddev=0.01))
        sizes = source_vocabulary_size, target_vocabulary_size, embedding_size
        embeddings = make_embeddings(*sizes, vectors, tie_embeddings, embedding_size, dtype)
        projection = make_output_projection(target_vocabulary_size, kernel, tie_embeddings, dtype)

        def make_cell(name):
            recurrent = half_precision_safe("orthogonal", dtype)
            options = {"kernel_initializer": kernel.clone(), "recurrent_initializer": recurrent, "dtype": dtype}
            return _CELLS[cell](units, name=name, **options)

        if attention == "additive":
            attention = BahdanauAttention(
                attention_units or 2 * units,
                use_bias=True,
                query_initializer=kernel.clone(),
                key_initializer=kernel.clone(),
                score_initializer=kernel.clone(),
                dtype=dtype,
                name="attention",
            )
        super().__init__(
            source_embedding=embeddings[0],
            target_embedding=embeddings[1],
            encoder=RNNEncoder(make_cell("forward"), backward_cell=make_cell("backward"), dtype=dtype, name="encoder"),
            bridge=keras.layers.Dense(units, "tanh", kernel_initializer=kernel.clone(), dtype=dtype, name="bridge"),
            decoder=AttentionDecoder(
                make_cell("cell"),
                get_attention(attention, attention_units or 2 * units, dtype),
                attend="between" if decoder_transitions == 2 else "after",
                second_cell=make_cell("second_cell") if decoder_transitions == 2 else None,
                dtype=dtype,
                name="decoder",
            ),
            readout=DeepOutput(
                embedding_size, activation="tanh", kernel_initializer=kernel.clone(), dtype=dtype, name="readout"
            ),
            output_projection=projection,
            output_bias=OutputBias(dtype=dtype, name="output") if projection is None else None,
            embedding_dropout=embedding_dropout,
            memory_dropout=memory_dropout,
            output_dropout=output_dropout,
            scale_embeddings=scale_embeddings,
            scheduled_sampling=scheduled_sampling,
            pointer=pointer,
            **kwargs,
        )

    def _bridged(self, values, mask, final):
        """s_0 from the mean over the real words; masked positions of h are zero."""
        words = ops.maximum(ops.sum(ops.cast(mask, values.dtype), axis=-1, keepdims=True), 1)  # (B, 1)
        s_0 = self.bridge(ops.sum(values, axis=1) / words)  # (B, H)
        return [s_0 for _ in tree.flatten(self.decoder.cell.state_size)]
