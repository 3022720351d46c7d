"""Tensor operations that the search loops share."""

from keras import ops, tree

from keras_attn.backend import put, take


def repeat_rows(structure, times: int):
    """Repeats every tensor `(B, ...)` of `structure` to `(B * times, ...)`, the copies of a row side by side."""
    leaves = tree.flatten(structure)
    if times == 1 or not leaves:  # `()` is the state of a step that has none
        return tree.map_structure(ops.convert_to_tensor, structure)
    batch = ops.shape(leaves[0])[0]
    # One index for all tensors: in a TensorFlow graph each `repeat` is 25 nodes.
    rows = ops.arange(batch * times, dtype="int32") // times  # (B * times,)
    return tree.map_structure(lambda x: take(ops.convert_to_tensor(x), rows), structure)


def take_step(config, old):
    """The step of a search; it has to return one alignment, whose shape is the memory's mask's.

    Args:
        config: Constants of the search, with "step", "memory", "shortlist" and "logits_processor".
        old: State of the search, with "token_ids" `(R,)`, chosen last, "position", "history" and "state".

    With a `shortlist` the ids are places in it, the logits `(R, n)` are those of its tokens alone, and -inf for tokens
    that are not a row's own.

    Raises:
        ValueError: if `step` returns something else.
    """
    memory, shortlist = config.memory, config.shortlist
    if shortlist:
        token_ids, output = take(shortlist["token_ids"], old.token_ids), [shortlist["output"]]  # (R,)
    else:
        token_ids, output = old.token_ids, []
    found = config.step(token_ids, memory, old.state, *output)
    parts = found if isinstance(found, (list, tuple)) else [found]
    if len(parts) != 3 or parts[2] is None:
        raise ValueError(
            "Expected `step` to return (logits (R, V), state, alignment (R, S)). Without attention the alignment is "
            '`keras.ops.zeros_like(memory["mask"], dtype="float32")`, and without a state that is (). Received: '
            f"{len(parts)} ({', '.join(type(part).__name__ for part in parts)})"
        )
    logits, state, alignment = found
    if shortlist:
        logits = ops.where(memory["allowed"], logits, float("-inf"))  # (R, n)
    if config.logits_processor is not None:
        changed = config.logits_processor(logits, old.history, old.position, state)
        sizes = [*zip(getattr(changed, "shape", ()), logits.shape, strict=False)]
        if len(sizes) != 2 or any(None not in pair and pair[0] != pair[1] for pair in sizes):
            raise ValueError(
                f"Expected `logits_processor` to return logits of shape (R, V) = {tuple(logits.shape)}. Received: "
                f"{getattr(changed, 'shape', changed)}"
            )
        logits = changed
    if isinstance(alignment, (list, tuple)):
        raise ValueError(
            f"Expected `step` to return one alignment (R, S). Received: {len(alignment)} of them, as an "
            f"`AttentionDecoder` with several memories has. Return the first, whose mask is the memory's."
        )
    return logits, state, alignment


def share_shortlist(memory, shortlist, logits_processor=None):
    """The memory with what each row may have of a shortlist, which is repeated with it, and what all rows share."""
    if shortlist is None:
        return memory, ()
    if logits_processor is not None:
        raise ValueError("Expected a `logits_processor` or a shortlist, whose logits are of other ids. Received: both")
    if missing := {"token_ids", "allowed", "output"} - shortlist.keys():
        raise ValueError(f'Expected `shortlist` to have "token_ids", "allowed", "output". Without: {sorted(missing)}')
    shared = {"token_ids": ops.convert_to_tensor(shortlist["token_ids"], dtype="int32"), "output": shortlist["output"]}
    return {**memory, "allowed": ops.convert_to_tensor(shortlist["allowed"], dtype="bool")}, shared


def start_history(rows, length, constraints, logits_processor):
    """The tokens `(R, L)` of hypotheses that have none yet; `()` where nothing reads them."""
    if not constraints.no_repeat_ngram_size and logits_processor is None:
        return ()
    return ops.full((rows, length), constraints.special_ids.pad, dtype="int32")


def append(buffer, position, update, axis: int = 0):
    """`put` along `axis`; a buffer `()`, which is not kept, stays as it is."""
    if isinstance(buffer, tuple):
        return buffer
    if axis == 1:
        here = ops.arange(ops.shape(buffer)[1], dtype="int32") == position  # (L,)
        return ops.where(here, update[:, None], buffer)  # (R, L)
    return put(buffer, position, ops.cast(update, buffer.dtype))


def match_spec(structure, reference):
    """`structure` with the shapes and dtypes of `reference`, as a loop requires of its state."""

    def restore(x, old):
        x = x if x.dtype == old.dtype else ops.cast(x, old.dtype)
        return x if tuple(x.shape) == tuple(old.shape) else ops.reshape(x, ops.shape(old))

    return tree.map_structure(restore, structure, reference)
