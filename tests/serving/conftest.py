"""A small translator with large random weights, exported once for the whole folder."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import keras
import pytest

from keras_attn.export import export_translator
from keras_attn.models import RNNSearch
from keras_attn.text import Tokenizer
from keras_attn.translation import Translator
from tests.serving import loader

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
REPORT = {"recipe": "rnnsearch", "source": "de", "target": "fr", "bleu": {"score": 12.5, "signature": "s"}, "x": 1}
READ = [line.decode(errors="replace") for line in LINES]


@dataclass(frozen=True)
class Exported:
    translator: Translator
    root: Path
    folder: Path
    expected: list  # the translations of READ by `generate`


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


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("others export in a process with TensorFlow: see test_custom_modules.py")
    translator = build("bpe")
    root = tmp_path_factory.mktemp("saved_models") / "bpe"
    folder = export_translator(translator, root, beam_size=3, sentences=SENTENCES, report=REPORT)
    return Exported(translator, root, folder, translator.generate(READ, beam_size=3, return_alignments=False))


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """The C program, which loads a SavedModel as the stock server does."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not here to build the C program")
    return loader.build(tmp_path_factory.mktemp("loader"))


@pytest.fixture(scope="session")
def live(tmp_path_factory):
    """A `keras-attn serve` process for a hand-made model, shared by all tests that do not stop it."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the server is TensorFlow's alone; it is tested on that backend")
    from tests.serving import served

    folder = tmp_path_factory.mktemp("live") / "mirror"
    served.save(folder / "1")
    with served.serving(folder) as found:
        yield found
