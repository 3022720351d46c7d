"""Several models as one: ensembles, which average predictions, and averages of weights."""

import math
from collections.abc import Iterable, Sequence

import keras
import numpy as np
from keras import ops

from keras_attn.backend import copy_weights, set_weights, without_initial_weights
from keras_attn.models.seq2seq import ID_ARGUMENTS, Seq2Seq, make_inputs

AVERAGES = ("probability", "log_probability")
_LOWEST = -1e30  # logit of a token that a row may not have, whose probability is then 0


@keras.saving.register_keras_serializable(package="keras_attn")
class Ensemble(Seq2Seq):
    """Several models whose distributions over the next token are averaged.

        p(y_i) = 1/N sum_n p_n(y_i)                                    average="probability"
        p(y_i) = prod_n p_n(y_i)^(1/N) / Z_i                           average="log_probability"

    It is a `Seq2Seq`: search, `Translator`, presets and export treat it as one model. Its memory and state are lists of
    the models', its logits are log-probabilities in float32 under every dtype policy (without Z_i, which the softmax
    adds), and its alignment is the mean of the models'.

    Args:
        models: `Seq2Seq` models of the same inputs and the same target ids; sizes and classes may differ. The
            ensemble's attribute `models` has copies of them without their optimizers, so training one of the originals
            later does not change the ensemble.
        average: "probability" or "log_probability". The first follows the most confident model; in the second, a token
            that one model finds improbable is improbable.
        name, trainable: As in `keras.layers.Layer`.
        dtype: Dtype policy of the copies; None: each model keeps its own.

    Call arguments, returns: see `Seq2Seq`.

    Mask behaviour: the models'.

    Raises:
        ValueError: for an unknown argument, without models, for models whose vocabularies differ in size, or for an
            unknown average; in a search, for memories of different lengths.

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
        self.set_arguments(locals())
        if given := [name for name in ID_ARGUMENTS if name in vars(self)]:
            raise ValueError(f"Expected models that have these arguments themselves. Received: {', '.join(given)}")
        if not models:
            raise ValueError("Expected at least one model. Received: 0 models")
        if not isinstance(models, (list, tuple)) or not all(isinstance(model, Seq2Seq) for model in models):
            raise ValueError(f"Expected a list of `Seq2Seq` models. Received: {models!r:.80}")
        if average not in AVERAGES:
            raise ValueError(f"Expected `average` to be one of {', '.join(AVERAGES)}. Received: average={average!r}")
        shared = {}
        names = "source_vocabulary_size", "target_vocabulary_size", "pointer", "source_name", *ID_ARGUMENTS
        for name in names:
            found = [getattr(model, name) for model in models]
            if any(value != found[0] for value in found):
                raise ValueError(f"Expected models with the same {name}. Received: {', '.join(map(str, found))}")
            shared[name] = found[0]
        dtype = kwargs.pop("dtype", None)
        self.set_layers(
            models=[_member(model, f"member_{i}", dtype) for i, model in enumerate(models)],
            **shared,
            _own_dtype=dtype,
        )

        # Functional model
        inputs = {name: make_inputs(spec, name) for name, spec in self.models[0].input.items()}
        dtype = self.models[0].dtype_policy if dtype is None else dtype
        super().__init__(inputs, self._combine([model(inputs) for model in self.models]), dtype=dtype, **kwargs)

    def encode(self, source, max_length=None):
        memories, states = zip(*(model.encode(source, max_length) for model in self.models), strict=True)
        lengths = {memory["mask"].shape[1] for memory in memories} - {None}
        if len(lengths) > 1:
            raise ValueError(
                f"Expected models whose memories of a source have the same length. Received: {sorted(lengths)}"
            )
        shared = {name: memories[0][name] for name in ("mask", "masks") if name in memories[0]}
        return {**shared, "models": list(memories)}, list(states)

    def output_part(self, token_ids):
        # `step` then needs the memory's "allowed" (B, n) of a search with a shortlist.
        return [model.output_part(token_ids) for model in self.models]

    def step(self, token_ids, memory, state, part=None):
        steps = zip(self.models, memory["models"], state, strict=True)
        if part is None:
            results = [model.step(token_ids, memory, state) for model, memory, state in steps]
        else:
            results = [model.step(token_ids, *one, own) for (model, *one), own in zip(steps, part, strict=True)]
            # Before they are combined: the models' normalisers are of the row's own tokens.
            results = [(ops.where(memory["allowed"], logits, _LOWEST), *rest) for logits, *rest in results]
        logits, states, alignments = zip(*results, strict=True)
        return self._combine(logits), list(states), sum(alignments) / len(alignments)

    def align(self, source, decoder_token_ids, each_head=False):
        options = {"each_head": True} if each_head else {}  # a model of one's own need not have it
        results = [model.align(source, decoder_token_ids, **options) for model in self.models]
        logits, alignments = zip(*results, strict=True)
        if each_head:
            return self._combine(logits), ops.concatenate(alignments, axis=2)  # (B, T, N, S), model by model
        return self._combine(logits), sum(alignments) / len(alignments)

    def _combine(self, logits):
        """The models' logits, each (B, V) or (B, T, V) -> log-probabilities of the same shape."""
        log_probs = [ops.log_softmax(ops.cast(x, "float32")) for x in logits]
        if self.average == "log_probability":
            return sum(log_probs) / len(log_probs)
        # Not log(mean(p)): a float32 p below e^-88 would be 0, and its logarithm -inf.
        return ops.logsumexp(ops.stack(log_probs), axis=0) - math.log(len(log_probs))

    def get_config(self):
        models = [keras.saving.serialize_keras_object(model) for model in self.models]
        dtype = None if self._own_dtype is None else keras.dtype_policies.serialize(self.dtype_policy)
        return {**super().get_config(), "models": models, "dtype": dtype}


def _member(model, name: str, dtype):
    """A copy whose name and weights' paths are its own; by these paths Keras clears gradients on torch."""
    with keras.name_scope(name):
        return copy_model(model, name, dtype)


def copy_model(model: keras.Model, name: str, dtype=None) -> keras.Model:
    """Returns a model of the same class, configuration and weights, which is not compiled.

    Args:
        model: The model, which is not changed.
        name: The name of the copy.
        dtype: The dtype policy of the copy. None: that of the model.

    Example:
        >>> model = keras_attn.models.RNNSearch(31, 37, units=5, embedding_size=7, readout_size=11, attention_units=3)
        >>> keras_attn.models.copy_model(model, "copy").count_params() == model.count_params()
        True
    """
    changes = {"name": name} if dtype is None else {"name": name, "dtype": dtype}
    # A configuration for each time that it is built: `from_config` of a functional model takes it apart.
    copy = without_initial_weights(lambda: type(model).from_config({**model.get_config(), **changes}))
    copy_weights(model, copy)
    return copy


def average_weights(models: Sequence[keras.Model]) -> keras.Model:
    """Returns a new model whose every weight is the mean of the models'.

    It costs as much as one model and is often nearly as good as an ensemble. It suits checkpoints of one run, or of
    runs that started from the same weights; in independent models the same unit has another meaning.

    Args:
        models: Models of one class with one configuration, apart from their names. They are not changed.

    Raises:
        ValueError: without models, or for models of different classes or sizes.

    Example:
        >>> sizes = dict(units=5, embedding_size=7, readout_size=11, attention_units=3)
        >>> models = [keras_attn.models.RNNSearch(31, 37, **sizes) for _ in range(2)]
        >>> keras_attn.models.average_weights(models).count_params() == models[0].count_params()
        True
    """
    if not models:
        raise ValueError("Expected at least one model to average. Received: none")
    first, *others = models
    shapes = [weight.shape for weight in first.weights]
    for i, model in enumerate(others, 2):
        if type(model) is not type(first) or [weight.shape for weight in model.weights] != shapes:
            raise ValueError(
                f"Expected models of one class and one size. Received: {type(first).__name__} with "
                f"{first.count_params():,} parameters and, as number {i}, {type(model).__name__} with "
                f"{model.count_params():,}"
            )
    average = copy_model(first, first.name)
    set_weights(average, mean_weights(copy_model(model, first.name).get_weights() for model in models))
    return average


def mean_weights(checkpoints: Iterable[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Returns the mean of several models' weights, float64.

    Args:
        checkpoints: What `get_weights` returns, of one model or more; one after the other is in memory.

    Example:
        >>> (mean,) = keras_attn.models.mean_weights([[np.zeros(2)], [np.ones(2)]])
        >>> mean
        array([0.5, 0.5])
    """
    sums, count = None, 0
    for weights in checkpoints:
        weights = [weight.astype("float64") for weight in weights]  # the mean must not depend on how many there are
        sums = weights if sums is None else [total + weight for total, weight in zip(sums, weights, strict=True)]
        count += 1
    return [total / count for total in sums]
