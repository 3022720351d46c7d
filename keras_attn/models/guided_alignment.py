"""The loss of guided alignment: attention is trained on links between words, beside the words themselves."""

from keras import ops

ALIGNMENTS = "alignments"  # the input that only a step of training takes, see `Seq2Seq`
_LEAST = 1e-6  # weight of attention, as in Marian: a word without any has a loss of 14 nats, and no gradient


def has_alignments(inputs) -> bool:
    """Returns True if the inputs of a model include target alignments."""
    return isinstance(inputs, dict) and ALIGNMENTS in inputs


def alignment_crossentropy(alignments, targets):
    """The cross-entropy of alignments, summed over target words, and the number of those that have links.

        loss = -(1 / n) sum_t sum_j A_tj log alpha_tj        (Chen et al. 2016, arXiv:1607.01628)

    with n the number of rows t of A that are not zero; all other rows add nothing.

    Args:
        alignments: alpha `(B, T, S)`, the model's.
        targets: A `(B, T, S)`, rows of zeros, or that sum to the weight of this loss. With another S, that of a batch
            whose source rows the model pads or cuts (`source_length`), they are padded or cut alike.

    Returns:
        n times the loss, and n, float32 scalars.
    """
    alignments, targets = ops.cast(alignments, "float32"), ops.cast(targets, "float32")
    if alignments.shape[-1] != targets.shape[-1]:
        length = ops.shape(alignments)[-1]
        targets = ops.pad(targets, [[0, 0], [0, 0], [0, length]])[..., :length]
    total = -ops.sum(targets * ops.log(ops.maximum(alignments, _LEAST)))
    count = ops.sum(ops.cast(ops.sum(targets, axis=-1) > 0, "float32"))
    return total, count
