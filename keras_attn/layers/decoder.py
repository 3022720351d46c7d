"""The recurrent decoder that attends to the source at every step."""

from typing import Any

import keras
from keras import ops, tree

from keras_attn.backend import scan
from keras_attn.layers.attention import get_attention
from keras_attn.layers.cell_dropout import draw_masks
from keras_attn.layers.cells import (
    as_lists,
    check_cell,
    output_width,
    project,
    recurrence,
    top_state,
    unroll,
)
from keras_attn.layers.layer import Layer, build_once
from keras_attn.layers.memories import attend, each, initial_states, make_memory
from keras_attn.layers.normalizers import score_dtype
from keras_attn.layers.readout import attentional_vector, build_attentional


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionDecoder(Layer):
    """A recurrent cell with one or several attention layers, run over all target steps or one at a time.

    With `attend="before"`, as Bahdanau 2015 (section 3.1), the query is the previous state and the cell reads the
    context:

        c_i = attention(s_{i-1}, h),   s_i = cell([y_{i-1} ; c_i], s_{i-1}),   output_i = s_i

    With `attend="after"`, as Luong 2015 (section 3), the query is the new state:

        s_i = cell([y_{i-1} ; f_{i-1}], s_{i-1}),   c_i = attention(s_i, h),   output_i = attentional([c_i ; s_i])

    where f_{i-1} is the previous attentional vector with `input_feeding` (Luong 2015, section 3.3), else nothing.

    Args:
        cell: Any Keras RNN cell, or `StackedRNNCells`. GRU and LSTM cells project their inputs outside the loop. The
            query is the top layer's output, which for Keras' cells is its first state. In training, the dropout of
            Keras' cells has one mask for all steps, drawn outside the loop.
        attention: An `Attention` layer or its registered name, or a list of several, whose contexts are concatenated.
            With an empty list the contexts have width 0 and the alignments are zero.
        attend: "before" or "after".
        attentional: What the attentional vector is; only in "after". A layer from `[c ; s]`, such as
            `AttentionalLayer`; a list of such layers, one for each attention and its own c, whose results are
            concatenated; "context": c itself; None: s.
        input_feeding: Whether the cell reads the previous attentional vector; only in "after".
        output_attention: Whether the output is the attentional vector; else it is s, and the vector is only fed back.
        cell_input: Layer from `[y ; f]`, in "before" `[y ; c]`, to what the cell reads; None: the cell reads these.
        dropout: Dropout rate of the attentional vector, before it is fed back; only in "after". The mask is drawn
            outside the loop.

    Call arguments:
        inputs: `(B, T, E)`, embeddings of y_0 .. y_{T-1}.
        values: `(B, S, M)`, the encoder's h; or a list of several, one for each attention layer, of any S and M.
        mask: Boolean `(B, S)`, True = real source token; None: all are real. With a list of values a list, too.
        cell_state: s_0 in the cell's own structure; None: zeros.
        fed: `(B, F)`, f_0, such as a first context; None: zeros. Only with `input_feeding`.
        training: Whether to apply dropout.

    Returns:
        `(outputs (B, T, O), contexts (B, T, C), alignments (B, T, S))`. With several attention layers the contexts are
        concatenated and the alignments averaged; with a list of values the alignments are a list.

    For one step at a time, with the same weights: `memory(values, mask)` once a sentence, `initial_state(...)`, then
    `step(inputs (B, E), memory, state) -> output (B, O), context (B, C), alignment (B, S), state`.

    Mask behaviour: source padding gets alignment 0. Target padding needs no mask: it is at the right, after every real
    step.

    Raises:
        ValueError: for a cell of one's own with dropout, an unknown `attend` or attention, arguments that do not go
            together, such as those of "after" with "before", or as many memories as there are no attention layers.

    Example:
        >>> decoder = keras_attn.AttentionDecoder(keras.layers.GRUCell(5), keras_attn.BahdanauAttention(7))
        >>> values, y = np.ones((2, 3, 11), "float32"), np.ones((2, 13, 17), "float32")
        >>> outputs, contexts, alignments = decoder(y, values)
        >>> outputs.shape, contexts.shape, alignments.shape
        ((2, 13, 5), (2, 13, 11), (2, 13, 3))

    References: Bahdanau, Cho, Bengio. ICLR 2015, arXiv:1409.0473. Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    _layer_arguments = ("cell", "attention", "attentional", "cell_input")

    def __init__(
        self,
        cell,
        attention,
        *,
        attend: str = "before",
        attentional=None,
        input_feeding: bool = False,
        output_attention: bool = True,
        cell_input=None,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_cell(cell)
        if attend not in ("before", "after"):
            raise ValueError(f'Expected `attend` to be "before" or "after". Received: attend={attend!r}')
        if attend == "before" and (attentional is not None or input_feeding or dropout):
            raise ValueError(
                f"Expected `attentional`, `input_feeding` and `dropout` only with attend='after': with 'before' the "
                f"cell reads the context, and its output is the decoder's. Received: attend='before', attentional="
                f"{attentional!r}, input_feeding={input_feeding}, dropout={dropout}"
            )
        if not output_attention and (attentional is None or not input_feeding):
            raise ValueError(
                f"Expected `output_attention=False` with `attentional` and `input_feeding=True`: the vector is then "
                f"only fed back. Received: attentional={attentional!r}, input_feeding={input_feeding}"
            )
        if cell_input is not None and attend == "after" and not input_feeding:
            raise ValueError(
                "Expected `cell_input` with something to add to the inputs: attend='before' or `input_feeding=True`. "
                "Received: attend='after', input_feeding=False"
            )
        several = isinstance(attention, (list, tuple))
        layers = [get_attention(a, dtype=self.dtype_policy) for a in (attention if several else [attention])]
        vectors = list(attentional) if isinstance(attentional, (list, tuple)) else attentional
        wrong = len(vectors) != len(layers) if isinstance(vectors, list) else vectors != "context"
        if isinstance(vectors, (str, list)) and wrong:
            raise ValueError(
                f'Expected `attentional` to be a layer, "context", or a list of layers, one for each of {len(layers)} '
                f"attention layers. Received: {attentional!r}"
            )
        self.cell = cell
        self.attentions = layers
        self.attention = layers if several else layers[0]
        self.attend = attend
        self.attentional = vectors
        self.input_feeding = input_feeding
        self.output_attention = output_attention
        self.cell_input = cell_input
        self.dropout = dropout
        self.seed_generator = keras.random.SeedGenerator()

    def build(self, inputs_shape, values_shape, **_):
        batch = inputs_shape[0]
        self.query_width = output_width(self.cell)  # H
        query_shape = (batch, self.query_width)
        several = isinstance(values_shape[0], (list, tuple))
        shapes = (
            each("values", list(values_shape), self.attentions) if several else [values_shape] * len(self.attentions)
        )
        for attention, shape in zip(self.attentions, shapes, strict=True):
            build_once(attention, query_shape, shape)
        self.context_widths = [shape[-1] for shape in shapes]
        self.context_width = sum(self.context_widths)
        self.vector_width = build_attentional(self.attentional, batch, self.context_widths, self.query_width)
        self.output_width = self.vector_width if self.output_attention else self.query_width
        # F, the width of what the cell reads besides `inputs`: the context, the attentional vector, or nothing.
        self.loop_width = self.context_width if self.attend == "before" else self.vector_width * self.input_feeding
        width = inputs_shape[-1] + self.loop_width
        if self.cell_input is not None:
            build_once(self.cell_input, (batch, width))
            width = self.cell_input.compute_output_shape((batch, width))[-1]
        self.input_width = width  # of the cell
        build_once(self.cell, (batch, width))

    def call(self, inputs, values, mask=None, cell_state=None, fed=None, training=False):
        memory = self.memory(values, mask)
        state = self.initial_state(values, cell_state, fed)
        inputs = self._cell_inputs(ops.transpose(inputs, (1, 0, 2)), memory)  # (T, B, I)
        keep = self._keep_mask(inputs, training)  # (T, B, F) or None
        drops = draw_masks(self.cell, ops.shape(inputs)[1], self.input_width) if training else None
        if self._attends_outside_the_loop(memory):
            queries, _ = unroll(self.cell, inputs, state["cell"], drops=drops)
            queries = ops.transpose(queries, (1, 0, 2))  # (B, T, H)
            contexts, alignments, _ = self._attend(queries, memory, state["attention"])
            keep = None if keep is None else ops.transpose(keep, (1, 0, 2))
            return self._vector(contexts, queries, keep), contexts, alignments
        recur, drawn = self._recurrence(drops), drops is not None

        def step(state, x, constants):
            memory, drops = constants if drawn else (constants, None)
            noise = x["noise"]
            *out, state = self._advance(recur, x["projected"], memory, state, x.get("keep"), noise, drops)
            return state, tuple(out)

        # Of each attention: no random numbers, or those of its steps.
        pairs = zip(self.attentions, each("values", values, self.attentions), strict=True)
        noise = [attention.noise(ops.shape(inputs)[0], v) if training else None for attention, v in pairs]
        xs = {
            "projected": self._project(inputs, drops),
            "noise": [[] if x is None else [x] for x in noise],
        }  # (T, B, P)
        _, out = scan(
            step, state, xs if keep is None else {**xs, "keep": keep}, constants=(memory, drops) if drawn else memory
        )
        return tree.map_structure(lambda x: ops.transpose(x, (1, 0, 2)), out)

    def step(self, inputs, memory, state):
        """One step: `inputs (B, E)` -> `output (B, O), context (B, C), alignment (B, S), state`."""
        return self._advance(self._recurrence(), self._project(self._cell_inputs(inputs, memory)), memory, state)

    def memory(self, values, mask=None) -> dict[str, Any]:
        """What is constant for the sentence: values, keys (projected here, once) and mask."""
        return make_memory(self.attentions, values, mask)

    def initial_state(self, values, cell_state=None, fed=None) -> dict[str, Any]:
        """State before the first step: the cell's and what is fed (zeros unless given), and the attentions'."""
        first = values[0] if isinstance(values, (list, tuple)) else values
        if cell_state is None:
            cell_state = self.cell.get_initial_state(batch_size=ops.shape(first)[0])
        state = {"cell": as_lists(cell_state), "attention": initial_states(self.attentions, values)}
        if self.input_feeding:
            shape = (ops.shape(first)[0], self.vector_width)
            state["fed"] = ops.zeros(shape, dtype=first.dtype) if fed is None else ops.cast(fed, first.dtype)  # (B, F)
        elif fed is not None:
            raise ValueError("Expected `fed` only with `input_feeding=True`. Received: input_feeding=False and `fed`")
        return state

    def _cell_inputs(self, inputs, memory):
        """What the cell reads that does not depend on the recurrence, (T, B, I) or (B, I)."""
        return inputs

    def _project(self, inputs, drops=None):
        """What of the cell's work needs none of the loop, (T, B, P) or (B, P)."""
        return inputs if self.cell_input is not None else project(self.cell, inputs, drops)

    def _recurrence(self, drops=None):
        """The rest, as `recurrence` has it."""
        if self.cell_input is None:
            return recurrence(self.cell, self.loop_width, drops)
        recur = recurrence(self.cell, 0, drops)

        def step(inputs, loop_inputs, states, drops=None):
            read = self.cell_input(ops.concatenate([inputs, loop_inputs], axis=-1))  # (B, I)
            return recur(project(self.cell, ops.cast(read, inputs.dtype), drops), None, states, drops)

        return step

    def _advance(self, recur, projected, memory, state, keep=None, noise=(), drops=None):
        if self.attend == "before":
            query = top_state(state["cell"])  # (B, H), s_{i-1}
            context, alignment, attention_state = self._attend(query, memory, state["attention"], noise)
            output, cell_state = recur(projected, context, state["cell"], drops)
        else:
            query, cell_state = recur(projected, state.get("fed"), state["cell"], drops)
            context, alignment, attention_state = self._attend(query, memory, state["attention"], noise)
            vector = self._vector(context, query, keep)  # (B, F)
            output = vector if self.output_attention else query  # (B, O)
        state = {"cell": cell_state, "attention": attention_state}
        if self.input_feeding:
            state["fed"] = vector
        return output, context, alignment, state

    def _attend(self, query, memory, states, noise=()):
        """Contexts, alignments and next states for the query of one step (B, H), or of all steps (B, T, H)."""
        return attend(self.attentions, query, memory, states, noise)

    def _vector(self, context, query, keep):
        """The attentional vector, (B, F) or (B, T, F)."""
        vector = attentional_vector(self.attentional, context, query, self.context_widths)
        return vector if keep is None else vector * keep

    def _attends_outside_the_loop(self, memory) -> bool:
        if not self.attentions:
            return not self.input_feeding
        stateless = not tree.flatten(initial_states(self.attentions, memory["values"]))
        return self.attend == "after" and not self.input_feeding and stateless

    def _keep_mask(self, inputs, training):
        """Dropout's scaled mask for all steps, (T, B, F) or None: the loop itself draws no random numbers."""
        if not (training and self.dropout):
            return None
        shape = (*ops.shape(inputs)[:2], self.vector_width)
        return keras.random.dropout(ops.ones(shape, inputs.dtype), self.dropout, seed=self.seed_generator)

    def compute_output_spec(self, inputs, values, mask=None, cell_state=None, fed=None, training=False):
        batch, length = inputs.shape[:2]

        def spec(width, dtype=self.compute_dtype):
            return keras.KerasTensor((batch, length, width), dtype=dtype)

        def alignment(values):
            return spec(values.shape[1], score_dtype(self.compute_dtype))

        alignments = [alignment(v) for v in values] if isinstance(values, (list, tuple)) else alignment(values)
        return spec(self.output_width), spec(self.context_width), alignments
