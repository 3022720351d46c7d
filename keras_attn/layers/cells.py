"""Cells with several transitions, skip connections, layer normalisation or a context gate."""

import keras
from keras import initializers, ops, tree

from keras_attn.backend import dense, keep_float64, loop_product
from keras_attn.layers.layer import Layer, build_once, check_size, half_precision_safe, refuse_unknown_arguments
from keras_attn.layers.normalizers import at_least_float32
from keras_attn.layers.recurrence import GATES, Masks, as_lists, has_dropout, has_known_call, project, recurrence


@keras.saving.register_keras_serializable(package="keras_attn")
class DeepTransitionCell(Layer):
    """A step of several transitions: the first reads the input, the others the state alone.

        h_{t,1} = cell_1(x_t, h_{t-1,L}),   h_{t,k} = cell_k(h_{t,k-1}) for k = 2 .. L,   h_t = h_{t,L}

                                                            (Pascanu 2014, section 3; Miceli Barone 2017)

    It is a cell like any other: of `RNNEncoder`, of `AttentionDecoder`, as either of its cells, of a stack. A stack of
    deep transitions is the BiDeep RNN of Miceli Barone 2017.

    Args:
        transitions: L cells with states of the same sizes: Keras' `GRUCell`, `LSTMCell` and `SimpleRNNCell`, or those
            of this package with layer normalisation. Their dropout has one mask for all steps.

    Call arguments, returns: as Keras' cells.

    Raises:
        ValueError: for no transitions, another cell, states of different sizes, or dropout in training in another layer
            than this package's, which draw the masks.

    Example:
        >>> cell = keras_attn.DeepTransitionCell([keras.layers.GRUCell(5), keras.layers.GRUCell(5)])
        >>> keras_attn.RNNEncoder(cell)(np.ones((2, 3, 7), "float32"))[0].shape
        (2, 3, 5)

    References: Pascanu, Gulcehre, Cho, Bengio. How to Construct Deep Recurrent Neural Networks. ICLR 2014,
    arXiv:1312.6026. Miceli Barone, Helcl, Sennrich, Haddow, Birch. Deep Architectures for Neural Machine Translation.
    WMT 2017, arXiv:1707.07631.
    """

    def __init__(self, transitions, **kwargs):
        super().__init__(**kwargs)
        transitions = list(transitions)
        for cell in transitions:
            if not isinstance(cell, tuple(GATES)) or not has_known_call(cell):
                raise ValueError(
                    f"Expected transitions to be Keras' GRUCell, LSTMCell or SimpleRNNCell, or this package's with "
                    f"layer normalisation. Received: {cell!r}"
                )
        sizes = [as_lists(cell.state_size) for cell in transitions]
        if not sizes or any(size != sizes[0] for size in sizes):
            raise ValueError(f"Expected transitions with states of the same sizes. Received: states of {sizes}")
        self.transitions = transitions
        self.state_size = transitions[0].state_size
        self.output_size = tree.flatten(self.state_size)[0]

    def build(self, inputs_shape):
        for i, cell in enumerate(self.transitions):
            build_once(cell, (inputs_shape[0], 0 if i else inputs_shape[-1]))
            if i:
                cell.kernel.trainable = False  # it has no rows

    def call(self, inputs, states, training=False):
        # For `keras.layers.RNN`; the layers of this package project the inputs of all steps at once.
        if training and has_dropout(self):
            raise ValueError(
                f"Expected a layer of this package, such as `RNNEncoder`, to draw the masks of {self.name}. "
                f"Received: a call of the cell in training"
            )
        output, new = recurrence.of_class(self)(project.of_class(self, inputs), None, as_lists(states))
        return output, new if isinstance(states, (list, tuple)) else new[0]

    def get_initial_state(self, batch_size=None):
        return self.transitions[0].get_initial_state(batch_size=batch_size)

    @classmethod
    def from_config(cls, config):
        transitions = [keras.saving.deserialize_keras_object(cell) for cell in config["transitions"]]
        return super().from_config({**config, "transitions": transitions})


@project.register(DeepTransitionCell)
def _(cell, inputs, drops=None):
    return project(cell.transitions[0], inputs, drops and drops[0])


@recurrence.register(DeepTransitionCell)
def _(cell, loop_width=0, drops=None):
    first, *others = cell.transitions
    drops = drops or [None] * len(cell.transitions)
    run_first = recurrence(first, loop_width, drops[0])
    runs = [recurrence(other, 0, masks) for other, masks in zip(others, drops[1:], strict=True)]

    def step(projected, loop_inputs, states, drops=None):
        drops = drops or [None] * len(cell.transitions)
        output, states = run_first(projected, loop_inputs, states, drops[0])
        for run, masks in zip(runs, drops[1:], strict=True):
            output, states = run(None, None, states, masks)
        return output, states

    return step


@keras.saving.register_keras_serializable(package="keras_attn")
class ResidualCells(keras.layers.StackedRNNCells):
    """A stack of cells with skip connections: the inputs of a layer are added to its outputs.

        h^l_t = cell_l(x^l_t, h^l_{t-1}),   x^{l+1}_t = h^l_t + x^l_t for l >= first_skip, else h^l_t

                                                                                    (Wu 2016, section 3.1)

    Args:
        cells: Recurrent cells. The outputs of those from `first_skip` on are as wide as their inputs.
        first_skip: The first layer, counted from 0, whose inputs are added to its outputs.

    Call arguments, returns: as `keras.layers.StackedRNNCells`. The states are those of the cells, without the sums, so
    that the query of an `AttentionDecoder` with `attend="before"` is the top cell's own state.

    Raises:
        ValueError: for an unknown argument, or a layer with a skip connection whose outputs are not as wide as its
            inputs.

    Example:
        >>> cells = [keras.layers.GRUCell(5), keras.layers.GRUCell(5), keras.layers.GRUCell(5)]
        >>> keras_attn.RNNEncoder(keras_attn.ResidualCells(cells))(np.ones((2, 3, 7), "float32"))[0].shape
        (2, 3, 5)

    Reference: Wu et al. Google's Neural Machine Translation System: Bridging the Gap between Human and Machine
    Translation. 2016, arXiv:1609.08144.
    """

    def __init__(self, cells, *, first_skip: int = 1, **kwargs):
        refuse_unknown_arguments(type(self), kwargs)
        super().__init__(cells, **kwargs)
        widths = [tree.flatten(cell.state_size)[0] for cell in self.cells]
        if first_skip < 1 or len(set(widths[first_skip - 1 :])) > 1:
            raise ValueError(
                f"Expected `first_skip` of at least 1, and layers of one width from the one below on. Received: "
                f"first_skip={first_skip} and layers of {widths} units"
            )
        self.first_skip = first_skip

    def call(self, inputs, states, training=False):
        # For `keras.layers.RNN`; the layers of this package project the inputs of all steps at once.
        new_states = []
        for i, (cell, state) in enumerate(zip(self.cells, states, strict=True)):
            output, state = cell(inputs, state)
            inputs = output + inputs if i >= self.first_skip else output
            new_states.append(state)
        return inputs, new_states

    def get_config(self):
        return {**super().get_config(), "first_skip": self.first_skip}


class _NormalizedCell:
    """The common part of both cells, beside Keras' GRUCell or LSTMCell; `recurrence.py` calls the three methods."""

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
        groups = ops.reshape(wide, shape)
        # Sums, because Keras' mean is float32 for float64 on torch.
        groups = groups - ops.sum(groups, axis=-1, keepdims=True) / shape[-1]  # (..., gates, H), or (..., 1, gates H)
        variance = ops.sum(ops.square(groups), axis=-1, keepdims=True) / shape[-1]
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
