"""Dropout of whole words."""

import keras
from keras import ops

from keras_attn.layers.layer import Layer


@keras.saving.register_keras_serializable(package="keras_attn")
class WordDropout(Layer):
    """Sets the embeddings of whole words to zero at random, in training.

    With m_w = 0 at probability p and 1 / (1 - p) otherwise, drawn for each sentence and each word w that it has,

        y_j = m_{w_j} x_j                                        (Gal & Ghahramani 2016, section 4.2)

    A word that occurs several times in a sentence is dropped everywhere in it or nowhere. The draws take memory of
    (B, S, S), whatever the size of the vocabulary.

    Args:
        rate: p, of at least 0 and below 1.
        seed: Of the draws; None: a random one.

    Call arguments:
        inputs: Embeddings `(B, S, E)`.
        token_ids: The words they are of, `(B, S)`.
        training: bool; without training, and at rate 0, the layer returns its inputs.

    Returns:
        `(B, S, E)`.

    Mask behaviour: padding is a word like any other, which may be dropped.

    Raises:
        ValueError: for a rate out of range.

    Example:
        >>> layer = keras_attn.WordDropout(0.5, seed=1)
        >>> dropped = layer(np.ones((1, 3, 1), "float32"), np.array([[7, 5, 7]]), training=True)[0, :, 0]
        >>> bool(dropped[0] == dropped[2]), float(dropped[0]) in (0.0, 2.0)
        (True, True)

    Differences from Sennrich & Zhang 2019: they drop each occurrence of a word by itself.

    Reference: Gal, Ghahramani. A Theoretically Grounded Application of Dropout in Recurrent Neural Networks. NeurIPS
    2016, arXiv:1512.05287. Its use on source and target of little data: Sennrich, Zhang. Revisiting Low-Resource
    Neural Machine Translation: A Case Study. ACL 2019, arXiv:1905.11901, section 3.
    """

    def __init__(self, rate: float, *, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"Expected a rate of word dropout of at least 0 and below 1. Received: rate={rate}")
        self.rate = rate
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, inputs_shape, token_ids_shape):
        pass

    def call(self, inputs, token_ids, training=None):
        if not training or not self.rate:
            return inputs
        places = ops.arange(token_ids.shape[1] or ops.shape(token_ids)[1], dtype="int32")  # (S,)
        is_same = ops.equal(token_ids[:, :, None], token_ids[:, None, :])  # (B, S, S)
        first = ops.min(ops.where(is_same, places, 2**30), axis=-1)  # (B, S), where the word stands first
        draws = ops.ones(ops.shape(token_ids), self.compute_dtype)  # (B, S)
        draws = keras.random.dropout(draws, self.rate, seed=self.seed_generator)
        return inputs * ops.take_along_axis(draws, first, axis=1)[:, :, None]

    def compute_output_shape(self, inputs_shape, token_ids_shape):
        return inputs_shape
