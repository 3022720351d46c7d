"""One attention layer or several over one memory or several: what is constant for a sentence, and one step."""

from typing import Any

from keras import ops

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


def make_memory(attentions: list, values, mask=None) -> dict[str, Any]:
    """Values, keys (projected here, once) and mask; with a list of values also the mask of each, as "masks"."""

    def known(values, mask):
        return ops.ones_like(values[:, :, 0], dtype="bool") if mask is None else mask  # (B, S)

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
    """Contexts, alignments and next states for the query of one step (B, H), or of all steps (B, T, H).

    Contexts are concatenated. Alignments are averaged, or a list where each attention layer has a memory of its own.
    """
    if not attentions:
        return query[..., :0], ops.zeros_like(spread(memory["mask"], query), score_dtype(query.dtype)), states
    values = each("values", memory["values"], attentions)
    masks = each("mask", memory.get("masks", memory["mask"]), attentions)
    random = [{"noise": x[0]} if x else {} for x in noise or [()] * len(attentions)]
    results = [
        layer(query, values, keys=keys, mask=mask, state=state, **random)
        for layer, values, keys, mask, state, random in zip(
            attentions, values, memory["keys"], masks, states, random, strict=True
        )
    ]
    contexts, alignments, states = zip(*results, strict=True)
    context = contexts[0] if len(contexts) == 1 else ops.concatenate(contexts, axis=-1)  # (B, C) or (B, T, C)
    if "masks" in memory:
        return context, list(alignments), list(states)
    return context, alignments[0] if len(results) == 1 else sum(alignments) / len(alignments), list(states)


def spread(x, query):
    """Repeats a sentence's `x (B, N)` for each step of a query: (B, N) for one step, (B, T, N) for all."""
    if len(query.shape) == 2:
        return x
    return ops.repeat(x[:, None], ops.shape(query)[1], axis=1)
