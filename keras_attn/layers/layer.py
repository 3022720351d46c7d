"""The base of the layers: checked arguments, a config made of them, masks, and initialisers for half precision."""

import inspect
from collections.abc import Collection
from typing import Any

import keras
from keras import ops

from keras_attn.backend import all_layers
from keras_attn.suggestions import did_you_mean

_TRAINABLE = "trainable_layers"  # in a config: `trainable` of each layer within, itself the first, if they differ


def constructor_arguments(cls: type, base: type) -> dict[str, inspect.Parameter]:
    """The arguments that `cls(...)` takes: its own and, through `**kwargs`, those of its parents below `base`.

    A class with `_replaces_arguments = True` calls its parent's constructor with arguments of its own choice, so that
    those of its parents are not among them, but for parents with `_shared_arguments = True`.
    """
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    arguments, replaced = {}, False
    for parent in cls.__mro__:
        if parent is base:
            break
        if "__init__" not in vars(parent) or (replaced and not vars(parent).get("_shared_arguments")):
            continue
        parameters = list(inspect.signature(vars(parent)["__init__"]).parameters.values())[1:]
        arguments |= {p.name: p for p in parameters if p.kind not in variadic and p.name not in arguments}
        passes_on = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        if not passes_on:
            break
        replaced = replaced or vars(parent).get("_replaces_arguments")
    return arguments


def keras_layer_arguments() -> tuple[str, ...]:
    """The arguments of Keras' own `Layer`: "activity_regularizer", "trainable", "dtype", "autocast" and "name"."""
    parameters = inspect.signature(keras.layers.Layer.__init__).parameters.values()
    return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


def refuse_unknown_arguments(
    cls: type, kwargs: Collection[str], base: type = keras.layers.Layer, also: Collection[str] | None = None
) -> None:
    """Raises ValueError for keyword arguments that no constructor of a class takes.

    Args:
        cls: The class under construction, `type(self)`.
        kwargs: What its constructor received in `**kwargs`.
        base: The first parent whose constructor's arguments are not for the user to give.
        also: Further valid names; None: what Keras' own `Layer` takes.

    Raises:
        ValueError: if one of `kwargs` is unknown. The message lists all valid names.
    """
    valid = [*constructor_arguments(cls, base), *(keras_layer_arguments() if also is None else also)]
    if unknown := [name for name in kwargs if name not in (*valid, _TRAINABLE)]:
        received = ", ".join(name + did_you_mean(name, valid) for name in unknown)
        raise ValueError(f"Expected arguments among: {', '.join(dict.fromkeys(valid))}. Received: {received}")


def check_size(name: str, size: Any) -> None:
    """Raises ValueError for a size that is not a positive whole number."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"Expected `{name}` to be a positive whole number, an `int`. Received: {name}={size!r}")


def check_mask(mask, values, steps: tuple[int | None, ...] = ()) -> Any:
    """Casts the mask of a sequence to bool.

    Args:
        mask: `(B, S)`, or `(B, T, S)` where `steps` is (T,); None: every position is real.
        values: The sequence, `(B, S, ...)`.
        steps: (T,), for a layer whose steps may have a mask each, T None where it is unknown; (): they may not.

    Returns:
        The mask as a boolean tensor, or None.

    Raises:
        ValueError: for another shape.
    """
    if mask is None:
        return None
    if isinstance(mask, (list, tuple)) and any(one is None or hasattr(one, "shape") for one in mask):
        raise ValueError(
            f"Expected one mask of shape (B, S), that of the source. Received: a list of {len(mask)}. The mask of the "
            "first argument, which is handed on to the outputs, is Keras' implicit one."
        )
    mask = ops.cast(mask, "bool")
    batch, length = values.shape[:2]
    expected = (batch, length) if len(mask.shape) != 3 else (batch, *steps, length)
    sizes = zip(mask.shape, expected, strict=False)
    if len(mask.shape) != len(expected) or any(None not in pair and pair[0] != pair[1] for pair in sizes):
        raise ValueError(
            f"Expected a mask of shape (B, S) = {expected[:1] + expected[-1:]}, True = real position. Received: a mask "
            f"of shape {tuple(mask.shape)}. A mask of lengths (B,) is `ops.arange(S) < lengths[:, None]`."
        )
    return mask


def single_array(structure):
    """Returns the array of Keras' lists and dicts of one output, `[array]` or `{name: array}`; all else as it is.

    Example:
        >>> keras_attn.layers.single_array({"output": np.ones((2, 3))}).shape
        (2, 3)
    """
    leaves = keras.tree.flatten(structure) if isinstance(structure, (list, tuple, dict)) else []
    return leaves[0] if len(leaves) == 1 and hasattr(leaves[0], "shape") else structure


def shapes_of(spec):
    """The shapes of symbolic outputs, for `compute_output_shape`, which Keras' wrappers ask for."""
    return keras.tree.map_structure(lambda output: output.shape, spec)


def build_once(layer, *shapes) -> None:
    """Builds a layer, unless it is built already, as one loaded from a file is."""
    if not layer.built:
        layer.build(*shapes)


def clone_initializer(initializer):
    """A copy of an initialiser, which draws numbers of its own; a function, which Keras takes as one too, is itself."""
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer


def layer_norm(layer, name: str, *, center: bool = False):
    """A `LayerNormalization` within a layer, with its `epsilon`; with a shift if `center`."""
    options = {"epsilon": layer.epsilon, "dtype": layer.dtype_policy, "name": name}
    return keras.layers.LayerNormalization(center=center, **options)


class Layer(keras.layers.Layer):
    """Base of the layers of this package.

    Keras' implicit masks flow as in Keras' own layers: a layer hands the mask of its first argument on to its first
    output. An explicit mask wins.

    Subclasses keep each constructor argument as an attribute of its name: `get_config` reads them there. Names of
    arguments that are layers themselves stand in `_layer_arguments`, and `from_config` deserialises those.

    Raises:
        ValueError: for an unknown keyword argument. The message lists the valid ones.
    """

    _layer_arguments: tuple[str, ...] = ()

    def __init__(self, **kwargs):
        flags = kwargs.pop(_TRAINABLE, ())
        refuse_unknown_arguments(type(self), kwargs, base=Layer)
        super().__init__(**kwargs)
        self.supports_masking = True
        if flags:
            self._trainable_layers = tuple(flags)

    def _post_build(self):  # Keras' hook at the end of `build`, when all layers within this one have their weights
        super()._post_build()
        if not self.trainable:  # given to the constructor, before there were layers within
            self.trainable = True  # TensorFlow ignores an attribute that is set to what it is
            self.trainable = False
        self._restore_trainable()

    def _restore_trainable(self):
        """Restores `trainable` of the layers within, unless their number differs, as of those made after `build`."""
        flags = vars(self).get("_trainable_layers", ())
        if flags and len(layers := all_layers(self)) == len(flags):
            for layer, flag in zip(layers, flags, strict=True):
                if layer.trainable != flag:
                    layer.trainable = flag

    def add_weights(self, initializer, **shapes: tuple[int, ...]) -> None:
        """Adds a weight of each shape, as the attribute of its name, each drawn by itself."""
        for name, shape in shapes.items():
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer=clone_initializer(initializer)))

    def compute_mask(self, inputs, previous_mask):
        """Hands the mask of the first argument on to the first output."""
        return previous_mask

    def get_config(self):
        names = constructor_arguments(type(self), base=Layer)
        if missing := [name for name in names if not hasattr(self, name)]:
            raise NotImplementedError(
                f"Expected {type(self).__name__} to keep every argument of its constructor as an attribute of that "
                f"name, or to define `get_config`. Received no attribute: {', '.join(missing)}"
            )
        own = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in names}
        autocast = {} if self.autocast else {"autocast": False}  # which Keras leaves out
        flags = [layer.trainable for layer in all_layers(self)] if self.built else []
        return {**super().get_config(), **autocast, **own, **({_TRAINABLE: flags} if len(set(flags)) > 1 else {})}

    @classmethod
    def from_config(cls, config):
        layers = {name: config[name] for name in cls._layer_arguments if name in config}
        layers = {name: keras.saving.deserialize_keras_object(layer) for name, layer in layers.items()}
        layer = super().from_config({**config, **layers})
        if layer.built:  # one without a `build`
            layer._restore_trainable()
        return layer


class WeightLayer(Layer):
    """Base of the layers with weights of their own, which Keras' regularizers and constraints reach.

    Args:
        kernel_regularizer, kernel_constraint: Of each of the layer's matrices and vectors, from its name or itself.
        bias_regularizer, bias_constraint: Of each of its biases.
    """

    _shared_arguments = True

    def __init__(
        self,
        *,
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    @property
    def weight_options(self) -> dict[str, Any]:
        """The arguments of this class, for layers within this one."""
        return {name: getattr(self, name) for name in inspect.signature(WeightLayer.__init__).parameters if "_" in name}

    def add_weight(self, *args, name: str | None = None, **kwargs):
        kind = {"kernel": "kernel", "vector": "kernel", "bias": "bias"}.get(str(name).rpartition("_")[2])
        if kind:
            kwargs |= {what: getattr(self, f"{kind}_{what}") for what in ("regularizer", "constraint")}
        return super().add_weight(*args, name=name, **kwargs)


def check_sequence(name: str, shape) -> None:
    """Raises ValueError for the shape of a sequence that is not `(B, S, M)`."""
    if len(shape) != 3:
        raise ValueError(
            f"Expected {name} of shape (B, S, M), with one axis of positions. Received: {name} of shape "
            f"{tuple(shape)}. `keras.layers.Reshape((-1, M))` makes one axis of several, and "
            "`keras.ops.reshape(mask, (B, -1))` of those of a mask"
        )


def check_query(query, values) -> None:
    """Raises ValueError for a query that is not `(B, H)` or `(B, T, H)`, B being that of the values."""
    (batch, *others), (rows, *_) = query.shape or (None,), values.shape or (None,)
    if len(others) not in (1, 2) or (batch != rows and None not in (batch, rows)):
        raise ValueError(
            "Expected a query of shape (B, H) or (B, T, H), and values of shape (B, S, M). "
            f"Received: a query of shape {tuple(query.shape)} and values of shape {tuple(values.shape)}"
        )


def check_memory(values) -> None:
    """Raises ValueError for a memory, or one of several, that is not `(B, S, M)`."""
    for one in values if isinstance(values, (list, tuple)) else [values]:
        if one is not None:
            check_sequence("values", one.shape)


class SourceReader(Layer):
    """Base of the layers that read a source, with a mask of its own, beside their first argument.

    Keras takes an argument `mask` for the mask of the first argument, and hands it on to the outputs. So the mask of
    the source travels as `values_mask`, which Keras fills with the implicit mask of `values`. `call` takes both, and
    `mask` wins.
    """

    _source_mask = "values_mask"

    def __call__(self, *args, **kwargs):
        if kwargs.get("mask") is not None:
            kwargs[self._source_mask] = kwargs.pop("mask")
        if self._source_mask == "values_mask":
            check_memory(kwargs.get("values", args[1] if len(args) > 1 else None))
        return super().__call__(*args, **kwargs)


@keras.saving.register_keras_serializable(package="keras_attn")
class Float32Initializer(keras.initializers.Initializer):
    """Draws weights in float32 and casts them: torch and JAX have no orthogonal matrices in half precision.

    Args:
        initializer: Any Keras initialiser.

    Example:
        >>> keras_attn.layers.Float32Initializer("orthogonal")((3, 5), dtype="bfloat16").shape
        (3, 5)
    """

    def __init__(self, initializer):
        self.initializer = keras.initializers.get(initializer)

    def __call__(self, shape, dtype=None):
        return ops.cast(self.initializer(shape, dtype="float32"), dtype or keras.config.floatx())

    def get_config(self):
        return {"initializer": keras.initializers.serialize(self.initializer)}


def half_precision_safe(initializer, dtype=None):
    """Returns the initialiser itself, or one that draws in float32 where the weights of a dtype policy are half."""
    initializer = keras.initializers.get(initializer)
    half = keras.dtype_policies.get(dtype).variable_dtype in ("float16", "bfloat16")
    return Float32Initializer(initializer) if half else initializer
