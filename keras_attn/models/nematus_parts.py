"""The layers of `NematusSeq2Seq`, of any depth, normalised or not."""

from collections.abc import Callable
from functools import partial

import keras

from keras_attn.layers import (
    AttentionDecoder,
    DecoderStack,
    DeepOutput,
    LayerNormAttention,
    LayerNormOutput,
    RNNEncoder,
    StackedEncoder,
    check_size,
)

EPSILON = 1e-9  # Marian's


class NematusParts:
    """Makes the layers.

    Args:
        units, residual, layer_normalization: As in `NematusSeq2Seq`.
        make_cell: From a name, and `transitions`, `num_layers` and `residual`, to a cell; see `builders.make_cell`.
        kernel: Initialiser of what is not recurrent.
        dtype: Dtype policy.
    """

    def __init__(self, units: int, make_cell: Callable, residual: bool, layer_normalization: bool, kernel, dtype):
        self._cell = make_cell
        self._units, self._residual, self._normalized = units, residual, layer_normalization
        self._kernel, self._dtype = kernel, dtype

    def encoder(self, order: str, layers: int, transitions: int):
        """The encoder: "both", or an order of `StackedEncoder`."""
        check_size("encoder_layers", layers)
        if order == "both" or layers == 1:
            reader = partial(self._cell, num_layers=layers, residual=self._residual, transitions=transitions)
            return RNNEncoder(reader("forward"), backward_cell=reader("backward"), dtype=self._dtype, name="encoder")
        stacks = [
            [self._cell(f"{name}_{i}", transitions=transitions) for i in range(count)]
            for name, count in (("forward", layers), ("backward", 1 if order == "upwards" else layers))
        ]
        return StackedEncoder(*stacks, order=order, residual=self._residual, dtype=self._dtype, name="encoder")

    def bridge(self):
        """From the mean of h to s_0."""
        options = {"kernel_initializer": self._kernel.clone(), "dtype": self._dtype}
        if not self._normalized:
            return keras.layers.Dense(self._units, "tanh", name="bridge", **options)
        layers = [
            keras.layers.Dense(self._units, use_bias=False, name="dense", **options),
            keras.layers.LayerNormalization(epsilon=EPSILON, dtype=self._dtype, name="norm"),
            keras.layers.Activation("tanh", dtype=self._dtype, name="tanh"),
        ]
        return keras.Sequential(layers, name="bridge")

    def normalized_attention(self, units: int):
        """Additive attention, normalised."""
        initializers = {f"{part}_initializer": self._kernel.clone() for part in ("query", "key", "score")}
        return LayerNormAttention(units, epsilon=EPSILON, **initializers, dtype=self._dtype, name="attention")

    def decoder(self, attention, layers: int, transitions: int, upper_transitions: int):
        """The decoder: attention between the first two transitions of its bottom layer."""
        check_size("decoder_layers", layers)
        check_size("decoder_transitions", transitions)
        decoder = AttentionDecoder(
            self._cell("cell"),
            attention,
            attend="between" if transitions > 1 else "after",
            second_cell=self._cell("second_cell", transitions=transitions - 1) if transitions > 1 else None,
            dtype=self._dtype,
            name="decoder",
        )
        if layers == 1:
            return decoder
        upper = [self._cell(f"upper_{i}", transitions=upper_transitions) for i in range(layers - 1)]
        first_skip = 0 if self._residual else len(upper)
        return DecoderStack(decoder, upper, first_skip=first_skip, dtype=self._dtype, name="decoder_stack")

    def readout(self, units: int):
        """From state, embedding and context to the features of the output."""
        options = {"activation": "tanh", "kernel_initializer": self._kernel.clone(), "dtype": self._dtype}
        if self._normalized:
            return LayerNormOutput(units, epsilon=EPSILON, name="readout", **options)
        return DeepOutput(units, name="readout", **options)
