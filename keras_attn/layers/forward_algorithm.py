"""The forward-backward algorithm over hidden alignments, in logarithms (Rabiner 1989, sections III.A and III.B)."""

from keras import ops

from keras_attn.backend import scan
from keras_attn.layers.normalizers import at_least_float32


def observations(log_emissions, token_ids):
    """log p(y_{i-1} | a_{i-1} = j) `(B, T, S)`, of the token that each step reads; 0 for the first, the start.

    Args:
        log_emissions: log p(y_i = v | a_i = j), `(B, T, S, V)`.
        token_ids: y_0 .. y_{T-1}, `(B, T)`.
    """
    # All T are gathered and one dropped, because JAX exports no gather from an unknown T - 1, which may be 0.
    read_next = ops.concatenate([token_ids[:, 1:], ops.zeros_like(token_ids[:, :1])], axis=1)  # (B, T)
    log_probs = of_tokens(log_emissions, read_next)  # (B, T, S), of y_i
    return ops.concatenate([ops.zeros_like(log_probs[:, :1]), log_probs[:, :-1]], axis=1)


def of_tokens(log_emissions, token_ids):
    """The tokens' log-probabilities at each word, `(..., S)` from `(..., S, V)` and ids `(...)`."""
    ids = ops.cast(token_ids, "int32")[..., None, None] + ops.zeros_like(
        log_emissions[..., :1], dtype="int32"
    )  # (..., S, 1)
    return ops.take_along_axis(at_least_float32(log_emissions), ids, axis=-1)[..., 0]


def advance(log_alignment, observed, log_transitions):
    """One step forward, to log p(a_i = j | y_<i, x) `(B, S)`.

    Args:
        log_alignment: The same of the step before, `(B, S)`.
        observed: log p(y_{i-1} | a_{i-1} = k), `(B, S)`.
        log_transitions: log p(a_i = j | a_{i-1} = k), `(B, S, S)`, k before j.
    """
    joint = log_alignment + observed  # (B, S)
    joint = joint - ops.logsumexp(joint, axis=-1, keepdims=True)
    return ops.logsumexp(joint[:, :, None] + log_transitions, axis=1)


def forward(first, observed, log_transitions):
    """log p(a_i = j | y_<i, x) of all steps, `(B, T, S)`.

    Args:
        first: log p(a_0 = j), `(B, S)`.
        observed: As `observations` returns it, `(B, T, S)`.
        log_transitions: log p(a_i = j | a_{i-1} = k), `(B, T, S, S)`.
    """

    def step(log_alignment, x):
        log_alignment = advance(log_alignment, *x)
        return log_alignment, log_alignment

    xs = ops.transpose(observed, (1, 0, 2)), ops.transpose(log_transitions, (1, 0, 2, 3))
    _, log_alignments = scan(step, first, xs)  # (T, B, S)
    return ops.transpose(log_alignments, (1, 0, 2))


def smoothed(log_alignments, observed, log_transitions):
    """p(a_i = j | y_1 .. y_{T-1}, x), `(B, T, S)`.

    Args:
        log_alignments: As `forward` returns them, `(B, T, S)`.
        observed, log_transitions: As `forward` takes them.
    """

    def step(future, x):  # log p(y_{i+1} .. y_{T-1} | a_i = j), (B, S)
        read, log_transitions = x
        weighed = future + read  # (B, S), with y_i
        return ops.logsumexp(log_transitions + weighed[:, None], axis=2), weighed

    zeros = ops.zeros_like(observed[:, :1])  # (B, 1, S)
    read = ops.concatenate([observed[:, 1:], zeros], axis=1)  # (B, T, S), log p(y_i | a_i = j)
    xs = ops.transpose(read, (1, 0, 2)), ops.transpose(log_transitions, (1, 0, 2, 3))
    _, weights = scan(step, zeros[:, 0], xs, reverse=True)  # (T, B, S)
    return ops.softmax(log_alignments + ops.transpose(weights, (1, 0, 2)), axis=-1)


def mixture(log_alignments, log_emissions):
    """log p(y_i | y_<i, x) `(..., V)`, from log p(a_i | y_<i, x) `(..., S)` and log p(y_i | a_i) `(..., S, V)`."""
    return ops.logsumexp(log_alignments[..., None] + at_least_float32(log_emissions), axis=-2)
