"""The recurrent decoder that attends to the source at every step."""

from typing import Any

import keras
from keras import ops, tree

from keras_attn.backend import scan
from keras_attn.layers.attention import get_attention
from keras_attn.layers.cells import as_lists, check_cell, output_width, project, recurrence, top_state, unroll
from keras_attn.layers.layer import Layer


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionDecoder(Layer):
    """A recurrent cell with one or several attention layers, run over all target steps or one at a time.

    With `attend="before"`, as Bahdanau 2015 (section 3.1), the query is the previous state and the cell reads the
    context:

        c_i = attention(s_{i-1}, h),   s_i = cell([y_{i-1} ; c_i], s_{i-1}),   output_i = s_i

    With `attend="after"`, as Luong 2015 (section 3), the query is the new state:

        s_i = cell([y_{i-1} ; f_{i-1}], s_{i-1}),   c_i = attention(s_i, h),   output_i = attentional([c_i ; s_i])

    where f_{i-1} is the previous output with `input_feeding` (Luong 2015, section 3.3), and nothing without.

    Args:
        cell: Any Keras RNN cell, or `StackedRNNCells`. GRU and LSTM cells project their inputs outside the loop. The
            query is the top layer's output, which for Keras' cells is its first state.
        attention: An `Attention` layer or its registered name, or a list of several, whose contexts are concatenated.
            With an empty list the contexts have width 0 and the alignments are zero.
        attend: "before" or "after".
        attentional: Layer from `[c ; s]` to the output, such as `AttentionalLayer`; only in "after". None: the output
            is s.
        input_feeding: Whether the cell reads the previous output; only in "after".
        dropout: Dropout rate of the output, before it is fed back; only in "after". The mask is drawn outside the loop.

    Call arguments:
        inputs: `(B, T, E)`, embeddings of y_0 .. y_{T-1}.
        values: `(B, S, M)`, the encoder's h.
        mask: Boolean `(B, S)`, True = real source token; None: all are real.
        cell_state: s_0 in the cell's own structure; None: zeros.
        training: Whether to apply dropout.

    Returns:
        `(outputs (B, T, O), contexts (B, T, C), alignments (B, T, S))`. With several attention layers the contexts are
        concatenated and the alignments averaged.

    For one step at a time, with the same weights: `memory(values, mask)` once a sentence, `initial_state(...)`, then
    `step(inputs (B, E), memory, state) -> output (B, O), context (B, C), alignment (B, S), state`.

    Mask behaviour: source padding gets alignment 0. Target padding needs no mask: it is at the right, after every real
    step.

    Raises:
        ValueError: for a cell with dropout of its own, an unknown `attend` or attention, or arguments of "after" with
            "before".

    Example:
        >>> decoder = keras_attn.AttentionDecoder(keras.layers.GRUCell(5), keras_attn.BahdanauAttention(7))
        >>> values, y = np.ones((2, 3, 11), "float32"), np.ones((2, 13, 17), "float32")
        >>> outputs, contexts, alignments = decoder(y, values)
        >>> outputs.shape, contexts.shape, alignments.shape
        ((2, 13, 5), (2, 13, 11), (2, 13, 3))

    References: Bahdanau, Cho, Bengio. ICLR 2015, arXiv:1409.0473. Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    _layer_arguments = ("cell", "attention", "attentional")

    def __init__(
        self,
        cell,
        attention,
        *,
        attend: str = "before",
        attentional=None,
        input_feeding: bool = False,
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
        several = isinstance(attention, (list, tuple))
        layers = [get_attention(a, dtype=self.dtype_policy) for a in (attention if several else [attention])]
        self.cell = cell
        self.attentions = layers
        self.attention = layers if several else layers[0]
        self.attend = attend
        self.attentional = attentional
        self.input_feeding = input_feeding
        self.dropout = dropout
        self.seed_generator = keras.random.SeedGenerator()

    def build(self, inputs_shape, values_shape, **_):
        batch = inputs_shape[0]
        self.query_width = output_width(self.cell)  # H
        query_shape = (batch, self.query_width)
        self.context_width = values_shape[-1] * len(self.attentions)
        self.output_width = self.query_width
        for attention in self.attentions:
            _build(attention, query_shape, values_shape)
        if self.attentional is not None:
            both = (batch, self.context_width + self.query_width)
            _build(self.attentional, both)
            self.output_width = self.attentional.compute_output_shape(both)[-1]
        # F, the width of what the cell reads besides `inputs`: the context, the previous output, or nothing.
        self.loop_width = self.context_width if self.attend == "before" else self.output_width * self.input_feeding
        _build(self.cell, (batch, inputs_shape[-1] + self.loop_width))

    def call(self, inputs, values, mask=None, cell_state=None, training=False):
        memory = self.memory(values, mask)
        state = self.initial_state(values, cell_state)
        inputs = self._cell_inputs(ops.transpose(inputs, (1, 0, 2)), memory)  # (T, B, I)
        keep = self._keep_mask(inputs, training)  # (T, B, O) or None
        if self._attends_outside_the_loop(memory):
            queries, _ = unroll(self.cell, inputs, state["cell"])
            queries = ops.transpose(queries, (1, 0, 2))  # (B, T, H)
            contexts, alignments, _ = self._attend(queries, memory, state["attention"])
            keep = None if keep is None else ops.transpose(keep, (1, 0, 2))
            return self._output(contexts, queries, keep), contexts, alignments
        recur = recurrence(self.cell, self.loop_width)

        def step(state, x, memory):
            *out, state = self._advance(recur, x["projected"], memory, state, x.get("keep"), x["noise"])
            return state, tuple(out)

        # Of each attention: no random numbers, or those of its steps.
        noise = [a.noise(ops.shape(inputs)[0], values) if training else None for a in self.attentions]
        xs = {"projected": project(self.cell, inputs), "noise": [[] if x is None else [x] for x in noise]}  # (T, B, P)
        _, out = scan(step, state, xs if keep is None else {**xs, "keep": keep}, constants=memory)
        return tuple(ops.transpose(x, (1, 0, 2)) for x in out)

    def step(self, inputs, memory, state):
        """One step: `inputs (B, E)` -> `output (B, O), context (B, C), alignment (B, S), state`."""
        recur = recurrence(self.cell, self.loop_width)
        return self._advance(recur, project(self.cell, self._cell_inputs(inputs, memory)), memory, state)

    def memory(self, values, mask=None) -> dict[str, Any]:
        """What is constant for the sentence: values, keys (projected here, once) and mask."""
        if mask is None:
            mask = ops.ones_like(values[:, :, 0], dtype="bool")  # (B, S)
        if not self.attentions:
            return {"mask": mask}
        return {"values": values, "keys": [a.keys(values) for a in self.attentions], "mask": mask}

    def initial_state(self, values, cell_state=None) -> dict[str, Any]:
        """State before the first step: the cell's (zeros unless given), the attentions', and the previous output."""
        if cell_state is None:
            cell_state = self.cell.get_initial_state(batch_size=ops.shape(values)[0])
        state = {"cell": as_lists(cell_state), "attention": [a.initial_state(values) for a in self.attentions]}
        if self.input_feeding:
            shape = (ops.shape(values)[0], self.output_width)
            state["previous_output"] = ops.zeros(shape, dtype=values.dtype)  # (B, O)
        return state

    def _cell_inputs(self, inputs, memory):
        """What the cell reads that does not depend on the recurrence, (T, B, I) or (B, I)."""
        return inputs

    def _advance(self, recur, projected, memory, state, keep=None, noise=()):
        if self.attend == "before":
            query = top_state(state["cell"])  # (B, H), s_{i-1}
            context, alignment, attention_state = self._attend(query, memory, state["attention"], noise)
            output, cell_state = recur(projected, context, state["cell"])
        else:
            query, cell_state = recur(projected, state.get("previous_output"), state["cell"])
            context, alignment, attention_state = self._attend(query, memory, state["attention"], noise)
            output = self._output(context, query, keep)  # (B, O)
        state = {"cell": cell_state, "attention": attention_state}
        if self.input_feeding:
            state["previous_output"] = output
        return output, context, alignment, state

    def _attend(self, query, memory, states, noise=()):
        """Contexts, alignments and next states for the query of one step (B, H), or of all steps (B, T, H)."""
        noise = [{"noise": x[0]} if x else {} for x in noise or [()] * len(self.attentions)]
        if not self.attentions:
            return query[..., :0], ops.zeros_like(spread(memory["mask"], query), "float32"), states
        results = [
            attention(query, memory["values"], keys=keys, mask=memory["mask"], state=state, **random)
            for attention, keys, state, random in zip(self.attentions, memory["keys"], states, noise, strict=True)
        ]
        contexts, alignments, states = zip(*results, strict=True)
        if len(results) == 1:
            return contexts[0], alignments[0], list(states)
        return ops.concatenate(contexts, axis=-1), sum(alignments) / len(alignments), list(states)

    def _output(self, context, query, keep):
        if self.attentional is not None:
            query = self.attentional(ops.concatenate([context, query], axis=-1))
        return query if keep is None else query * keep

    def _attends_outside_the_loop(self, memory) -> bool:
        if not self.attentions:
            return not self.input_feeding
        stateless = not tree.flatten([a.initial_state(memory["values"]) for a in self.attentions])
        return self.attend == "after" and not self.input_feeding and stateless

    def _keep_mask(self, inputs, training):
        """Dropout's scaled mask for all steps, (T, B, O) or None: the loop itself draws no random numbers."""
        if not (training and self.dropout):
            return None
        shape = (*ops.shape(inputs)[:2], self.output_width)
        return keras.random.dropout(ops.ones(shape, inputs.dtype), self.dropout, seed=self.seed_generator)

    def compute_output_spec(self, inputs, values, mask=None, cell_state=None, training=False):
        batch, length = inputs.shape[:2]

        def spec(width, dtype=self.compute_dtype):
            return keras.KerasTensor((batch, length, width), dtype=dtype)

        return spec(self.output_width), spec(self.context_width), spec(values.shape[1], "float32")


def _build(layer, *shapes):
    """Builds a layer, unless it is built already, as one loaded from a file is."""
    if not layer.built:
        layer.build(*shapes)


def spread(x, query):
    """Repeats a sentence's `x (B, N)` for each step of a query: (B, N) for one step, (B, T, N) for all."""
    if len(query.shape) == 2:
        return x
    return ops.repeat(x[:, None], ops.shape(query)[1], axis=1)
