"""The read-out of the pointer-generator: a word of the vocabulary, or a copy of a word of the source."""

import keras
from keras import ops

from keras_attn.backend import dense, maximum, segment_sum
from keras_attn.layers.layer import SourceReader, WeightLayer, check_mask
from keras_attn.layers.normalizers import score_dtype

_LEAST = 1e-30  # alignment of a word of the source, so that the logarithm of its probability is finite
_NOTHING = -1e30  # logarithm of the probability 0, within a sum


@keras.saving.register_keras_serializable(package="keras_attn")
class PointerGenerator(WeightLayer, SourceReader):
    """Mixes the distribution over the vocabulary with one over the words of the source.

        p_gen = sigmoid(w_c^T c_t + w_s^T s_t + w_y^T E y_{t-1} + b)                          (See 2017, eq. 8)
        P(w) = p_gen P_vocab(w) + (1 - p_gen) sum_{j : x_j = w} alpha_tj                       (See 2017, eq. 9)

    over the extended vocabulary of a sentence: the V words of the vocabulary, and S temporary ids V .. V + S - 1 for
    words of the source that are not in it (see `keras_attn.text.temporary_ids`). S is the length of the source, so that
    shapes are static.

    Args:
        kernel_initializer: For w_c, w_s and w_y. b is 0 at first.

    Call arguments:
        logits: `(..., V)`, whose softmax is P_vocab.
        state: `(..., H)`, s_t.
        embedding: `(..., E)`, E y_{t-1}.
        context: `(..., M)`, c_t.
        alignment: `(..., S)`, alpha_t.
        token_ids: `(B, S)` int32 in [0, V + S), the source x.
        mask: `(B, S)` bool, True = real source token; None: the implicit mask of `token_ids`, or else all are real.

    The leading axes `...` are B, or B and T.

    Returns:
        `log P(w)`, `(..., V + S)`, in float32 (float64 under that policy), logits for a loss and for search. It is
        -inf for temporary ids that the source does not have, and finite for all others, whatever p_gen is.

    Mask behaviour: masked positions are not copied.

    Example:
        >>> logits, alignment = np.zeros((1, 2), "float32"), np.array([[0.25, 0.75]], "float32")
        >>> s, y, c = (np.zeros((1, n), "float32") for n in (5, 7, 11))
        >>> ids, mask = np.array([[1, 3]]), np.array([[True, True]])  # a word of the vocabulary, and an unknown one
        >>> log_probs = keras_attn.PointerGenerator()(logits, s, y, c, alignment, ids, mask)
        >>> keras.ops.convert_to_numpy(keras.ops.exp(log_probs)).round(3).tolist()
        [[0.25, 0.375, 0.0, 0.375]]

    Differences from the paper: an alignment counts as 1e-30 at least, so that a loss is finite. Coverage (section 2.3)
    is no part of this layer.

    Reference: See, Liu, Manning. Get To The Point: Summarization with Pointer-Generator Networks. ACL 2017,
    arXiv:1704.04368, section 2.2.
    """

    _source_mask = "token_ids_mask"

    def __init__(self, *, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**{**kwargs, "autocast": False})  # alignments stay in float32
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, logits_shape, state_shape, embedding_shape, context_shape, *_, **__):
        self.add_weights(
            self.kernel_initializer,
            state_kernel=(state_shape[-1], 1),
            embedding_kernel=(embedding_shape[-1], 1),
            context_kernel=(context_shape[-1], 1),
        )
        self.bias = self.add_weight(name="bias", shape=(1,), initializer="zeros")

    def call(self, logits, state, embedding, context, alignment, token_ids, mask=None, token_ids_mask=None):
        mask = check_mask(token_ids_mask if mask is None else mask, token_ids)
        mask = ops.ones_like(token_ids, "bool") if mask is None else mask
        dtype = score_dtype(self.compute_dtype)
        state, embedding, context = (ops.cast(x, self.compute_dtype) for x in (state, embedding, context))
        gate = (
            dense(state, self.state_kernel)
            + dense(embedding, self.embedding_kernel)
            + dense(context, self.context_kernel)
            + ops.cast(self.bias, self.compute_dtype)
        )  # (..., 1)
        gate = ops.cast(gate, dtype)
        generated = ops.log_softmax(ops.cast(logits, dtype), axis=-1) + ops.log_sigmoid(gate)  # (..., V)
        widths = [[0, 0]] * (len(logits.shape) - 1) + [[0, ops.shape(token_ids)[1]]]
        generated = ops.pad(generated, widths, constant_values=_NOTHING)  # (..., V + S)

        mask = ops.reshape(mask, _spread(ops.shape(mask), alignment))  # (B, S) or (B, 1, S)
        alignment = ops.where(mask, maximum(ops.cast(alignment, dtype), _LEAST), 0.0)  # (..., S)
        mass = _sum_by_id(alignment, token_ids, logits.shape[-1])  # (..., V + S)
        is_source = mass > 0  # (..., V + S)
        copied = ops.where(is_source, ops.log(ops.where(is_source, mass, 1.0)), _NOTHING) + ops.log_sigmoid(-gate)

        # Not `ops.logaddexp`, whose gradient is wrong on TensorFlow where both are equal.
        higher = ops.stop_gradient(maximum(generated, copied))  # (..., V + S)
        log_probs = higher + ops.log(ops.exp(generated - higher) + ops.exp(copied - higher))  # (..., V + S)
        is_word = ops.arange(ops.shape(log_probs)[-1], dtype="int32") < logits.shape[-1]  # (V + S,)
        return ops.where(is_source | is_word, log_probs, float("-inf"))

    def compute_output_spec(
        self, logits, state, embedding, context, alignment, token_ids, mask=None, token_ids_mask=None
    ):
        source = token_ids.shape[1]
        width = None if source is None else logits.shape[-1] + source
        dtype = score_dtype(self.compute_dtype)
        return keras.KerasTensor((*logits.shape[:-1], width), dtype=dtype)


def _sum_by_id(weights, token_ids, size: int):
    """The sum of `weights (..., S)` for each id of `token_ids (B, S)`: `(..., size + S)`."""
    shape = ops.shape(weights)
    width = size + shape[-1]  # V + S
    rows = shape[0] if len(shape) == 2 else shape[0] * shape[1]  # B or B * T
    ids = ops.reshape(ops.cast(token_ids, "int32"), _spread(ops.shape(token_ids), weights)) + ops.zeros_like(
        weights, dtype="int32"
    )  # (..., S)
    places = ops.reshape(ids, (rows, shape[-1])) + width * ops.arange(rows, dtype="int32")[:, None]  # (B * T, S)
    sums = segment_sum(ops.reshape(weights, (-1,)), ops.reshape(places, (-1,)), rows * width)
    return ops.reshape(sums, (*shape[:-1], width))


def _spread(shape, weights) -> tuple:
    """The shape `(B, S)`, or `(B, 1, S)` where the weights are `(B, T, S)`."""
    return tuple(shape) if len(weights.shape) == 2 else (shape[0], 1, shape[1])
