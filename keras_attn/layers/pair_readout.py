"""The read-out of hard attention: features of every pair of a decoder state and a source word."""

import keras
from keras import ops

from keras_attn.backend import dense, tanh
from keras_attn.layers.layer import Layer, check_size


@keras.saving.register_keras_serializable(package="keras_attn")
class PairReadout(Layer):
    """Features of each decoder state with each source word, from which the next token is predicted.

        f_ij = tanh(W [s_i ; h_j] + b) = tanh(W_s s_i + W_h h_j + b)                  (Wu, Shapiro & Cotterell 2018)

    Both products are computed once for each state and word, and only their sums for each pair.

    Args:
        units: R, the width of the features.
        kernel_initializer: For W_s and W_h.

    Call arguments: `states (B, T, H)` and `values (B, S, M)`. Returns `(B, T, S, R)`. For one step at a time:
    `keys(values)` once, then `pairs(state (B, H), keys) -> (B, S, R)`.

    Raises:
        ValueError: if `units` is not a positive whole number.

    Example:
        >>> states, values = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 11), "float32")
        >>> keras_attn.layers.PairReadout(13)(states, values).shape
        (2, 3, 7, 13)

    Reference: Wu, Shapiro, Cotterell. Hard Non-Monotonic Attention for Character-Level Transduction. EMNLP 2018,
    arXiv:1808.10024.
    """

    def __init__(self, units: int, *, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_size("units", units)
        self.units = units
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, states_shape, values_shape):
        def kernel(name, width):
            initializer = self.kernel_initializer.clone()
            return self.add_weight(name=name, shape=(width, self.units), initializer=initializer)

        self.state_kernel = kernel("state_kernel", states_shape[-1])
        self.memory_kernel = kernel("memory_kernel", values_shape[-1])
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")

    def call(self, states, values):
        return self.pairs(states, self.keys(values))

    def keys(self, values):
        """What of the features depends on the source alone: `(B, S, M) -> (B, S, R)`."""
        return dense(values, self.memory_kernel) + ops.cast(self.bias, values.dtype)

    def pairs(self, states, keys):
        """The features of states `(B, T, H)` or `(B, H)` with every word: `(B, T, S, R)` or `(B, S, R)`."""
        own = dense(states, self.state_kernel)[..., None, :]  # (B, T, 1, R) or (B, 1, R)
        return tanh(own + (keys if len(states.shape) == 2 else keys[:, None]))

    def compute_output_spec(self, states, values):
        return keras.KerasTensor((*states.shape[:-1], values.shape[1], self.units), dtype=self.compute_dtype)
