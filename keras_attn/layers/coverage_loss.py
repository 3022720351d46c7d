"""The coverage loss: what a model pays for attending to the same word of the source again."""

import keras
from keras import ops

from keras_attn.backend import cumsum, replica_count, sum_over_replicas
from keras_attn.layers.layer import Layer, check_mask
from keras_attn.layers.normalizers import score_dtype


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
        if not weight >= 0:
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
