"""Coverage: attention that reads the sum of its earlier alignments, and the loss that penalises their overlap."""

import numbers

import keras
from keras import initializers, ops

from keras_attn.backend import cumsum, dense, matmul, replica_count, sum_over_replicas
from keras_attn.layers.additive import StatefulAdditiveAttention
from keras_attn.layers.attention import register_attention
from keras_attn.layers.layer import Layer, build_once, check_mask, check_size, clone_initializer, half_precision_safe
from keras_attn.layers.normalizers import at_least_float32, score_dtype
from keras_attn.layers.recurrence import project, recurrence


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
        self.add_weights(self.coverage_initializer, coverage_vector=(self.units,))
        if self.max_fertility is not None:
            self.add_weights(self.coverage_initializer, fertility_vector=(values_shape[-1],))

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
            kernel_initializer=clone_initializer(self.coverage_initializer),
            recurrent_initializer=half_precision_safe("orthogonal", self.dtype_policy),
            dtype=self.dtype_policy,
            name="coverage_cell",
            **self.weight_options,
        )

    def build(self, query_shape, values_shape, **_):
        super().build(query_shape, values_shape)
        self.add_weights(self.coverage_initializer, coverage_kernel=(self.coverage_units, self.units))
        self.values_width = values_shape[-1]  # M, the rows of the GRU's kernel that multiply h
        build_once(self.coverage_cell, (None, values_shape[-1] + query_shape[-1] + 1))

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


@keras.saving.register_keras_serializable(package="keras_attn")
class CoverageLoss(Layer):
    """Adds See's coverage loss to what a model is trained by: it penalises attending to the same word again.

        loss = weight / (number of real steps) sum_i sum_j min(alpha_ij, sum_{k < i} alpha_kj)   (See 2017, eqs. 12, 13)

    It reads alignments of any attention. The loss is added by `add_loss` in training alone, so that the loss of
    `evaluate` stays the cross-entropy; in data-parallel training it is the mean over the steps of all replicas.

    Args:
        weight: lambda, at least 0 (See 2017 has 1).

    Call arguments:
        inputs: A tensor of any shape, on the way to the model's output; the layer returns it.
        alignments: `(B, T, S)`, of all steps of a decoder.
        mask: Boolean `(B, T)`, True = real target step; None: the implicit mask of the inputs, or else all are real.
        training: Whether the loss is added.

    Returns:
        The inputs, in the compute dtype.

    Mask behaviour: a step of target padding adds no loss and is not counted. Source padding has alignment 0.

    Raises:
        ValueError: for a negative weight.

    Example:
        >>> layer, alignments = keras_attn.CoverageLoss(1.0), np.array([[[1.0, 0.0], [0.75, 0.25]]], "float32")
        >>> _ = layer(np.zeros((1, 2, 3), "float32"), alignments, training=True)
        >>> float(layer.losses[0])  # 0 at the first of two steps, min(0.75, 1) at the second
        0.375

    Differences from the paper: none.

    Reference: See, Liu, Manning. Get To The Point: Summarization with Pointer-Generator Networks. ACL 2017,
    arXiv:1704.04368, section 2.3.
    """

    def __init__(self, weight: float = 1.0, **kwargs):
        super().__init__(**{**kwargs, "autocast": False})  # alignments stay in float32
        if not isinstance(weight, numbers.Real) or not weight >= 0:
            raise ValueError(f"Expected `weight` of at least 0. Received: weight={weight!r}")
        self.weight = weight

    def call(self, inputs, alignments, mask=None, training=False, inputs_mask=None):
        if training:
            mask = check_mask(inputs_mask if mask is None else mask, alignments)
            self.add_loss(self.weight * self.mean(alignments, mask))
        return ops.cast(inputs, self.compute_dtype)

    def mean(self, alignments, mask=None):
        """The coverage loss of a step, a scalar, as the mean over the real steps of all replicas."""
        alignments = ops.cast(alignments, score_dtype(alignments.dtype))
        covered = cumsum(alignments, axis=1)[:, :-1]  # (B, T - 1, S)
        # The first step has nothing before it.
        losses = ops.sum(ops.minimum(alignments[:, 1:], covered), axis=-1)  # (B, T - 1)
        real = ops.ones_like(alignments[:, :, 0]) if mask is None else ops.cast(mask, alignments.dtype)  # (B, T)
        count = sum_over_replicas(ops.sum(real)) / replica_count()
        return ops.sum(losses * real[:, 1:]) / ops.maximum(count, 1e-6)

    def compute_output_spec(self, inputs, alignments, mask=None, training=False, inputs_mask=None):
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_attn")
class DoublyStochasticLoss(CoverageLoss):
    """Adds Xu's loss to what a model is trained by: the weights of a place over all steps are to add up to one.

        loss = weight / (B S) sum_j (1 - sum_i alpha_ij)^2                                           (Xu 2015, eq. 14)

    Args:
        weight: lambda, at least 0.

    Call arguments, returns and errors: see `CoverageLoss`, of which it is a sibling: `AttentionSeq2Seq` takes it as
    its `coverage_loss`.

    Mask behaviour: a step of target padding sees nothing, and a sentence without any step is not counted. No step can
    see a padded place of the source: it adds a constant to the loss.

    Example:
        >>> layer = keras_attn.DoublyStochasticLoss(1.0)
        >>> _ = layer(np.zeros((1, 2, 3), "float32"), np.array([[[1.0, 0.0], [0.5, 0.5]]], "float32"), training=True)
        >>> float(layer.losses[0])  # the first place is seen 1.5 times, the second one 0.5 times
        0.25

    Differences from the paper: a mean over places instead of a sum, so that `weight` does not depend on their number.

    Reference: Xu et al. Show, Attend and Tell: Neural Image Caption Generation with Visual Attention. ICML 2015,
    arXiv:1502.03044.
    """

    def mean(self, alignments, mask=None):
        """The loss of a place, a scalar, as the mean over the sentences of all replicas."""
        alignments = ops.cast(alignments, score_dtype(alignments.dtype))
        real = ops.ones_like(alignments[:, :, 0]) if mask is None else ops.cast(mask, alignments.dtype)  # (B, T)
        seen = ops.sum(alignments * real[:, :, None], axis=1)  # (B, S)
        has_steps = ops.max(real, axis=1)  # (B,)
        count = sum_over_replicas(ops.sum(has_steps)) / replica_count()
        return ops.sum(ops.mean((1 - seen) ** 2, axis=-1) * has_steps) / ops.maximum(count, 1e-6)
