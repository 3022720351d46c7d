"""Several models as one: an ensemble, and the average of their weights."""

import math
from collections.abc import Sequence

import keras
from keras import ops

from keras_attn.models.seq2seq import Seq2Seq

AVERAGES = ("probability", "log_probability")


@keras.saving.register_keras_serializable(package="keras_attn")
class Ensemble(Seq2Seq):
    """Models that choose every token together.

        p(y_i) = 1/N sum_n p_n(y_i)                                    average="probability"
        p(y_i) = prod_n p_n(y_i)^(1/N) / Z_i                           average="log_probability"

    It is a `Seq2Seq`: search, `Translator`, presets and export take it as they take one model. Its memory and its state
    are lists of the members', its logits are log-probabilities in float32 under every dtype policy (the Z_i of the
    second average are left to the softmax), and its alignment is the mean of the members'.

    Arguments:
        models: `Seq2Seq` models with the same ids on the source side and on the target side; their sizes and kinds may
            differ. They are copied, without their optimizers: training one of them later changes no ensemble.
        average: "probability" or "log_probability". The first follows the member that is surest, the second forgives
            no member's doubt.

    Call arguments, returns: see `Seq2Seq`.

    Mask behaviour: the members'.

    Raises:
        ValueError: without models, for models whose vocabularies differ in size, or for an unknown average.

    Example:
        >>> sizes = dict(units=5, embedding_size=7, readout_size=11, attention_units=3)
        >>> models = [keras_attn.models.RNNSearch(31, 37, **sizes) for _ in range(2)]
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> keras_attn.models.Ensemble(models)(ids).shape
        (2, 4, 37)

    Reference: Sutskever, Vinyals, Le. NIPS 2014, arXiv:1409.3215, table 1 (5 models: 30.59 -> 34.81 BLEU).
    """

    def __init__(self, models: Sequence[Seq2Seq], *, average: str = "probability", **kwargs):
        # Layers
        sizes = {(model.source_vocabulary_size, model.target_vocabulary_size) for model in models}
        if len(sizes) != 1:
            raise ValueError(
                f"Expected models with the same source and the same target vocabulary. "
                f"Received {len(models)} models with (source, target) sizes {sorted(sizes)}"
            )
        if average not in AVERAGES:
            raise ValueError(f"Expected `average` to be one of {', '.join(AVERAGES)}. Received: average={average!r}")
        members = [_copy(model, f"member_{i}") for i, model in enumerate(models)]  # names of layers must differ
        parts = {"members": members, "average": average}
        parts["source_vocabulary_size"], parts["target_vocabulary_size"] = next(iter(sizes))
        self._hold(parts)

        # Functional model
        source = keras.Input((None,), dtype="int32", name="encoder_token_ids")  # (B, S)
        target = keras.Input((None,), dtype="int32", name="decoder_token_ids")  # (B, T)
        inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
        super().__init__(inputs=inputs, outputs=self._combine([member(inputs) for member in members]), **kwargs)

    def encode(self, encoder_token_ids, max_length=None):
        memories, states = zip(*(member.encode(encoder_token_ids, max_length) for member in self.members), strict=True)
        return {"mask": memories[0]["mask"], "members": list(memories)}, list(states)

    def step(self, token_ids, memory, state):
        steps = zip(self.members, memory["members"], state, strict=True)
        results = [member.step(token_ids, memory, state) for member, memory, state in steps]
        logits, states, alignments = zip(*results, strict=True)
        return self._combine(logits), list(states), sum(alignments) / len(alignments)

    def align(self, encoder_token_ids, decoder_token_ids):
        results = [member.align(encoder_token_ids, decoder_token_ids) for member in self.members]
        logits, alignments = zip(*results, strict=True)
        return self._combine(logits), sum(alignments) / len(alignments)

    def _combine(self, logits):
        """The members' logits, each (B, V) or (B, T, V) -> log-probabilities of the same shape."""
        log_probs = [ops.log_softmax(ops.cast(x, "float32")) for x in logits]
        if self.average == "log_probability":
            return sum(log_probs) / len(log_probs)
        # Not log(mean(p)): a float32 p below e^-88 would be 0, and its logarithm -inf.
        return ops.logsumexp(ops.stack(log_probs), axis=0) - math.log(len(log_probs))

    def get_config(self):
        members = [keras.saving.serialize_keras_object(member) for member in self.members]
        return {"models": members, "average": self.average, "name": self.name, "trainable": self.trainable}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        models = [keras.saving.deserialize_keras_object(model, custom_objects) for model in config["models"]]
        return cls(**{**config, "models": models})


def average_weights(models: Sequence[Seq2Seq]) -> Seq2Seq:
    """A new model, the mean of several in every weight: what one model costs, and often nearly as good as an ensemble.

    It makes sense for checkpoints of one run, or of runs that began at the same weights: independent models that say
    the same have their units in another order.

    Args:
        models: of one class with one configuration, apart from their names. They stay as they are.

    Raises:
        ValueError: without models, or for models that are not made alike.

    Example:
        >>> sizes = dict(units=5, embedding_size=7, readout_size=11, attention_units=3)
        >>> models = [keras_attn.models.RNNSearch(31, 37, **sizes) for _ in range(2)]
        >>> keras_attn.models.average_weights(models).count_params() == models[0].count_params()
        True
    """
    if not models:
        raise ValueError("Expected at least one model to average. Received none.")
    first, *others = models
    average = _copy(first, first.name)
    # float64, so that the mean does not depend on how many there are; one model's weights at a time.
    sums = [weight.astype("float64") for weight in first.get_weights()]
    for i, model in enumerate(others, 1):
        weights = model.get_weights()
        if type(model) is not type(first) or [w.shape for w in weights] != [s.shape for s in sums]:
            raise ValueError(
                f"Expected models of one class and one size. Received: {type(first).__name__} with "
                f"{first.count_params():,} parameters and, as number {i + 1}, {type(model).__name__} with "
                f"{model.count_params():,}"
            )
        sums = [s + w for s, w in zip(sums, weights, strict=True)]
    average.set_weights([s / len(models) for s in sums])
    return average


def _copy(model: Seq2Seq, name: str) -> Seq2Seq:
    """The same model and weights under another name, never compiled."""
    copy = type(model).from_config({**model.get_config(), "name": name})
    copy.set_weights(model.get_weights())
    return copy
