"""The recurrent decoder that attends at every step."""

from typing import Any

import keras
from keras import ops, tree

from keras_attn.backend import scan
from keras_attn.layers.cells import as_lists, check_cell, output_width, project, recurrence, top_state, unroll


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionDecoder(keras.layers.Layer):
    """A recurrent cell and one or several attention layers, run over all target steps or one.

    With `attend="before"`, as Bahdanau 2015 (section 3.1): the previous state asks, the cell reads the answer.

        c_i = attention(s_{i-1}, h),   s_i = cell([y_{i-1} ; c_i], s_{i-1}),   output_i = s_i

    With `attend="after"`, as Luong 2015 (section 3): the new state asks.

        s_i = cell([y_{i-1} ; f_{i-1}], s_{i-1}),   c_i = attention(s_i, h),   output_i = attentional([c_i ; s_i])

    where f is what is fed back: with `input_feeding`, the last output (Luong 2015, section 3.3); else nothing.

    Arguments:
        cell: Any Keras RNN cell, `StackedRNNCells` too. GRU and LSTM cells have their input projections hoisted out
            of the loop. The query is the top layer's output, which for Keras' cells is its first state.
        attention: An `Attention` layer, or a list of them whose contexts are put side by side. Of an empty list the
            contexts have width 0 and the alignments are zero.
        attend: "before" or "after".
        attentional: Layer from `[c ; s]` to the output in "after" (see `AttentionalLayer`), or None: the output is s.
        input_feeding: Only in "after".
        dropout: Share of the attentional output dropped, before it is fed back (the mask is drawn outside the loop).

    Call arguments:
        inputs: `(B, T, E)`, embeddings of y_0 .. y_{T-1}.
        values: `(B, S, M)`, the encoder's h.
        mask: Boolean `(B, S)`, True = real source token; None: all are real.
        cell_state: s_0 in the cell's own structure; None: zeros.
        training: Whether dropout acts.

    Returns:
        `(outputs (B, T, O), contexts (B, T, C), alignments (B, T, S))`. With several attention layers the contexts
        stand side by side and the alignments are averaged.

    For one step at a time, with the same weights: `memory(values, mask)` once a sentence, `initial_state(...)`, then
    `step(inputs (B, E), memory, state) -> output (B, O), context (B, C), alignment (B, S), state`.

    Mask behaviour: source padding is ignored by the attention. Target padding needs no mask: it stands at the right,
    and no real step comes after it.

    Raises:
        ValueError: for a cell with dropout of its own, an unknown `attend`, or what belongs to "after" given with
            "before".

    Example:
        >>> decoder = keras_attn.AttentionDecoder(keras.layers.GRUCell(5), keras_attn.BahdanauAttention(7))
        >>> values, y = np.ones((2, 3, 11), "float32"), np.ones((2, 13, 17), "float32")
        >>> outputs, contexts, alignments = decoder(y, values)
        >>> outputs.shape, contexts.shape, alignments.shape
        ((2, 13, 5), (2, 13, 11), (2, 13, 3))

    References: Bahdanau, Cho, Bengio. ICLR 2015, arXiv:1409.0473. Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    """

    _parts = ("cell", "attention", "attentional")  # arguments that are layers

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
        self.supports_masking = True
        check_cell(cell)
        if attend not in ("before", "after"):
            raise ValueError(f'Expected `attend` to be "before" or "after". Received: attend={attend!r}')
        if attend == "before" and (attentional is not None or input_feeding or dropout):
            raise ValueError(
                "Expected `attentional`, `input_feeding` and `dropout` only with attend='after': attending before "
                "the cell already feeds the context to it, and its output is the cell's own."
            )
        self.cell = cell
        self.attentions = list(attention) if isinstance(attention, (list, tuple)) else [attention]
        self.attend = attend
        self.attentional = attentional
        self.input_feeding = input_feeding
        self.dropout = dropout
        self.seed_generator = keras.random.SeedGenerator()

    def build(self, inputs_shape, values_shape, **_):
        batch = inputs_shape[0]
        self.query_width = output_width(self.cell)  # H, of the output that asks
        query_shape = (batch, self.query_width)
        self.context_width = values_shape[-1] * len(self.attentions)
        self.output_width = self.query_width
        for attention in self.attentions:
            _build(attention, query_shape, values_shape)
        if self.attentional is not None:
            both = (batch, self.context_width + self.query_width)
            _build(self.attentional, both)
            self.output_width = self.attentional.compute_output_shape(both)[-1]
        self.fed_width = self.context_width if self.attend == "before" else self.output_width * self.input_feeding
        _build(self.cell, (batch, inputs_shape[-1] + self.fed_width))

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
        recur = recurrence(self.cell, self.fed_width)

        def step(state, x):
            *out, state = self._advance(recur, x[0], memory, state, *x[1:])
            return state, tuple(out)

        projected = project(self.cell, inputs)  # (T, B, P)
        _, out = scan(step, state, (projected,) if keep is None else (projected, keep))
        return tuple(ops.transpose(x, (1, 0, 2)) for x in out)

    def step(self, inputs, memory, state):
        """One step: `inputs (B, E)` -> `output (B, O), context (B, C), alignment (B, S), state`."""
        recur = recurrence(self.cell, self.fed_width)
        return self._advance(recur, project(self.cell, self._cell_inputs(inputs, memory)), memory, state)

    def memory(self, values, mask=None) -> dict[str, Any]:
        """What stays the same for the whole sentence; the keys are projected here, once."""
        if mask is None:
            mask = ops.ones_like(values[:, :, 0], dtype="bool")  # (B, S)
        if not self.attentions:
            return {"mask": mask}
        return {"values": values, "keys": [a.keys(values) for a in self.attentions], "mask": mask}

    def initial_state(self, values, cell_state=None) -> dict[str, Any]:
        """State before the first step: the cell's (zeros unless given), the attentions', and what is fed back."""
        if cell_state is None:
            cell_state = self.cell.get_initial_state(batch_size=ops.shape(values)[0])
        state = {"cell": as_lists(cell_state), "attention": [a.initial_state(values) for a in self.attentions]}
        if self.input_feeding:
            state["fed"] = ops.zeros((ops.shape(values)[0], self.output_width), dtype=values.dtype)  # (B, O)
        return state

    def _cell_inputs(self, inputs, memory):
        """What the cell reads of each step besides what comes back from the last, (T, B, E) or (B, E)."""
        return inputs

    def _advance(self, recur, projected, memory, state, keep=None):
        if self.attend == "before":
            query = top_state(state["cell"])  # (B, H), s_{i-1}
            context, alignment, attention_state = self._attend(query, memory, state["attention"])
            output, cell_state = recur(projected, context, state["cell"])
        else:
            query, cell_state = recur(projected, state.get("fed"), state["cell"])
            context, alignment, attention_state = self._attend(query, memory, state["attention"])
            output = self._output(context, query, keep)  # (B, O)
        state = {"cell": cell_state, "attention": attention_state}
        if self.input_feeding:
            state["fed"] = output
        return output, context, alignment, state

    def _attend(self, query, memory, states):
        """Contexts and alignments of one step's query (B, H), or of all steps' (B, T, H)."""
        if not self.attentions:
            return query[..., :0], ops.zeros_like(spread(memory["mask"], query), "float32"), states
        results = [
            attention(query, memory["values"], keys=keys, mask=memory["mask"], state=state)
            for attention, keys, state in zip(self.attentions, memory["keys"], states, strict=True)
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
        """Dropout's scaled mask for every step, (T, B, O): no random number is drawn inside the loop."""
        if not (training and self.dropout):
            return None
        shape = (*ops.shape(inputs)[:2], self.output_width)
        return keras.random.dropout(ops.ones(shape, inputs.dtype), self.dropout, seed=self.seed_generator)

    def compute_mask(self, *_):
        """None: the source mask says nothing about the target steps, and Keras would hang it on them."""

    def compute_output_spec(self, inputs, values, mask=None, cell_state=None, training=False):
        batch, length = inputs.shape[:2]

        def spec(width, dtype=self.compute_dtype):
            return keras.KerasTensor((batch, length, width), dtype=dtype)

        return spec(self.output_width), spec(self.context_width), spec(values.shape[1], "float32")

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "cell": serialize(self.cell),
            "attention": [serialize(attention) for attention in self.attentions],
            "attend": self.attend,
            "attentional": None if self.attentional is None else serialize(self.attentional),
            "input_feeding": self.input_feeding,
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(cls, config):
        deserialize = keras.saving.deserialize_keras_object
        parts = {name: deserialize(config[name]) for name in cls._parts if name in config}
        return cls(**{**config, **parts})


def _build(layer, *shapes):
    """Builds what is not yet built: a layer that comes from a file already is."""
    if not layer.built:
        layer.build(*shapes)


def spread(x, query):
    """What holds for a whole sentence, (B, N), at every step of a query: (B, N) as it is, or (B, T, N)."""
    if len(query.shape) == 2:
        return x
    return ops.repeat(x[:, None], ops.shape(query)[1], axis=1)
