"""The recurrent decoder that attends to the source at every step, and the one that reads the same vector at each."""

from typing import Any

import keras
from keras import ops, tree

from keras_attn.backend import scan
from keras_attn.layers.attention import get_attention
from keras_attn.layers.layer import (
    SourceReader,
    build_once,
    check_mask,
    check_memory,
    check_sequence,
    refuse_unknown_arguments,
)
from keras_attn.layers.normalizers import score_dtype
from keras_attn.layers.readout import attentional_vector, build_attentional
from keras_attn.layers.recurrence import (
    as_lists,
    check_cell,
    check_states,
    draw_masks,
    output_width,
    project,
    recurrence,
    recurrence_behind,
    top_state,
    unroll,
)


def each(name: str, given, attentions: list) -> list:
    """The argument of each attention layer: one of a list, or the same for all.

    Raises:
        ValueError: for a list of another length than that of the attention layers.
    """
    if not isinstance(given, (list, tuple)):
        return [given] * len(attentions)
    if len(given) != len(attentions):
        raise ValueError(f"Expected `{name}` for each of {len(attentions)} attention layers. Received: {len(given)}")
    return list(given)


def build_attentions(attentions: list, query_shape, values_shapes: list) -> tuple[list[int], list[int]]:
    """Builds each attention layer; the widths of their contexts, and their numbers of heads."""
    widths, heads = [], []
    for attention, shape in zip(attentions, values_shapes, strict=True):
        build_once(attention, query_shape, shape)
        query, values = keras.KerasTensor(query_shape), keras.KerasTensor(shape)
        context, alignment, _ = attention.compute_output_spec(query, values)
        widths.append(context.shape[-1])
        heads.append(alignment.shape[1] if len(alignment.shape) == 3 else 1)
    return widths, heads


def make_memory(attentions: list, values, mask=None) -> dict[str, Any]:
    """Values, keys (projected here, once) and mask; with a list of values also the mask of each, as "masks"."""

    def known(values, mask):
        return ops.ones_like(values[:, :, 0], dtype="bool") if mask is None else check_mask(mask, values)  # (B, S)

    check_memory(values)
    if not isinstance(values, (list, tuple)):
        mask = known(values, mask)
        return (
            {"values": values, "keys": [a.keys(values) for a in attentions], "mask": mask}
            if attentions
            else {"mask": mask}
        )
    values = each("values", values, attentions)
    masks = [known(*pair) for pair in zip(values, each("mask", mask, attentions), strict=True)]
    keys = [a.keys(v) for a, v in zip(attentions, values, strict=True)]
    return {"values": values, "keys": keys, "mask": masks[0], "masks": masks}


def initial_states(attentions: list, values) -> list:
    """The first state of each attention layer."""
    return [a.initial_state(v) for a, v in zip(attentions, each("values", values, attentions), strict=True)]


def attend(attentions: list, query, memory: dict[str, Any], states: list, noise=()):
    """Contexts side by side, the alignments of each layer, and next states, for one step (B, H) or all (B, T, H).

    With `noise` None the layers do not train, whatever calls them: so it is in a step of search.
    """
    if not attentions:
        return query[..., :0], [ops.zeros_like(spread(memory["mask"], query), score_dtype(query.dtype))], states
    values = each("values", memory["values"], attentions)
    masks = each("mask", memory.get("masks", memory["mask"]), attentions)
    random = [{"noise": x[0]} if x else {} for x in noise or [()] * len(attentions)]
    mode = {"training": False} if noise is None else {}
    results = [
        layer(query, values, keys=keys, mask=mask, state=state, **random, **mode)
        for layer, values, keys, mask, state, random in zip(
            attentions, values, memory["keys"], masks, states, random, strict=True
        )
    ]
    contexts, alignments, states = zip(*results, strict=True)
    contexts = [ops.cast(context, query.dtype) for context in contexts]  # of layers of another dtype policy
    context = contexts[0] if len(contexts) == 1 else ops.concatenate(contexts, axis=-1)  # (B, C) or (B, T, C)
    return context, list(alignments), list(states)


def combine(alignments: list, memory: dict[str, Any], steps: int, each_head: bool):
    """The alignments of several layers as one: the mean over all heads `(..., S)`, or each of them `(..., N, S)`.

    They stay apart, in a list, where each attention layer has a memory of its own.

    Args:
        alignments: Of each layer, `(..., S)`, or `(..., N, S)` of one that has heads.
        memory: From `make_memory`.
        steps: The number of axes in front: 1 for one step, (B,), 2 for all of them, (B, T).
        each_head: Whether heads stay apart; a layer without has one.
    """

    def has_heads(x):
        return len(x.shape) == steps + 2

    def join(group):
        if each_head:
            return ops.concatenate([x if has_heads(x) else ops.expand_dims(x, steps) for x in group], axis=steps)
        count = sum(x.shape[steps] if has_heads(x) else 1 for x in group)
        sums = [ops.sum(x, axis=steps) if has_heads(x) else x for x in group]  # (..., S)
        return sums[0] if count == 1 else sum(sums) / count

    return [join([x]) for x in alignments] if "masks" in memory else join(alignments)


def spread(x, query):
    """Repeats a sentence's `x (B, N)` for each step of a query: (B, N) for one step, (B, T, N) for all."""
    if len(query.shape) == 2:
        return x
    return ops.repeat(x[:, None], ops.shape(query)[1], axis=1)


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionDecoder(SourceReader):
    """A recurrent cell with one or several attention layers, run over all target steps or one at a time.

    With `attend="before"`, as Bahdanau 2015 (section 3.1), the query is the previous state and the cell reads the
    context:

        c_i = attention(s_{i-1}, h),   s_i = cell([y_{i-1} ; c_i], s_{i-1}),   output_i = s_i

    With `attend="after"`, as Luong 2015 (section 3), the query is the new state:

        s_i = cell([y_{i-1} ; f_{i-1}], s_{i-1}),   c_i = attention(s_i, h),   output_i = attentional([c_i ; s_i])

    where f_{i-1} is the previous attentional vector with `input_feeding` (Luong 2015, section 3.3), else nothing.

    With `attend="between"`, as Nematus (Sennrich 2017, section 2), each step is two transitions, and the query is
    the state after the first, which has read the last word:

        s'_i = cell(y_{i-1}, s_{i-1}),   c_i = attention(s'_i, h),   s_i = second_cell(c_i, s'_i),   output_i = s_i

    Args:
        cell: Any Keras RNN cell, or `StackedRNNCells`. GRU and LSTM cells project their inputs outside the loop. The
            query is the top layer's output, which for Keras' cells is its first state. In training, the dropout of
            Keras' cells has one mask for all steps, drawn outside the loop.
        attention: An `Attention` layer or its registered name, or a list of several, whose contexts are concatenated.
            A layer given by name that has `units` gets as many as the query.
            With an empty list the contexts have width 0 and the alignments are zero.
        attend: "before", "between" or "after".
        second_cell: The cell that reads the context; only in "between". It takes over the states of `cell`, so both
            have states of the same sizes.
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
        mask: Boolean `(B, S)`, True = real source token; None: the implicit mask of `values`, or else all are real.
            With a list of values a list, too.
        cell_state: s_0, Keras' `initial_state`, in the cell's own structure; None: zeros.
        fed: `(B, F)`, f_0, such as a first context; None: zeros. Only with `input_feeding`.
        training: Whether to apply dropout.
        each_head: Whether the alignments are those of each attention layer and head, `(B, T, N, S)` in the order of the
            layers, instead of their mean.

    Returns:
        `(outputs (B, T, O), contexts (B, T, C), alignments (B, T, S))`. With several attention layers the contexts are
        concatenated and the alignments averaged over all heads; with a list of values the alignments are a list.

    For one step at a time, with the same weights: `memory(values, mask)` once a sentence, `initial_state(...)`, then
    `step(inputs (B, E), memory, state) -> output (B, O), context (B, C), alignment (B, S), state`, where `each_head`
    makes the alignment `(B, N, S)`.

    Mask behaviour: source padding gets alignment 0. Target padding needs no mask: it is at the right, after every real
    step. An implicit mask of `inputs` is handed on to outputs and contexts, so that Keras' losses leave padding out.
    `memory` is no call of a layer: it needs the mask as an argument.

    Raises:
        ValueError: for a cell of one's own with dropout, an unknown `attend` or attention, arguments that do not go
            together, such as those of "after" with "before", a second cell or a `cell_state` of other states, or as
            many memories as there are no attention layers.

    Example:
        >>> decoder = keras_attn.AttentionDecoder(keras.layers.GRUCell(5), keras_attn.BahdanauAttention(7))
        >>> values, y = np.ones((2, 3, 11), "float32"), np.ones((2, 13, 17), "float32")
        >>> outputs, contexts, alignments = decoder(y, values)
        >>> outputs.shape, contexts.shape, alignments.shape
        ((2, 13, 5), (2, 13, 11), (2, 13, 3))

    References: Bahdanau, Cho, Bengio. ICLR 2015, arXiv:1409.0473. Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025.
    Sennrich et al. Nematus: a Toolkit for Neural Machine Translation. EACL 2017, arXiv:1703.04357.
    """

    _layer_arguments = ("cell", "second_cell", "attention", "attentional", "cell_input")

    def __init__(
        self,
        cell,
        attention,
        *,
        attend: str = "before",
        second_cell=None,
        attentional=None,
        input_feeding: bool = False,
        output_attention: bool = True,
        cell_input=None,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_cell(cell)
        if second_cell is not None:
            check_cell(second_cell)
        check_order(attend, cell, second_cell)
        check_vector(attend, attentional, input_feeding, output_attention, cell_input, dropout)
        several = isinstance(attention, (list, tuple))
        # With a name for each: on torch, Keras clears the gradients of weights by their paths.
        names = [f"attention_{i}" for i in range(len(attention))] if several else ["attention"]
        given = zip(attention if several else [attention], names, strict=True)
        layers = [get_attention(one, output_width(cell), self.dtype_policy, name) for one, name in given]
        vectors = list(attentional) if isinstance(attentional, (list, tuple)) else attentional
        check_attentions(attend, vectors, len(layers))
        self.cell = cell
        self.second_cell = second_cell
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
        check_sequence("inputs", inputs_shape)
        batch = inputs_shape[0]
        self.query_width = output_width(self.cell)  # H
        query_shape = (batch, self.query_width)
        several = isinstance(values_shape[0], (list, tuple))
        shapes = (
            each("values", list(values_shape), self.attentions) if several else [values_shape] * len(self.attentions)
        )
        self.context_widths, self.heads = build_attentions(self.attentions, query_shape, shapes)
        self.context_width = sum(self.context_widths)
        self.vector_width = build_attentional(self.attentional, batch, self.context_widths, self.query_width)
        self.output_width = self.vector_width if self.output_attention else self.query_width
        if self.second_cell is not None:
            build_once(self.second_cell, (batch, self.context_width))
        # F, the width of what the cell reads besides `inputs`: the context, the attentional vector, or nothing.
        self.loop_width = self.context_width if self.attend == "before" else self.vector_width * self.input_feeding
        width = inputs_shape[-1] + self.loop_width
        if self.cell_input is not None:
            build_once(self.cell_input, (batch, width))
            width = self.cell_input.compute_output_shape((batch, width))[-1]
        self.input_width = width  # of the cell
        build_once(self.cell, (batch, width))

    def call(
        self,
        inputs,
        values,
        mask=None,
        cell_state=None,
        fed=None,
        training=False,
        each_head=False,
        values_mask=None,
    ):
        memory = self.memory(values, values_mask if mask is None else mask)
        state = self.initial_state(values, cell_state, fed)
        inputs = self._cell_inputs(ops.transpose(inputs, (1, 0, 2)), memory)  # (T, B, I)
        keep = self._keep_mask(inputs, training)  # (T, B, F) or None
        drops = self._draw_masks(ops.shape(inputs)[1]) if training else [None, None]
        # Of each attention: no random numbers, or those of its steps.
        pairs = zip(self.attentions, each("values", values, self.attentions), strict=True)
        noise = [attention.noise(ops.shape(inputs)[0], v) if training else None for attention, v in pairs]
        if self._attends_outside_the_loop(memory) and all(x is None for x in noise):
            queries, _ = unroll(self.cell, inputs, state["cell"], drops=drops[0])
            queries = ops.transpose(queries, (1, 0, 2))  # (B, T, H)
            contexts, alignments, _ = self._attend(queries, memory, state["attention"])
            keep = None if keep is None else ops.transpose(keep, (1, 0, 2))
            return self._vector(contexts, queries, keep), contexts, combine(alignments, memory, 2, each_head)
        transitions, drawn = self._transitions(drops), drops != [None, None]

        def step(state, x, constants):
            memory, drops = constants if drawn else (constants, [None, None])
            output, context, alignments, state = self._advance(
                transitions, x["projected"], memory, state, x.get("keep"), x["noise"], drops
            )
            return state, (output, context, combine(alignments, memory, 1, each_head))

        projected = self._project(inputs, drops[0])  # (T, B, P)
        xs = {"projected": projected, "noise": [[] if x is None else [x] for x in noise]}
        _, out = scan(
            step, state, xs if keep is None else {**xs, "keep": keep}, constants=(memory, drops) if drawn else memory
        )
        return tree.map_structure(lambda x: ops.swapaxes(x, 0, 1), out)

    def step(self, inputs, memory, state, each_head=False):
        """One step: `inputs (B, E)` -> `output (B, O), context (B, C), alignment (B, S) or (B, N, S), state`."""
        projected = self._project(self._cell_inputs(inputs, memory))
        output, context, alignments, state = self._advance(self._transitions(), projected, memory, state, noise=None)
        return output, context, combine(alignments, memory, 1, each_head), state

    def memory(self, values, mask=None) -> dict[str, Any]:
        """The constants of a sentence: values, keys (projected here, once) and mask."""
        return make_memory(self.attentions, values, mask)

    def initial_state(self, values, cell_state=None, fed=None) -> dict[str, Any]:
        """State before the first step: the cell's and what is fed (zeros unless given), and the attentions'."""
        first = values[0] if isinstance(values, (list, tuple)) else values
        if cell_state is None:
            cell_state = as_lists(self.cell.get_initial_state(batch_size=ops.shape(first)[0]))
        else:
            cell_state = check_states("cell_state", self.cell, cell_state)
        state = {"cell": cell_state, "attention": initial_states(self.attentions, values)}
        if self.input_feeding:
            shape = (ops.shape(first)[0], self.vector_width)
            state["fed"] = ops.zeros(shape, dtype=first.dtype) if fed is None else ops.cast(fed, first.dtype)  # (B, F)
        elif fed is not None:
            raise ValueError("Expected `fed` only with `input_feeding=True`. Received: input_feeding=False and `fed`")
        return state

    def _cell_inputs(self, inputs, memory):
        """The cell's inputs that do not depend on the recurrence, (T, B, I) or (B, I)."""
        return inputs

    def _project(self, inputs, drops=None):
        """The input projection, computed outside the loop, (T, B, P) or (B, P)."""
        return inputs if self.cell_input is not None else project(self.cell, inputs, drops)

    def _draw_masks(self, batch) -> list:
        """Dropout's masks of the cell and of the second one, each None without dropout."""
        second = self.second_cell and draw_masks(self.second_cell, batch, self.context_width)
        return [draw_masks(self.cell, batch, self.input_width), second]

    def _transitions(self, drops=(None, None)):
        """The transitions before and after the attention, as of `recurrence` but with both cells' masks; or None."""
        if self.cell_input is None:
            recur = recurrence(self.cell, self.loop_width, drops[0])
        else:
            recur = recurrence_behind(self.cell_input, self.cell, drops[0])

        def first(projected, loop_inputs, states, drops):
            return recur(projected, loop_inputs, states, drops[0])

        if self.second_cell is None:
            return (None, first) if self.attend == "before" else (first, None)
        recur_second = recurrence(self.second_cell, self.context_width, drops[1])
        return first, lambda _, context, states, drops: recur_second(None, context, states, drops[1])

    def _advance(self, transitions, projected, memory, state, keep=None, noise=(), drops=(None, None)):
        before, after = transitions
        output, cell_state = top_state(state["cell"]), state["cell"]  # (B, H), s_{i-1}
        if before:
            output, cell_state = before(projected, state.get("fed"), cell_state, drops)
        context, alignment, attention_state = self._attend(output, memory, state["attention"], noise)
        if after:
            output, cell_state = after(projected, context, cell_state, drops)
        state = {"cell": cell_state, "attention": attention_state}
        if self.attend == "after":
            vector = self._vector(context, output, keep)  # (B, F)
            output = vector if self.output_attention else output  # (B, O)
            if self.input_feeding:
                state["fed"] = vector
        return output, context, alignment, state

    def _attend(self, query, memory, states, noise=()):
        """Contexts, each layer's alignment and next states for the query of one step (B, H), or of all (B, T, H)."""
        return attend(self.attentions, query, memory, states, noise)

    def _vector(self, context, query, keep):
        """The attentional vector, (B, F) or (B, T, F)."""
        vector = attentional_vector(self.attentional, context, query, self.context_widths)
        return vector if keep is None else vector * keep

    def _attends_outside_the_loop(self, memory) -> bool:
        if not self.attentions:
            return not self.input_feeding and self.cell_input is None
        stateless = not tree.flatten(initial_states(self.attentions, memory["values"]))
        return self.attend == "after" and not self.input_feeding and stateless

    def _keep_mask(self, inputs, training):
        """Dropout's scaled mask for all steps, (T, B, F) or None: the loop itself draws no random numbers."""
        if not (training and self.dropout):
            return None
        shape = (*ops.shape(inputs)[:2], self.vector_width)
        return keras.random.dropout(ops.ones(shape, inputs.dtype), self.dropout, seed=self.seed_generator)

    def compute_mask(self, inputs, previous_mask):
        return previous_mask, previous_mask  # of outputs and contexts

    def compute_output_spec(
        self,
        inputs,
        values,
        mask=None,
        cell_state=None,
        fed=None,
        training=False,
        each_head=False,
        values_mask=None,
    ):
        def spec(*shape, dtype=self.compute_dtype):
            return keras.KerasTensor((*inputs.shape[:2], *shape), dtype=dtype)

        def alignment(values, heads):
            return spec(*[heads] * each_head, values.shape[1], dtype=score_dtype(self.compute_dtype))

        if isinstance(values, (list, tuple)):
            alignments = [alignment(*pair) for pair in zip(values, self.heads, strict=True)]
        else:
            alignments = alignment(values, max(1, sum(self.heads)))
        return spec(self.output_width), spec(self.context_width), alignments


def check_order(attend: str, cell, second_cell) -> None:
    """Raises ValueError for an unknown order, or a second cell without "between" or with other states."""
    if attend not in ("before", "between", "after"):
        raise ValueError(f'Expected `attend` to be "before", "between" or "after". Received: attend={attend!r}')
    if (second_cell is not None) != (attend == "between"):
        raise ValueError(
            f"Expected a `second_cell` with attend='between', and with it alone. Received: attend={attend!r}, "
            f"second_cell={second_cell!r}"
        )
    if second_cell is None:
        return
    # A stack of one layer has its states in a list of lists.
    sizes = [[tree.flatten(layer.state_size) for layer in getattr(one, "cells", [one])] for one in (cell, second_cell)]
    if sizes[0] != sizes[1] or hasattr(cell, "cells") != hasattr(second_cell, "cells"):
        raise ValueError(
            f"Expected a `second_cell` with states of the same sizes as those of `cell`, which it takes over. "
            f"Received: {second_cell.name} with {sizes[1]} and {cell.name} with {sizes[0]}, layer by layer"
        )


def check_vector(attend, attentional, input_feeding, output_attention, cell_input, dropout) -> None:
    """Raises ValueError for a dropout rate out of range, or arguments of an attentional vector without one."""
    if not 0 <= dropout < 1:
        raise ValueError(f"Expected `dropout` from 0 to below 1. Received: dropout={dropout}")
    if attend != "after" and (attentional is not None or input_feeding or dropout):
        raise ValueError(
            f"Expected `attentional`, `input_feeding` and `dropout` only with attend='after': otherwise a cell reads "
            f"the context, and its output is the decoder's. Received: attend={attend!r}, attentional={attentional!r}, "
            f"input_feeding={input_feeding}, dropout={dropout}"
        )
    if not output_attention and (attentional is None or not input_feeding):
        raise ValueError(
            f"Expected `output_attention=False` with `attentional` and `input_feeding=True`: the vector is then only "
            f"fed back. Received: attentional={attentional!r}, input_feeding={input_feeding}"
        )
    if cell_input is not None and attend != "before" and not input_feeding:
        raise ValueError(
            f"Expected `cell_input` with something to add to the inputs: attend='before' or `input_feeding=True`. "
            f"Received: attend={attend!r}, input_feeding=False"
        )


def check_attentions(attend, attentional, attentions: int) -> None:
    """Raises ValueError for "between" without attention, or an `attentional` of another length or an unknown name."""
    if attend == "between" and not attentions:
        raise ValueError("Expected an attention layer with attend='between'. Received: none")
    wrong = len(attentional) != attentions if isinstance(attentional, list) else attentional != "context"
    if isinstance(attentional, (str, list)) and wrong:
        raise ValueError(
            f'Expected `attentional` to be a layer, "context", or a list of layers, one for each of {attentions} '
            f"attention layers. Received: {attentional!r}"
        )


@keras.saving.register_keras_serializable(package="keras_attn")
class FixedContextDecoder(AttentionDecoder):
    """A recurrent cell that reads the encoder's final state, and nothing else of the source, at every step.

        c = h_S, or tanh(V h_S) with a projection                              (Cho 2014, section 2.2, appendix A.1.1)
        s_i = cell([y_{i-1} ; c], s_{i-1})                                              (appendix A.1.2)

    It is an `AttentionDecoder` with a constant alignment, 1 at the last real word and 0 elsewhere, so that it can be
    plotted beside others.

    Args:
        cell: Any Keras RNN cell, or `StackedRNNCells`.
        projection: Layer from h_S `(B, M)` to c `(B, C)`, such as `Dense(C, "tanh")`; None: c is h_S itself.

    Call arguments, returns, `memory`, `initial_state` and `step`: see `AttentionDecoder`. The context of every step is
    c.

    Mask behaviour: h_S is the state after the row's last real word. A row without any has c = 0 before the projection.

    Raises:
        ValueError: for a cell of one's own with dropout, or what is not a cell.

    Example:
        >>> decoder = keras_attn.FixedContextDecoder(keras.layers.GRUCell(5))
        >>> values, y = np.ones((2, 3, 11), "float32"), np.ones((2, 13, 17), "float32")
        >>> outputs, contexts, alignments = decoder(y, values)
        >>> outputs.shape, contexts.shape
        ((2, 13, 5), (2, 13, 11))
        >>> print(keras.ops.convert_to_numpy(alignments)[0, 0])
        [0. 0. 1.]

    Differences from the paper: its GRU lets the reset gate act on C c too; here on U s_{i-1} alone.

    Reference: Cho et al. Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation.
    EMNLP 2014, arXiv:1406.1078.
    """

    _layer_arguments = ("cell", "projection")
    _replaces_arguments = True

    def __init__(self, cell, *, projection=None, **kwargs):
        refuse_unknown_arguments(type(self), kwargs)
        super().__init__(cell, [], **kwargs)
        self.projection = projection

    def build(self, inputs_shape, values_shape, **_):
        last_shape = (values_shape[0], values_shape[-1])
        width = values_shape[-1]
        if self.projection is not None:
            build_once(self.projection, last_shape)
            width = self.projection.compute_output_shape(last_shape)[-1]
        super().build((*inputs_shape[:-1], inputs_shape[-1] + width), values_shape)
        self.context_width = width

    def memory(self, values, mask=None):
        mask = super().memory(values, mask)["mask"]
        counts = ops.cumsum(ops.cast(mask, "int32"), axis=-1)  # (B, S)
        is_last = mask & (counts == ops.sum(ops.cast(mask, "int32"), axis=-1, keepdims=True))
        context = ops.sum(values * ops.cast(is_last, values.dtype)[:, :, None], axis=1)  # (B, M)
        if self.projection is not None:
            context = self.projection(context)  # (B, C)
        return {"mask": mask, "context": context, "alignment": ops.cast(is_last, score_dtype(values.dtype))}

    def _cell_inputs(self, inputs, memory):
        context = memory["context"]  # (B, C)
        # Beside the embeddings, so that it is projected with them, outside the loop.
        context = context + ops.zeros_like(inputs[..., :1])  # (T, B, C) or (B, C)
        return ops.concatenate([inputs, context], axis=-1)

    def _attend(self, query, memory, states, noise=()):
        return spread(memory["context"], query), [spread(memory["alignment"], query)], states
