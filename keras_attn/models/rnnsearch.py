"""RNNsearch, the model that introduced attention."""

from functools import partial

import keras
from keras.initializers import RandomNormal

from keras_attn.layers import (
    Attention,
    AttentionDecoder,
    BahdanauAttention,
    BiGRUEncoder,
    DeepOutput,
    get_attention,
)
from keras_attn.models.builders import make_cell, make_first_layers, make_output_projection
from keras_attn.models.recurrent import RecurrentSeq2Seq


@keras.saving.register_keras_serializable(package="keras_attn")
class RNNSearch(RecurrentSeq2Seq):
    """Bahdanau's RNNsearch: a bidirectional GRU encoder, and additive attention before each step of a GRU decoder.

        h_j = [->h_j ; <-h_j]                                            (section 3.2)
        s_0 = tanh(W_s <-h_1)                                            (appendix A.2.2)
        e_ij = v^T tanh(W s_{i-1} + U h_j),  c_i = sum_j alpha_ij h_j    (A.1.2, eqs. 5 and 6)
        s_i = GRU([E y_{i-1} ; c_i], s_{i-1})                            (A.2.2)
        p(y_i) = softmax(W_o maxout(U_o s_{i-1} + V_o E y_{i-1} + C_o c_i))

    The defaults are the paper's, for millions of sentence pairs; see `recipes/rnnsearch.py` for sizes that suit some
    ten thousand.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes, including the four special ids.
        units: n, GRU units of each direction of the encoder, and of the decoder unless `decoder_units` is given.
        embedding_size: m.
        readout_size: l.
        attention: "additive", as in the paper; the name of another attention layer; or an `Attention` layer.
        attention_units: n'.
        decoder_units: GRU units of the decoder; None: `units`.
        readout_activation: "maxout", or the name of an activation for a layer without maxout.
        read_previous_state: The read-out reads s_{i-1}, as in the paper, instead of s_i.
        context_gate: "source", "target" or "both": the decoder's GRU has a context gate (`ContextGateCell`, Tu 2017).
        tie_embeddings: None; "target": the output projection is the transposed target embedding (needs
            `readout_size == embedding_size`); "source": source and target share one embedding (needs one joint
            vocabulary); "all": both.
        initializer: None: appendix A (orthogonal recurrent matrices, N(0, 0.001^2) for W and U of the attention, zero
            v and biases, N(0, 0.01^2) elsewhere). Otherwise an initialiser for every matrix that is not recurrent, with
            embeddings ~ N(0, 1 / m).
        recurrent_dropout: Dropout rate of the states that cells read, in the encoder and in the decoder. A sentence has
            one mask for all steps, for each gate (Gal & Ghahramani 2016, section 4).
        embedding_dropout, memory_dropout, output_dropout, word_dropout, scale_embeddings, scheduled_sampling, pointer,
            coverage_loss, source_special_ids, target_special_ids, mask_padding, source_length: As in
            `RecurrentSeq2Seq`.
        name, trainable, dtype: As in `keras.layers.Layer`; `dtype` applies to every layer.

    Raises:
        ValueError: for an unknown argument, or sizes and ties that do not fit together.

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
        context_gate: str | None = None,
        tie_embeddings: str | None = None,
        initializer=None,
        recurrent_dropout: float = 0.0,
        **kwargs,
    ):
        dtype = self.set_arguments(locals())
        width = units if decoder_units is None else decoder_units
        paper = partial(RandomNormal, stddev=0.01)
        kernel, embeddings = make_first_layers(self, paper, readout_size, dtype)
        drop = {"recurrent_dropout": recurrent_dropout}
        cell = make_cell("gru", width, kernel, "cell", dtype, context_gate=context_gate, reset_after=False, **drop)
        if attention == "additive":
            attention = BahdanauAttention(
                attention_units,
                query_initializer=RandomNormal(stddev=0.001) if initializer is None else kernel.clone(),
                key_initializer=RandomNormal(stddev=0.001) if initializer is None else kernel.clone(),
                score_initializer="zeros" if initializer is None else "glorot_uniform",
                dtype=dtype,
                name="attention",
            )
        attention = get_attention(attention, attention_units, dtype)
        super().__init__(
            **embeddings,
            encoder=BiGRUEncoder(units, kernel_initializer=kernel.clone(), dtype=dtype, name="encoder", **drop),
            bridge=keras.layers.Dense(
                width, "tanh", use_bias=False, kernel_initializer=kernel.clone(), dtype=dtype, name="bridge"
            ),
            decoder=AttentionDecoder(cell, attention, dtype=dtype, name="decoder"),
            readout=DeepOutput(
                readout_size,
                activation=readout_activation,
                kernel_initializer=kernel.clone(),
                dtype=dtype,
                name="readout",
            ),
            output_projection=make_output_projection(self, kernel, dtype),
            read_previous_state=read_previous_state,
            **kwargs,
        )
