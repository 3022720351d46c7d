"""Scheduled sampling: how often training replaces what the decoder reads by the model's own output, and where."""

import math
from typing import Any

import keras
from keras import ops, tree

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
    expected = (
        "Expected `scheduled_sampling` to be None, a probability from 0 to 1, a text such as 'inverse_sigmoid,k=1000', "
        f"or `ScheduledSampling`. Received: {identifier!r}"
    )
    if isinstance(identifier, bool):  # True is no probability of 1
        raise ValueError(expected)
    try:
        probability = float(identifier)
    except (TypeError, ValueError):
        if not isinstance(identifier, str):
            raise ValueError(expected) from None
    else:
        if not 0 <= probability <= 1:
            raise ValueError(expected)
        return ScheduledSampling("constant", k=1.0 - probability)
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


@keras.saving.register_keras_serializable(package="keras_attn")
class ScheduledSampler(keras.layers.Layer):
    """Draws the steps of training after which a decoder reads its own output instead of the target.

    It is for decoders whose outputs are no tokens, as `ScheduledOutputTrainingSampler` of tensorflow_addons was; for
    tokens give a model `scheduled_sampling`. Each step of each row is drawn by itself, with the probability that
    `ScheduledSampling` has after the optimizer's updates so far:

        own = sampler(frames, training=training)                                        # (B, T)
        outputs, lengths, state = keras_attn.unroll_steps(
            step, first_frame, memory, state, targets={"frame": frames, "own": own},
            next_input=lambda output, target: ops.where(target["own"][:, None], output, target["frame"]))

    A model has this method, which Keras calls when `fit` and `train_on_batch` begin. Without it the sampler counts the
    batches of training from its construction on, not the updates of the optimizer that was compiled or loaded:

        def make_train_function(self, force=False):
            self.sampler.follow(self.optimizer)
            return super().make_train_function(force)

    Args:
        settings: `ScheduledSampling`, or what models take in its place: a probability, or a text such as
            "inverse_sigmoid,k=1000". Its `choose` is for tokens alone.

    Call arguments:
        targets: A nested structure of tensors `(B, T, ...)`, of which only the shape counts.
        training: Whether to draw; else the model reads no output of its own.

    Returns:
        Boolean `(B, T)`, True = the model's own output is the next input.

    Raises:
        ValueError: for settings that `ScheduledSampling` refuses, or None.

    Example:
        >>> sampler, frames = keras_attn.ScheduledSampler("linear,k=1,c=0.5,seed=1"), np.zeros((2, 3, 5), "float32")
        >>> own = [keras.ops.convert_to_numpy(sampler(frames, training=True)) for _ in range(3)]
        >>> own[0].shape, bool(own[0].any()), bool(own[2].all())
        ((2, 3), False, True)
    """

    def __init__(self, settings: ScheduledSampling | str | float, **kwargs):
        super().__init__(**kwargs)
        if settings is None:
            raise ValueError(
                "Expected settings of scheduled sampling, such as 'inverse_sigmoid,k=1000'. Received: None"
            )
        self.settings = get_scheduled_sampling(settings)
        self.seed_generator = keras.random.SeedGenerator(self.settings.seed)
        self.batches_per_update = 1
        self.built = True  # it has no weights

    def call(self, targets, training=False):
        shape = ops.shape(tree.flatten(targets)[0])[:2]  # (B, T)
        if not training:
            return ops.zeros(shape, dtype="bool")
        probability = self.probability
        return keras.random.uniform(shape, dtype="float32", seed=self.seed_generator) < probability

    @property
    def probability(self):
        """The probability of the model's own output in the next step of training, a float32 scalar."""
        return self.settings.probability(self.iterations)

    @property
    def iterations(self):
        """The number of updates that the optimizer has made, an int32 scalar."""
        # A SeedGenerator's state is (seed, number of draws), of which each batch takes one.
        batches = ops.cast(ops.convert_to_tensor(self.seed_generator.state)[1], "int32")
        return batches // self.batches_per_update

    def follow(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Sets the number of updates to the optimizer's, which another compilation or file may have changed."""
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # of float16's LossScaleOptimizer
        self.batches_per_update = inner.gradient_accumulation_steps or 1
        updates = int(ops.convert_to_numpy(optimizer.iterations))
        seed, batches = ops.convert_to_numpy(self.seed_generator.state)
        if batches // self.batches_per_update != updates:  # else a batch in the middle of an update keeps its own draw
            self.seed_generator.state.assign([seed, updates * self.batches_per_update])

    def get_config(self):
        return {**super().get_config(), "settings": keras.saving.serialize_keras_object(self.settings)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "settings": keras.saving.deserialize_keras_object(config["settings"])})
