"""The Transformer, from KerasHub's layers, on the contract that the recurrent models are on."""

import keras
from keras import ops
from keras.initializers import RandomNormal

from keras_attn.models import builders as parts
from keras_attn.models.seq2seq import Seq2Seq, arguments
from keras_attn.requirements import require


@keras.saving.register_keras_serializable(package="keras_attn")
class TransformerSeq2Seq(Seq2Seq):
    """Vaswani's Transformer: attention alone, between all words of a sentence and between the two sentences.

        x = sqrt(H) E w + PE,  PE(pos, 2i) = sin(pos / 10000^(2i / H)), PE(pos, 2i+1) = cos(...)   (3.4, 3.5)
        Attention(Q, K, V) = softmax(Q K^T / sqrt(H / N)) V, in N heads side by side               (3.2.1, 3.2.2)
        encoder layer: x <- LN(x + Attention(x, x, x)),  x <- LN(x + FFN(x))                       (3.1)
        decoder layer: the same with only earlier words to look at, and Attention(y, h, h) between them
        FFN(x) = max(0, x W_1 + b_1) W_2 + b_2                                                     (3.3, eq. 2)

    The layers are KerasHub's `SinePositionEncoding`, `TransformerEncoder` and `TransformerDecoder`. The defaults are
    the paper's base model; see `recipes/transformer.py` for sizes that suit some ten thousand sentence pairs.

    Arguments:
        source_vocabulary_size, target_vocabulary_size: Ids on either side, the four special ones included.
        units: H, the width of every layer. num_layers: Layers on either side. num_heads: N.
        feed_forward_units: Width of the hidden layer of FFN.
        normalize_first: Layer normalisation before each part instead of after its sum, and once more at the end: deep
            stacks learn so without a warm-up (Xiong 2020, arXiv:2002.04745).
        tie_embeddings: None; "target", "source" or "all", as in `RNNSearch`. The paper's is "all", with one vocabulary.
        initializer: For the matrices; embeddings are ~ N(0, 1 / H).
        dropout: Share dropped of the embeddings' sum with the positions, of each part's output, and of alignments.
        max_length: Steps that `encode` leaves room for when it is not told how many there will be.

    The alignment of `step` is the mean over the layers and heads of the decoder's attention to the source;
    `attentions` has every one. A step beyond the room that `encode` left sees the words before it and not itself.

    Raises:
        ValueError: for sizes or ties that cannot be.

    Example:
        >>> sizes = dict(units=6, num_layers=1, num_heads=2, feed_forward_units=11)
        >>> model = keras_attn.models.TransformerSeq2Seq(31, 37, **sizes)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    KerasHub imports TensorFlow wherever that is installed, on JAX and torch too; it is imported when the first of these
    models is made.

    Differences from the paper: an untied output has a bias; alignments are dropped out too, as in its authors' code.

    Reference: Vaswani et al. Attention Is All You Need. NeurIPS 2017, arXiv:1706.03762.
    """

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        *,
        units: int = 512,
        num_layers: int = 6,
        num_heads: int = 8,
        feed_forward_units: int = 2048,
        normalize_first: bool = False,
        tie_embeddings: str | None = None,
        initializer="glorot_uniform",
        dropout: float = 0.1,
        max_length: int = 256,
        **kwargs,
    ):
        given = arguments(locals())
        if units % num_heads:
            raise ValueError(f"Expected `units` to be a multiple of `num_heads`. Received: {units} and {num_heads}")
        require("tensorflow", "tensorflow", "keras_nlp", purpose="TransformerSeq2Seq")
        # Here, not above: importing KerasHub takes seconds, and imports TensorFlow.
        from keras_nlp import layers as hub

        # Layers
        options = {"intermediate_dim": feed_forward_units, "num_heads": num_heads, "dropout": dropout}
        options |= {"normalize_first": normalize_first, "kernel_initializer": initializer}
        source_embedding, target_embedding = parts.embeddings(
            source_vocabulary_size,
            target_vocabulary_size,
            units,
            RandomNormal(stddev=units**-0.5),
            tie_embeddings,
            units,
        )
        plain = keras.initializers.get(initializer)
        attributes = {
            "source_embedding": source_embedding,
            "target_embedding": target_embedding,
            # Not in half precision, which has no whole numbers above 256 (bfloat16) or 2048.
            "position_encoding": hub.SinePositionEncoding(dtype="float32", name="position_encoding"),
            "encoders": [hub.TransformerEncoder(**options, name=f"encoder_{i}") for i in range(num_layers)],
            "decoders": [hub.TransformerDecoder(**options, name=f"decoder_{i}") for i in range(num_layers)],
            "encoder_norm": keras.layers.LayerNormalization(name="encoder_norm") if normalize_first else None,
            "decoder_norm": keras.layers.LayerNormalization(name="decoder_norm") if normalize_first else None,
            "output_projection": parts.output_layer(target_vocabulary_size, plain, tie_embeddings),
            "embedding_dropout": keras.layers.Dropout(dropout, name="embedding_dropout"),
            "source_vocabulary_size": source_vocabulary_size,
            "target_vocabulary_size": target_vocabulary_size,
            "units": units,
            "num_heads": num_heads,
            "max_length": max_length,
        }
        self._hold(attributes)

        # Functional model
        source = keras.Input((None,), dtype="int32", name="encoder_token_ids")  # (B, S)
        target = keras.Input((None,), dtype="int32", name="decoder_token_ids")  # (B, T)
        values, mask, _ = self._source(source)
        x = self._embed(self.target_embedding, target)  # (B, T, H)
        for decoder in self.decoders:
            x = decoder(x, values, encoder_padding_mask=mask)  # (B, T, H)
        inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
        super().__init__(inputs=inputs, outputs=self._logits(x), **kwargs)
        self._arguments = given

    def encode(self, encoder_token_ids, max_length=None):
        values, mask, _ = self._source(encoder_token_ids)
        cross = [_keys_and_values(decoder._cross_attention_layer, values) for decoder in self.decoders]
        batch, room = ops.shape(values)[0], self.max_length if max_length is None else max_length
        shape = (batch, 2, room, self.num_heads, self.units // self.num_heads)
        caches = [ops.zeros(shape, dtype=values.dtype) for _ in self.decoders]  # (B, 2, L, N, H / N)
        position = ops.zeros_like(encoder_token_ids[:, 0], dtype="int32")  # (B,)
        return {"mask": mask, "cross": cross}, {"cache": caches, "position": position}

    def step(self, token_ids, memory, state):
        position = state["position"][:, None]  # (B, 1)
        x = self._embed(self.target_embedding, token_ids[:, None], position)  # (B, 1, H)
        x, caches, _, cross = self._decode(x, memory, state["cache"], position)
        alignment = ops.mean(cross, axis=(0, 2))[:, 0]  # (B, S)
        return self._logits(x)[:, 0], {"cache": caches, "position": state["position"] + 1}, alignment

    def align(self, encoder_token_ids, decoder_token_ids):
        memory, _ = self.encode(encoder_token_ids, max_length=1)
        x, _, _, cross = self._decode(self._embed(self.target_embedding, decoder_token_ids), memory)
        return self._logits(x), ops.mean(cross, axis=(0, 2))  # (B, T, V), (B, T, S)

    def attentions(self, inputs):
        """Which word attends to which, in every layer and head, teacher-forced.

        Args:
            inputs: As for the model, `{"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}`.

        Returns:
            dict of float32: "encoder" `(layers, B, N, S, S)`, "decoder" `(layers, B, N, T, T)` and "cross" `(layers, B,
            N, T, S)`. Rows are the words that attend and sum to 1.
        """
        source, target = (ops.convert_to_tensor(inputs[f"{side}coder_token_ids"]) for side in ("en", "de"))
        memory, _ = self.encode(source, max_length=1)
        *_, encoder = self._source(source, readable=True)
        x = self._embed(self.target_embedding, target)  # (B, T, H)
        _, _, decoder, cross = self._decode(x, memory)
        return {"encoder": encoder, "decoder": decoder, "cross": cross}

    def _embed(self, embedding, token_ids, positions=None):
        x = embedding(token_ids) * self.units**0.5  # (B, T, H)
        if positions is not None:
            positions = ops.cast(positions, "float32")  # (B, T)
        encodings = self.position_encoding(x, positions=positions)  # (B, T, H)
        return self.embedding_dropout(x + ops.cast(encodings, x.dtype))

    def _source(self, token_ids, readable=False):
        """ids (B, S) -> memory (B, S, H), mask (B, S), and, if readable, all alignments (layers, B, N, S, S)."""
        mask = ops.not_equal(token_ids, 0)
        x, alignments = self._embed(self.source_embedding, token_ids), []
        for encoder in self.encoders:
            x = encoder(x, padding_mask=mask, return_attention_scores=readable)  # (B, S, H)
            if readable:
                x, alignment = x
                alignments.append(ops.cast(alignment, "float32"))
        values = x if self.encoder_norm is None else self.encoder_norm(x)
        return values, mask, ops.stack(alignments) if readable else None

    def _decode(self, x, memory, caches=None, position=None):
        """The decoder's layers over all T words, or over one with what they kept of those before it.

        Returns:
            `x`, the caches, and the alignments to the target `(layers, B, N, T, L)` and the source `(..., T, S)`.
        """
        if caches is None:
            words = ops.arange(ops.shape(x)[1])
            visible = (words[:, None] >= words)[None]  # (1, T, T)
            here, caches = None, [None] * len(self.decoders)
        else:
            words = ops.arange(ops.shape(caches[0])[2], dtype="int32")  # (L,)
            visible = (words <= position)[:, None]  # (B, 1, L)
            here = (words == position)[:, None, :, None, None]  # (B, 1, L, 1, 1)
        found = []
        for decoder, cross, cache in zip(self.decoders, memory["cross"], caches, strict=True):
            x, *rest = _decoder_layer(decoder, x, visible, cross, memory["mask"][:, None], cache, here)
            found.append(rest)
        caches, own, cross = zip(*found, strict=True)
        return x, list(caches), ops.stack(own), ops.stack(cross)

    def _logits(self, x):
        x = x if self.decoder_norm is None else self.decoder_norm(x)  # (B, T, H)
        if self.output_projection is not None:
            return self.output_projection(x)  # (B, T, V)
        return self.target_embedding(x, reverse=True)


def _keys_and_values(attention, x):
    """What KerasHub's `CachedMultiHeadAttention` keeps of `x (B, T, H)`: (B, 2, T, N, H / N)."""
    return ops.stack([attention.key_dense(x), attention.value_dense(x)], axis=1)


def _decoder_layer(layer, x, visible, cross, cross_mask, cache, here):
    """KerasHub's `TransformerDecoder`, part by part: its own `call` neither hands out alignments nor can be served.

    It writes into its cache by `ops.slice_update`, which on TensorFlow is an XLA operation, and TensorFlow Serving
    comes with XLA switched off. So the cache is written here, and handed over as one that is complete.

    Args:
        visible: (B or 1, T, L), which words of the target each may look at.
        cross, cross_mask: Keys and values of the source (B, 2, S, N, H / N), and which are real (B, 1, S).
        cache, here: Keys and values (B, 2, L, N, H / N), and where the new ones belong (B, 1, L, 1, 1); or None.

    Returns:
        `x`, the cache, and the alignments (B, N, T, L) and (B, N, T, S), float32.
    """

    def around(part, norm, x):
        """Sum and normalisation around a part, in the order that the layer was made with."""
        if layer.normalize_first:
            return x + part(norm(x))
        return norm(x + part(x))

    kept, alignments = None, []

    def attend(attention, x, cache, mask):
        x, alignment, _ = attention(x, x, attention_mask=mask, cache=cache, return_attention_scores=True)
        alignments.append(ops.cast(alignment, "float32"))
        return x

    def attend_to_target(x):
        nonlocal kept
        kept = _keys_and_values(layer._self_attention_layer, x)
        if cache is not None:
            kept = ops.where(here, kept, cache)  # (B, 2, L, N, H / N)
        return attend(layer._self_attention_layer, x, kept, visible)

    def attend_to_source(x):
        return attend(layer._cross_attention_layer, x, cross, cross_mask)

    def feed_forward(x):
        return layer._feedforward_output_dense(layer._feedforward_intermediate_dense(x))

    x = around(attend_to_target, layer._self_attention_layer_norm, x)
    x = around(attend_to_source, layer._cross_attention_layer_norm, x)
    x = around(feed_forward, layer._feedforward_layer_norm, x)
    return x, kept, *alignments
