"""GRU and LSTM cells with layer normalisation."""

import keras
from keras import ops

from keras_attn.layers.cells import Masks, as_lists, has_dropout, project, recurrence
from keras_attn.layers.layer import refuse_unknown_arguments
from keras_attn.layers.normalizers import at_least_float32


class _NormalizedCell:
    """The common part of both cells, beside Keras' GRUCell or LSTMCell; `cells.py` calls the three methods."""

    def call(self, inputs, states, training=False):
        # For `keras.layers.RNN`; the layers of this package project the inputs of all steps at once.
        drops = None
        if training and has_dropout(self):
            mask = self.get_dropout_mask(inputs)
            mask = mask[0] if isinstance(mask, list) else mask
            drops = Masks(mask, self.get_recurrent_dropout_mask(as_lists(states)[0]))
        step = recurrence.of_class(self, 0, drops)
        output, new = step(project.of_class(self, inputs, drops), None, as_lists(states), drops)
        return output, new if isinstance(states, (list, tuple)) else new[0]

    def _add_gain(self, name: str, width: int):
        return self.add_weight(name=name, shape=(width,), initializer="ones")

    def _add_gains(self, gates: int) -> None:
        width = gates * self.units
        # Without inputs, as in a `DeepTransitionCell`, there is nothing to normalise.
        self.inputs_gain = self._add_gain("inputs_gain", width) if self.kernel.shape[0] else None
        self.state_gain = self._add_gain("state_gain", width)

    def _normalize(self, x, gain, units: int | None):
        if gain is None:
            return x
        wide = at_least_float32(x)
        shape = (*ops.shape(x)[:-1], -1, units or x.shape[-1])
        groups = ops.reshape(wide, shape)  # (..., gates, H), or (..., 1, gates H)
        groups = groups - ops.mean(groups, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(groups), axis=-1, keepdims=True)
        normal = ops.reshape(groups * ops.rsqrt(variance + self.epsilon), ops.shape(x))
        return ops.cast(normal * ops.cast(gain, normal.dtype), x.dtype)

    def normalized_inputs(self, product):
        """LN(W x), (..., gates H)."""
        return self._normalize(product, self.inputs_gain, self.units if self.per_gate else None)

    def normalized_state(self, product):
        """LN(U h), (B, gates H)."""
        return self._normalize(product, self.state_gain, self.units if self.per_gate else None)

    def get_config(self):
        return {**super().get_config(), "per_gate": self.per_gate, "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="keras_attn")
class LayerNormGRUCell(_NormalizedCell, keras.layers.GRUCell):
    """A GRU whose products with inputs and state are normalised, each by itself.

        LN(a) = g (a - mean(a)) / sqrt(var(a) + epsilon)                        (Ba 2016, section 3.1, eq. 4)
        z, r = sigma(LN(W x) + LN(U h) + b)                                     (supplementary material)
        h' = tanh(LN(W x) + b + r (LN(U h) + b'))
        h_t = z h + (1 - z) h'

    Mean and variance are those of a gate, or with `per_gate=False` of all gates of a product together, as in Marian.
    The shifts of the paper's norms are the biases b and b'.

    Args:
        units: H.
        per_gate: Whether each gate is normalised by itself.
        epsilon: Added to the variance.
        Further arguments: As in `keras.layers.GRUCell`, `dropout` and `recurrent_dropout` among them, but for
            `reset_after`, which is True.

    Call arguments, returns: as Keras' cell. In layers of this package the inputs of all steps are projected at once.

    Raises:
        ValueError: for an unknown argument.

    Example:
        >>> cell = keras_attn.LayerNormGRUCell(5)
        >>> keras_attn.RNNEncoder(cell)(np.ones((2, 3, 7), "float32"))[0].shape
        (2, 3, 5)

    Differences from the paper: it normalises z and r together, and h' by itself.

    Reference: Ba, Kiros, Hinton. Layer Normalization. 2016, arXiv:1607.06450.
    """

    def __init__(self, units: int, *, per_gate: bool = True, epsilon: float = 1e-5, **kwargs):
        refuse_unknown_arguments(type(self), [name for name in kwargs if name != "implementation"])
        if not kwargs.pop("reset_after", True):
            raise ValueError("Expected `reset_after=True`: the norm is that of U h. Received: reset_after=False")
        super().__init__(units, reset_after=True, **kwargs)
        self.per_gate = per_gate
        self.epsilon = epsilon

    def build(self, input_shape):
        super().build(input_shape)
        self._add_gains(3)


@keras.saving.register_keras_serializable(package="keras_attn")
class LayerNormLSTMCell(_NormalizedCell, keras.layers.LSTMCell):
    """An LSTM whose products with inputs and state are normalised, each by itself, and its cell before the output.

        LN(a) = g (a - mean(a)) / sqrt(var(a) + epsilon)                        (Ba 2016, section 3.1, eq. 4)
        i, f, c', o = LN(W x) + LN(U h) + b                                     (supplementary material)
        c_t = sigma(f) c + sigma(i) tanh(c'),   h_t = sigma(o) tanh(LN(c_t) + b_c)

    Mean and variance are those of a gate, as in RNMT+ (Chen 2018), or with `per_gate=False` of all gates of a product
    together, as in the paper and in Marian. The shifts of the paper's first two norms are the bias b.

    Args:
        units: H.
        per_gate: Whether each gate is normalised by itself.
        normalize_cell: Whether c_t is normalised before the output; Marian does not.
        output_nonlinearity: Whether the output has the last tanh; RNMT+ does without (Chen 2018, section 4).
        epsilon: Added to the variance.
        Further arguments: As in `keras.layers.LSTMCell`, `dropout` and `recurrent_dropout` among them.

    Call arguments, returns: as Keras' cell. In layers of this package the inputs of all steps are projected at once.

    Raises:
        ValueError: for an unknown argument.

    Example:
        >>> cell = keras_attn.LayerNormLSTMCell(5)
        >>> keras_attn.RNNEncoder(cell)(np.ones((2, 3, 7), "float32"))[0].shape
        (2, 3, 5)

    References: Ba, Kiros, Hinton. Layer Normalization. 2016, arXiv:1607.06450. Chen et al. The Best of Both Worlds:
    Combining Recent Advances in Neural Machine Translation. ACL 2018, arXiv:1804.09849.
    """

    def __init__(
        self,
        units: int,
        *,
        per_gate: bool = True,
        normalize_cell: bool = True,
        output_nonlinearity: bool = True,
        epsilon: float = 1e-5,
        **kwargs,
    ):
        refuse_unknown_arguments(type(self), [name for name in kwargs if name != "implementation"])
        super().__init__(units, **kwargs)
        self.per_gate = per_gate
        self.normalize_cell = normalize_cell
        self.output_nonlinearity = output_nonlinearity
        self.epsilon = epsilon

    def build(self, input_shape):
        super().build(input_shape)
        self._add_gains(4)
        self.cell_gain, self.cell_bias = None, None
        if self.normalize_cell:
            self.cell_gain = self._add_gain("cell_gain", self.units)
            self.cell_bias = self.add_weight(name="cell_bias", shape=(self.units,), initializer="zeros")

    def normalized_cell(self, c):
        """LN(c) with its shift, (B, H)."""
        if self.cell_gain is None:
            return c
        return self._normalize(c, self.cell_gain, None) + ops.cast(self.cell_bias, c.dtype)

    def get_config(self):
        own = {"normalize_cell": self.normalize_cell, "output_nonlinearity": self.output_nonlinearity}
        return {**super().get_config(), **own}
