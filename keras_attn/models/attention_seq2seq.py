"""The model with attention over any source, of which the recurrent models of text are a part."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree

from keras_attn.backend import scan, without_gradients
from keras_attn.layers import (
    AttentionDecoder,
    CoverageLoss,
    DecoderStack,
    ScheduledSampler,
    ScheduledSampling,
    get_scheduled_sampling,
    top_state,
)
from keras_attn.models.seq2seq import TARGET_IDS, Seq2Seq, has_alignments, make_inputs

SOURCE = "encoder_inputs"  # the name of a source that is no dict
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)  # *args, **kwargs
_OWN = ("keys", "masks")  # of the decoder's memory, which no head reads


class TokenSampler(ScheduledSampler):
    """Replaces given target tokens by the model's own, in training, as `ScheduledSampling` says.

    No gradient flows through a sampled token. So the tokens can be chosen first, without gradients, by the model's
    single step, and the pass that has gradients is the teacher-forced one: its work stays outside the loop, and at
    probability 0 it is the same as without sampling, bit for bit. Dropout of the decoder and of the read-out acts in
    that pass only.

    It has no weights, so that those of a plain model fit, and the other way round.
    """

    def read(self, token_ids, memory, state, step: Callable):
        """The tokens that a step of training reads.

        Args:
            token_ids: `(B, T)`, the given target inputs.
            memory, state: As of `Seq2Seq.encode`.
            step: As `Seq2Seq.step`.

        Returns:
            `(B, T)`; the first token is always the given one.
        """
        probability = self.probability
        given = ops.transpose(token_ids)  # (T, B)
        later = given[1:]  # (T - 1, B)
        # Drawn for T = 1, too: the draws count the batches.
        uniforms = keras.random.uniform((2, *ops.shape(later)), dtype="float32", seed=self.seed_generator)
        if token_ids.shape[1] == 1:
            return token_ids
        xs = {"given": later, "chosen": uniforms[0] < probability, "uniform": uniforms[1]}  # each (T - 1, B)

        def advance(carry, x, memory):
            token_ids, state = carry
            logits, state, _ = step(token_ids, memory, state)
            token_ids = ops.where(x["chosen"], self._choose(logits, x["uniform"]), x["given"])  # (B,)
            return (token_ids, state), token_ids

        def run(memory, carry, xs):
            return scan(advance, carry, xs, constants=memory)[1]  # (T - 1, B)

        sampled = without_gradients(run, memory, (given[0], state), xs)
        return ops.transpose(ops.concatenate([given[:1], sampled], axis=0))

    def _choose(self, logits, uniform):
        """A token `(B,)` for each row of logits `(B, V)`."""
        logits = ops.cast(logits, "float32")
        if self.settings.choose == "argmax":
            return ops.cast(ops.argmax(logits, axis=-1), "int32")
        # The inverse of the distribution function takes one random number a row, Gumbel noise V of them.
        weights = ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))  # (B, V)
        below = ops.cumsum(weights, axis=-1)  # (B, V)
        passed = ops.sum(ops.cast(below <= uniform[:, None] * below[:, -1:], "int32"), axis=-1)  # (B,)
        return ops.minimum(passed, ops.shape(logits)[-1] - 1)  # the product may have been rounded up to the sum


@keras.saving.register_keras_serializable(package="keras_attn")
class SourceMask(keras.layers.Layer):
    """The mask `(B, S)` of values `(B, S, M)`, or, flattened, of values with several axes of positions, `(B, ..., M)`.

    Without an explicit one it is the implicit one that Keras hands on, or else True everywhere.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, values, mask=None):
        every = ops.ones_like(values[..., 0], dtype="bool")  # (B, ...)
        mask = every if mask is None else ops.cast(mask, "bool")
        if len(every.shape) == 2:
            return mask  # (B, S)
        mask = ops.reshape(mask, (*ops.shape(mask), *[1] * (len(every.shape) - len(mask.shape))))
        return keras.layers.Reshape((-1,))(every & mask)  # (B, S)

    def compute_mask(self, inputs, previous_mask):
        return None

    def compute_output_spec(self, values, mask=None):
        positions = values.shape[1:-1]
        return keras.KerasTensor((values.shape[0], None if None in positions else math.prod(positions)), dtype="bool")


@keras.saving.register_keras_serializable(package="keras_attn")
class FlattenedValues(keras.layers.Reshape):
    """`Reshape` of values whose mask `SourceMask` has read, and of which Keras would warn."""

    def __init__(self, target_shape, **kwargs):
        super().__init__(target_shape, **kwargs)
        self.supports_masking = True

    def compute_mask(self, inputs, previous_mask):
        return None


@keras.saving.register_keras_serializable(package="keras_attn")
class AttentionSeq2Seq(Seq2Seq):
    """An encoder of any source, a decoder with attention, an embedding of the target and a head that makes logits.

        h_1 .. h_S, s_0 = encoder(x)
        s_i, c_i, alpha_i = decoder(target_embedding(y_{i-1}), s_{i-1}, h)
        p(y_i | y_<i, x) = softmax(head(s_i, c_i, E y_{i-1}, alpha_i))

    The source may be an image, frames of speech, a series of numbers, several texts: any structure of tensors with
    leading axis B that the encoder takes. The inputs of the model are the source and "decoder_token_ids" `(B, T)`: a
    source that is a dict gives its names to the inputs, any other is the input "encoder_inputs".

    Args:
        encoder: Layer or model from the source to h: a tensor `(B, S, M)`, with Keras' implicit mask or without any; a
            list of several memories, one for each attention layer of the decoder; a tuple of h and s_0, as `RNNEncoder`
            and Keras' recurrent layers return it; or a dict of "values", h; "mask", `(B, S)` bool, True = real
            position, or a list (missing: the implicit mask); "cell_state", s_0 in the structure of the decoder's cell
            (missing: zeros); and any other entries, tensors with leading axis B, for the embedding and the head.
            Values with several axes of positions, `(B, 7, 7, M)`, are flattened to `(B, 49, M)`, and so is their mask.
        decoder: An `AttentionDecoder` or a `DecoderStack`.
        target_embedding: Layer from token ids `(B, T)` to vectors `(B, T, E)`. If its `call` has an argument `memory`,
            it gets the encoder's values, mask and other entries. None: an id is the place of an element of the source,
            and the vector is that element, of the encoder's entry "elements" `(B, S, E)`, or else of its values.
        head: Layer from the decoder's outputs `(B, T, H)` to logits `(B, T, V)`. Its `call` may also have these
            arguments, by name: `contexts` `(B, T, C)`, `embedded` `(B, T, E)`, `alignments` `(B, T, S)` and `memory`.
            None: log alpha, at least log 1e-9, so that the attention is the output, a place of the source. Without
            embedding and head the model is a pointer network (Vinyals 2015, eq. 3); the special ids are places, too.
        readout: Layer `(s_i, E y_{i-1}, c_i) -> features (B, T, F)`, such as `DeepOutput`, which the head reads in the
            place of the decoder's outputs; None: none.
        inputs: The source as `keras.Input`s, in the structure that the encoder takes; None: the encoder is a functional
            model, and the source is its input.
        read_previous_state: The head reads s_{i-1} (Bahdanau 2015, A.2.2) instead of s_i.
        scheduled_sampling: In training, the decoder reads some tokens that the model chose itself (Bengio 2015):
            `ScheduledSampling`, or a text such as "inverse_sigmoid,k=1000", or a constant probability. None: all tokens
            are the given ones. The schedule follows the optimizer's updates.
        coverage_loss: lambda, the weight of `CoverageLoss` in training (See et al. 2017, section 2.3, has 1), whatever
            the attention; or such a layer, as `DoublyStochasticLoss`; 0: none. Rows whose target has no word, such as
            those that fill a batch, are not counted.
        source_special_ids, target_special_ids, mask_padding, source_length, name, trainable, dtype: As in `Seq2Seq`.

    A layer reads at search what it reads in training: embedding and head are called with T = 1.

    With several memories, `step` and `align` have the alignments of all of them side by side, `(B, S_1 + S_2)`, as one
    distribution, and so does the memory's mask; `split_alignments` gives each its own, as `generate` does. With
    `each_head=True` a head is 0 outside its memory.

    Mask behaviour: see `encoder`. The mask that search, alignments and the loss of coverage see is that of the values,
    which may be fewer than the source's elements (pyramidal encoders).

    Raises:
        ValueError: for an unknown argument; parts that are no layers; an encoder without functional inputs and without
            `inputs`, or that returns something else; a `coverage_loss` below 0; one without an attention, or neither a
            head nor an attention.

    Example:
        >>> encoder = keras.Sequential([keras.Input((None, 40)), keras.layers.Dense(7)])
        >>> decoder = keras_attn.AttentionDecoder(keras.layers.GRUCell(5), keras_attn.BahdanauAttention(7))
        >>> embedding, head = keras.layers.Embedding(37, 11), keras.layers.Dense(37)
        >>> model = keras_attn.models.AttentionSeq2Seq(encoder, decoder, embedding, head)
        >>> frames, ids = np.ones((2, 13, 40), "float32"), np.ones((2, 3), "int32")
        >>> model({"encoder_inputs": frames, "decoder_token_ids": ids}).shape
        (2, 3, 37)

    References: Bahdanau, Cho, Bengio. ICLR 2015, arXiv:1409.0473. Xu et al. Show, Attend and Tell: Neural Image Caption
    Generation with Visual Attention. ICML 2015, arXiv:1502.03044. Vinyals, Fortunato, Jaitly. Pointer Networks. NIPS
    2015, arXiv:1506.03134.
    """

    source_name = None

    def __init__(
        self,
        encoder,
        decoder,
        target_embedding,
        head,
        *,
        readout=None,
        inputs=None,
        read_previous_state: bool = False,
        scheduled_sampling: ScheduledSampling | str | float | None = None,
        coverage_loss: float | CoverageLoss = 0.0,
        **kwargs,
    ):
        _check_parts(decoder, target_embedding=target_embedding, head=head, readout=readout)
        if inputs is not None:  # without the history of a graph, which a config would have
            inputs = tree.map_structure(lambda x: keras.KerasTensor(x.shape, dtype=x.dtype), inputs)
        self.set_arguments(locals())
        # Layers
        dtype = kwargs.pop("dtype", None)
        self.set_layers(source_mask_layer=SourceMask(dtype=dtype, name="source_mask"), coverage_loss_layer=None)
        if isinstance(coverage_loss, CoverageLoss):
            self.set_layers(coverage_loss_layer=coverage_loss)
        elif coverage_loss:
            self.set_layers(coverage_loss_layer=CoverageLoss(coverage_loss, dtype=dtype, name="coverage_loss"))
        if coverage_loss and not decoder.attentions:
            raise ValueError("Expected a decoder with an attention for `coverage_loss`. Received: one without")
        if read_previous_state:
            _check_previous_state(decoder)

        # Functional model
        sampling = get_scheduled_sampling(scheduled_sampling)
        source = _functional_inputs(encoder) if inputs is None else inputs
        if isinstance(source, dict):
            self.set_layers(source_name=None)
        elif self.source_name is None:
            self.set_layers(source_name=SOURCE)
        specs = self.inputs_of(source, keras.KerasTensor((None, None), dtype="int32"))
        inputs = {name: make_inputs(spec, name) for name, spec in specs.items()}
        logits, alignments = self._teacher_forced(inputs)
        self.set_layers(_alignments=alignments)  # (B, T, S), an output that `align` alone uses
        if self.target_vocabulary_size is None:
            self.set_layers(target_vocabulary_size=logits.shape[-1])
        super().__init__(inputs, logits, dtype=dtype, **kwargs)
        self._token_sampler = sampling and TokenSampler(sampling, name="scheduled_sampling")

    def call(self, inputs, training=None, mask=None):
        if training and self._token_sampler and not has_alignments(inputs):
            return self.align_in_training(inputs)[0]
        return super().call(inputs, training=training, mask=mask)

    def check_attention(self):
        if not self.decoder.attentions:
            raise ValueError(f"Expected a model with attention for guided alignment. Received: {type(self).__name__}")

    def align_in_training(self, inputs):
        return self._teacher_forced(self.cast_inputs(inputs), self._token_sampler, training=True)

    def encode(self, source, max_length=None):
        return self._start(self._encode_source(source))

    def step(self, token_ids, memory, state, part=None):
        embedded = self._embed_target(token_ids, memory)  # (B, E)
        previous = top_state(state["cell"])  # (B, H)
        output, context, alignment, state = self.decoder.step(embedded, memory, state)
        alignment = self._join(alignment)
        states = previous if self.read_previous_state else output
        logits = self._logits(states, embedded, context, alignment, memory, has_dropout=False, part=part)
        return logits, state, alignment

    def align(self, source, decoder_token_ids, each_head=False):
        inputs = self.inputs_of(source, decoder_token_ids)
        if each_head:
            return self._teacher_forced(inputs, each_head=True)
        # Not an attribute: Keras would save it as a part of this model.
        return keras.Model(self.input, (self.output, self._alignments))(inputs)

    def make_train_function(self, force=False):
        # Keras calls it when `fit` and `train_on_batch` begin.
        if self._token_sampler and self.optimizer:
            self._token_sampler.follow(self.optimizer)
        return super().make_train_function(force)

    def _encode_source(self, source, training=None) -> dict[str, Any]:
        """The source -> "values" (B, S, M) or a list, "mask" (B, S) or a list, "cell_state" and the other entries."""
        encoded = self.encoder(source, training=training)
        if not isinstance(encoded, dict):
            values, *states = encoded if isinstance(encoded, tuple) else (encoded,)
            if states and isinstance(states[0], (list, tuple)):
                states = states[0]  # of `RNNEncoder`; Keras' RNN layers return them one by one
            encoded = {"values": values, "cell_state": states or None}
        values = encoded.get("values")
        memories = list(values) if isinstance(values, (list, tuple)) else [values]
        if not all(len(getattr(one, "shape", ())) > 2 for one in memories):
            received = sorted(encoded) if "values" not in encoded else [getattr(one, "shape", one) for one in memories]
            raise ValueError(
                "Expected an encoder that returns values (B, S, M), a tuple of them and the first state, or a dict "
                f'with "values". Received: {received}'
            )
        masks = encoded.get("mask")
        masks = list(masks) if isinstance(masks, (list, tuple)) else [masks] * len(memories)
        if len(masks) != len(memories):
            raise ValueError(f"Expected a mask for each of {len(memories)} memories, or None. Received: {len(masks)}")
        masks = [self.source_mask_layer(one, mask=m) for one, m in zip(memories, masks, strict=True)]
        memories = [_flattened(one) for one in memories]
        if not isinstance(values, (list, tuple)):
            (memories,), (masks,) = memories, masks
        return {"cell_state": None, **encoded, "values": memories, "mask": masks}

    def _start(self, encoded: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """The memory and the first state, as `encode` returns them."""
        memory = self.decoder.memory(encoded["values"], encoded["mask"])
        shared = self._shared(encoded)
        if clash := (memory.keys() | set(_OWN)) & shared.keys() - {"values", "mask"}:
            raise ValueError(f"Expected other names for what the encoder returns. Received: {', '.join(sorted(clash))}")
        return {**memory, **shared}, self.decoder.initial_state(encoded["values"], encoded["cell_state"])

    def _shared(self, encoded: dict[str, Any]) -> dict[str, Any]:
        """The entries of the source that the embedding and the head may read."""
        shared = {name: x for name, x in encoded.items() if name != "cell_state"}
        if not self.decoder.attentions:
            del shared["values"]  # the decoder's memory has none either
        if isinstance(mask := shared["mask"], list):
            shared["mask"] = ops.concatenate([ops.cast(one, "bool") for one in mask], axis=1)  # (B, S_1 + S_2)
        return shared

    def _teacher_forced(self, inputs, sampler: TokenSampler | None = None, each_head: bool = False, training=None):
        """Logits (B, T, V) and alignments (B, T, S), or (B, T, N, S); a sampler chooses the tokens that are read."""
        encoded = self._encode_source(self.source_of(inputs), training)
        values, mask, cell_state = (encoded[name] for name in ("values", "mask", "cell_state"))
        token_ids = inputs[TARGET_IDS]
        if sampler:
            token_ids = sampler.read(token_ids, *self._start(encoded), self.step)
        memory = self._shared(encoded)
        embedded = self._embed_target(token_ids, memory, training)  # (B, T, E)
        outputs, contexts, alignments = self.decoder(
            embedded, values, mask=mask, cell_state=cell_state, training=training, each_head=each_head
        )
        alignments = self._join(alignments, each_head)
        mean = ops.mean(alignments, axis=2) if each_head else alignments  # (B, T, S)
        if self.coverage_loss_layer is not None:
            real = self._real_steps(inputs[TARGET_IDS])  # (B, T)
            # By position: Keras hands a keyword `mask` on, and the loss would read it from the logits.
            outputs = self.coverage_loss_layer(outputs, mean, real, training=training)
        states = outputs
        if self.read_previous_state:
            s_0 = ops.zeros_like(outputs[:, 0]) if cell_state is None else top_state(cell_state)  # (B, H)
            states = ops.concatenate([s_0[:, None], outputs[:, :-1]], axis=1)  # (B, T, H)
        return self._logits(states, embedded, contexts, mean, memory, training=training), alignments

    def _join(self, alignments, each_head: bool = False):
        """The alignments of several memories side by side, as one distribution; heads are 0 in other memories."""
        if not isinstance(alignments, list):
            return alignments
        if not each_head:  # the mean over all heads, as with one memory
            heads = getattr(self.decoder, "decoder", self.decoder).heads
            return ops.concatenate([x * (n / sum(heads)) for x, n in zip(alignments, heads, strict=True)], axis=-1)
        rows = []
        for i, own in enumerate(alignments):  # (B, T, N, S)
            others = [ops.repeat(ops.zeros_like(x[:, :, :1]), own.shape[2], axis=2) for x in alignments]
            rows.append(ops.concatenate([*others[:i], own, *others[i + 1 :]], axis=-1))
        return ops.concatenate(rows, axis=2)

    def _real_steps(self, token_ids):
        """The mask of steps (B, T) with a label: those that read a word, or the start of a target that has words."""
        ids = self.target_special_ids
        real = ops.not_equal(token_ids, ids.pad)
        if ids.end is not None:
            real = real & ops.not_equal(token_ids, ids.end)  # what labels that are merely shifted end with
        return real & ops.any(real[:, 1:], axis=1, keepdims=True)

    def _embed_target(self, token_ids, memory, training=None):
        """Token ids of all steps (B, T) -> (B, T, E), or those of one step (B,) -> (B, E)."""
        if len(token_ids.shape) == 1:
            return self._embed_target(token_ids[:, None], memory, training=False)[:, 0]
        if self.target_embedding is None:
            elements = memory["elements" if "elements" in memory else "values"]  # (B, S, E)
            self._check_special_elements(elements.shape[1])
            return ops.take_along_axis(elements, ops.cast(token_ids, "int32")[..., None], axis=1)  # (B, T, E)
        return _call(self.target_embedding, token_ids, memory=memory, training=training)

    def _check_special_elements(self, count: int | None) -> None:
        """Raises ValueError for a source of fewer elements than the special ids point at; None: not known yet."""
        needed = max(self.target_special_ids.reserved) + 1
        if count is not None and count < needed:
            raise ValueError(
                f"Expected a source of at least {needed} elements, because the {self.target_special_ids} are indices "
                f"of elements. Received: {count}"
            )

    def _logits(self, states, embedded, contexts, alignments, memory, *, has_dropout=True, part=None, training=None):
        """The logits of all steps (B, T, V), or of one (B, V)."""
        read = {"contexts": contexts, "embedded": embedded, "alignments": alignments}
        is_step = len(states.shape) == 2
        if is_step:
            states, read = states[:, None], {name: x[:, None] for name, x in read.items()}
        # A single step has no dropout, even within training.
        training = training if has_dropout else False
        if self.readout is not None:
            states = self.readout(states, read["embedded"], read["contexts"])  # (B, T, F)
        if self.head is not None:
            logits = _call(self.head, states, **read, memory=memory, training=training)
        elif self.decoder.attentions:
            self._check_special_elements(read["alignments"].shape[-1])
            logits = ops.log(ops.maximum(read["alignments"], 1e-9))
        else:
            raise ValueError("Expected a `head`, or a decoder with an attention as the output. Received: neither")
        return logits[:, 0] if is_step else logits


def _call(layer: keras.layers.Layer, first, *, memory: dict[str, Any], training, **others):
    """Calls a layer with those of the named arguments that its `call` has."""
    others["memory"] = {name: x for name, x in memory.items() if name not in _OWN}
    names = inspect.signature(layer.call).parameters
    needed = [name for name, one in names.items() if one.default is one.empty and one.kind not in _VARIABLE]
    if unknown := [name for name in needed[1:] if name not in (*others, "training")]:
        raise ValueError(
            f"Expected arguments of `{type(layer).__name__}.call` after its first among {sorted(others)}. Received: "
            f"{', '.join(unknown)}"
        )
    return layer(first, **{name: x for name, x in others.items() if name in names}, training=training)


def _check_parts(decoder, **layers) -> None:
    """Raises ValueError for a decoder of another kind, and for other parts that are no layers."""
    if not isinstance(decoder, (AttentionDecoder, DecoderStack)):
        raise ValueError(f"Expected an `AttentionDecoder` or a `DecoderStack`. Received: decoder={decoder!r}")
    for name, layer in layers.items():
        if layer is not None and not isinstance(layer, keras.layers.Layer):  # None: the subclass has its own
            raise ValueError(f"Expected `{name}` to be a layer. Received: {name}={layer!r}")


def _functional_inputs(encoder) -> Any:
    """The structure of the inputs of a functional model."""
    if isinstance(encoder, keras.Sequential) and encoder.built:
        return encoder.inputs[0]
    if isinstance(encoder, keras.Model) and hasattr(encoder, "_inputs_struct"):
        inputs = encoder.input
        return inputs[0] if isinstance(inputs, (list, tuple)) and len(inputs) == 1 else inputs
    raise ValueError(
        "Expected `inputs`, such as `keras.Input((None, 40))`, the source that the encoder takes, unless the encoder "
        f"is a functional model. Received: encoder={encoder!r}"
    )


def _flattened(values):
    """Values with several axes of positions, (B, ..., M), as (B, S, M)."""
    return values if len(values.shape) == 3 else FlattenedValues((-1, values.shape[-1]))(values)


def _check_previous_state(decoder) -> None:
    """Raises ValueError for a decoder whose output is not the state of its cell."""
    cell = getattr(decoder, "cell", None)  # a stack of them has none
    if cell is None or hasattr(cell, "first_skip") or getattr(decoder, "attentional", None) is not None:
        raise ValueError(
            "Expected a decoder whose output is its cell's state with `read_previous_state=True`: a single one, "
            f"without `attentional` and skip connections. Received: {decoder.name}"
        )
