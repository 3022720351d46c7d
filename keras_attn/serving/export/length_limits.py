"""Minimum and maximum output length inside a graph: `keras_attn.search.Limits` for tensors."""

from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from keras_attn.serving.export.options import ExportOptions

if TYPE_CHECKING:
    from keras_attn.translation import Translator


class RequestOptions(NamedTuple):
    """The search options that a request may set; scalars, where 0 means "not given" (None in `generate`)."""

    length_penalty: Any  # float64
    max_length: Any  # int32
    max_length_ratio: Any  # float64
    min_length: Any  # int32
    min_length_ratio: Any  # float64


def default_request(options: ExportOptions) -> RequestOptions:
    """The options of a request that sets none, as Python numbers."""
    return RequestOptions(
        float(options.length_penalty),
        options.max_length or 0,
        float(options.max_length_ratio or 0),
        options.min_length or 0,
        float(options.min_length_ratio or 0),
    )


def max_output_length(engine: "Translator", options: ExportOptions) -> int:
    """The longest output that any request can ask for: the translator's and the export's own."""
    own = engine.limits(max_length=options.max_length, max_length_ratio=options.max_length_ratio)
    longest = max(limits.longest(options.max_source_length) for limits in (engine.limits(), own))
    return max(longest, options.max_length or 1)


def as_constants(request: RequestOptions) -> RequestOptions:
    return RequestOptions(*(tf.constant(value, "int32" if isinstance(value, int) else "float64") for value in request))


def validated(request: RequestOptions) -> RequestOptions:
    """The options of a request, int32 and float32, as int32 and float64; values out of range are refused.

    In float32, 1.1 is 1.10000002, and ten times that would be rounded up to 12 tokens. So a float32 is read as the
    shortest decimal number that stands for it, as if it had come as a float64.
    """
    numbers = {name: value if value.dtype == tf.int32 else _decimal(value) for name, value in request._asdict().items()}
    checks = []
    for name, value in numbers.items():
        is_valid = (value >= 0) & (tf.cast(value, "float64") < float("inf"))
        message = f"Expected {name} to be a number of at least 0. Received:"
        checks.append(tf.debugging.Assert(is_valid, [message, request._asdict()[name]]))
    with tf.control_dependencies(checks):
        return RequestOptions(*map(tf.identity, numbers.values()))


def row_limits(
    lengths: tf.Tensor, request: RequestOptions, engine: "Translator", most: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """The longest and the shortest output for sources of these lengths, each `(R,)` int32 and at most `most`.

    In float64, as Python calculates.
    """
    sizes = tf.cast(lengths, "float64")  # (R,)
    nothing = tf.constant(float("inf"), "float64")
    own = tf.math.ceil(engine.max_length_ratio * sizes + engine.max_length_constant)  # (R,)
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
