"""Graphemes to phonemes: `G2P`, a lexicon with a model behind it."""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from keras_attn.pronunciation.alphabets import alphabet_of, converted
from keras_attn.pronunciation.spelling import is_invisible, plain_form, word_key, word_pattern
from keras_attn.saving import LEXICON, locate
from keras_attn.search import SearchOptions, check_sizes
from keras_attn.text import checked_text, iterate_lines, visible_name
from keras_attn.translation import TextSearch


def read_lexicon(lexicon: str | PathLike | Mapping[str, str | list[str]]) -> dict[str, tuple[str, ...]]:
    """Returns the pronunciations of each word, in their order.

    Args:
        lexicon: A file, plain or packed: lines "word, tab, phones", or as CMUdict's "word phones" with blanks between,
            variants as "word(2)", comments after "#" or ";;;". Or a dict from words to a pronunciation or a list.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a word without phones, phones without a word, or a word or phones that are no text.

    Example:
        >>> keras_attn.pronunciation.read_lexicon({"Keras": "K EH R AH S"})
        {'keras': ('K EH R AH S',)}
    """
    entries: dict[str, list[str]] = {}
    if isinstance(lexicon, Mapping):
        for word, texts in lexicon.items():
            texts = [texts] if isinstance(texts, str) else texts
            is_list = isinstance(texts, (list, tuple)) and len(texts) > 0
            if not (is_list and all(isinstance(text, str) and text.strip() for text in (word, *texts))):
                raise ValueError(f"Expected a word and its phones in a lexicon. Received: {word!r}: {texts!r}")
            entries.setdefault(word_key(word.strip()), []).extend(texts)
        return {word: tuple(texts) for word, texts in entries.items()}
    for number, line in enumerate(iterate_lines(Path(lexicon)), 1):
        line = re.sub(r"^;;;.*|^#\s.*|\s(#|;;;).*", "", line)
        if not line.strip():
            continue
        word, _, phones = line.partition("\t") if "\t" in line else line.strip().partition(" ")
        if not word.strip() or not phones.strip() or "\t" in phones.strip():
            raise ValueError(f"Expected a word and its phones in line {number:,} of {lexicon}. Received: {line[:80]!r}")
        word = re.sub(r"(?<=.)\(\d+\)$", "", word.strip())
        variants = entries.setdefault(word_key(word), [])
        if (text := " ".join(phones.split())) not in variants:
            variants.append(text)
    return {word: tuple(texts) for word, texts in entries.items()}


_DIGITS = re.compile(r"[0-9]")


@dataclass(frozen=True, eq=False, repr=False)
class Pronunciation:
    """One pronunciation of a `word`.

    `text` has the phones with blanks between. `origin` is "lexicon" or "model". `probability` is the model's, 1 for an
    entry of a lexicon. `alignment` `(T, S)` is that of its phones and the word's letters, the end tokens included, or
    None from a lexicon. `unknown` are letters of the word that the model has never seen. `letters` are those that were
    read, "cafe" for "café" if the model has no "é": those of the lexicon's entry, or the columns of `alignment`.
    """

    word: str
    text: str
    origin: str
    probability: float = 1.0
    alignment: np.ndarray | None = None
    unknown: tuple[str, ...] = ()
    letters: tuple[str, ...] = ()

    def __repr__(self) -> str:
        unknown = f", unknown {' '.join(map(visible_name, self.unknown))}" if self.unknown else ""
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
    with apostrophes, hyphens and full stops inside, and apostrophes around if a lexicon has the word with them ("'em");
    all else stays in its place. A letter that the model does not have
    is read as its plain form, "ﬁ" as "fi" and "ø" as "o"; one without is unknown. Invisible characters have no sound.

    `translator.save_to_preset` writes no lexicon: `from_preset` reads that of a file `lexicon.dict.xz` in the folder.

    Raises:
        ValueError: if an alphabet, a tag, a lexicon or `normalize` is wrong.

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
        if isinstance(lexicons, (str, PathLike, Mapping)):
            raise ValueError(f"Expected a list of lexicons. Received: {lexicons!r:.80}")
        self.lexicons = [read_lexicon(lexicon) for lexicon in lexicons]
        self.own_alphabet = alphabet_of(translator.target_tokenizer.vocabulary)
        self.alphabet = self.own_alphabet if alphabet is None else alphabet
        self.tag = tag
        if not (normalize is None or callable(normalize)):
            raise ValueError(f"Expected `normalize` to be a function of a sentence. Received: {normalize!r}")
        self.normalize = normalize
        self._letters = letters if letters.level == "letter" else letters.with_letters()
        ordinary = self._letters.special_ids.ordinary(self._letters.vocabulary_size)
        self._known = {self._letters.vocabulary[i] for i in ordinary} - {*tags}
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

    def __call__(self, text: str | Iterable[str]) -> str | list[str]:
        """Returns the best pronunciation of a word or sentence, or of each of a list.

        Raises:
            ValueError: for what is no text.
        """
        return self._sentences([checked_text(text)])[0] if isinstance(text, str) else self._sentences(_texts(text))

    def pronounce(
        self, words: str | Iterable[str], *, n_best: int = 1, beam_size: int | None = None
    ) -> list[Pronunciation] | list[list[Pronunciation]]:
        """Returns the pronunciations of a word, or of each of a list, best first.

        A word of a lexicon has its entries, whatever `n_best` is; any other the `n_best` of the model. A lexicon is
        asked for the word, then for its plain letters, with a full stop behind an abbreviation, and without full stops,
        apostrophes and hyphens around it. A word without any letter that the model knows has one, with the text "".

        Args:
            words: A word, or a list of them. A blank one has no pronunciation.
            n_best: Of the model.
            beam_size: Of its search; None: that of `Translator.generate`, or `n_best` if that is more.

        Raises:
            ValueError: for what is no text, and options out of range.
        """
        if isinstance(words, str):
            return self.pronounce([words], n_best=n_best, beam_size=beam_size)[0]
        check_sizes(n_best=n_best, beam_size=SearchOptions.beam_size if beam_size is None else beam_size)
        words = _texts(words)
        found: dict[str, list[Pronunciation]] = {}
        letters: dict[str, list[str]] = {}
        for word in dict.fromkeys(words):
            key, texts = self._entry(word)
            if texts or not key:
                found[word] = [Pronunciation(word, text, "lexicon", letters=tuple(key)) for text in texts]
            else:
                letters[word] = self._read(word)
        unknown = {word: tuple(x for x in read if x not in self._known) for word, read in letters.items()}
        is_spoken = {word: any(x.isalnum() and x in self._known for x in read) for word, read in letters.items()}
        spoken, silent = ([word for word in letters if is_spoken[word] is flag] for flag in (True, False))
        _warn("words with a letter that the model has seen", "without", silent)
        several = [word for word in spoken if len(word.split()) > 1]
        _warn("words, and sentences as the argument of a call", "with blanks inside, which were left out", several)
        tag = [self.tag] if self.tag else []
        lines = [" ".join([*tag, *letters[word]]) for word in spoken]
        options = {"beam_size": beam_size or max(SearchOptions.beam_size, n_best), "n_best": n_best}
        for word, best in zip(spoken, self.translator.generate(lines, **options) if lines else [], strict=True):
            found[word] = [
                Pronunciation(
                    word,
                    self._converted(one.text),
                    "model",
                    float(np.exp(np.sum(one.token_log_probs))),
                    None if one.alignment is None else one.alignment[:, len(tag) :],
                    unknown[word],
                    tuple(letters[word]),
                )
                for one in (best.n_best or (best,))
            ]
        for word in silent:
            found[word] = [Pronunciation(word, "", "model", 0.0, None, unknown[word], tuple(letters[word]))]
        return [found[word] for word in words]

    def words(self, text: str) -> list[str]:
        """Returns the words of a sentence, as they are pronounced."""
        return [self._word(match) for match in word_pattern().finditer(self._normalized(text))]

    def _normalized(self, text: str) -> str:
        return checked_text(self.normalize(checked_text(text)) if self.normalize else text)

    def _word(self, match: re.Match[str]) -> str:
        """Returns a word with the apostrophes around it if a lexicon has it so, else without."""
        key = word_key(match[0])
        return match[0] if any(key in lexicon for lexicon in self.lexicons) else match["core"]

    def _sentences(self, texts: list[str]) -> list[str]:
        texts, pattern = [self._normalized(text) for text in texts], word_pattern()
        words = list(dict.fromkeys(self._word(match) for text in texts for match in pattern.finditer(text)))
        best = {word: found[0].text or word for word, found in zip(words, self.pronounce(words), strict=True)}

        def spoken(match: re.Match[str]) -> str:
            word = self._word(match)
            return match[0].replace(word, best[word])

        return [pattern.sub(spoken, text) for text in texts]

    def _read(self, word: str) -> list[str]:
        """Returns the letters of a word as the model reads them; those without a form that it knows stay."""
        read = []
        for letter in self._letters.pieces(word):
            if letter in self._known:
                read.append(letter)
            elif not is_invisible(letter):
                plain = self._letters.pieces(plain_form(letter))
                read += plain if self._known.issuperset(plain) else [letter]
        return read

    def _entry(self, word: str) -> tuple[str, list[str]]:
        """Returns the form of a word that a lexicon has, and its pronunciations there; else the word and none."""
        key = word_key(word.strip())
        if (texts := self._texts_of(key)) or len(key.split()) != 1:
            return key, texts
        plain = "".join(self._read(word))
        forms = [plain, *([f"{plain}."] if "." in plain else []), plain.strip(".'-")]
        return next(((form, texts) for form in forms if (texts := self._texts_of(form))), (key, []))

    def _texts_of(self, key: str) -> list[str]:
        texts = next((lexicon[key] for lexicon in self.lexicons if key in lexicon), ())
        return list(dict.fromkeys(map(self._converted, texts)))

    def _converted(self, text: str) -> str:
        if not self._has_stress and self.own_alphabet == "arpabet":
            text = _DIGITS.sub("", text)
        return " ".join(converted(text.split(), self.own_alphabet, self.alphabet))


def _texts(texts: Iterable[str]) -> list[str]:
    """Returns a list of texts; refuses all else, such as the letters of None."""
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise ValueError(f"Expected a str, or a list of str. Received: {texts!r:.80}")
    return [checked_text(text) for text in texts]


def _warn(expected: str, received: str, words: Sequence[str]) -> None:
    if words:
        shown = " ".join(words)[:200]
        warnings.warn(f"Expected {expected}. Received {len(words):,} {received}: {shown}", stacklevel=3)
