"""The contract of a model, and the recurrent encoder-decoder that all recurrent models are made of."""

from typing import Any

import keras
from keras import ops

from keras_attn.backend import scan
from keras_attn.layers import top_state


class Seq2Seq(keras.Model):
    """A functional model from source and target ids to logits, which can also take the target one step at a time.

        model({"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}) -> logits (B, T, V)      (teacher-forced)
        model.encode(encoder_token_ids (B, S), max_length=None) -> memory, state
        model.step(token_ids (B,), memory, state) -> logits (B, V), state, alignment (B, S)
        model.align(encoder_token_ids, decoder_token_ids) -> logits (B, T, V), alignments (B, T, S)

    `memory` is a dict, constant for the sentence, with "mask" `(B, S)` among its entries; `state` is what changes from
    step to step; both are nested structures of tensors with leading axis B. T calls of `step` give the logits of the
    teacher-forced call, and `align` gives both with the alignments of all steps. Nothing else about a model is known to
    search, translation, serving or plots.

    `max_length` says how many steps will be taken at most, for a model whose state grows with them; None: as many as
    the model allows. Recurrent models need not know.

    Ids: 0 pad, 1 unknown, 2 start, 3 end. Source rows end in the end token; target inputs begin with the start token.
    """

    source_vocabulary_size: int
    target_vocabulary_size: int

    def encode(self, encoder_token_ids, max_length: int | None = None) -> tuple[dict[str, Any], Any]:
        raise NotImplementedError(f"{type(self).__name__} must implement `encode(encoder_token_ids)`.")

    def step(self, token_ids, memory, state) -> tuple[Any, Any, Any]:
        raise NotImplementedError(f"{type(self).__name__} must implement `step(token_ids, memory, state)`.")

    def align(self, encoder_token_ids, decoder_token_ids) -> tuple[Any, Any]:
        """By T calls of `step`; a model that can look back from all steps at once does it in one pass."""
        memory, state = self.encode(encoder_token_ids)

        def step(state, token_ids):
            logits, state, alignment = self.step(token_ids, memory, state)
            return state, (logits, alignment)

        _, (logits, alignments) = scan(step, state, ops.transpose(decoder_token_ids))
        return ops.transpose(logits, (1, 0, 2)), ops.transpose(alignments, (1, 0, 2))  # (B, T, V), (B, T, S)

    def _hold(self, attributes: dict[str, Any]) -> None:
        """Attributes that a constructor needs before the functional model is there, which tracks the layers."""
        for name, value in attributes.items():
            object.__setattr__(self, name, value)  # torch refuses modules on an object not yet initialised

    def get_config(self):
        """The constructor's arguments, from which a model is made anew; its graph says nothing that they do not."""
        return {**self._arguments, "name": self.name, "trainable": self.trainable}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


def arguments(scope: dict[str, Any]) -> dict[str, Any]:
    """A constructor's arguments, serialised, from its `locals()` in the first line: no second list can fall behind."""
    given = {name: value for name, value in scope.items() if name not in ("self", "kwargs", "__class__")}
    return {name: keras.saving.serialize_keras_object(value) for name, value in given.items()}


class RecurrentSeq2Seq(Seq2Seq):
    """Embeddings, an encoder, an `AttentionDecoder`, a read-out and an output projection, put together.

    Arguments:
        arguments: What the subclass was made with (`arguments(locals())`), its config.
        source_embedding, target_embedding: ids to vectors; one object for both ties them.
        encoder: `(embeddings, mask) -> values (B, S, M), states, final (B, H)`, such as `RNNEncoder`, or
            `BiGRUEncoder`, whose `final` is the backward state.
        bridge: From `final` to s_0 `(B, H)`; None: the decoder's cell starts from the encoder's `states`.
        decoder: An `AttentionDecoder`.
        readout: `(state, embedding, context) -> features`, such as `DeepOutput`; None: the decoder's output itself.
        output: features to logits; None: the transposed target embedding (`ReversibleEmbedding`).
        embedding_dropout, memory_dropout, output_dropout: Shares dropped from embeddings, from the encoder's memory,
            and from the features that the logits are made of.
        read_previous_state: The read-out sees s_{i-1} (Bahdanau 2015, A.2.2) rather than s_i.
        scale_embeddings: Embeddings enter times the root of their width (Vaswani 2017, section 3.4).

    The maths is written once: `_source` and `_features` serve the functional graph and the single step alike.
    """

    def __init__(
        self,
        arguments: dict[str, Any],
        *,
        source_embedding,
        target_embedding,
        encoder,
        decoder,
        bridge=None,
        readout=None,
        output=None,
        embedding_dropout: float = 0.0,
        memory_dropout: float = 0.0,
        output_dropout: float = 0.0,
        read_previous_state: bool = False,
        scale_embeddings: bool = False,
        **kwargs,
    ):
        # Layers
        attributes = {
            "source_embedding": source_embedding,
            "target_embedding": target_embedding,
            "encoder": encoder,
            "bridge": bridge,
            "decoder": decoder,
            "readout": readout,
            "output_projection": output,
            "embedding_dropout": keras.layers.Dropout(embedding_dropout, name="embedding_dropout"),
            "memory_dropout": keras.layers.Dropout(memory_dropout, name="memory_dropout"),
            "output_dropout": keras.layers.Dropout(output_dropout, name="output_dropout"),
            "read_previous_state": read_previous_state,
            "embedding_scale": source_embedding.output_dim**0.5 if scale_embeddings else None,
            "source_vocabulary_size": source_embedding.input_dim,
            "target_vocabulary_size": target_embedding.input_dim,
        }
        self._hold(attributes)

        # Functional model
        source = keras.Input((None,), dtype="int32", name="encoder_token_ids")  # (B, S)
        target = keras.Input((None,), dtype="int32", name="decoder_token_ids")  # (B, T)
        values, mask, cell_state = self._source(source)
        embedded = self.embedding_dropout(self._embed(self.target_embedding, target))  # (B, T, E)
        outputs, contexts, alignments = self.decoder(embedded, values, mask=mask, cell_state=cell_state)
        object.__setattr__(self, "_alignments", alignments)  # (B, T, S), an output that only `align` asks for
        states = outputs
        if read_previous_state:
            s_0 = top_state(cell_state)  # (B, H)
            states = ops.concatenate([s_0[:, None], outputs[:, :-1]], axis=1)  # (B, T, H)
        logits = self._logits(states, embedded, contexts)
        inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
        super().__init__(inputs=inputs, outputs=logits, **kwargs)
        self._arguments = arguments

    def encode(self, encoder_token_ids, max_length=None):
        values, mask, cell_state = self._source(encoder_token_ids)
        return self.decoder.memory(values, mask), self.decoder.initial_state(values, cell_state)

    def step(self, token_ids, memory, state):
        embedded = self._embed(self.target_embedding, token_ids)  # (B, E)
        previous = top_state(state["cell"])  # (B, H)
        output, context, alignment, state = self.decoder.step(embedded, memory, state)
        logits = self._logits(previous if self.read_previous_state else output, embedded, context)
        return logits, state, alignment

    def align(self, encoder_token_ids, decoder_token_ids):
        # Not kept: Keras would save a model that hangs on this one, and lay out its file by it.
        aligned = keras.Model(self.input, (self.output, self._alignments))
        return aligned({"encoder_token_ids": encoder_token_ids, "decoder_token_ids": decoder_token_ids})

    def _source(self, token_ids):
        """ids (B, S) -> memory (B, S, M), mask (B, S), the cell's first state, s_0 at its top."""
        mask = ops.not_equal(token_ids, 0)
        embedded = self.embedding_dropout(self._embed(self.source_embedding, token_ids))  # (B, S, E)
        values, states, final = self.encoder(embedded, mask=mask)
        return self.memory_dropout(values), mask, states if self.bridge is None else [self.bridge(final)]

    def _embed(self, embedding, token_ids):
        embedded = embedding(token_ids)  # (B, E), (B, S, E) or (B, T, E)
        return embedded if self.embedding_scale is None else embedded * self.embedding_scale

    def _logits(self, states, embedded, contexts):
        """The read-out and the vocabulary projection, for one step or for all T at once."""
        features = states if self.readout is None else self.readout(states, embedded, contexts)
        features = self.output_dropout(features)
        if self.output_projection is not None:
            return self.output_projection(features)  # (B, V) or (B, T, V)
        return self.target_embedding(features, reverse=True)
