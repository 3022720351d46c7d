"""The recurrent encoder-decoder: the parts that RNNsearch, Luong's model and their siblings put together."""

from collections.abc import Callable

import keras
from keras import ops

from keras_attn.backend import scan, without_gradients
from keras_attn.layers import (
    CoverageLoss,
    PointerGenerator,
    ScheduledSampler,
    ScheduledSampling,
    WordDropout,
    get_scheduled_sampling,
    project,
    projection_part,
    top_state,
)
from keras_attn.models.seq2seq import INPUTS, Seq2Seq, has_alignments, token_inputs


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


class RecurrentSeq2Seq(Seq2Seq):
    """Embeddings, an encoder, an `AttentionDecoder`, a read-out and an output projection.

    A subclass makes the layers; see `RNNSearch`. It takes the `shared_arguments` as keywords and passes them on.

    Args:
        source_embedding, target_embedding: From ids to vectors; one object for both ties them.
        encoder: `(embeddings, mask) -> values (B, S, M), states, final (B, H)`, such as `RNNEncoder`, or
            `BiGRUEncoder`, whose `final` is the backward state.
        decoder: An `AttentionDecoder`.
        bridge: Layer from `final`, or from what `_bridged` has in its place, to s_0 `(B, H)`; None: the decoder's cell
            starts from the encoder's `states`; "zeros": from zeros.
        readout: `(state, embedding, context) -> features`, such as `DeepOutput`; None: the decoder's output itself.
        output_projection: Layer from features to logits; None: the transposed target embedding
            (`ReversibleEmbedding`).
        output_bias: Layer for the logits of the transposed target embedding, such as `OutputBias`; None: they are as
            they are.
        embedding_dropout, memory_dropout, output_dropout: Dropout rates of the embeddings, of the encoder's memory, and
            of the features.
        word_dropout: Rate of `WordDropout` of source and target embeddings.
        read_previous_state: The read-out reads s_{i-1} (Bahdanau 2015, A.2.2) instead of s_i.
        scale_embeddings: Multiplies embeddings by sqrt(m), m their width (Vaswani 2017, section 3.4): N(0, 1 / m) suits
            tied outputs but is too small as input, above all for a stack of LSTMs.
        scheduled_sampling: In training, the decoder reads some tokens that the model chose itself (Bengio 2015):
            `ScheduledSampling`, or a text such as "inverse_sigmoid,k=1000", or a constant probability. None: all tokens
            are the given ones. The schedule follows the optimizer's updates.
        pointer: Words may be copied from the source (See et al. 2017, section 2.2): the logits are over the extended
            vocabulary of `PointerGenerator`, V + S wide, and ids V .. V + S - 1 are temporary ones, as
            `ParallelDataset.from_text(..., pointer=True)` gives them. Needs one joint vocabulary.
        coverage_loss: lambda, the weight of `CoverageLoss` in training (See et al. 2017, section 2.3, has 1), whatever
            the attention; 0: none. Rows whose target has no word, such as those that fill a batch, are not counted.
        source_special_ids, target_special_ids, mask_padding, source_length, name, trainable, dtype: As in `Seq2Seq`.

    Raises:
        ValueError: with `pointer`, for embeddings of different vocabularies; with it or a `coverage_loss`, without an
            attention; for a negative `coverage_loss`.

    The teacher-forced graph and the single step share `_encode_source` and `_logits`.
    """

    shared_arguments = (
        "embedding_dropout",
        "memory_dropout",
        "output_dropout",
        "word_dropout",
        "scale_embeddings",
        "scheduled_sampling",
        "pointer",
        "coverage_loss",
    )

    def __init__(
        self,
        *,
        source_embedding,
        target_embedding,
        encoder,
        decoder,
        bridge=None,
        readout=None,
        output_projection=None,
        output_bias=None,
        embedding_dropout: float = 0.0,
        memory_dropout: float = 0.0,
        output_dropout: float = 0.0,
        word_dropout: float = 0.0,
        read_previous_state: bool = False,
        scale_embeddings: bool = False,
        scheduled_sampling: ScheduledSampling | str | float | None = None,
        pointer: bool = False,
        coverage_loss: float = 0.0,
        dtype=None,
        **kwargs,
    ):
        # Layers
        def dropout(name, rate):
            return keras.layers.Dropout(rate, dtype=dtype, name=name)

        self.set_layers(
            source_embedding=source_embedding,
            target_embedding=target_embedding,
            encoder=encoder,
            decoder=decoder,
            bridge=bridge,
            readout=readout,
            output_projection=output_projection,
            output_bias=output_bias,
            embedding_dropout=embedding_dropout,
            memory_dropout=memory_dropout,
            output_dropout=output_dropout,
            word_dropout=word_dropout,
            embedding_dropout_layer=dropout("embedding_dropout", embedding_dropout),
            memory_dropout_layer=dropout("memory_dropout", memory_dropout),
            output_dropout_layer=dropout("output_dropout", output_dropout),
            word_dropout_layer=WordDropout(word_dropout, dtype=dtype, name="word_dropout") if word_dropout else None,
            read_previous_state=read_previous_state,
            scale_embeddings=scale_embeddings,
            scheduled_sampling=scheduled_sampling,
            pointer=pointer,
            pointer_generator=PointerGenerator(dtype=dtype, name="pointer") if pointer else None,
            coverage_loss=coverage_loss,
            coverage_loss_layer=None,
        )
        if coverage_loss:
            self.set_layers(coverage_loss_layer=CoverageLoss(coverage_loss, dtype=dtype, name="coverage_loss"))
        if coverage_loss and not decoder.attentions:
            raise ValueError("Expected a decoder with an attention for `coverage_loss`. Received: one without")
        if read_previous_state:
            _check_previous_state(decoder)
        if pointer:
            _check_pointer(self, source_embedding.input_dim, target_embedding.input_dim)

        # Functional model
        sampling = get_scheduled_sampling(scheduled_sampling)
        inputs = token_inputs()
        logits, alignments = self._teacher_forced(inputs)
        self.set_layers(_alignments=alignments)  # (B, T, S), an output that `align` alone uses
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
        inputs = {name: ops.cast(inputs[name], "int32") for name in INPUTS}
        return self._teacher_forced(inputs, self._token_sampler, training=True)

    def encode(self, encoder_token_ids, max_length=None):
        values, mask, cell_state = self._encode_source(encoder_token_ids)
        return self._memory(values, mask, encoder_token_ids), self.decoder.initial_state(values, cell_state)

    def output_part(self, token_ids):
        if self.pointer:
            return super().output_part(token_ids)
        if self.output_projection is not None:
            return projection_part(self.output_projection, None, token_ids)
        return projection_part(self.target_embedding, self.output_bias, token_ids)

    def step(self, token_ids, memory, state, part=None):
        embedded = self._embed(self.target_embedding, token_ids)  # (B, E)
        previous = top_state(state["cell"])  # (B, H)
        output, context, alignment, state = self.decoder.step(embedded, memory, state)
        states = previous if self.read_previous_state else output
        logits = self._logits(states, embedded, context, alignment, memory, has_dropout=False, part=part)
        return logits, state, alignment

    def align(self, encoder_token_ids, decoder_token_ids, each_head=False):
        inputs = {"encoder_token_ids": encoder_token_ids, "decoder_token_ids": decoder_token_ids}
        if each_head:
            return self._teacher_forced(inputs, each_head=True)
        # Not an attribute: Keras would save it as a part of this model.
        return keras.Model(self.input, (self.output, self._alignments))(inputs)

    def make_train_function(self, force=False):
        # Keras calls it when `fit` and `train_on_batch` begin.
        if self._token_sampler and self.optimizer:
            self._token_sampler.follow(self.optimizer)
        return super().make_train_function(force)

    def set_arguments(self, scope, base=None):
        return super().set_arguments(scope, base=base or RecurrentSeq2Seq)

    def _encode_source(self, token_ids, training=None):
        """Ids (B, S) -> memory (B, S, M), mask (B, S), and the decoder cell's first state."""
        token_ids, mask = self.source_and_mask(token_ids)
        embedded = self._embed_all(self.source_embedding, token_ids, training)  # (B, S, E)
        values, states, final = self.encoder(embedded, mask=mask, training=training)
        if self.bridge == "zeros":
            states = None
        elif self.bridge is not None:
            states = self._bridged(values, mask, final)
        return self.memory_dropout_layer(values, training=training), mask, states

    def _bridged(self, values, mask, final):
        """s_0, from the encoder's outputs (B, S, M), or its final output (B, H)."""
        return [self.bridge(final)]

    def _teacher_forced(self, inputs, sampler: TokenSampler | None = None, each_head: bool = False, training=None):
        """Logits (B, T, V) and alignments (B, T, S), or (B, T, N, S); a sampler chooses the tokens that are read."""
        values, mask, cell_state = self._encode_source(inputs["encoder_token_ids"], training)
        token_ids = inputs["decoder_token_ids"]
        if sampler:
            memory = self._memory(values, mask, inputs["encoder_token_ids"])
            token_ids = sampler.read(token_ids, memory, self.decoder.initial_state(values, cell_state), self.step)
        embedded = self._embed_all(self.target_embedding, token_ids, training)  # (B, T, E)
        outputs, contexts, alignments = self.decoder(
            embedded, values, mask=mask, cell_state=cell_state, training=training, each_head=each_head
        )
        mean = ops.mean(alignments, axis=2) if each_head else alignments  # (B, T, S)
        if self.coverage_loss_layer is not None:
            real = self._real_steps(inputs["decoder_token_ids"])  # (B, T)
            # By position: Keras hands a keyword `mask` on, and the loss would read it from the logits.
            outputs = self.coverage_loss_layer(outputs, mean, real, training=training)
        states = outputs
        if self.read_previous_state:
            s_0 = ops.zeros_like(outputs[:, 0]) if cell_state is None else top_state(cell_state)  # (B, H)
            states = ops.concatenate([s_0[:, None], outputs[:, :-1]], axis=1)  # (B, T, H)
        source = {"token_ids": inputs["encoder_token_ids"], "mask": mask}
        return self._logits(states, embedded, contexts, mean, source, training=training), alignments

    def _real_steps(self, token_ids):
        """The mask of steps (B, T) with a label: those that read a word, or the start of a target that has words."""
        ids = self.target_special_ids
        real = ops.not_equal(token_ids, ids.pad)
        if ids.end is not None:
            real = real & ops.not_equal(token_ids, ids.end)  # what labels that are merely shifted end with
        return real & ops.any(real[:, 1:], axis=1, keepdims=True)

    def _memory(self, values, mask, token_ids):
        memory = self.decoder.memory(values, mask)
        return {**memory, "token_ids": token_ids} if self.pointer else memory

    def _embed(self, embedding, token_ids):
        if self.pointer:
            token_ids = ops.where(token_ids < embedding.input_dim, token_ids, self.target_special_ids.unknown)
        embedded = embedding(token_ids)  # (B, E), (B, S, E) or (B, T, E)
        return embedded * embedding.output_dim**0.5 if self.scale_embeddings else embedded

    def _embed_all(self, embedding, token_ids, training=None):
        """Embeddings of all steps, with their dropout."""
        embedded = self._embed(embedding, token_ids)
        if self.word_dropout_layer is not None:
            embedded = self.word_dropout_layer(embedded, token_ids, training=training)
        return self.embedding_dropout_layer(embedded, training=training)

    def _logits(self, states, embedded, contexts, alignments, source, *, has_dropout=True, part=None, training=None):
        """The read-out, the vocabulary projection and the pointer, for one step or for all T."""
        features = states if self.readout is None else self.readout(states, embedded, contexts)
        if has_dropout:  # a single step has none, even within training
            features = self.output_dropout_layer(features, training=training)
        if part is not None:
            return project(features, part)  # (B, n)
        if self.output_projection is not None:
            logits = self.output_projection(features)  # (B, V) or (B, T, V)
        else:
            logits = self.target_embedding(features, reverse=True)
            logits = logits if self.output_bias is None else self.output_bias(logits)
        if not self.pointer:
            return logits
        source = source["token_ids"], source["mask"]
        return self.pointer_generator(logits, states, embedded, contexts, alignments, *source)  # (..., V + S)


def _check_previous_state(decoder) -> None:
    """Raises ValueError for a decoder whose output is not the state of its cell."""
    cell = getattr(decoder, "cell", None)  # a stack of them has none
    if cell is None or hasattr(cell, "first_skip") or getattr(decoder, "attentional", None) is not None:
        raise ValueError(
            "Expected a decoder whose output is its cell's state with `read_previous_state=True`: a single one, "
            f"without `attentional` and skip connections. Received: {decoder.name}"
        )


def _check_pointer(model: RecurrentSeq2Seq, source_size: int, target_size: int) -> None:
    if source_size != target_size:
        raise ValueError(
            f"Expected one joint vocabulary with `pointer=True`: source words are copied by their ids. Received: "
            f"source_vocabulary_size={source_size}, target_vocabulary_size={target_size}"
        )
    if model.target_special_ids.unknown is None or model.source_length is not None:
        raise ValueError(
            "Expected special ids with an unknown one, and no `source_length`, with `pointer=True`. Received: "
            f"{model.target_special_ids} and source_length={model.source_length}"
        )
    if not model.decoder.attentions:
        raise ValueError("Expected a decoder with an attention for `pointer=True`. Received: one without")
