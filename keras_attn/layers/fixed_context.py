"""The decoder without attention: one vector for the whole source, the same at every step."""

import keras
from keras import ops

from keras_attn.layers.decoder import AttentionDecoder, spread
from keras_attn.layers.layer import refuse_unknown_arguments
from keras_attn.layers.normalizers import score_dtype


@keras.saving.register_keras_serializable(package="keras_attn")
class FixedContextDecoder(AttentionDecoder):
    """A recurrent cell that reads the encoder's final state, and nothing else of the source, at every step.

        c = h_S, or tanh(V h_S) with a projection                              (Cho 2014, section 2.2, appendix A.1.1)
        s_i = cell([y_{i-1} ; c], s_{i-1})                                              (appendix A.1.2)

    It is an `AttentionDecoder` with a constant alignment, 1 at the last real word and 0 elsewhere, so that it can be
    plotted beside others.

    Args:
        cell: Any Keras RNN cell, or `StackedRNNCells`.
        projection: Layer from h_S `(B, M)` to c `(B, C)`, such as `Dense(C, "tanh")`; None: c is h_S itself.

    Call arguments, returns, `memory`, `initial_state` and `step`: see `AttentionDecoder`. The context of every step is
    c.

    Mask behaviour: h_S is the state after the row's last real word. A row without any has c = 0 before the projection.

    Raises:
        ValueError: for a cell of one's own with dropout, or what is not a cell.

    Example:
        >>> decoder = keras_attn.FixedContextDecoder(keras.layers.GRUCell(5))
        >>> values, y = np.ones((2, 3, 11), "float32"), np.ones((2, 13, 17), "float32")
        >>> outputs, contexts, alignments = decoder(y, values)
        >>> outputs.shape, contexts.shape
        ((2, 13, 5), (2, 13, 11))
        >>> print(keras.ops.convert_to_numpy(alignments)[0, 0])
        [0. 0. 1.]

    Differences from the paper: its GRU lets the reset gate act on C c too; here on U s_{i-1} alone.

    Reference: Cho et al. Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation.
    EMNLP 2014, arXiv:1406.1078.
    """

    _layer_arguments = ("cell", "projection")
    _replaces_arguments = True

    def __init__(self, cell, *, projection=None, **kwargs):
        refuse_unknown_arguments(type(self), kwargs)
        super().__init__(cell, [], **kwargs)
        self.projection = projection

    def build(self, inputs_shape, values_shape, **_):
        last_shape = (values_shape[0], values_shape[-1])
        width = values_shape[-1]
        if self.projection is not None:
            if not self.projection.built:
                self.projection.build(last_shape)
            width = self.projection.compute_output_shape(last_shape)[-1]
        super().build((*inputs_shape[:-1], inputs_shape[-1] + width), values_shape)
        self.context_width = width

    def memory(self, values, mask=None):
        mask = super().memory(values, mask)["mask"]
        counts = ops.cumsum(ops.cast(mask, "int32"), axis=-1)  # (B, S)
        is_last = mask & (counts == ops.sum(ops.cast(mask, "int32"), axis=-1, keepdims=True))
        context = ops.sum(values * ops.cast(is_last, values.dtype)[:, :, None], axis=1)  # (B, M)
        if self.projection is not None:
            context = self.projection(context)  # (B, C)
        return {"mask": mask, "context": context, "alignment": ops.cast(is_last, score_dtype(values.dtype))}

    def _cell_inputs(self, inputs, memory):
        context = memory["context"]  # (B, C)
        # Beside the embeddings, so that it is projected with them, outside the loop.
        context = context + ops.zeros_like(inputs[..., :1])  # (T, B, C) or (B, C)
        return ops.concatenate([inputs, context], axis=-1)

    def _attend(self, query, memory, states, noise=()):
        return spread(memory["context"], query), [spread(memory["alignment"], query)], states
