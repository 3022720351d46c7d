"""Recurrent layers above an attention decoder."""

import keras
from keras import ops

from keras_attn.layers.layer import SourceReader, build_once
from keras_attn.layers.recurrence import (
    as_lists,
    check_cell,
    draw_masks,
    output_width,
    project,
    recurrence,
    top_state,
    unroll,
)


@keras.saving.register_keras_serializable(package="keras_attn")
class DecoderStack(SourceReader):
    """An `AttentionDecoder`, and recurrent layers that read its outputs. No attention depends on them.

        x^1_i, c_i = decoder(y_{i-1}, h),   x^{l+1}_i = cell_l([x^l_i ; c_i], s^l_{i-1}) + x^l_i,   output_i = x^L_i

    c_i only with `read_context`, the sum only from `first_skip` on. (Wu 2016, section 3.1; Miceli Barone 2017: BiDeep.)
    In training, each layer reads all T outputs of the one below, with its inputs projected in one product.

    Args:
        decoder: An `AttentionDecoder`, the bottom layer.
        cells: The cells above it, from below. With skips they are as wide as the decoder's outputs.
        read_context: Whether they read the contexts, too.
        first_skip: The first of `cells`, counted from 0, with a skip connection; `len(cells)`: none has one.
        dropout: Dropout rate of the outputs of each layer, the decoder among them, but the last's, before a skip
            connection adds x^l to them.

    Call arguments, returns, `memory`, `initial_state` and `step`: see `AttentionDecoder`. `cell_state` is the
    decoder's; each state of the cells above starts from its h, or from zeros if none is given.

    Raises:
        ValueError: for what is no recurrent cell, or a cell with a skip whose outputs are not as wide as the decoder's;
            for a `cell_state` where states of the cells are not as wide as the decoder's h.

    Example:
        >>> decoder = keras_attn.AttentionDecoder(keras.layers.GRUCell(5), keras_attn.BahdanauAttention(7))
        >>> stack = keras_attn.DecoderStack(decoder, [keras.layers.GRUCell(5), keras.layers.GRUCell(5)])
        >>> values, y = np.ones((2, 3, 11), "float32"), np.ones((2, 13, 17), "float32")
        >>> outputs, contexts, alignments = stack(y, values)
        >>> outputs.shape, contexts.shape, alignments.shape
        ((2, 13, 5), (2, 13, 11), (2, 13, 3))

    References: Wu et al. 2016, arXiv:1609.08144. Miceli Barone, Helcl, Sennrich, Haddow, Birch. Deep Architectures for
    Neural Machine Translation. WMT 2017, arXiv:1707.07631.
    """

    _layer_arguments = ("decoder",)

    def __init__(
        self,
        decoder,
        cells,
        *,
        read_context: bool = False,
        first_skip: int = 0,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        for cell in cells:
            check_cell(cell)
        self.decoder = decoder
        self.cells = list(cells)
        self.read_context = read_context
        self.first_skip = first_skip
        self.dropout = dropout
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    @property
    def attentions(self):
        """The decoder's attention layers."""
        return self.decoder.attentions

    def build(self, inputs_shape, values_shape, **_):
        build_once(self.decoder, inputs_shape, values_shape)
        width = self.decoder.output_width
        for i, cell in enumerate(self.cells):
            build_once(cell, (inputs_shape[0], width + self.decoder.context_width * self.read_context))
            if i >= self.first_skip and output_width(cell) != width:
                raise ValueError(
                    f"Expected cells with skip connections to be as wide as what they read, {width}. Received: "
                    f"{output_width(cell)} units in {cell.name}"
                )
            width = output_width(cell)
        self.output_width = width

    def call(
        self,
        inputs,
        values,
        mask=None,
        cell_state=None,
        fed=None,
        training=False,
        each_head=False,
        values_mask=None,
    ):
        mask = values_mask if mask is None else mask
        outputs, contexts, alignments = self.decoder(
            inputs, values, mask=mask, cell_state=cell_state, fed=fed, training=training, each_head=each_head
        )
        x, contexts_by_step = (ops.transpose(part, (1, 0, 2)) for part in (outputs, contexts))  # (T, B, H), (T, B, C)
        x = self._drop(-1, x, training)
        upper = self.initial_state(values, cell_state, fed)["upper"]
        for i, (cell, state) in enumerate(zip(self.cells, upper, strict=True)):
            read = self._read(x, contexts_by_step)
            drops = draw_masks(cell, ops.shape(x)[1], read.shape[-1]) if training else None
            x = self._join(i, x, self._drop(i, unroll(cell, read, state, drops=drops)[0], training))
        return ops.transpose(x, (1, 0, 2)), contexts, alignments

    def step(self, inputs, memory, state, each_head=False):
        """One step: `inputs (B, E)` -> `output (B, O), context (B, C), alignment (B, S) or (B, N, S), state`."""
        x, context, alignment, new = self.decoder.step(inputs, memory, state, each_head)
        upper = []
        for i, (cell, cell_state) in enumerate(zip(self.cells, state["upper"], strict=True)):
            projected = project(cell, self._read(x, context))
            output, cell_state = recurrence(cell)(projected, None, cell_state)
            upper.append(cell_state)
            x = self._join(i, x, output)
        return x, context, alignment, {**new, "upper": upper}

    def memory(self, values, mask=None):
        """The constants of a sentence, as in `AttentionDecoder`."""
        return self.decoder.memory(values, mask)

    def initial_state(self, values, cell_state=None, fed=None):
        """The decoder's state before the first step, and the states of the cells above it as "upper"."""
        state = self.decoder.initial_state(values, cell_state, fed)
        h = top_state(state["cell"])  # (B, H)
        zeros = [as_lists(cell.get_initial_state(batch_size=ops.shape(h)[0])) for cell in self.cells]
        widths = {state.shape[-1] for state in keras.tree.flatten(zeros)}
        if cell_state is not None and widths - {h.shape[-1]}:
            raise ValueError(
                f"Expected cells above the decoder to be as wide as its h, {h.shape[-1]}, from which they start where "
                f"`cell_state` is given. Received: states of {sorted(widths)} units"
            )
        upper = zeros if cell_state is None else keras.tree.map_structure(lambda _: h, zeros)
        return {**state, "upper": upper}

    def _read(self, x, context):
        return ops.concatenate([x, context], axis=-1) if self.read_context else x

    def _drop(self, layer: int, outputs, training):
        return self.dropout_layer(outputs, training=training) if layer < len(self.cells) - 1 else outputs

    def _join(self, layer: int, x, output):
        return output + x if layer >= self.first_skip else output

    def compute_mask(self, inputs, previous_mask):
        return previous_mask, previous_mask  # of outputs and contexts

    def compute_output_spec(self, inputs, values, **kwargs):
        outputs, contexts, alignments = self.decoder.compute_output_spec(inputs, values, **kwargs)
        shape = (*outputs.shape[:-1], self.output_width)
        return keras.KerasTensor(shape, dtype=outputs.dtype), contexts, alignments

    @classmethod
    def from_config(cls, config):
        cells = [keras.saving.deserialize_keras_object(cell) for cell in config["cells"]]
        return super().from_config({**config, "cells": cells})
