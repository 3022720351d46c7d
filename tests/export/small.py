"""A small translator with large random weights, and lines of text that are hard to read."""

from pathlib import Path

import keras
import numpy as np

from keras_attn import Shortlist
from keras_attn.models import RNNSearch
from keras_attn.text import Tokenizer
from keras_attn.translation import Translator

NEEDS_TENSORFLOW = "TensorFlow makes and runs the graph; for other backends see tests/export/test_process.py"
SENTENCES = [
    "ein Mann läuft über die Straße .",
    "zwei Hunde spielen im Gras",
    "Eine Frau liest ein Buch , und der Mann schläft .",
    "drei Kinder laufen durch den Wald und spielen Fußball",
]
# Bytes, as a server receives them. The line of 66 words is longer than any bucket of short ones.
LINES = [
    *(sentence.encode() for sentence in SENTENCES),
    *(" ".join(reversed(sentence.split()[n:])).encode() for n in (0, 1, 2) for sentence in SENTENCES),
    b"",
    b" ",
    " \t\r\n\v\f\u00a0\u2028\u3000".encode(),
    b"\x00",
    b"ein\x00Mann",
    b"\x1b[31mzwei\x07",
    b"\xff",
    b"ein \xff\xfeMann",
    b"Hund\xc3",
    b"\xed\xa0\x80 zwei",
    b"\xf0\x9f\x98 drei",
    b"\xc0\xaf\xf4\x90\x80\x80",
    "\ufeffein Mann".encode(),
    "\ufffd \uffff \U0010ffff".encode(),
    "😀 👩‍👩‍👧 zwei".encode(),
    "Ⅷ ﬁ ǅ İ Σς".encode(),
    "зима 日本語 עברית".encode(),
    "a\u0308 \u00e4 e\u0301\u0327".encode(),
    b"  ein   Mann  ",
    b"EIN MANN",
    "▁ein▁Mann ▁".encode(),
    b"<pad> <unk> <s> </s> <0x41>",
    b"ein " * 66,
]
READ = [line.decode(errors="replace") for line in LINES]


def train_tokenizers(level: str) -> tuple[Tokenizer, Tokenizer]:
    if level == "bpe":
        return (Tokenizer.train(SENTENCES, vocabulary_size=320),) * 2
    source = Tokenizer.train(SENTENCES, level=level, lowercase=True)
    target = Tokenizer.train(["un deux trois l’été là où à été rouge vert bleu gris noir blanc"], level=level)
    return source, target


def build(level: str, model: keras.Model | None = None) -> Translator:
    """A translator with tokenizers of this level; the model is an RNNSearch unless another is given."""
    keras.utils.set_random_seed(11)
    source, target = train_tokenizers(level)
    model = model or RNNSearch(
        source.vocabulary_size,
        target.vocabulary_size,
        units=5,
        embedding_size=7,
        readout_size=11,
        attention_units=3,
        decoder_units=13,
        initializer=keras.initializers.RandomNormal(stddev=0.9),
    )
    return Translator(model, source, target, max_length_ratio=1.3, max_length_constant=2.5, trained_length=4000)


def shortlist_of(model, unknown: int = 5) -> Shortlist:
    """Random target tokens for the source tokens; each `unknown`-th has none."""
    random = np.random.default_rng(0)
    source, target = model.source_vocabulary_size, model.target_vocabulary_size
    candidates = random.integers(4, target, (source, 3))
    candidates[::2, 2] = candidates[::unknown] = -1
    return Shortlist(candidates.astype("int32"), np.array([5, 7], "int32"), target)


def run(folder: Path, calls: list) -> list[dict[str, np.ndarray]]:
    """The outputs of `[(signature, {input: values}), ...]` of a version."""
    import tensorflow as tf

    from keras_attn.export.assets import without_graph_optimizer

    answers = []
    with without_graph_optimizer():
        signatures = tf.saved_model.load(str(folder)).signatures
        for name, inputs in calls:
            specs = signatures[name].structured_input_signature[1]
            tensors = {key: tf.constant(value, specs[key].dtype) for key, value in inputs.items()}
            answers.append({key: value.numpy() for key, value in signatures[name](**tensors).items()})
    return answers
