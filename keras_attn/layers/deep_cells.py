"""Deep cells: several transitions in one step, and stacks of layers with skip connections."""

import keras
from keras import tree

from keras_attn.layers.cells import GATES, as_lists, has_dropout, has_known_call, project, recurrence
from keras_attn.layers.layer import Layer, build_once, refuse_unknown_arguments


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
