"""The Transformer, on the same contract as the recurrent models."""

import keras
from keras import ops
from keras.initializers import RandomNormal

from keras_attn.layers import TransformerDecoder, WordDropout, check_size, kerashub_layers, project, projection_part
from keras_attn.models.builders import make_embeddings, make_output_projection
from keras_attn.models.seq2seq import INPUTS, Seq2Seq, token_inputs


@keras.saving.register_keras_serializable(package="keras_attn")
class TransformerSeq2Seq(Seq2Seq):
    """Vaswani's Transformer: an encoder and a decoder of attention and feed-forward layers.

        x = sqrt(H) E w + PE,  PE(pos, 2i) = sin(pos / 10000^(2i / H)), PE(pos, 2i+1) = cos(...)   (3.4, 3.5)
        Attention(Q, K, V) = softmax(Q K^T / sqrt(H / N)) V   in N heads                           (3.2.1, 3.2.2)
        encoder layer: x <- LN(x + Attention(x, x, x)),  x <- LN(x + FFN(x))                       (3.1)
        decoder layer: the same over x_1 .. x_t, and Attention(x, h, h) in between
        FFN(x) = max(0, x W_1 + b_1) W_2 + b_2                                                     (3.3, eq. 2)

    The layers are KerasHub's `SinePositionEncoding` and `TransformerEncoder`, and our `TransformerDecoder`, made of
    KerasHub's `CachedMultiHeadAttention`. The defaults are the paper's base model; see `recipes/transformer.py` for
    sizes that suit some ten thousand sentence pairs.

    Args:
        source_vocabulary_size, target_vocabulary_size: Vocabulary sizes, including the four special ids.
        units: H, the width of every layer.
        num_layers: Layers of the encoder, and of the decoder.
        num_heads: N.
        feed_forward_units: Width of the hidden layer of FFN.
        normalize_first: Layer normalisation before each part instead of after its sum, and once more at the end. Deep
            stacks then learn without a warm-up (Xiong 2020, arXiv:2002.04745).
        tie_embeddings: None; "target", "source" or "all", as in `RNNSearch`. The paper's is "all", with one vocabulary.
        initializer: For the matrices; embeddings are ~ N(0, 1 / H).
        dropout: Dropout rate of embeddings plus positions, of each part's output, and of the alignments.
        word_dropout: Rate of `WordDropout` of source and target embeddings; positions stay.
        max_length: Steps that the cache of `encode` has room for if `encode` has no `max_length`.
        source_special_ids, target_special_ids, mask_padding, source_length: As in `Seq2Seq`.
        name, trainable: As in `keras.layers.Layer`.
        dtype: As in `keras.layers.Layer`, for every layer but the position encoding: half precision has no integers
            above 256 (bfloat16) or 2048 (float16), so it stays float32.

    The alignment of `step` is the mean over the layers and heads of the decoder's attention to the source; `attentions`
    returns each of them. A step beyond the room in the cache attends to the words before it and not to itself.

    Raises:
        ModuleNotFoundError: if KerasHub is not installed.
        ValueError: for an unknown argument, or sizes and ties that do not fit together.

    Example:
        >>> sizes = dict(units=6, num_layers=1, num_heads=2, feed_forward_units=11)
        >>> model = keras_attn.models.TransformerSeq2Seq(31, 37, **sizes)
        >>> ids = {"encoder_token_ids": np.ones((2, 3), "int32"), "decoder_token_ids": np.ones((2, 4), "int32")}
        >>> model(ids).shape
        (2, 4, 37)

    Differences from the paper: an untied output has a bias; dropout acts on alignments too, as in its authors' code.

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
        word_dropout: float = 0.0,
        max_length: int = 256,
        **kwargs,
    ):
        dtype = self.set_arguments(locals())
        for name, size in (("num_heads", num_heads), ("num_layers", num_layers), ("max_length", max_length)):
            check_size(name, size)
        if units % num_heads:
            raise ValueError(f"Expected `units` to be a multiple of `num_heads`. Received: {units} and {num_heads}")
        hub = kerashub_layers()

        # Layers, in an order that stays: it decides the initial weights that a seed gives
        vectors = RandomNormal(stddev=units**-0.5)
        source_embedding, target_embedding = make_embeddings(
            source_vocabulary_size, target_vocabulary_size, units, vectors, tie_embeddings, units, dtype
        )
        kernel = keras.initializers.get(initializer)
        options = {"num_heads": num_heads, "dropout": dropout, "normalize_first": normalize_first}
        options |= {"kernel_initializer": initializer, "dtype": dtype}

        def normalization(name):
            return keras.layers.LayerNormalization(dtype=dtype, name=name) if normalize_first else None

        self.set_layers(
            source_embedding=source_embedding,
            target_embedding=target_embedding,
            position_encoding=hub.SinePositionEncoding(dtype="float32", name="position_encoding"),
            encoders=[
                hub.TransformerEncoder(intermediate_dim=feed_forward_units, **options, name=f"encoder_{i}")
                for i in range(num_layers)
            ],
            decoders=[
                TransformerDecoder(feed_forward_units=feed_forward_units, **options, name=f"decoder_{i}")
                for i in range(num_layers)
            ],
            encoder_norm=normalization("encoder_norm"),
            decoder_norm=normalization("decoder_norm"),
            output_projection=make_output_projection(self, kernel, dtype),
            embedding_dropout_layer=keras.layers.Dropout(dropout, dtype=dtype, name="embedding_dropout"),
            word_dropout_layer=WordDropout(word_dropout, dtype=dtype, name="word_dropout") if word_dropout else None,
        )

        # Functional model
        inputs = token_inputs()
        values, mask, _ = self._encode_source(inputs["encoder_token_ids"])
        x = self._embed(target_embedding, inputs["decoder_token_ids"])  # (B, T, H)
        for decoder in self.decoders:
            x = decoder(x, values, mask=mask)  # (B, T, H)
        super().__init__(inputs, self._logits(x), **kwargs)

    def encode(self, encoder_token_ids, max_length=None):
        values, mask, _ = self._encode_source(encoder_token_ids)
        source = [decoder.source_cache(values) for decoder in self.decoders]
        room = self.max_length if max_length is None else max_length
        shape = (ops.shape(values)[0], 2, room, self.num_heads, self.units // self.num_heads)
        target = [ops.zeros(shape, dtype=values.dtype) for _ in self.decoders]  # (B, 2, L, N, H / N)
        position = ops.zeros_like(encoder_token_ids[:, 0], dtype="int32")  # (B,)
        return {"mask": mask, "cross": source}, {"cache": target, "position": position}

    def output_part(self, token_ids):
        return projection_part(self.output_projection or self.target_embedding, None, token_ids)

    def step(self, token_ids, memory, state, part=None):
        position = state["position"]  # (B,)
        x = self._embed(self.target_embedding, token_ids[:, None], position[:, None])  # (B, 1, H)
        caches, alignments = [], []
        for decoder, source, target in zip(self.decoders, memory["cross"], state["cache"], strict=True):
            cache = {"source": source, "target": target, "position": position}
            x, (_, alignment), cache = decoder(x, mask=memory["mask"], cache=cache)  # (B, 1, H)
            caches.append(cache["target"])
            alignments.append(alignment)
        alignment = ops.mean(ops.stack(alignments), axis=(0, 2))[:, 0]  # (B, S)
        return self._logits(x, part)[:, 0], {"cache": caches, "position": position + 1}, alignment

    def align(self, encoder_token_ids, decoder_token_ids, each_head=False):
        x, cross = self._teacher_forced(encoder_token_ids, decoder_token_ids)
        if not each_head:
            return self._logits(x), ops.mean(cross, axis=(0, 2))  # (B, T, V), (B, T, S)
        heads = ops.transpose(cross, (1, 3, 0, 2, 4))  # (B, T, layers, heads, S)
        batch, length, *_, source = ops.shape(heads)
        return self._logits(x), ops.reshape(heads, (batch, length, len(self.decoders) * self.num_heads, source))

    def align_in_training(self, inputs):
        inputs = self.cast_inputs(inputs)
        x, cross = self._teacher_forced(*(inputs[name] for name in INPUTS), training=True)
        return self._logits(x), ops.mean(cross, axis=(0, 2))

    def attentions(self, inputs):
        """Teacher-forced alignments of every layer and head.

        Args:
            inputs: As for the model, `{"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}`.

        Returns:
            dict of float32: "encoder" `(layers, B, N, S, S)`, "decoder" `(layers, B, N, T, T)` and "cross" `(layers, B,
            N, T, S)`. Rows belong to the attending words and sum to 1.
        """
        source, target = (ops.convert_to_tensor(inputs[f"{side}coder_token_ids"]) for side in ("en", "de"))
        values, mask, encoder = self._encode_source(source, return_alignments=True)
        _, decoder, cross = self._decode(self._embed(self.target_embedding, target), values, mask)
        return {"encoder": encoder, "decoder": decoder, "cross": cross}

    def _teacher_forced(self, encoder_token_ids, decoder_token_ids, training=None):
        """All T steps: x (B, T, H), and the alignments (layers, B, N, T, S)."""
        values, mask, _ = self._encode_source(encoder_token_ids, training=training)
        x = self._embed(self.target_embedding, decoder_token_ids, training=training)
        x, _, cross = self._decode(x, values, mask, training=training)
        return x, cross

    def _embed(self, embedding, token_ids, positions=None, training=None):
        x = embedding(token_ids) * self.units**0.5  # (B, T, H)
        if self.word_dropout_layer is not None:
            x = self.word_dropout_layer(x, token_ids, training=training)
        if positions is not None:
            positions = ops.cast(positions, "float32")  # (B, T)
        encodings = self.position_encoding(x, positions=positions)  # (B, T, H)
        return self.embedding_dropout_layer(x + ops.cast(encodings, x.dtype), training=training)

    def _encode_source(self, token_ids, return_alignments=False, training=None):
        """Ids (B, S) -> memory (B, S, H), mask (B, S), and None or the alignments (layers, B, N, S, S)."""
        token_ids, mask = self.source_and_mask(token_ids)
        x, alignments = self._embed(self.source_embedding, token_ids, training=training), []
        options = {"padding_mask": mask, "return_attention_scores": return_alignments, "training": training}
        for encoder in self.encoders:
            x = encoder(x, **options)  # (B, S, H)
            if return_alignments:
                x, alignment = x
                alignments.append(ops.cast(alignment, "float32"))
        values = x if self.encoder_norm is None else self.encoder_norm(x)
        return values, mask, ops.stack(alignments) if return_alignments else None

    def _decode(self, x, values, mask, training=None):
        """All T steps: x (B, T, H), and the alignments (layers, B, N, T, T) and (layers, B, N, T, S)."""
        alignments = []
        for decoder in self.decoders:
            x, of_layer = decoder(x, values, mask=mask, return_alignments=True, training=training)  # (B, T, H)
            alignments.append(of_layer)
        target, source = zip(*alignments, strict=True)
        return x, ops.stack(target), ops.stack(source)

    def _logits(self, x, part=None):
        x = x if self.decoder_norm is None else self.decoder_norm(x)  # (B, T, H)
        if part is not None:
            return project(x, part)  # (B, T, n)
        if self.output_projection is not None:
            return self.output_projection(x)  # (B, T, V)
        return self.target_embedding(x, reverse=True)
