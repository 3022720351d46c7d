"""Length normalisation, of numbers as of tensors: it needs no Keras."""

from typing import Any

from keras_attn.search.options import check_numbers


def length_norm(normalization: str, length_penalty: float, lengths: Any) -> Any:
    """The divisors of log-probabilities of hypotheses of these lengths.

    Args:
        normalization: "gnmt" is ((5 + length) / 6)^length_penalty (Wu et al. 2016, arXiv:1609.08144, eq. 14),
            "average" is length^length_penalty (with 1 the mean log-probability of a token), "none" is 1.
        length_penalty: The exponent, at least 0.
        lengths: An array or tensor of floats. A length includes the end token, as in JoeyNMT, fairseq and
            Tensor2Tensor; tfa.seq2seq leaves it out.

    Returns:
        An array or tensor of the shape of `lengths`.

    Raises:
        ValueError: if the normalisation is unknown, or the penalty is negative or not finite.
    """
    bases = {"gnmt": (5.0 + lengths) / 6.0, "average": lengths, "none": lengths**0.0}
    if normalization not in bases:
        raise ValueError(
            f"Expected `normalization` to be one of {sorted(bases)}. Received: normalization={normalization!r}"
        )
    # A negative one would penalise length, and break the bound at which a row stops.
    check_numbers(length_penalty=length_penalty)
    return bases[normalization] ** length_penalty
