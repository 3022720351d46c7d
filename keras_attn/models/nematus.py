"""Nematus, the translator of Edinburgh: a conditional GRU, and attention between its two transitions."""

from collections.abc import Callable
from functools import partial

import keras
from keras import ops, tree
from keras.initializers import RandomNormal

from keras_attn.layers import (
    Attention,
    AttentionDecoder,
    DecoderStack,
    DeepOutput,
    LayerNormAttention,
    LayerNormOutput,
    OutputBias,
    RNNEncoder,
    StackedEncoder,
    check_size,
)
from keras_attn.models.builders import make_attention, make_cell, make_first_layers, make_output_projection
from keras_attn.models.recurrent import RecurrentSeq2Seq

EPSILON = 1e-9  # Marian's


def _make_encoder(cell: Callable, order: str, layers: int, transitions: int, residual: bool, dtype):
    """The encoder: "both", or an order of `StackedEncoder`."""
    check_size("encoder_layers", layers)
    if order == "both" or layers == 1:
        reader = partial(cell, num_layers=layers, residual=residual, transitions=transitions)
        return RNNEncoder(reader("forward"), backward_cell=reader("backward"), dtype=dtype, name="encoder")
    stacks = [
        [cell(f"{name}_{i}", transitions=transitions) for i in range(count)]
        for name, count in (("forward", layers), ("backward", 1 if order == "upwards" else layers))
    ]
    return StackedEncoder(*stacks, order=order, residual=residual, dtype=dtype, name="encoder")


def _make_decoder(cell: Callable, attention, layers: int, transitions: int, upper_transitions: int, residual, dtype):
    """The decoder: attention between the first two transitions of its bottom layer."""
    check_size("decoder_layers", layers)
    check_size("decoder_transitions", transitions)
    decoder = AttentionDecoder(
        cell("cell"),
        attention,
        attend="between" if transitions > 1 else "after",
        second_cell=cell("second_cell", transitions=transitions - 1) if transitions > 1 else None,
        dtype=dtype,
        name="decoder",
    )
    if layers == 1:
        return decoder
    upper = [cell(f"upper_{i}", transitions=upper_transitions) for i in range(layers - 1)]
    return DecoderStack(decoder, upper, first_skip=0 if residual else len(upper), dtype=dtype, name="decoder_stack")


def _make_bridge(units: int, normalized: bool, **options):
    """From the mean of h to s_0."""
    if not normalized:
        return keras.layers.Dense(units, "tanh", name="bridge", **options)
    layers = [
        keras.layers.Dense(units, use_bias=False, name="dense", **options),
        keras.layers.LayerNormalization(epsilon=EPSILON, dtype=options["dtype"], name="norm"),
        keras.layers.Activation("tanh", dtype=options["dtype"], name="tanh"),
    ]
    return keras.Sequential(layers, name="bridge")


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
    `nematus` are the same. With several layers and transitions it is the BiDeep RNN (Miceli Barone 2017): further
    transitions follow GRU_2, and further layers add their inputs to their outputs. The defaults are the toolkit's, for
    millions of sentence pairs; see `recipes/nematus.py` for sizes that suit some ten thousand.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes, including the four special ids.
        units: Units of each direction of the encoder, and of the decoder.
        embedding_size: Width of E, and of the read-out.
        cell: "gru", as in the paper; or "lstm", which starts with s_0 in both of its states, as in Marian.
        encoder_layers, decoder_layers: Numbers of layers.
        encoder_transitions, upper_transitions: Transitions of a step, in the encoder and in the decoder's upper layers.
        decoder_transitions: The same in its bottom layer: 2, as in the paper, or more; 1: no GRU_2, c_i is read out.
        encoder_order: "both": each layer of the encoder reads both directions of the one below; or, as the deep systems
            of Edinburgh, "parallel", "alternating" or "upwards" (`StackedEncoder`).
        residual: Whether layers but the lowest add their inputs to their outputs.
        layer_normalization: Normalises the products of cells, attention, read-out and s_0, as Marian (Ba 2016).
        attention: "additive", as in the paper; the name of another attention layer; or an `Attention` layer.
        attention_units: Width of the attention's hidden layer; None: 2 `units`, that of h.
        tie_embeddings: As in `RNNSearch`. A tied output has its bias, too.
        initializer: None: orthogonal recurrent matrices and N(0, 0.01^2) elsewhere. Otherwise an initialiser for every
            matrix that is not recurrent, with embeddings ~ N(0, 1 / embedding_size).
        recurrent_dropout: As in `RNNSearch`.
        embedding_dropout, memory_dropout, output_dropout, word_dropout, scale_embeddings, scheduled_sampling, pointer,
            coverage_loss, source_special_ids, target_special_ids, mask_padding, source_length: As in
            `RecurrentSeq2Seq`.
        name, trainable, dtype: As in `keras.layers.Layer`; `dtype` applies to every layer.

    Raises:
        ValueError: for an unknown argument or cell, or sizes and ties that do not fit together.

    Example:
        >>> model = keras_attn.models.NematusSeq2Seq(31, 37, units=5, embedding_size=7)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the papers: GRUs have a second bias, which the reset gate multiplies too, as in cuDNN. With
    `encoder_order="both"` layers of the encoder read the outputs of both directions below.

    Reference: Sennrich, Firat, Cho, Birch, Haddow, et al. Nematus: a Toolkit for Neural Machine Translation. EACL 2017,
    arXiv:1703.04357. Miceli Barone, Helcl, Sennrich, Haddow, Birch. WMT 2017, arXiv:1707.07631.
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        *,
        units: int = 1024,
        embedding_size: int = 512,
        cell: str = "gru",
        encoder_layers: int = 1,
        encoder_transitions: int = 1,
        decoder_layers: int = 1,
        decoder_transitions: int = 2,
        upper_transitions: int = 1,
        encoder_order: str = "both",
        residual: bool = True,
        layer_normalization: bool = False,
        attention: str | Attention = "additive",
        attention_units: int | None = None,
        tie_embeddings: str | None = None,
        initializer=None,
        recurrent_dropout: float = 0.0,
        **kwargs,
    ):
        dtype = self.set_arguments(locals())
        kernel, embeddings = make_first_layers(self, partial(RandomNormal, stddev=0.01), embedding_size, dtype)
        projection = make_output_projection(self, kernel, dtype)
        options = {"recurrent_dropout": recurrent_dropout, "layer_normalization": layer_normalization}
        if layer_normalization:
            options |= {"per_gate": False, "epsilon": EPSILON}
            options |= {"normalize_cell": False} if cell == "lstm" else {}
        make = partial(make_cell, cell, units, kernel, dtype=dtype, **options)
        attention_units = attention_units or 2 * units
        if attention == "additive" and layer_normalization:
            kernels = {f"{part}_initializer": kernel.clone() for part in ("query", "key", "score")}
            kernels |= {"epsilon": EPSILON, "dtype": dtype}
            attention = LayerNormAttention(attention_units, **kernels, name="attention")
        else:
            attention = make_attention(attention, attention_units, kernel, dtype)
        make_readout = partial(LayerNormOutput, epsilon=EPSILON) if layer_normalization else DeepOutput
        super().__init__(
            **embeddings,
            encoder=_make_encoder(make, encoder_order, encoder_layers, encoder_transitions, residual, dtype),
            bridge=_make_bridge(units, layer_normalization, kernel_initializer=kernel.clone(), dtype=dtype),
            decoder=_make_decoder(
                make, attention, decoder_layers, decoder_transitions, upper_transitions, residual, dtype
            ),
            readout=make_readout(
                embedding_size, activation="tanh", kernel_initializer=kernel.clone(), dtype=dtype, name="readout"
            ),
            output_projection=projection,
            output_bias=OutputBias(dtype=dtype, name="output") if projection is None else None,
            **kwargs,
        )

    def _bridged(self, values, mask, final):
        """s_0 from the mean over the real words; masked positions of h are zero."""
        words = ops.maximum(ops.sum(ops.cast(mask, values.dtype), axis=-1, keepdims=True), 1)  # (B, 1)
        s_0 = self.bridge(ops.sum(values, axis=1) / words)  # (B, H)
        return [s_0 for _ in tree.flatten(getattr(self.decoder, "decoder", self.decoder).cell.state_size)]
