"""One attention layer or several over one memory or several: what is constant for a sentence, and one step."""

from typing import Any

import keras
from keras import ops

from keras_attn.layers.layer import build_once, check_mask
from keras_attn.layers.normalizers import score_dtype


def each(name: str, given, attentions: list) -> list:
    """What each attention layer gets: its own where a list is given, else the same as the others.

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
