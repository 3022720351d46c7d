"""A decoder's GRU that weighs what it reads of the source against what it has written."""

import keras
from keras import initializers, ops

from keras_attn.backend import dense, keep_float64, loop_product
from keras_attn.layers.cells import project, recurrence
from keras_attn.layers.initializers import half_precision_safe
from keras_attn.layers.layer import Layer, check_size

_GATES = ("source", "target", "both")
_activation = keep_float64(keras.activations.tanh)


@keras.saving.register_keras_serializable(package="keras_attn")
class ContextGateCell(Layer):
    """A GRU cell with Tu's context gate, for an `AttentionDecoder` whose cell reads the context.

        z_i = sigmoid(W_z y_{i-1} + U_z s_{i-1} + C_z c_i)                               (Tu 2017, section 3.1)
        s_i = f(W y_{i-1} + U s_{i-1} + z_i * C c_i)                   gate="source"     (section 3.2)
        s_i = f(z_i * (W y_{i-1} + U s_{i-1}) + C c_i)                 gate="target"
        s_i = f((1 - z_i) * (W y_{i-1} + U s_{i-1}) + z_i * C c_i)     gate="both"

    where f is a GRU: the three sums inside its update gate, its reset gate and its candidate are weighed by the same
    z_i, `(B, H)`. A gate near 0 makes the next word follow from the target alone, one near 1 from the source.

    Args:
        units: H.
        gate: "source", "target" or "both".
        kernel_initializer: For W and C, one matrix `(E + M, 4 H)`: update, reset, candidate, context gate.
        recurrent_initializer: For U `(H, 4 H)`.

    The cell has no `call` of its own: `AttentionDecoder` knows which part of the inputs is the context. It takes the
    cell with `attend="before"`, or as `second_cell` with "between", where there is no y and s is the first cell's.

    Raises:
        ValueError: for a size that is not a positive whole number, another gate, or a use without a context.

    Example:
        >>> decoder = keras_attn.AttentionDecoder(keras_attn.ContextGateCell(5), "general")
        >>> values, y = np.ones((2, 3, 11), "float32"), np.ones((2, 13, 17), "float32")
        >>> outputs, contexts, alignments = decoder(y, values)
        >>> outputs.shape
        (2, 13, 5)

    Differences from the paper: it leaves open how f is gated where it is a GRU; this is what its authors' program does,
    except that the state which the update gate keeps is not weighed here. There are biases, which are not weighed.

    Reference: Tu, Liu, Lu, Liu, Li. Context Gates for Neural Machine Translation. TACL 2017, arXiv:1608.06043.
    """

    def __init__(
        self,
        units: int,
        *,
        gate: str = "both",
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_size("units", units)
        if gate not in _GATES:
            raise ValueError(f"Expected `gate` to be one of {', '.join(_GATES)}. Received: gate={gate!r}")
        self.units = units
        self.gate = gate
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.recurrent_initializer = initializers.get(recurrent_initializer)
        self.state_size = units
        self.output_size = units

    def build(self, inputs_shape):
        def weight(name, *shape, initializer):
            initializer = half_precision_safe(initializer, self.dtype_policy)
            return self.add_weight(name=name, shape=(*shape, 4 * self.units), initializer=initializer)

        self.kernel = weight("kernel", inputs_shape[-1], initializer=self.kernel_initializer)
        self.recurrent_kernel = weight("recurrent_kernel", self.units, initializer=self.recurrent_initializer)
        self.bias = weight("bias", initializer="zeros")

    def get_initial_state(self, batch_size=None):
        return [ops.zeros((batch_size, self.units), dtype=self.compute_dtype)]

    def factors(self, gate):
        """The factors of the target's sum and of the source's sum."""
        target = {"source": 1.0, "target": gate, "both": 1.0 - gate}[self.gate]
        return target, 1.0 if self.gate == "target" else gate


@project.register(ContextGateCell)
def _(cell, inputs, drops=None):
    return dense(inputs, cell.kernel, rows=slice(inputs.shape[-1]))  # (..., 4 H); the bias is not weighed


@recurrence.register(ContextGateCell)
def _(cell, loop_width=0, drops=None):
    if not loop_width:
        raise ValueError(
            f"Expected {cell.name}, a ContextGateCell, in an `AttentionDecoder` that gives it the context: with "
            "attend='before' and no `cell_input`, or as `second_cell`. Received: inputs without a context"
        )
    units = cell.units
    dtype = cell.compute_dtype
    recurrent, bias = ops.cast(cell.recurrent_kernel, dtype), ops.cast(cell.bias, dtype)
    of_context = loop_product(cell.kernel, rows=slice(-loop_width, None), dtype=dtype)
    of_state = loop_product(ops.concatenate([recurrent[:, : 2 * units], recurrent[:, 3 * units :]], axis=1))
    of_reset_state = loop_product(cell.recurrent_kernel, columns=slice(2 * units, 3 * units), dtype=dtype)
    of_gates, of_candidate, of_gate = ops.split(bias, [2 * units, 3 * units])

    def step(projected, context, states, drops=None):
        (h,) = states  # (B, H)
        source = of_context(context)  # (B, 4 H)
        target = ops.zeros_like(source) if projected is None else projected  # (B, 4 H)
        source_gates, source_candidate, source_gate = ops.split(source, [2 * units, 3 * units], axis=-1)
        target_gates, target_candidate, target_gate = ops.split(target, [2 * units, 3 * units], axis=-1)
        state_gates, state_gate = ops.split(of_state(h), [2 * units], axis=-1)  # (B, 2 H), (B, H)
        gate = ops.sigmoid(target_gate + state_gate + source_gate + of_gate)  # (B, H)
        a, b = cell.factors(gate)
        twice_a, twice_b = (x if isinstance(x, float) else ops.tile(x, (1, 2)) for x in (a, b))
        gates = ops.sigmoid(twice_a * (target_gates + state_gates) + twice_b * source_gates + of_gates)
        z, r = ops.split(gates, 2, axis=-1)
        candidate = _activation(a * (target_candidate + of_reset_state(r * h)) + b * source_candidate + of_candidate)
        h = candidate + z * (h - candidate)
        return h, [h]

    return step
