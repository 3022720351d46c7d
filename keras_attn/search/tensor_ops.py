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


def take_step(step, token_ids, memory, state, shortlist=()):
    """`step(token_ids, memory, state)`; it has to return one alignment, whose shape is the memory's mask's.

    With a `shortlist` the ids are places in it, the logits `(R, n)` are those of its tokens alone, and -inf for tokens
    that are not a row's own.
    """
    if shortlist:
        token_ids = take(shortlist["token_ids"], token_ids)  # (R,)
        logits, state, alignment = step(token_ids, memory, state, shortlist["output"])
        logits = ops.where(memory["allowed"], logits, float("-inf"))  # (R, n)
    else:
        logits, state, alignment = step(token_ids, memory, state)
    if isinstance(alignment, (list, tuple)):
        raise ValueError(
            f"Expected `step` to return one alignment (R, S). Received: {len(alignment)} of them, as an "
            f"`AttentionDecoder` with several memories has. Return the first, whose mask is the memory's."
        )
    return logits, state, alignment


def share_shortlist(memory, shortlist):
    """The memory with what each row may have of a shortlist, which is repeated with it, and what all rows share."""
    if shortlist is None:
        return memory, ()
    if missing := {"token_ids", "allowed", "output"} - shortlist.keys():
        raise ValueError(f'Expected `shortlist` to have "token_ids", "allowed", "output". Without: {sorted(missing)}')
    shared = {"token_ids": ops.convert_to_tensor(shortlist["token_ids"], dtype="int32"), "output": shortlist["output"]}
    return {**memory, "allowed": ops.convert_to_tensor(shortlist["allowed"], dtype="bool")}, shared


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
