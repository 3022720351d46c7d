"""The base of the attention layers (scores, then mask, normaliser and context), and their registry."""

from collections.abc import Callable
from typing import Any, TypeVar

import keras
from keras import ops

from keras_attn.backend import loop_matmul, matmul
from keras_attn.layers.layer import Layer, SourceReader, WeightLayer, check_mask, check_query, constructor_arguments
from keras_attn.layers.normalizers import at_least_float32, get_normalizer, normalize, score_dtype

_REGISTRY: dict[str, type["Attention"]] = {}
_Class = TypeVar("_Class", bound=type["Attention"])


@keras.saving.register_keras_serializable(package="keras_attn")
class Attention(WeightLayer, SourceReader):
    """Base of every attention layer: turns scores e into an alignment alpha and a context c.

        alpha_ij = exp(e_ij) / sum_k exp(e_ik),   c_i = sum_j alpha_ij h_j          (Bahdanau 2015, eqs. 5 and 6)

    Shapes: B batch, T target length, S source length, H query units, M memory width, A attention width.

    Subclasses define their weights in `build(query_shape, values_shape)` and implement `keys` and `scores`, or `align`
    where the alignment is more than the normalised scores. `register_attention` gives a subclass a name.

    A layer that remembers earlier steps gives its first state by `initial_state`. One that is random in training gives
    the numbers of all steps by `noise`, and its `call` has an argument of that name. A `call` of a subclass's own reads
    its mask by `source_mask`.

    Args:
        normalizer: "softmax"; "hardmax", 1 at the highest score; "sparsemax" (Martins & Astudillo 2016), where low
            scores get exactly 0; or a function from scores `(..., S)`, -1e9 at masked positions, to an alignment
            `(..., S)`, which `keras.saving.register_keras_serializable` lets models save.

        dropout: Dropout rate of the alignment from which the context is computed, in training. The alignment that is
            returned has none.
        kernel_regularizer, kernel_constraint: Of the layer's matrices and vectors, as of Keras' layers.
        bias_regularizer, bias_constraint: Of its biases.

    Call arguments:
        query: `(B, H)` for one step of the decoder, or `(B, T, H)` for all steps at once.
        values: `(B, S, M)`, the memory h.
        keys: The result of `keys(values)`, computed once a sentence; None: computed by the call.
        mask: Boolean `(B, S)`, True = real token, or with all steps `(B, T, S)`; None: the implicit mask of `values`,
            or else every position is real.
        state: The state of a mechanism that remembers earlier steps; else `()`.
        noise: What `noise` drew, the part of the step or of all; None: drawn by the call, in training.
        training: Whether to apply dropout.
        return_attention_scores: As in Keras' own attention layers: True returns `(context, alignment)`, False the
            context alone; None: all three.

    Returns:
        `(context, alignment, state)`: `(B, M)` and `(B, S)` for one step, `(B, T, M)` and `(B, T, S)` for all. A layer
        with heads has an alignment for each, `(B, N, S)` or `(B, T, N, S)`.

    Mask behaviour: a masked position gets alignment exactly 0. A row with no real position gets a zero alignment,
    a zero context, and finite gradients. Scores and alignment are float32 under every dtype policy but float64's; the
    context has the layer's compute dtype. An implicit mask of the query is handed on to the context.

    Raises:
        ValueError: for a mask of another shape.
    """

    _shared_arguments = True
    _keeps_state = False  # whether the layer itself casts query and values: Keras would round its state, too

    def __init__(self, *, normalizer: str | Callable = "softmax", dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.normalizer = get_normalizer(normalizer)
        if not 0 <= dropout < 1:
            raise ValueError(f"Expected `dropout` from 0 to below 1. Received: dropout={dropout}")
        self.dropout = dropout
        if dropout:
            self.seed_generator = keras.random.SeedGenerator()
        self._convert_input_args, self._allow_non_tensor_positional_args = not self._keeps_state, self._keeps_state

    def __call__(self, query, values, *args, return_attention_scores: bool | None = None, **kwargs):
        if self._keeps_state and not isinstance(query, keras.KerasTensor):
            query, values = (self._as_input(x) for x in (query, values))
        check_query(query, values)
        found = super().__call__(query, values, *args, **kwargs)
        if return_attention_scores is None:
            return found
        return found[:2] if return_attention_scores else found[0]

    def _as_input(self, x):
        """A tensor in the compute dtype, with the implicit mask of x."""
        if ops.is_tensor(x) and keras.backend.standardize_dtype(x.dtype) == self.compute_dtype:
            return x
        return keras.layers.Identity(dtype=self.compute_dtype)(x)

    def call(self, query, values, keys=None, mask=None, state=(), noise=None, training=False, values_mask=None):
        mask = self.source_mask(query, values, mask, values_mask)
        if keys is None:
            keys = self.keys(values)
        alignment, state = self.align(query, keys, mask, state)
        return self.context(self.dropped(alignment, values, noise, training), values), alignment, state

    def source_mask(self, query, values, mask, values_mask):
        """The mask of the call, or else the implicit one of `values`: bool `(B, S)` or `(B, T, S)`, or None."""
        steps = tuple(query.shape[1:-1])  # () or (T,), which may be unknown
        return check_mask(values_mask if mask is None else mask, values, steps)

    def build(self, query_shape, values_shape=None, **_):  # one shape in files of layers without `build`
        """Creates the weights, if the mechanism has some."""

    def keys(self, values):
        """The source side of the score, the same for every target step: `(B, S, M) -> (B, S, A)`."""
        return values

    def scores(self, query, keys):
        """e_ij for `(B, H)` or `(B, T, H)` queries: `(B, S)` or `(B, T, S)`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `scores(query, keys)`.")

    def by_word(self, scores, mask):
        """The scores of the words, from those of their places in the row where `scores` knows no more."""
        return scores

    def align(self, query, keys, mask, state):
        """alpha_ij `(B, S)` or `(B, T, S)`, at least float32, and the next state."""
        scores = self.scores(query, keys)  # (B, S) or (B, T, S)
        expected, shape = tuple(query.shape[:-1]), tuple(scores.shape)
        sizes = zip(shape, expected, strict=False)
        if len(shape) != len(expected) + 1 or any(a not in (1, b) for a, b in sizes if None not in (a, b)):
            raise ValueError(
                f"Expected `scores` of {type(self).__name__} to return scores of shape "
                f"({', '.join(map(str, expected))}, S). Received: shape {shape}"
            )
        scores = self.by_word(at_least_float32(scores), mask)
        return normalize(scores, mask, self.normalizer), state

    def dropped(self, alignment, values, noise=None, training=False):
        """The alignment with dropout, in training; `noise` as in the call."""
        if not (self.dropout and training):
            return alignment
        if noise is None:
            steps = ops.shape(alignment)[1] if len(alignment.shape) == 3 else 1
            noise = ops.swapaxes(Attention.noise(self, steps, values), 0, 1)  # (B, T, S)
            noise = noise if len(alignment.shape) == 3 else noise[:, 0]
        return alignment * ops.cast(noise, alignment.dtype)

    def context(self, alignment, values):
        """sum_j alpha_ij h_j."""
        alignment = ops.cast(alignment, values.dtype)
        if len(alignment.shape) == 3:
            return matmul(alignment, values)  # (B, T, M)
        return ops.squeeze(loop_matmul(alignment[:, None, :], values), axis=1)  # (B, M)

    def initial_state(self, values) -> Any:
        """State before the first step; `()` unless the mechanism remembers earlier steps."""
        return ()

    def noise(self, steps, values) -> Any:
        """Random numbers `(T, B, S)` for the training of T steps; None unless the mechanism is random in training."""
        if not self.dropout:
            return None
        ones = ops.ones((steps, *ops.shape(values)[:2]), score_dtype(values.dtype))  # (T, B, S)
        return keras.random.dropout(ones, self.dropout, seed=self.seed_generator)

    def check_built(self) -> None:
        """Raises ValueError for a call of `keys` before the layer has its weights."""
        if not self.built:
            raise ValueError("Expected a built layer: call it, or `build(query_shape, values_shape)`, before `keys`.")

    def compute_output_spec(self, query, values, *_, **__):
        steps = query.shape[:-1]  # (B,) or (B, T)
        return (
            keras.KerasTensor((*steps, values.shape[-1]), dtype=self.compute_dtype),
            keras.KerasTensor((*steps, values.shape[1]), dtype=score_dtype(self.compute_dtype)),
            self.initial_state(keras.KerasTensor(values.shape, dtype=self.compute_dtype)),
        )


def register_attention(name: str) -> Callable[[_Class], _Class]:
    """Registers an attention layer under a name, which models take: `RNNSearch(..., attention="mine")`.

    The class is registered with Keras as well, under the package that defines it, so that it can be saved and loaded. A
    process that loads it by name imports its module first.

    Args:
        name: Such as "dot". A constructor that takes `units` receives the model's.

    Returns:
        The decorator of the class.

    Raises:
        ValueError: for what is no subclass of `Attention`, or a name that another class has.

    Example:
        >>> @keras_attn.register_attention("uniform")
        ... class UniformAttention(keras_attn.layers.Attention):
        ...     def scores(self, query, keys):
        ...         return keras.ops.zeros_like(keras.ops.sum(query[..., None, :1] + keys[..., :1], axis=-1))
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 4, 3), "float32")
        >>> context, alignment, _ = keras_attn.layers.get_attention("uniform")(query, values)
        >>> print(keras.ops.convert_to_numpy(alignment)[0])
        [0.25 0.25 0.25 0.25]
    """

    def register(cls):
        if not (isinstance(cls, type) and issubclass(cls, Attention)):
            raise ValueError(f"Expected a subclass of `keras_attn.layers.Attention`. Received: {cls!r}")
        other = _REGISTRY.get(name, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):  # a notebook's cell, run again
            raise ValueError(f"Expected a name that no other attention layer has. Received: {name!r}, that of {other}")
        _REGISTRY[name] = keras.saving.register_keras_serializable(package=cls.__module__.partition(".")[0])(cls)
        return cls

    return register


def get_attention(
    identifier, units: int | None = None, dtype=None, name: str = "attention", **options: Any
) -> Attention:
    """Returns an attention layer, from its registered name, its config, or itself.

    Args:
        identifier: A registered name: "additive", "concat", "cosine", "dot", "general", "location" and "scaled_dot" by
            their score, "local_m" and "local_p" for Luong's local attention with the general score,
            "additive_monotonic", "general_monotonic", "gated_additive", "location_sensitive", "coverage" and
            "neural_coverage", and those of `register_attention`; an `Attention`; or a serialised one.
        units: Width of the hidden layer, for a class that has one and is given by name.
        dtype: Dtype policy of a layer given by name.
        name: The name of a layer given by name.
        **options: Further arguments of a layer given by name.

    Raises:
        ValueError: for another name, or what is no attention layer. The message lists the registered names.
    """
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if isinstance(identifier, Attention):
        return identifier
    if not isinstance(identifier, str) or identifier not in _REGISTRY:
        raise ValueError(f"Expected an `Attention` layer, or one of {sorted(_REGISTRY)}. Received: {identifier!r}")
    cls = _REGISTRY[identifier]
    takes_units = "units" in constructor_arguments(cls, base=Layer)
    return cls(**{"units": units} if takes_units else {}, name=name, dtype=dtype, **options)
