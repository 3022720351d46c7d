"""Read-outs (Luong's attentional vector, Bahdanau's deep output), and parts of the vocabulary projection after them."""

from typing import Any

import keras
from keras import ops

from keras_attn.backend import dense, keep_float64, take
from keras_attn.layers.layer import Layer, WeightLayer, build_once, check_size, layer_norm, refuse_unknown_arguments


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionalLayer(keras.layers.Dense):
    """Luong's attentional vector.

        h~_t = tanh(W_c [c_t ; h_t])                                                   (Luong 2015, eq. 5)

    Args:
        units: Width of h~.
        activation, use_bias, **kwargs: As in `keras.layers.Dense`.

    Call arguments: `inputs`, `(..., M + H)`, the concatenation of context and state. Returns `(..., units)`.

    Example:
        >>> keras_attn.AttentionalLayer(5)(np.ones((2, 7), "float32")).shape
        (2, 5)

    Differences from the paper: none; `use_bias=True` adds JoeyNMT's bias.

    Reference: Luong, Pham, Manning. EMNLP 2015, arXiv:1508.04025, section 3.
    """

    def __init__(self, units: int, *, activation="tanh", use_bias: bool = False, **kwargs):
        refuse_unknown_arguments(type(self), kwargs)
        super().__init__(units, activation=activation, use_bias=use_bias, **kwargs)

    def call(self, inputs, training=None):
        outputs = dense(inputs, self.kernel)  # Keras' own is float32 for float64 on torch, its tanh on JAX
        return keep_float64(self.activation)(outputs if self.bias is None else outputs + self.bias)


@keras.saving.register_keras_serializable(package="keras_attn")
class DeepOutput(WeightLayer):
    """RNNsearch's deep output with one maxout layer.

        t~_i = U_o s_{i-1} + V_o E y_{i-1} + C_o c_i,   t_ij = max(t~_{i,2j-1}, t~_{i,2j})    (Bahdanau 2015, A.2.2)

    Args:
        units: l, the width after maxout.
        activation: "maxout" (the paper), or the name of an activation, which is applied to t~ of width l.
        use_bias: Adds a bias to t~.
        kernel_initializer: For U_o, V_o and C_o.

    Call arguments: `state (..., H)`, `embedding (..., E)`, `context (..., M)`. Returns `(..., units)`.

    Example:
        >>> s, y, c = (np.ones((2, 3, n), "float32") for n in (5, 7, 11))
        >>> keras_attn.DeepOutput(13)(s, y, c).shape
        (2, 3, 13)

    Reference: Bahdanau, Cho, Bengio. ICLR 2015, arXiv:1409.0473; maxout: Goodfellow et al. 2013, arXiv:1302.4389.
    """

    def __init__(
        self,
        units: int,
        *,
        activation: str = "maxout",
        use_bias: bool = True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_size("units", units)
        if activation != "maxout":
            keras.activations.get(activation)  # refuses an unknown one now
        self.units = units
        self.activation = activation
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, state_shape, embedding_shape, context_shape):
        width = self.units * (2 if self.activation == "maxout" else 1)
        self.add_weights(
            self.kernel_initializer,
            state_kernel=(state_shape[-1], width),
            embedding_kernel=(embedding_shape[-1], width),
            context_kernel=(context_shape[-1], width),
        )
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros") if self.use_bias else None

    def call(self, state, embedding, context):
        hidden = self.part("state", state) + self.part("embedding", embedding) + self.part("context", context)
        if self.bias is not None:
            hidden = hidden + self.bias
        if self.activation != "maxout":
            return keep_float64(keras.activations.get(self.activation))(hidden)
        return ops.max(ops.reshape(hidden, (*ops.shape(hidden)[:-1], self.units, 2)), axis=-1)  # (..., l)

    def part(self, name: str, inputs):
        """The summand of t~ from one of the three inputs, (..., 2 l) or (..., l)."""
        return dense(inputs, getattr(self, f"{name}_kernel"))

    def compute_output_shape(self, state_shape, embedding_shape, context_shape):
        return (*state_shape[:-1], self.units)


@keras.saving.register_keras_serializable(package="keras_attn")
class LayerNormOutput(DeepOutput):
    """The deep output, with each of its three parts normalised by itself.

        t~_i = LN(U_o s_i) + LN(V_o E y_{i-1}) + LN(C_o c_i) + b            (Ba 2016, eq. 4; Marian, `layers/generic.h`)

    Args:
        units, activation, use_bias, kernel_initializer: As in `DeepOutput`.
        epsilon: Added to the variance.

    Call arguments: `state (..., H)`, `embedding (..., E)`, `context (..., M)`. Returns `(..., units)`.

    Example:
        >>> s, y, c = (np.ones((2, 3, n), "float32") for n in (5, 7, 11))
        >>> keras_attn.layers.LayerNormOutput(13, activation="tanh")(s, y, c).shape
        (2, 3, 13)

    Reference: Ba, Kiros, Hinton. Layer Normalization. 2016, arXiv:1607.06450.
    """

    def __init__(self, units: int, *, epsilon: float = 1e-5, **kwargs):
        super().__init__(units, **kwargs)
        self.epsilon = epsilon
        self.norms = {name: layer_norm(self, f"{name}_norm") for name in ("state", "embedding", "context")}

    def build(self, state_shape, embedding_shape, context_shape):
        super().build(state_shape, embedding_shape, context_shape)
        for norm in self.norms.values():
            norm.build((None, self.state_kernel.shape[1]))

    def part(self, name, inputs):
        return self.norms[name](super().part(name, inputs))


@keras.saving.register_keras_serializable(package="keras_attn")
class ConcatenatedOutput(Layer):
    """State and context side by side: the softmax of RNMT+ reads both.

        t_i = [s_i ; c_i]                                                                 (Chen 2018, section 4)

    It has the same call as `DeepOutput`, and no weights.

    Call arguments: `state (..., H)`, `embedding (..., E)`, which is not read, `context (..., M)`. Returns
    `(..., H + M)`.

    Example:
        >>> s, y, c = (np.ones((2, 3, n), "float32") for n in (5, 7, 11))
        >>> keras_attn.layers.ConcatenatedOutput()(s, y, c).shape
        (2, 3, 16)

    Reference: Chen et al. The Best of Both Worlds: Combining Recent Advances in Neural Machine Translation. ACL 2018,
    arXiv:1804.09849.
    """

    def call(self, state, embedding, context):
        return ops.concatenate([state, context], axis=-1)

    def compute_output_shape(self, state_shape, embedding_shape, context_shape):
        return (*state_shape[:-1], state_shape[-1] + context_shape[-1])


def build_attentional(attentional, batch, context_widths: list[int], query_width: int) -> int:
    """Builds what makes the attentional vector, `AttentionDecoder`'s argument, and returns the vector's width."""
    if attentional is None:
        return query_width
    if attentional == "context":
        return sum(context_widths)
    layers, widths = [attentional], [sum(context_widths)]
    if isinstance(attentional, list):
        layers, widths = attentional, context_widths
    shapes = [(batch, width + query_width) for width in widths]
    for layer, shape in zip(layers, shapes, strict=True):
        build_once(layer, shape)
    return sum(layer.compute_output_shape(shape)[-1] for layer, shape in zip(layers, shapes, strict=True))


def attentional_vector(attentional, context, query, context_widths: list[int]):
    """The attentional vector of contexts `(..., C)`, side by side, and states `(..., H)`: `(..., F)`."""
    if attentional is None:
        return query
    if attentional == "context":
        return context
    if not isinstance(attentional, list):
        # The cast is for layers of another dtype policy, and for Keras' own, which compute in float32 on torch.
        return ops.cast(attentional(ops.concatenate([context, query], axis=-1)), query.dtype)
    ends = [sum(context_widths[: i + 1]) for i in range(len(context_widths) - 1)]
    contexts = ops.split(context, ends, axis=-1) if ends else [context]
    both = [ops.concatenate([c, query], axis=-1) for c in contexts]
    vectors = [ops.cast(layer(x), query.dtype) for layer, x in zip(attentional, both, strict=True)]
    return ops.concatenate(vectors, axis=-1)


@keras.saving.register_keras_serializable(package="keras_attn")
class OutputBias(WeightLayer):
    """The bias of logits that a transposed embedding gives: logits + b.

    Call arguments: `inputs (..., V)`, the logits. Returns `(..., V)`.

    Example:
        >>> keras_attn.layers.OutputBias()(np.ones((2, 3, 37), "float32")).shape
        (2, 3, 37)
    """

    def build(self, inputs_shape):
        self.bias = self.add_weight(name="bias", shape=(inputs_shape[-1],), initializer="zeros")

    def call(self, inputs):
        return inputs + ops.cast(self.bias, inputs.dtype)


def projection_part(
    projection: keras.layers.Layer, output_bias: keras.layers.Layer | None, token_ids: Any
) -> dict[str, Any]:
    """The columns of a projection to the vocabulary for some of its ids, for `project`.

    Args:
        projection: A `Dense` layer, or a `ReversibleEmbedding` that is transposed.
        output_bias: A bias besides; None: none.
        token_ids: `(n,)` int32.

    Returns:
        "kernel" `(F, n)` and, where there is one, "bias" `(n,)`, in the projection's compute dtype.

    Raises:
        ValueError: for a layer of another kind, or one that changes the logits further.
    """
    if isinstance(projection, keras.layers.Dense) and projection.activation is keras.activations.linear:
        kernel, bias = take(ops.convert_to_tensor(projection.kernel), token_ids, axis=1), projection.bias
    elif isinstance(projection, keras.layers.ReversibleEmbedding) and projection.logit_soft_cap is None:
        bias = None
        if projection.tie_weights:
            kernel = ops.transpose(take(ops.convert_to_tensor(projection.embeddings), token_ids))
        else:
            kernel = take(ops.convert_to_tensor(projection.reverse_embeddings), token_ids, axis=1)
    else:
        raise ValueError(f"Expected a projection whose logits are a product and a bias. Received: {projection.name!r}")
    biases = [bias, output_bias and output_bias.bias]
    biases = [take(ops.convert_to_tensor(one), token_ids) for one in biases if one is not None]
    part = {"kernel": kernel} | ({"bias": sum(biases)} if biases else {})
    return {name: ops.cast(value, projection.compute_dtype) for name, value in part.items()}


def project(features: Any, part: dict[str, Any]) -> Any:
    """The logits `(..., n)` of features `(..., F)` for the ids of a `projection_part`."""
    logits = dense(ops.cast(features, part["kernel"].dtype), part["kernel"])
    return logits + part["bias"] if "bias" in part else logits
