"""Shallow fusion: a language model of the target beside the model that reads the source."""

import keras
from keras import ops

from keras_attn.backend import take
from keras_attn.text import DEFAULT_IDS


class ShallowFusion(keras.layers.Layer):
    """A logits processor that adds the log-probabilities of a language model.

        log p(y_i) = log p(y_i | y_<i, x) + weight * log p_LM(y_i | y_<i) - log Z_i        (Gulcehre 2015, section 4.1)

    Args:
        language_model: Any Keras model from token ids `(B, T)` to logits `(B, T, V)` of the next one, that at a place
            reads the ids up to it alone, such as an embedding, a GRU and a projection trained on target text.
        weight: The weight of the language model, which may be set later, too.
        start: The id that precedes the first token.

    Call arguments: those of a `logits_processor`, see `keras_attn.search.beam_search`.

    Raises:
        ValueError: when called, for a language model of another vocabulary.

    It reads all tokens so far at each step. Z_i, which the search's softmax adds, makes it a distribution again.

    Example:
        >>> language_model = keras.Sequential([keras.layers.Embedding(37, 5), keras.layers.Dense(37)])
        >>> processor = keras_attn.search.ShallowFusion(language_model, 0.3)
        >>> processor(np.zeros((2, 37), "float32"), np.zeros((2, 4), "int32"), np.array(0)).shape
        (2, 37)

    Differences from the paper: scores are normalised at each step.

    Reference: Gulcehre et al. On Using Monolingual Corpora in Neural Machine Translation. 2015, arXiv:1503.03535.
    """

    def __init__(self, language_model: keras.Model, weight: float, *, start: int = DEFAULT_IDS.start, **kwargs):
        super().__init__(**kwargs)
        if not language_model.built:  # in a compiled search its weights would be those of one program
            language_model(ops.full((1, 1), start, dtype="int32"))
        self.language_model = language_model
        # A variable: a search that is compiled would keep a number.
        options = {"dtype": "float32", "trainable": False, "autocast": False}
        self.scale = self.add_weight((), keras.initializers.Constant(weight), name="weight", **options)
        self.start = start
        self.built = True

    @property
    def weight(self) -> float:
        return float(self.scale)

    @weight.setter
    def weight(self, weight: float) -> None:
        self.scale.assign(weight)

    def call(self, logits, token_ids, position, state=None):
        first = ops.full_like(token_ids[:, :1], self.start)  # (R, 1)
        read = ops.concatenate([first, token_ids[:, :-1]], axis=1)  # (R, L)
        words = take(self.language_model(read, training=False), position, axis=1)  # (R, V)
        if words.shape[-1] != logits.shape[-1]:
            raise ValueError(
                f"Expected a language model of as many tokens as the model has, {logits.shape[-1]}. Received: one of "
                f"{words.shape[-1]}"
            )
        own, words = (ops.log_softmax(ops.cast(x, "float32"), axis=-1) for x in (logits, words))
        return own + self.scale * words
