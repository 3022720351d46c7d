"""How long translations may be, and must be, inside a graph: `keras_attn.decoding.batching.Limits` for tensors."""

from typing import Any, NamedTuple

import tensorflow as tf

from keras_attn.serving.export.options import Options
from keras_attn.translator import Translator


class Request(NamedTuple):
    """What a request may say of its search; scalars, where 0 says nothing (as None does in `generate`)."""

    length_penalty: Any  # float64
    max_length: Any  # int32
    max_length_ratio: Any  # float64
    min_length: Any  # int32
    min_length_ratio: Any  # float64


def exported(options: Options) -> Request:
    """What is said where a request says nothing, as Python numbers."""
    return Request(
        float(options.length_penalty),
        options.max_length or 0,
        float(options.max_length_ratio or 0),
        options.min_length or 0,
        float(options.min_length_ratio or 0),
    )


def most_tokens(translator: Translator, options: Options) -> int:
    """The longest output of all, whatever a request says."""
    return max(translator.limits().longest(options.max_source_length), options.max_length or 1)


def constants(request: Request) -> Request:
    return Request(*(tf.constant(value, "int32" if isinstance(value, int) else "float64") for value in request))


def checked(request: Request) -> Request:
    """A request's own numbers, int32 and float32, refused where they are out of range.

    float32 has no 1.1 but 1.10000002, and ten times that would be rounded up to 12 tokens. So what was written
    with up to 6 digits is read as if it had come as a float64.
    """
    numbers = {name: value if value.dtype == tf.int32 else _decimal(value) for name, value in request._asdict().items()}
    checks = []
    for name, value in numbers.items():
        right = (value >= 0) & (tf.cast(value, "float64") < float("inf"))
        message = f"Expected {name} to be a number of at least 0. Received:"
        checks.append(tf.debugging.Assert(right, [message, request._asdict()[name]]))
    with tf.control_dependencies(checks):
        return Request(*map(tf.identity, numbers.values()))


def row_limits(lengths: tf.Tensor, request: Request, translator: Translator, most: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Of sources of these lengths: the longest and the shortest output, `(R,)` int32 each.

    In float64, as Python reckons, and without a table: a request has limits of its own.
    """
    sizes = tf.cast(lengths, "float64")  # (R,)
    nothing = tf.constant(float("inf"), "float64")
    own = tf.math.ceil(translator.max_length_ratio * sizes + translator.max_length_constant)  # (R,)
    by_length = tf.where(request.max_length > 0, tf.cast(request.max_length, "float64"), nothing)
    by_ratio = tf.math.ceil(request.max_length_ratio * sizes)  # (R,)
    by_ratio = tf.where(request.max_length_ratio > 0, by_ratio, nothing)  # (R,)
    longest = tf.minimum(by_length, by_ratio)  # (R,)
    longest = tf.where(tf.math.is_inf(longest), own, longest)  # (R,)
    shortest = tf.math.ceil(request.min_length_ratio * sizes)  # (R,)
    shortest = tf.maximum(tf.cast(request.min_length, "float64"), shortest)  # (R,)
    bounded = (tf.clip_by_value(x, tf.constant(1, "float64"), most) for x in (longest, shortest))
    return tuple(tf.cast(x, "int32") for x in bounded)


def _decimal(value: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_number(tf.strings.as_string(value, shortest=True), tf.float64)
