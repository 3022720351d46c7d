"""Attention with a learned query: one vector for a sequence."""

import keras
from keras import initializers, ops

from keras_attn.backend import dense, matmul
from keras_attn.layers.additive import additive_scores
from keras_attn.layers.layer import WeightLayer, check_mask, check_sequence, check_size, shapes_of
from keras_attn.layers.normalizers import get_normalizer, normalize, score_dtype


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionPooling(WeightLayer):
    """Pools a sequence into one vector: a weighted mean whose weights a learned query gives.

        u_j = tanh(W h_j + b),   alpha_j = exp(u_j^T u_w) / sum_k exp(u_k^T u_w),   s = sum_j alpha_j h_j

                                                                                (Yang 2016, section 2.2, eqs. 5 to 7)

    It takes the place of `GlobalAveragePooling1D` behind an encoder: of words, for a sentence's vector; of sentences,
    for a document's.

    Args:
        units: A, the width of the hidden layer and of the query u_w.
        normalizer: As in `Attention`.
        kernel_initializer, query_initializer: For W `(M, A)` and u_w `(A,)`.

    Call arguments:
        inputs: `(B, S, M)`, the sequence h.
        mask: Boolean `(B, S)`, True = real; None: the implicit mask of the inputs, or else all are real.
        return_attention_scores: Whether to return alpha, too.

    Returns:
        s `(B, M)`; with `return_attention_scores`, `(s, alpha)`, of which alpha is `(B, S)`, at least float32.

    Mask behaviour: a masked position gets alpha exactly 0. A row with no real position gives zeros. No mask is handed
    on: the outputs have no places.

    Raises:
        ValueError: if `units` is not a positive whole number, for a mask of another shape, or for inputs that are not
            `(B, S, M)`.

    Example:
        >>> pooled, alpha = keras_attn.AttentionPooling(7)(np.ones((2, 3, 11), "float32"), return_attention_scores=True)
        >>> pooled.shape, alpha.shape
        ((2, 11), (2, 3))

    Differences from the paper: none.

    Reference: Yang, Yang, Dyer, He, Smola, Hovy. Hierarchical Attention Networks for Document Classification. NAACL
    2016.
    """

    def __init__(
        self,
        units: int,
        *,
        normalizer="softmax",
        kernel_initializer="glorot_uniform",
        query_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_size("units", units)
        self.units = units
        self.normalizer = get_normalizer(normalizer)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.query_initializer = initializers.get(query_initializer)

    def build(self, inputs_shape, **_):
        check_sequence("inputs", inputs_shape)
        shape = (inputs_shape[-1], self.units)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer=self.kernel_initializer)
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")
        self.query = self.add_weight(name="query", shape=(self.units,), initializer=self.query_initializer)

    def call(self, inputs, mask=None, return_attention_scores=False):
        mask = check_mask(mask, inputs)
        keys = dense(inputs, self.kernel)  # (B, S, A)
        scores = additive_scores(ops.cast(self.bias, keys.dtype)[None], keys, self.query)  # (B, S)
        alignment = normalize(scores, mask, self.normalizer)  # (B, S)
        pooled = ops.squeeze(matmul(ops.cast(alignment, inputs.dtype)[:, None], inputs), axis=1)  # (B, M)
        return (pooled, alignment) if return_attention_scores else pooled

    def compute_mask(self, inputs, previous_mask):
        return None

    def compute_output_spec(self, inputs, mask=None, return_attention_scores=False):
        pooled = keras.KerasTensor((inputs.shape[0], inputs.shape[-1]), dtype=self.compute_dtype)
        alignment = keras.KerasTensor(inputs.shape[:2], dtype=score_dtype(self.compute_dtype))
        return (pooled, alignment) if return_attention_scores else pooled

    def compute_output_shape(self, inputs_shape):
        return shapes_of(self.compute_output_spec(keras.KerasTensor(inputs_shape)))
