"""The rows of the contract of models: tiny models of every class, with fixed weights.

`tests/fixtures/weights.json` lists the names and shapes of each model's weights, by which a saved model is loaded.
`python -m tests.contracts.model_rows` writes it anew when a model is meant to change.
"""

import json
import re
from pathlib import Path

import keras
import numpy as np
from keras import ops

import keras_attn as ka
from keras_attn import models

B, S, T, VS, VT, F = 3, 7, 5, 31, 37, 2
PATH = Path(__file__).parents[1] / "fixtures" / "weights.json"
DROPOUT = {"embedding_dropout": 0.3, "memory_dropout": 0.2, "output_dropout": 0.5}
RNNSEARCH = {"units": 5, "embedding_size": 11, "readout_size": 11, "attention_units": 13, "decoder_units": 10}
LSTM = {"units": 5, "num_layers": 2, "embedding_size": 7}
GNMT = {"units": 5, "embedding_size": 7, "encoder_layers": 3, "decoder_layers": 3}
TRANSFORMER = {"units": 6, "num_layers": 2, "num_heads": 3, "feed_forward_units": 11, "dropout": 0.0}
CLASSES = {  # each with its sizes
    "rnnsearch": (models.RNNSearch, RNNSEARCH),
    "rnnencdec": (models.RNNEncoderDecoder, {"units": 5, "embedding_size": 7, "readout_size": 11}),
    "lstm_seq2seq": (models.LSTMSeq2Seq, LSTM),
    "luong": (models.LuongSeq2Seq, {**LSTM, "readout_size": 11}),
    "nematus": (models.NematusSeq2Seq, {"units": 5, "embedding_size": 7}),
    "gnmt": (models.GNMTSeq2Seq, GNMT),
    "rnmt_plus": (models.RNMTPlusSeq2Seq, {**GNMT, "units": 6, "embedding_size": 11, "num_heads": 2}),
    "hard_monotonic": (models.HardMonotonicSeq2Seq, {**LSTM, "readout_size": 11}),
    "transformer": (models.TransformerSeq2Seq, TRANSFORMER),
}
ONE_EACH = [*CLASSES]
VARIANTS = {  # the arguments of models of the class that the name begins with
    "rnnsearch, current state, all tied, dropout": {
        **DROPOUT,
        "read_previous_state": False,
        "readout_activation": "tanh",
        "tie_embeddings": "all",
        "scale_embeddings": True,
        "source_vocabulary_size": VT,
    },
    # Named, because another module may have made one before.
    "rnnsearch, local-p": {
        "attention": ka.LocalPredictiveAttention("concat", window=2, name="local_predictive_attention")
    },
    "rnnsearch, monotonic": {"attention": ka.BahdanauMonotonicAttention(13, sigmoid_noise=1.0, chunk_size=2)},
    "rnnsearch, additive heads": {"attention": ka.MultiHeadAttention(2, score="additive", name="multi_head_attention")},
    "rnnsearch, coverage": {
        "attention": ka.CoverageAttention(13, max_fertility=2.0, name="coverage_attention"),
        "coverage_loss": 1.0,
    },
    "rnnsearch, context gate": {"context_gate": "both"},
    "rnnencdec, bare context, dropout": {**DROPOUT, "project_context": False},
    "lstm_seq2seq, forwards, tied": {
        "units": 11,
        "num_layers": 1,
        "embedding_size": 11,
        "reverse_source": False,
        "tie_embeddings": "target",
        "scale_embeddings": True,
    },
    "luong, dot, not fed": {"input_feeding": False, "attention": "dot"},
    "luong, local-m, not fed": {"attention": "local_m", "input_feeding": False},
    "luong, location, forwards, dropout": {
        **DROPOUT,
        "attention": ka.LocationAttention(5),
        "layer_dropout": 0.2,
        "reverse_source": False,
    },
    "luong, location-sensitive": {"attention": "location_sensitive"},
    "luong, neural coverage": {"attention": "neural_coverage"},
    "luong, pointer, scheduled sampling": {
        "source_vocabulary_size": VT,
        "tie_embeddings": "source",
        "pointer": True,
        "scheduled_sampling": "inverse_sigmoid,k=2",
    },
    "luong, both ways": {"units": 6, "bidirectional": True},
    "nematus, lstm, one transition": {"cell": "lstm", "decoder_transitions": 1},
    "nematus, general, all tied, dropout": {
        **DROPOUT,
        "attention": "general",
        "tie_embeddings": "all",
        "scale_embeddings": True,
        "source_vocabulary_size": VT,
    },
    "nematus, bideep": {
        "encoder_layers": 2,
        "encoder_transitions": 2,
        "decoder_layers": 2,
        "decoder_transitions": 3,
        "upper_transitions": 2,
        "layer_normalization": True,
        "recurrent_dropout": 0.2,
    },
    "nematus, lstm, two stacks, normalised": {
        "cell": "lstm",
        "encoder_layers": 2,
        "encoder_order": "alternating",
        "decoder_layers": 2,
        "residual": False,
        "layer_normalization": True,
        "recurrent_dropout": 0.2,
    },
    "gnmt, after, all tied, dropout": {
        **DROPOUT,
        "units": 11,
        "embedding_size": 11,
        "attend": "after",
        "attention": "general",
        "layer_dropout": 0.2,
        "recurrent_dropout": 0.2,
        "tie_embeddings": "all",
        "source_vocabulary_size": VT,
    },
    "rnmt_plus, one layer, dots, tied, dropout": {
        **DROPOUT,
        "embedding_size": 12,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "attention": "scaled_dot",
        "layer_dropout": 0.2,
        "recurrent_dropout": 0.2,
        "tie_embeddings": "target",
    },
    "hard_monotonic, order 1, dropout": {
        **DROPOUT,
        "order": 1,
        "window": 2,
        "layer_dropout": 0.2,
        "decoder_units": 7,
    },
    "hard_monotonic, order 1, both ways": {"order": 1, "monotonic": False, "num_layers": 1},
    "transformer, normalised first, all tied, dropout": {
        "normalize_first": True,
        "dropout": 0.3,
        "max_length": T,
        "tie_embeddings": "all",
        "source_vocabulary_size": VT,
    },
}
MODELS = {
    **CLASSES,
    "ensemble": (models.Ensemble, {"members": ["rnnsearch", "luong"], "average": "probability"}),
    "ensemble, log-probabilities": (
        models.Ensemble,
        {"members": ["lstm_seq2seq", "gnmt"], "average": "log_probability"},
    ),
}
for name, given in VARIANTS.items():
    cls, sizes = CLASSES[name.partition(",")[0]]
    MODELS[name] = (cls, sizes | given)
STATEFUL = [
    "luong, local-m, not fed",
    "rnnsearch, monotonic",
    "luong, location-sensitive",
    "rnnsearch, coverage",
    "luong, neural coverage",
]


@keras.saving.register_keras_serializable(package="tests")
class TwoMemories(keras.layers.Layer):
    """Reads token ids (B, S) and frames (B, S, F), these by pairs: a pyramid of two floors, with a mask of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = keras.layers.Embedding(VS, 7, name="embedding")
        self.words = ka.BiGRUEncoder(5, name="words")
        self.pairs = keras.layers.Dense(6, "tanh", name="pairs")
        self.bridge = keras.layers.Dense(11, "tanh", name="bridge")

    def build(self, source_shape):
        self.embedding.build(source_shape["encoder_token_ids"])
        self.words.build((None, None, 7))
        self.pairs.build((None, None, 2 * F))
        self.bridge.build((None, 5))

    def call(self, source):
        mask, frames = source["encoder_token_ids"] != 0, source["frames"]
        words, _, final = self.words(self.embedding(source["encoder_token_ids"]), mask=mask)
        later = ops.pad(frames, [[0, 0], [0, 1], [0, 0]])[:, 1::2]
        pairs = self.pairs(ops.concatenate([frames[:, ::2], later], axis=-1))
        memories = {"values": [words, pairs], "mask": [mask, mask[:, ::2]], "cell_state": [self.bridge(final)]}
        return {**memories, "token_ids": source["encoder_token_ids"], "final": final}


@keras.saving.register_keras_serializable(package="tests")
class EmbeddingOfBoth(keras.layers.Embedding):
    """The embedding of a token beside an entry of the encoder's."""

    def call(self, token_ids, memory):
        final = ops.repeat(memory["final"][:, None], ops.shape(token_ids)[1], axis=1)
        return ops.concatenate([super().call(token_ids), ops.cast(final, self.compute_dtype)], axis=-1)

    def compute_output_spec(self, token_ids, memory):
        width = self.output_dim + memory["final"].shape[-1]
        return keras.KerasTensor((*token_ids.shape, width), dtype=self.compute_dtype)


@keras.saving.register_keras_serializable(package="tests")
class Head(keras.layers.Dense):
    """Logits from outputs, contexts and embeddings, and more of them for words that the decoder looks at."""

    def build(self, outputs_shape, contexts_shape, embedded_shape, **_):
        super().build((None, outputs_shape[-1] + contexts_shape[-1] + embedded_shape[-1]))
        self.input_spec = None

    def call(self, outputs, contexts, embedded, alignments=None, memory=None):
        logits = super().call(ops.concatenate([outputs, contexts, embedded], axis=-1))
        if "token_ids" not in memory:
            return logits
        words = ops.one_hot(memory["token_ids"], self.units, dtype=self.compute_dtype)  # (B, S, V)
        alignments = ops.cast(alignments, self.compute_dtype)[..., : ops.shape(words)[1]]
        return logits + ops.matmul(alignments, words)

    def compute_output_shape(self, outputs_shape, **_):
        return (*outputs_shape[:-1], self.units)


def frames_model(**options):
    """Keras' own encoder of frames, whose mask is implicit; the decoder starts from zeros."""
    frames = keras.Input((None, F))
    gru = keras.layers.GRU(5, return_sequences=True, reset_after=False, name="gru")
    encoder = keras.Model(frames, gru(keras.layers.Masking(name="masking")(frames)), name="encoder")
    decoder = ka.AttentionDecoder(
        keras.layers.GRUCell(11, reset_after=False, name="cell"),
        ka.BahdanauAttention(3, name="attention"),
        name="decoder",
    )
    embedding, head = keras.layers.Embedding(VT, 7, name="target_embedding"), Head(VT, name="head")
    return models.AttentionSeq2Seq(encoder, decoder, embedding, head, **options)


def two_memories_model(**options):
    attentions = [ka.BahdanauAttention(3, name="first"), ka.BahdanauAttention(2, name="second")]
    decoder = ka.AttentionDecoder(keras.layers.GRUCell(11, reset_after=False, name="cell"), attentions, name="decoder")
    embedding, head = EmbeddingOfBoth(VT, 7, name="target_embedding"), Head(VT, name="head")
    inputs = {"encoder_token_ids": keras.Input((None,), dtype="int32"), "frames": keras.Input((None, F))}
    encoder = TwoMemories(name="encoder")
    return models.AttentionSeq2Seq(encoder, decoder, embedding, head, inputs=inputs, **options)


ANY_SOURCE = {"attention, frames": frames_model, "attention, two memories": two_memories_model}


def make(name, /, **options):
    if name in ANY_SOURCE:
        return with_weights(ANY_SOURCE[name](**options))
    kind, sizes = MODELS[name]
    if "members" in sizes:
        return kind([make(member) for member in sizes["members"]], average=sizes["average"], **options)
    sizes = {"source_vocabulary_size": VS, "target_vocabulary_size": VT, **sizes, **options}
    if "attention" in sizes and not isinstance(sizes["attention"], str):  # a layer belongs to one model
        sizes["attention"] = type(sizes["attention"]).from_config(sizes["attention"].get_config())
    return with_weights(kind(**sizes, initializer="glorot_uniform"))


def with_weights(model):
    for i, weight in enumerate(model.trainable_weights):  # biases too, and the same on every backend
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i))
    return model


def some_inputs():
    """Three sentences: a whole one, one that is padded on both sides, and a word."""
    rng = np.random.default_rng(7)
    source = rng.integers(4, VS, (B, S)).astype("int32")
    target = rng.integers(4, VT, (B, T)).astype("int32")
    source[1, 4:] = 0
    source[2, 1:] = 0
    target[1, 3:] = 0
    return {"encoder_token_ids": source, "decoder_token_ids": target}


def inputs_of(name):
    """The same sentences for a model of that name, as frames (B, S, F) where it reads them."""
    inputs = some_inputs()
    source = inputs["encoder_token_ids"]
    frames = np.where(source[..., None] > 0, np.random.default_rng(11).normal(size=(B, S, F)), 0).astype("float32")
    if name == "attention, frames":
        return {"encoder_inputs": frames, "decoder_token_ids": inputs["decoder_token_ids"]}
    return inputs | ({"frames": frames} if name in ANY_SOURCE else {})


def mask_of(name, inputs):
    """The mask of the memory, or of all of them side by side."""
    if name == "attention, frames":
        return inputs["encoder_inputs"].any(-1)
    mask = inputs["encoder_token_ids"] != 0
    return np.concatenate([mask, mask[:, ::2]], axis=1) if name in ANY_SOURCE else mask


def values_of(model):
    return {weight.path: ops.convert_to_numpy(weight) for weight in model.trainable_weights}


def weights_of(name):
    return {w.path: list(w.shape) for w in make(name).weights if not w.path.endswith("seed_generator_state")}


if __name__ == "__main__":
    text = json.dumps({name: weights_of(name) for name in MODELS}, indent=1)
    PATH.write_text(re.sub(r"\[\s*([\d,\s]*?)\s*\]", lambda m: f"[{' '.join(m[1].split())}]", text) + "\n")
