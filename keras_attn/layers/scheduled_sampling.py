"""The settings of scheduled sampling: how often training replaces what the decoder reads by the model's own output."""

import math
from typing import Any

import keras
from keras import ops

DECAYS = ("constant", "linear", "exponential", "inverse_sigmoid")


@keras.saving.register_keras_serializable(package="keras_attn")
class ScheduledSampling:
    """Settings of scheduled sampling: how often a model reads its own token in training, and how it chooses it.

    In training, the decoder's input at each step after the first is, for each sentence by itself, the given token with
    probability epsilon_i, and else a token that the model chose at the step before, from its distribution after the
    inputs so far. i is the number of updates that the optimizer has made (Bengio 2015, section 2.4):

        linear             epsilon_i = max(minimum, k - c i)
        exponential        epsilon_i = k^i,  0 < k < 1
        inverse_sigmoid    epsilon_i = k / (k + exp(i / k)),  k >= 1
        constant           epsilon_i = k

    Args:
        decay: One of these names.
        k: The paper's k. In "linear" it may be above 1: all tokens are then the given ones for (k - 1) / c updates.
        c: The slope of "linear".
        minimum: epsilon is never below this.
        choose: "sample", as in the paper: drawn from the model's distribution; "argmax": the most probable token.
        seed: Of the random numbers; None: a random one.

    Raises:
        ValueError: for an unknown name, or a number outside its range.

    Example:
        >>> sampling = keras_attn.ScheduledSampling("inverse_sigmoid", k=1000)
        >>> print([round(float(sampling.probability(i)), 3) for i in (0, 5000, 10000)])
        [0.001, 0.129, 0.957]

    Differences from the paper: dropout of the decoder and of the read-out is off where tokens are chosen, as it is in
    translation. As there, no gradient flows through a chosen token.

    Reference: Bengio, Vinyals, Jaitly, Shazeer. Scheduled Sampling for Sequence Prediction with Recurrent Neural
    Networks. NeurIPS 2015, arXiv:1506.03099.
    """

    def __init__(
        self,
        decay: str = "inverse_sigmoid",
        *,
        k: float,
        c: float = 0.0,
        minimum: float = 0.0,
        choose: str = "sample",
        seed: int | None = None,
    ):
        for name, value, valid in (("decay", decay, DECAYS), ("choose", choose, ("sample", "argmax"))):
            if value not in valid:
                raise ValueError(f"Expected `{name}` among: {', '.join(valid)}. Received: {name}={value!r}")
        ranges = {
            "constant": ("from 0 to 1", 0 <= k <= 1),
            "linear": ("above 0", 0 < k < math.inf),
            "exponential": ("between 0 and 1", 0 < k < 1),
            "inverse_sigmoid": ("of at least 1", 1 <= k < math.inf),
        }
        expected, valid = ranges[decay]
        if not valid:
            raise ValueError(f'Expected `k` {expected} with decay="{decay}". Received: k={k!r}')
        if not 0 <= c < math.inf or (c > 0) != (decay == "linear"):
            raise ValueError(f'Expected `c` above 0 with decay="linear", and only there. Received: c={c!r}, {decay=}')
        if not 0 <= minimum <= 1:
            raise ValueError(f"Expected `minimum` from 0 to 1. Received: minimum={minimum!r}")
        self.decay = decay
        self.k = k
        self.c = c
        self.minimum = minimum
        self.choose = choose
        self.seed = seed

    def probability(self, iterations):
        """1 - epsilon_i, the probability of the model's own token, after i updates: a float32 scalar."""
        i = ops.cast(iterations, "float32")
        if self.decay == "inverse_sigmoid":
            kept = ops.sigmoid(math.log(self.k) - i / self.k)  # k / (k + exp(i / k)) without overflow
        elif self.decay == "exponential":
            kept = ops.exp(i * math.log(self.k))
        else:
            kept = self.k - self.c * i
        return 1.0 - ops.clip(kept, self.minimum, 1.0)

    def get_config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("decay", "k", "c", "minimum", "choose", "seed")}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def get_scheduled_sampling(identifier: ScheduledSampling | str | float | None) -> ScheduledSampling | None:
    """Settings from themselves, from a constant probability, or from text such as "inverse_sigmoid,k=1000".

    Args:
        identifier: Settings; or the probability of the model's own token, as a number or a text with one; or the name
            of a decay and arguments of `ScheduledSampling` after it, each as `,name=value`; or None, which is returned.

    Raises:
        ValueError: for any other text or type, or values that `ScheduledSampling` refuses.
    """
    if identifier is None or isinstance(identifier, ScheduledSampling):
        return identifier
    try:
        return ScheduledSampling("constant", k=1.0 - float(identifier))
    except (TypeError, ValueError):
        if not isinstance(identifier, str):
            raise ValueError(
                f"Expected `scheduled_sampling` to be None, a probability, a text such as 'inverse_sigmoid,k=1000', or "
                f"`ScheduledSampling`. Received: {identifier!r}"
            ) from None
    kinds = {"k": float, "c": float, "minimum": float, "choose": str, "seed": int}
    decay, *pairs = identifier.split(",")
    arguments = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            arguments[name] = kinds[name](value)
        except (KeyError, ValueError):
            raise ValueError(
                f"Expected `scheduled_sampling` as a name among {', '.join(DECAYS)} and then ,name=value with names "
                f"among {', '.join(kinds)}. Received: {identifier!r}"
            ) from None
    if decay in DECAYS and "k" not in arguments:
        raise ValueError(f"Expected `scheduled_sampling` with k, such as '{decay},k=...'. Received: {identifier!r}")
    return ScheduledSampling(decay, **{"k": 1.0, **arguments})
