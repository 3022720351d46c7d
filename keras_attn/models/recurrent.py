"""The recurrent encoder-decoder: the parts that RNNsearch, Luong's model and their siblings put together."""

import keras
from keras import ops

from keras_attn.layers import PointerGenerator, WordDropout, project, projection_part
from keras_attn.models.attention_seq2seq import AttentionSeq2Seq
from keras_attn.models.seq2seq import SOURCE_IDS


class RecurrentSeq2Seq(AttentionSeq2Seq):
    """An `AttentionSeq2Seq` of text: embeddings, encoder, `AttentionDecoder`, read-out and output projection.

    A subclass makes the layers; see `RNNSearch`. It takes the `shared_arguments` as keywords and passes them on.
    Without a subclass a saved model cannot be loaded.

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
        scale_embeddings: Multiplies embeddings by sqrt(m), m their width (Vaswani 2017, section 3.4): N(0, 1 / m) suits
            tied outputs but is too small as input, above all for a stack of LSTMs.
        pointer: Words may be copied from the source (See et al. 2017, section 2.2): the logits are over the extended
            vocabulary of `PointerGenerator`, V + S wide, and ids V .. V + S - 1 are temporary ones, as
            `ParallelDataset.from_text(..., pointer=True)` gives them. Needs one joint vocabulary.
        read_previous_state, scheduled_sampling, coverage_loss: As in `AttentionSeq2Seq`.
        source_special_ids, target_special_ids, mask_padding, source_length, name, trainable, dtype: As in `Seq2Seq`.

    Raises:
        ValueError: with `pointer`, for embeddings of different vocabularies; with it or a `coverage_loss`, without an
            attention; for a negative `coverage_loss`.

    """

    source_name = SOURCE_IDS

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
        scale_embeddings: bool = False,
        pointer: bool = False,
        dtype=None,
        **kwargs,
    ):
        # Layers
        def dropout(name, rate):
            return keras.layers.Dropout(rate, dtype=dtype, name=name)

        self.set_layers(
            source_embedding=source_embedding,
            bridge=bridge,
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
            scale_embeddings=scale_embeddings,
            pointer=pointer,
            pointer_generator=PointerGenerator(dtype=dtype, name="pointer") if pointer else None,
        )
        if pointer:
            _check_pointer(self, decoder, source_embedding.input_dim, target_embedding.input_dim)
        source = keras.KerasTensor((None, None), dtype="int32")
        super().__init__(
            encoder, decoder, target_embedding, None, readout=readout, inputs=source, dtype=dtype, **kwargs
        )

    def output_part(self, token_ids):
        if self.pointer:
            return super().output_part(token_ids)
        if self.output_projection is not None:
            return projection_part(self.output_projection, None, token_ids)
        return projection_part(self.target_embedding, self.output_bias, token_ids)

    def set_arguments(self, scope, base=None):
        if not 0 <= (rate := scope.get("recurrent_dropout", 0.0)) < 1:  # Keras' cells would clip it
            raise ValueError(f"Expected `recurrent_dropout` from 0 to below 1. Received: recurrent_dropout={rate}")
        return super().set_arguments(scope, base=base or RecurrentSeq2Seq)

    def _encode_source(self, source, training=None):
        token_ids, mask = self.source_and_mask(source)
        embedded = self._embed_all(self.source_embedding, token_ids, training)  # (B, S, E)
        values, states, final = self.encoder(embedded, mask=mask, training=training)
        if self.bridge == "zeros":
            states = None
        elif self.bridge is not None:
            states = self._bridged(values, mask, final)
        values = self.memory_dropout_layer(values, training=training)
        encoded = {"values": values, "mask": mask, "cell_state": states}
        return {**encoded, "token_ids": source} if self.pointer else encoded

    def _bridged(self, values, mask, final):
        """s_0, from the encoder's outputs (B, S, M), or its final output (B, H)."""
        return [self.bridge(final)]

    def _embed_target(self, token_ids, memory, training=None):
        if len(token_ids.shape) == 1:
            return self._embed(self.target_embedding, token_ids)
        return self._embed_all(self.target_embedding, token_ids, training)

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

    def _logits(self, states, embedded, contexts, alignments, memory, *, has_dropout=True, part=None, training=None):
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
        source = memory["token_ids"], memory["mask"]
        return self.pointer_generator(logits, states, embedded, contexts, alignments, *source)  # (..., V + S)


def _check_pointer(model: RecurrentSeq2Seq, decoder, source_size: int, target_size: int) -> None:
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
    if not decoder.attentions:
        raise ValueError("Expected a decoder with an attention for `pointer=True`. Received: one without")
