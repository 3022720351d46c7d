"""Graphemes to phonemes: `G2P`, a lexicon with a model behind it."""

import re
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from keras_attn.pronunciation.alphabets import alphabet_of, converted
from keras_attn.saving import LEXICON, locate
from keras_attn.search import SearchOptions
from keras_attn.text import APOSTROPHES, iterate_lines
from keras_attn.translation import TextSearch

_PLAIN = str.maketrans(dict.fromkeys(APOSTROPHES, "'"))


def word_key(word: str) -> str:
    """Returns the form in which a lexicon has a word: NFC, lower case, with plain apostrophes."""
    return unicodedata.normalize("NFC", word).lower().translate(_PLAIN)


def read_lexicon(lexicon: str | PathLike | Mapping[str, str | list[str]]) -> dict[str, tuple[str, ...]]:
    """Returns the pronunciations of each word, in their order.

    Args:
        lexicon: A file, plain or packed: lines "word, tab, phones", or as CMUdict's "word phones" with blanks between,
            variants as "word(2)", comments after "#" or ";;;". Or a dict from words to a pronunciation or a list.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a word without phones.

    Example:
        >>> keras_attn.pronunciation.read_lexicon({"Keras": "K EH R AH S"})
        {'keras': ('K EH R AH S',)}
    """
    entries: dict[str, list[str]] = {}
    if isinstance(lexicon, Mapping):
        for word, texts in lexicon.items():
            entries.setdefault(word_key(word), []).extend([texts] if isinstance(texts, str) else texts)
        return {word: tuple(texts) for word, texts in entries.items()}
    for number, line in enumerate(iterate_lines(Path(lexicon)), 1):
        line = re.sub(r"^;;;.*| #.*", "", line).strip()
        if not line:
            continue
        word, _, phones = line.partition("\t") if "\t" in line else line.partition(" ")
        if not phones.strip():
            raise ValueError(f"Expected a word and its phones in line {number:,} of {lexicon}. Received: {line[:80]!r}")
        word = re.sub(r"(?<=.)\(\d+\)$", "", word.strip())
        variants = entries.setdefault(word_key(word), [])
        if (text := " ".join(phones.split())) not in variants:
            variants.append(text)
    return {word: tuple(texts) for word, texts in entries.items()}


_WORD = re.compile(r"[^\W_]+(?:['\u2019.-][^\W_]+)*", re.UNICODE)
_DIGITS = re.compile(r"[0-9]")


@dataclass(frozen=True, eq=False, repr=False)
class Pronunciation:
    """One pronunciation of a `word`.

    `text` has the phones with blanks between. `origin` is "lexicon" or "model". `probability` is the model's, 1 for an
    entry of a lexicon. `alignment` `(T, S)` is that of its phones and the word's letters, the end tokens included, or
    None from a lexicon. `unknown` are letters of the word that the model has never seen.
    """

    word: str
    text: str
    origin: str
    probability: float = 1.0
    alignment: np.ndarray | None = None
    unknown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        unknown = f", unknown {' '.join(self.unknown)}" if self.unknown else ""
        return f"<Pronunciation of {self.word!r}: {self.text}, {self.origin} {self.probability:.3g}{unknown}>"


class G2P:
    """Pronounces words and sentences: by a lexicon, where it has the word, and else by a model.

    Args:
        translator: From letters to phones: a `Translator` or `keras_attn.runtime.OnnxTranslator` whose source tokenizer
            cuts words itself (`Tokenizer.with_letters`; one that does not is wrapped).
        lexicons: Those that are asked before the model, the first one first; each as `read_lexicon` takes it.
        alphabet: "arpabet", "ipa" or "x-sampa", in which pronunciations are given; None: the model's.
        tag: Of a model of several languages, the tag that words begin with, such as "<2ita>".
        normalize: A function of a sentence, called first, such as one that spells out numbers.

    If the model has no stress, that of lexicon entries is left out. Words of a sentence are runs of letters and digits,
    with apostrophes, hyphens and full stops inside; all else stays in its place.

    Raises:
        ValueError: if an alphabet, a tag or a lexicon is wrong.

    Example:
        >>> g2p = keras_attn.G2P.from_preset("g2p_en_us")
        >>> g2p("hello")
        'HH AH0 L OW1'
        >>> g2p("Hello, Bahdanau!")
        'HH AH0 L OW1, B AA1 D AH0 N AW0!'
        >>> keras_attn.G2P.from_preset("g2p_en_us", alphabet="ipa")(["read", "reads"])
        ['ɹ ˈɛ d', 'ɹ ˈi d z']
    """

    def __init__(
        self,
        translator: TextSearch,
        lexicons: Sequence[str | PathLike | Mapping[str, str | list[str]]] = (),
        *,
        alphabet: str | None = None,
        tag: str | None = None,
        normalize: Callable[[str], str] | None = None,
    ):
        letters = translator.source_tokenizer
        tags = [token for token in letters.vocabulary if token.startswith("<2")]
        if (tag is None and tags) or (tag is not None and tag not in tags):
            expected = f"tag to be one of {', '.join(tags)}" if tags else "no tag for a model of one language"
            raise ValueError(f"Expected {expected}. Received: tag={tag!r}")
        self.translator = translator
        self.lexicons = [read_lexicon(lexicon) for lexicon in lexicons]
        self.own_alphabet = alphabet_of(translator.target_tokenizer.vocabulary)
        self.alphabet = alphabet or self.own_alphabet
        self.tag = tag
        self.normalize = normalize
        self._letters = letters if letters.level == "letter" else letters.with_letters()
        self._unknown = self._letters.special_ids.unknown
        self._has_stress = any(_DIGITS.search(token) for token in translator.target_tokenizer.vocabulary)
        self._converted("")  # refuses a wrong alphabet now

    @classmethod
    def from_preset(cls, preset: str | PathLike, lexicons: Sequence = (), **options) -> "G2P":
        """Loads a preset with its lexicon, if it has one.

        Args:
            preset: As `Translator.from_preset` takes it.
            lexicons: Lexicons that are asked before that of the preset.
            **options: The other arguments of `G2P`.

        Raises:
            FileNotFoundError, ValueError: see `Translator.from_preset`.
        """
        from keras_attn.translation import Translator  # the other translators need no Keras

        folder = locate(preset)
        own = [path] if (path := Path(folder) / LEXICON).is_file() else []
        return cls(Translator.from_preset(folder), [*lexicons, *own], **options)

    def __call__(self, text: str | Sequence[str]) -> str | list[str]:
        """Returns the best pronunciation of a word or sentence, or of each of a list."""
        if not isinstance(text, str):
            return self._sentences([str(one) for one in text])
        return self._sentences([text])[0]

    def pronounce(
        self, words: str | Sequence[str], *, n_best: int = 1, beam_size: int | None = None
    ) -> list[Pronunciation] | list[list[Pronunciation]]:
        """Returns the pronunciations of a word, or of each of a list, best first.

        A word of a lexicon has its entries, whatever `n_best` is; any other the `n_best` of the model. A word without
        any letter that the model knows has one, with the text "".

        Args:
            words: A word, or a list of them. A blank one has no pronunciation.
            n_best: Of the model.
            beam_size: Of its search; None: that of `Translator.generate`, or `n_best` if that is more.
        """
        if isinstance(words, str):
            return self.pronounce([words], n_best=n_best, beam_size=beam_size)[0]
        found: dict[str, list[Pronunciation]] = {}
        for word in dict.fromkeys(words):
            if not word.strip():
                found[word] = []
            elif texts := self._entry(word):
                found[word] = [Pronunciation(word, text, "lexicon") for text in texts]
        pieces = {word: self._letters.pieces(word) for word in dict.fromkeys(words) if word not in found}
        strange = {
            word: tuple(piece for piece, i in zip(own, self._letters.encode(word), strict=True) if i == self._unknown)
            for word, own in pieces.items()
        }
        spoken = [word for word, own in pieces.items() if len(strange[word]) < len(own)]
        if silent := [word for word, own in pieces.items() if len(strange[word]) == len(own)]:
            warnings.warn(
                f"Expected words with a letter that the model has seen. Received {len(silent):,} without: "
                f"{' '.join(silent)[:200]}",
                stacklevel=2,
            )
        tag = [self.tag] if self.tag else []
        lines = [" ".join([*tag, *pieces[word]]) for word in spoken]
        options = {"beam_size": beam_size or max(SearchOptions.beam_size, n_best), "n_best": n_best}
        for word, best in zip(spoken, self.translator.generate(lines, **options) if lines else [], strict=True):
            found[word] = [
                Pronunciation(
                    word,
                    self._converted(one.text),
                    "model",
                    float(np.exp(np.sum(one.token_log_probs))),
                    None if one.alignment is None else one.alignment[:, len(tag) :],
                    strange[word],
                )
                for one in (best.n_best or (best,))
            ]
        for word in silent:
            found[word] = [Pronunciation(word, "", "model", 0.0, None, strange[word])]
        return [found[word] for word in words]

    def words(self, text: str) -> list[str]:
        """Returns the words of a sentence, as they are pronounced."""
        return _WORD.findall(self.normalize(text) if self.normalize else text)

    def _sentences(self, texts: list[str]) -> list[str]:
        texts = [self.normalize(text) for text in texts] if self.normalize else texts
        words = list(dict.fromkeys(word for text in texts for word in _WORD.findall(text)))
        best = {word: found[0].text or word for word, found in zip(words, self.pronounce(words), strict=True)}
        return [_WORD.sub(lambda match: best[match[0]], text) for text in texts]

    def _entry(self, word: str) -> list[str]:
        key = word_key(word.strip())
        texts = next((lexicon[key] for lexicon in self.lexicons if key in lexicon), ())
        return list(dict.fromkeys(map(self._converted, texts)))

    def _converted(self, text: str) -> str:
        if not self._has_stress and self.own_alphabet == "arpabet":
            text = _DIGITS.sub("", text)
        return " ".join(converted(text.split(), self.own_alphabet, self.alphabet))
