"""Attention that knows how much of the source it has covered, so that no word is left out or translated twice."""

import keras
from keras import initializers, ops

from keras_attn.backend import dense, matmul
from keras_attn.layers.additive import StatefulAdditiveAttention
from keras_attn.layers.attention import register_attention
from keras_attn.layers.cells import project, recurrence
from keras_attn.layers.initializers import half_precision_safe
from keras_attn.layers.layer import check_size
from keras_attn.layers.normalizers import at_least_float32


@register_attention("coverage")
class CoverageAttention(StatefulAdditiveAttention):
    """Additive attention that sees the sum of its earlier alignments: See's coverage vector, Tu's linguistic coverage.

        c_ij = sum_{k < i} alpha_kj,   e_ij = v^T tanh(W s_{i-1} + U h_j + w_c c_ij + b)     (See 2017, eqs. 10 and 11)

    With `max_fertility` N, each word has a fertility Phi_j, the number of target words that it is expected to yield, by
    which its coverage is divided:

        Phi_j = N sigmoid(u_f^T h_j),   c_ij = 1 / Phi_j sum_{k < i} alpha_kj                     (Tu 2016, section 3.1)

    Args:
        units: A, the width of the alignment model.
        max_fertility: N, above 0, in target words a source word (Tu 2016 has 2); None: coverage is not divided, as in
            See 2017.
        use_bias: Whether b is added, as in See 2017.
        coverage_initializer: For w_c `(A,)` and u_f `(M,)`.
        normalize, query_initializer, key_initializer, score_initializer: As in `BahdanauAttention`.
        normalizer: As in `Attention`.

    Call arguments, returns and mask behaviour: see `Attention`. The state is the sum of the alignments so far,
    `(B, S)`; `()` stands for zeros.

    Raises:
        ValueError: if `units` is not a positive whole number, `max_fertility` is not above 0, or `keys` is called
            before the layer is built.

    Example:
        >>> attention = keras_attn.CoverageAttention(7, max_fertility=2.0)
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, state = attention(query, values)
        >>> context.shape, alignment.shape, state.shape
        ((2, 11), (2, 3), (2, 3))

    Differences from the papers: none; See 2017 attends with the new state s_i, as `AttentionDecoder(attend="after")`.
    The coverage loss is another layer, `CoverageLoss`.

    References: See, Liu, Manning. Get To The Point: Summarization with Pointer-Generator Networks. ACL 2017,
    arXiv:1704.04368. Tu, Lu, Liu, Liu, Li. Modeling Coverage for Neural Machine Translation. ACL 2016,
    arXiv:1601.04811.
    """

    def __init__(
        self,
        units: int,
        *,
        max_fertility: float | None = None,
        use_bias: bool = True,
        coverage_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(units, use_bias=use_bias, **kwargs)
        if max_fertility is not None and not max_fertility > 0:
            raise ValueError(f"Expected `max_fertility` above 0, or None. Received: max_fertility={max_fertility!r}")
        self.max_fertility = max_fertility
        self.coverage_initializer = initializers.get(coverage_initializer)

    def build(self, query_shape, values_shape, **_):
        super().build(query_shape, values_shape)
        shapes = {"coverage_vector": (self.units,)}
        if self.max_fertility is not None:
            shapes["fertility_vector"] = (values_shape[-1],)
        for name, shape in shapes.items():
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer=self.coverage_initializer.clone()))

    def words(self, values):
        if self.max_fertility is None:
            return None
        products = matmul(values, ops.cast(self.fertility_vector, values.dtype)[:, None])  # (B, S, 1)
        return 1 / (self.max_fertility * ops.sigmoid(at_least_float32(products[:, :, 0])))  # (B, S), 1 / Phi_j

    def seen(self, state, words, dtype):
        if words is not None:
            state = state * ops.cast(words, state.dtype)
        return ops.cast(state, dtype)[:, :, None] * ops.cast(self.coverage_vector, dtype)


@register_attention("neural_coverage")
class NeuralCoverageAttention(StatefulAdditiveAttention):
    """Additive attention with Tu's neural coverage: a vector for each source word, which a GRU keeps up to date.

        C_ij = GRU([h_j ; s_{i-1} ; alpha_ij], C_{i-1,j})                                       (Tu 2016, section 3.1)
        e_ij = v^T tanh(W s_{i-1} + U h_j + V C_{i-1,j})

    Args:
        units: A, the width of the alignment model.
        coverage_units: Width of C_ij (Tu 2016 has 10).
        coverage_initializer: For V `(coverage_units, A)` and the GRU's matrices but the recurrent ones, which are
            orthogonal.
        use_bias, normalize, query_initializer, key_initializer, score_initializer: As in `BahdanauAttention`.
        normalizer: As in `Attention`.

    Call arguments, returns and mask behaviour: see `Attention`. The state is C, `(B, S, coverage_units)`, in float32;
    `()` stands for zeros.

    Raises:
        ValueError: for a size that is not a positive whole number, or if `keys` is called before the layer is built.

    Example:
        >>> attention = keras_attn.NeuralCoverageAttention(7, coverage_units=2)
        >>> query, values = np.ones((2, 5), "float32"), np.ones((2, 3, 11), "float32")
        >>> context, alignment, state = attention(query, values)
        >>> context.shape, alignment.shape, state.shape
        ((2, 11), (2, 3), (2, 3, 2))

    Differences from the paper: none.

    Reference: Tu, Lu, Liu, Liu, Li. Modeling Coverage for Neural Machine Translation. ACL 2016, arXiv:1601.04811.
    """

    def __init__(self, units: int, *, coverage_units: int = 10, coverage_initializer="glorot_uniform", **kwargs):
        super().__init__(units, **kwargs)
        check_size("coverage_units", coverage_units)
        self.coverage_units = coverage_units
        self.coverage_initializer = initializers.get(coverage_initializer)
        self.coverage_cell = keras.layers.GRUCell(
            coverage_units,
            reset_after=False,
            kernel_initializer=self.coverage_initializer.clone(),
            recurrent_initializer=half_precision_safe("orthogonal", self.dtype_policy),
            dtype=self.dtype_policy,
            name="coverage_cell",
        )

    def build(self, query_shape, values_shape, **_):
        super().build(query_shape, values_shape)
        self.coverage_kernel = self.add_weight(
            name="coverage_kernel",
            shape=(self.coverage_units, self.units),
            initializer=self.coverage_initializer.clone(),
        )
        self.values_width = values_shape[-1]  # M, the rows of the GRU's kernel that multiply h
        if not self.coverage_cell.built:
            self.coverage_cell.build((None, values_shape[-1] + query_shape[-1] + 1))

    def words(self, values):
        return project(self.coverage_cell, values)  # (B, S, 3 C)

    def seen(self, state, words, dtype):
        flat = ops.reshape(ops.cast(state, dtype), (-1, self.coverage_units))  # (B S, C), for a product of rank 2
        flat = dense(flat, self.coverage_kernel)  # (B S, A)
        return ops.reshape(flat, (*ops.shape(state)[:2], self.units))

    def next_state(self, state, alignment, query, words):
        rows = slice(self.values_width, -1)  # those of the query
        projected = words + dense(query, self.coverage_cell.kernel, rows=rows)[:, None]  # (B, S, 3 C)
        projected = ops.reshape(projected, (-1, projected.shape[-1]))  # (B S, 3 C)
        alignment, state_before = (ops.cast(x, projected.dtype) for x in (alignment, state))
        states = [ops.reshape(state_before, (-1, self.coverage_units))]
        _, (new,) = recurrence(self.coverage_cell, 1)(projected, ops.reshape(alignment, (-1, 1)), states)
        return ops.cast(ops.reshape(new, ops.shape(state)), state.dtype)

    def initial_state(self, values):
        zeros = super().initial_state(values)  # (B, S)
        return ops.repeat(zeros[:, :, None], self.coverage_units, axis=2)  # (B, S, C)

    def compute_output_spec(self, query, values, keys=None, mask=None, state=(), values_mask=None):
        context, alignment, state = super().compute_output_spec(query, values)
        return context, alignment, keras.KerasTensor((*state.shape, self.coverage_units), dtype=state.dtype)
