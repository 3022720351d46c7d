"""Text to ids and back: SentencePiece BPE, words, symbols or characters.

A tokenizer is plain Python and has everything that a TensorFlow graph needs to give the same ids:

* Level "bpe": `sentencepiece_model`, the bytes of a SentencePiece model, from which
  `tf_text.SentencepieceTokenizer` gives the same ids and the same text. The model carries its normalization:
  none or, with `lowercase`, Unicode's simple lower-case mapping.
* The other levels: `character_table`, which maps one character to one, then `separator`, then `vocabulary`. A
  graph decodes UTF-8, maps the code points, splits at the separator (at every character if it is ""), drops empty
  tokens, and looks up what is in `vocabulary` and not special; the default is the unknown id. For "letter" the
  `unicode_form` comes first, and tags and characters are the tokens.

Pad, start and end never come from text: a word `<pad>` in a text is an unknown word. They open a vocabulary that is
trained here; one of another program has them where it has them (`special_ids`).
"""

import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from numbers import Integral
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from keras_attn import files
from keras_attn.text.bpe_model import BLANK_MARK, BPEModel
from keras_attn.text.lookup_model import LookupModel
from keras_attn.text.special_tokens import BLANKS, LEVELS, SPECIAL_TOKENS, SpecialIds, checked_text, lowercase_table
from keras_attn.text.text_files import PathLike, sample_lines
from keras_attn.text.vocabularies import HUGGING_FACE, HuggingFaceModel, model_of

TokenizerModel = BPEModel | LookupModel | HuggingFaceModel
_FORMAT = 1  # of the files
_MANIFEST, _MODEL = "tokenizer.json", "sentencepiece.model"
_LARGEST = 1 << 26  # bytes; a million words have some 20 MB


class Tokenizer:
    """Maps text to int ids and back, without start and end ids. Make one with `train`, `from_vocabulary` or `load`.

    `decode(encode(text))` returns:

    * "bpe": the text with every character and blank, except that "▁" (U+2581) becomes a blank. Characters that
      did not occur in training are spelled in UTF-8 bytes; with `byte_fallback=False` they become `<unk>`.
    * "word", "symbol": the tokens, joined by one blank. Any of the 25 `BLANKS` separates tokens.
    * "character": the text, if every character is known.
    * "letter": the characters, joined by one blank. Blanks are left out, tags such as `<2it>` stay whole.

    With `lowercase`, each character becomes its Unicode simple lower-case mapping, one character for one and
    whatever its neighbours: unlike with `str.lower`, "İ" becomes "i", and "Σ" is always "σ".

    Args:
        level: str, one of "bpe", "word", "symbol", "character", "letter", and "hugging_face" of a file of that program.
        lowercase: bool, whether text is lower-cased.
        model: The model of this level, which splits text and joins it.

    Attributes:
        vocabulary: list of str, one token for each id; the first four of a trained one are `<pad> <unk> <s> </s>`.
        special_ids: `SpecialIds`, the ids of pad, unknown, start and end.
        sentencepiece_model: bytes, the model of level "bpe", else None.
        character_table: dict of code points for `str.translate`; empty for "bpe", whose model has its own.
        separator: str between tokens: a blank for words, symbols and letters, "" otherwise.
        unicode_form: "NFC" or "NFD" for level "letter", else None.

    Example:
        >>> tokenizer = keras_attn.Tokenizer.train(["ein Mann läuft", "zwei Männer laufen"], level="word")
        >>> ids = tokenizer.encode("ein  Mann schläft")
        >>> ids
        [6, 4, 1]
        >>> tokenizer.decode(ids)
        'ein Mann <unk>'
    """

    def __init__(self, level: str, lowercase: bool, model: TokenizerModel):
        self.level = level
        self.lowercase = lowercase
        self.vocabulary = model.vocabulary
        self.character_table = model.character_table
        self.separator = model.separator
        self.special_ids = model.special_ids
        self.unicode_form = getattr(model, "unicode_form", None)
        self.sentencepiece_model = model.sentencepiece_model
        self._model = model

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        *,
        level: str = "bpe",
        vocabulary_size: int | None = None,
        min_frequency: int = 1,
        lowercase: bool = False,
        byte_fallback: bool = True,
        tags: Sequence[str] = (),
    ) -> "Tokenizer":
        """Learns a vocabulary from text. The same lines always give the same ids.

        For a vocabulary that two languages share, train on the lines of both.

        Args:
            lines: iterable of str, read once.
            level: "bpe" (pieces of words), "word", "symbol" (separated by blanks like words, but a closed set
                such as phones, which no frequency limit applies to) or "character".
            vocabulary_size: int, number of entries, the four special tokens included. For "bpe" it is exact; None
                means 8,000, or as many as a small text allows. For the other levels it is an upper limit, or None.
            min_frequency: int, for "word" and "character": tokens that occur less often are unknown.
            lowercase: bool, whether to lower-case every text.
            byte_fallback: bool, for "bpe": whether to reserve 256 entries for the bytes of unseen characters.
            tags: Tokens such as `<2fr>` that are never cut, and are in the vocabulary whether the lines have them or
                not. Not for "character".

        Raises:
            ValueError: If the level is unknown, the text has no word or is not valid Unicode, or the text does
                not allow the vocabulary size; the message names the nearest size that it allows.
        """
        _check_training(lines, level, vocabulary_size, min_frequency, tags, lowercase)
        lines = (checked_text(line) for line in lines)
        if level == "bpe":
            model = BPEModel.train(list(lines), vocabulary_size, lowercase, byte_fallback, tags)
        else:
            model = LookupModel.train(lines, level, vocabulary_size, min_frequency, lowercase, tags)
        return cls(level, lowercase, model)

    @classmethod
    def train_from_files(
        cls, paths: PathLike | Sequence[PathLike], *, sample: int = 1_000_000, seed: int = 0, **options: Any
    ) -> "Tokenizer":
        """Learns a vocabulary from a random sample of the lines of files, which alone is in memory.

        Args:
            paths: A file, plain, `.gz`, `.xz` or `.bz2`, a glob such as "news.*.gz", or a sequence of these.
            sample, seed: Number of lines, and which to draw; files with fewer are used whole.
            **options: The other arguments of `train`.

        Raises:
            FileNotFoundError: If a file does not exist.
            ValueError: As `train`, and if a file is damaged, empty or no UTF-8.
        """
        if sample < 1:
            raise ValueError(f"Expected sample of 1 line or more. Received: {sample}")
        return cls.train(sample_lines(paths, sample, seed), **options)

    @classmethod
    def from_vocabulary(
        cls,
        vocabulary: Any,
        *,
        level: str | None = None,
        lowercase: bool = False,
        pad: str | int = "<pad>",
        unknown: str | int | None = "<unk>",
        start: str | int | None = "<s>",
        end: str | int | None = "</s>",
    ) -> "Tokenizer":
        """Takes over the vocabulary of another program: every token keeps its id.

        Args:
            vocabulary: A list of tokens, in the order of their ids; a text file with one token a line; a Keras
                `TextVectorization`, which also decides how text is split, or `StringLookup`; or a `.json` file of
                Hugging Face's `tokenizers`. That package must be installed, except for a WordLevel model whose words
                are separated by blanks (WhitespaceSplit); a tokenizer that needs it cannot be exported.
            level: "word" (the default), "symbol" or "character": how text is split.
            lowercase: bool, whether to lower-case every text.
            pad, unknown, start, end: The special tokens, each an entry of the vocabulary, its id, or None if there is
                none (see `SpecialIds`). A layer's mask and unknown tokens, and the unknown token of a `.json` file,
                stand for defaults that it does not have.

        Raises:
            FileNotFoundError: If a file does not exist.
            ValueError: If a token occurs twice or is missing, two special ids are equal, an id is outside the
                vocabulary, or a layer or file does what cannot be repeated.
            ModuleNotFoundError: If `tokenizers` is needed and not installed.
        """
        special = {"pad": pad, "unknown": unknown, "start": start, "end": end}
        return cls(*model_of(vocabulary, level, lowercase, special))

    def extended(self, other: "Tokenizer") -> "Tokenizer":
        """Returns a tokenizer that has entries of another behind its own, which keep their ids.

        Text without unknown tokens, bytes and the other's tags has the same ids as before: of level "bpe", a piece is
        taken only if it has a character that this tokenizer has no piece for; of the other levels, every token is.

        Args:
            other: A tokenizer of the same level and case, trained on other text.

        Raises:
            ValueError: If it has another level or case, or one of both is another program's.
            ModuleNotFoundError: For level "bpe" without protobuf.
        """
        for one in (self, other):
            if one.level not in LEVELS or (one.level == "bpe" and one._model.is_foreign):
                raise ValueError(
                    "Expected tokenizers that were trained here: another program's of level "
                    f"{one.level!r} is not extended."
                )
        if (other.level, other.lowercase) != (self.level, self.lowercase):
            raise ValueError(
                f"Expected a tokenizer of level {self.level!r} and lowercase={self.lowercase}. Received: level "
                f"{other.level!r} and lowercase={other.lowercase}"
            )
        model = self._model.extended(other._model)
        lowercase = ord("A") in model.character_table if self.level == "letter" else self.lowercase
        return type(self)(self.level, lowercase, model)

    def with_letters(self) -> "Tokenizer":
        """Returns a tokenizer of level "letter" with the same ids, for text that is not cut into letters yet.

        The case, the Unicode form and the letters that a pronunciation model reads become a part of it. Text is brought
        into the form in which the vocabulary is, and lower-cased if that has no capitals. Accented Latin letters that
        it has not become plain ones, and typographic apostrophes "'". Letters with blanks between have the same ids
        as before.

        Raises:
            ValueError: If the vocabulary has other entries than characters and tags, such as `<2fr>`.

        Example:
            >>> symbols = keras_attn.Tokenizer.train(["h e l o", "c a f '"], level="symbol")
            >>> letters = symbols.with_letters()
            >>> letters.encode("Hello") == symbols.encode("h e l l o")
            True
            >>> letters.pieces("Café’")
            ['c', 'a', 'f', 'e', "'"]
        """
        if not isinstance(self._model, LookupModel) or self.level == "character":
            raise ValueError(f'Expected a tokenizer of level "symbol" or "word". Received: level {self.level!r}')
        model = self._model.with_letters()
        return type(self)("letter", ord("A") in model.character_table, model)

    @property
    def unknown_token(self) -> str | None:
        """The vocabulary's entry for unknown tokens, which `decode` writes."""
        unknown = self.special_ids.unknown
        return None if unknown is None else self.vocabulary[unknown]

    @property
    def vocabulary_size(self) -> int:
        """Number of ids."""
        return len(self.vocabulary)

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of everything that decides the ids."""
        return _digest(self._manifest())

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without start and end. A blank text may have none."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """Returns the ids of many texts; for "bpe", by so many `threads`, None being one for each processor."""
        if isinstance(texts, str):
            raise ValueError("Expected a list of texts; use encode for one text. Received: a single str")
        return self._model.encode([checked_text(text) for text in texts], threads)

    def pieces(self, text: str) -> list[str]:
        """Returns the pieces of a text, one for each id of `encode`. Unknown words keep their letters."""
        return self._model.cut(checked_text(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the position in the text of each id of `encode`: (start, end) in characters.

        A span includes the blanks of the piece. All bytes of a character that is spelled in bytes have its span.
        """
        return self._model.spans(checked_text(text))

    def decode(self, ids: Iterable[int], unknown: Sequence[str] | None = None) -> str:
        """Returns the text of ids up to the first end id. Pad and start ids are skipped.

        Args:
            ids: iterable of int.
            unknown: A string for each unknown id before the end, in order. None writes `unknown_token`.
        """
        kept, special = [], self.special_ids
        for token_id in self._checked_ids(ids):
            if token_id == special.end:
                break
            if token_id not in (special.pad, special.start):
                kept.append(token_id)
        count = kept.count(special.unknown)
        unknown = [self.unknown_token] * count if unknown is None else list(unknown)
        if len(unknown) != count:
            raise ValueError(f"Expected a string for each of the {count} unknown ids. Received: {len(unknown)}")
        return self._model.join(kept, unknown)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the vocabulary's entry of every id, special ones included: labels for the axes of an alignment."""
        return [self.vocabulary[token_id] for token_id in self._checked_ids(ids)]

    def words(self, ids: Iterable[int]) -> list[tuple[str, list[int]]]:
        """Merges ids into words, up to the first end id, which is a word of its own.

        Returns:
            list of (word, positions of its ids). Positions index `ids`. Pad and start ids belong to no word. A
            blank belongs to the word after it, or to the last word if none follows.
        """
        ids = self._checked_ids(ids)
        end = ids.index(self.special_ids.end) if self.special_ids.end in ids else len(ids)
        groups: dict[int, list[int]] = {}
        for position, number in enumerate(self._word_numbers.of_rows(np.array([ids[:end]], np.int32))[0].tolist()):
            if number >= 0:
                groups.setdefault(number, []).append(position)
        words = [(self.decode([ids[position] for position in group]).strip(" "), group) for group in groups.values()]
        return words if end == len(ids) else [*words, (self.vocabulary[ids[end]], [end])]

    def save(self, directory: PathLike) -> None:
        """Writes `tokenizer.json` and, for "bpe", `sentencepiece.model`.

        Raises:
            ValueError: If the folder contains another tokenizer, which is left as it is, or a file would be larger than
                64 MiB, which `load` refuses.
        """
        manifest = self._manifest()
        recorded = {"format": _FORMAT, "sha256": _digest(manifest)} | manifest
        contents = {_MANIFEST: json.dumps(recorded, ensure_ascii=False, indent=0).encode()}
        if self.sentencepiece_model is not None:
            contents = {_MODEL: self.sentencepiece_model} | contents  # the manifest last: it records the model's hash
        for name, content in contents.items():
            if len(content) > _LARGEST:
                raise ValueError(f"Expected {name} of at most {_LARGEST:,} bytes. Received: {len(content):,}")
            path = Path(directory) / name
            if path.exists() and path.read_bytes() != content:
                raise ValueError(f"Expected {directory} without a tokenizer. Received: a folder with another {name}")
        for name, content in contents.items():
            with files.replacing(Path(directory) / name) as path:
                path.write_bytes(content)

    @classmethod
    def load(cls, directory: PathLike) -> "Tokenizer":
        """Returns the tokenizer that `save` wrote.

        Raises:
            FileNotFoundError: If a file is missing.
            ValueError: If a file is truncated, changed, of a later format or larger than 64 MiB.
        """
        path, model = Path(directory) / _MANIFEST, None
        try:
            manifest = json.loads(_read(path))
            recorded = manifest.pop("format"), manifest.pop("sha256")
            if recorded != (_FORMAT, _digest(manifest)):
                raise ValueError("Expected the recorded format and SHA-256.")
            if manifest["level"] == "bpe":
                path = Path(directory) / _MODEL
                model = _read(path)
                if hashlib.sha256(model).hexdigest() != manifest["sentencepiece_sha256"]:
                    raise ValueError("Expected the recorded SHA-256.")
            return cls(*_restored(manifest, model))
        except (ValueError, LookupError, AttributeError, TypeError, RuntimeError) as error:
            raise ValueError(
                f"Expected {path} to be what Tokenizer.save wrote in format {_FORMAT}. Received: a file that is "
                "truncated, changed or of another format"
            ) from error

    def _manifest(self) -> dict:
        return {"level": self.level, "lowercase": self.lowercase} | self._model.manifest()

    def _checked_ids(self, ids: Iterable[int]) -> list[int]:
        try:
            ids = [index(token_id) for token_id in ids]
        except TypeError:
            raise ValueError(f"Expected ids to be whole numbers. Received: {ids!r}") from None
        size = self.vocabulary_size
        for token_id in ids:
            if not 0 <= token_id < size:
                raise ValueError(f"Expected ids from 0 to {size - 1}. Received: {token_id}")
        return ids

    @functools.cached_property
    def _word_numbers(self) -> "WordNumbers":
        return WordNumbers(self)


class WordNumbers:
    """Numbers the words of rows of ids as `Tokenizer.words` does, many rows at a time.

    Args:
        tokenizer: The tokenizer whose ids they are; temporary ids count as unknown words.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._special, tokens = tokenizer.special_ids, tokenizer.vocabulary
        self._opens = np.array([tokenizer._model.opens_word(token) for token in tokens])  # (V,)
        self._visible = np.array([bool(token.strip(BLANK_MARK + " ")) for token in tokens])  # (V,)

    def of_rows(self, token_ids: np.ndarray) -> np.ndarray:
        """Returns the number of each token's word, int (B, S); -1 for pad, start and end.

        Args:
            token_ids: int (B, S), rows of ids, each followed by the end id, if there is one, and padding.
        """
        is_first = np.zeros(token_ids.shape, bool)  # (B, S)
        is_first[:, :1] = True
        special = [i for i in (self._special.pad, self._special.start, self._special.end) if i is not None]
        is_text = ~np.isin(token_ids, special)
        token_ids = self._known(token_ids)
        visible = self._visible[token_ids] & is_text
        has_more = np.maximum.accumulate(visible[:, ::-1], axis=1)[:, ::-1]  # else only blanks, of the last word
        numbers = np.cumsum(is_first | (self._begins(token_ids) & has_more), axis=1) - 1
        return np.where(is_text, numbers, -1)

    def counts(self, token_ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Returns the number of words of each row, int (rows,); blanks at its end may count as one.

        Args:
            token_ids: int (N,), the ids of all rows, without start and end.
            offsets: int (rows + 1,), where the rows begin and end.
        """
        is_first = np.zeros(len(token_ids), bool)
        is_first[offsets[:-1][np.diff(offsets) > 0]] = True
        begun = np.concatenate([[0], np.cumsum(is_first | self._begins(self._known(token_ids)))])  # (N + 1,)
        return begun[offsets[1:]] - begun[offsets[:-1]]

    def _begins(self, token_ids: np.ndarray) -> np.ndarray:
        """Returns for each token whether another word begins with it: whitespace belongs to the word after it."""
        return self._opens[token_ids] & self._visible[np.roll(token_ids, 1, axis=-1)]

    def _known(self, token_ids: np.ndarray) -> np.ndarray:
        unknown = 0 if self._special.unknown is None else self._special.unknown  # temporary ids need one
        return np.where(token_ids < len(self._opens), token_ids, unknown)


def encode_lines(lines: Iterable[str], tokenizer: Tokenizer, threads: int | None = None) -> list[list[int]]:
    """Returns the ids of each line: none for a blank line, although BPE has pieces for blanks.

    Raises:
        ValueError: If `lines` is no list, or a line is no str or not valid Unicode.
    """
    if isinstance(lines, (str, bytes)) or not isinstance(lines, Iterable):
        raise ValueError(f"Expected a list of lines. Received: a single {type(lines).__name__}")
    return tokenizer.encode_batch([line if checked_text(line).strip(BLANKS) else "" for line in lines], threads=threads)


def _check_training(
    lines: Iterable[str], level: str, vocabulary_size: int | None, min_frequency: int, tags: Sequence[str], lower: bool
) -> None:
    """Refuses arguments of `Tokenizer.train` that are out of range.

    Raises:
        ValueError: For the first that is.
    """
    if level not in LEVELS:
        raise ValueError(f"Expected level to be one of {', '.join(LEVELS)}. Received: {level!r}")
    if isinstance(lines, (str, bytes)) or not isinstance(lines, Iterable):
        raise ValueError(f"Expected lines to be an iterable of lines. Received: a single {type(lines).__name__}")
    if isinstance(tags, str) or not isinstance(tags, Sequence) or len(set(tags)) < len(tags):
        raise ValueError(f"Expected tags as a list of tokens that differ from each other. Received: {tags!r}")
    special = len(SPECIAL_TOKENS) + len(tags)
    if vocabulary_size is not None and not (isinstance(vocabulary_size, Integral) and vocabulary_size > special):
        raise ValueError(
            f"Expected vocabulary_size to be a whole number of at least {special + 1}, {special} of them special. "
            f"Received: {vocabulary_size!r}"
        )
    if (
        not isinstance(min_frequency, Integral)
        or min_frequency < 1
        or (min_frequency > 1 and level in ("bpe", "symbol"))
    ):
        raise ValueError(
            "Expected min_frequency of at least 1, and of 1 for the levels bpe and symbol, which have no "
            f"frequency limit. Received: {min_frequency!r} for level {level}"
        )
    if tags and level == "character":
        raise ValueError("Expected no tags for the level character, each of whose tokens is one character.")
    for tag in tags:
        if not tag or any(character in f"{BLANKS}▁," for character in checked_text(tag)) or tag in SPECIAL_TOKENS:
            raise ValueError(f"Expected tags without blanks and commas, such as '<2fr>'. Received: {tag!r}")
        if lower and tag != tag.translate(lowercase_table()):
            raise ValueError(f"Expected tags in lower case with lowercase=True. Received: {tag!r}")


def _restored(manifest: dict[str, Any], sentencepiece_model: bytes | None) -> tuple[str, bool, TokenizerModel]:
    """The arguments of `Tokenizer`; any error if something is wrong, although the digests are right."""
    level, lowercase = manifest["level"], manifest["lowercase"]
    if level not in (*LEVELS, HUGGING_FACE) or not isinstance(lowercase, bool):
        raise ValueError("Expected a level, and true or false for lowercase.")
    if sentencepiece_model is not None:
        if "special_ids" in manifest:
            special_ids = SpecialIds(**manifest["special_ids"])
            model = BPEModel(sentencepiece_model, special_ids, manifest["added"])
            special_ids.check(len(model.vocabulary))
        else:
            model = BPEModel(sentencepiece_model)
        if not model.is_foreign and tuple(model.vocabulary[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
            raise ValueError("Expected the special tokens first.")
    elif level == HUGGING_FACE:
        model = HuggingFaceModel.restore(manifest)
    else:
        model = LookupModel.restore(manifest)
    tokens = [checked_text(token) for token in model.vocabulary]
    if tokens != model.vocabulary or len(set(tokens)) < len(tokens):
        raise ValueError("Expected a list of tokens that occur once each.")
    return level, lowercase, model


def _digest(manifest: dict[str, Any]) -> str:
    """Returns the SHA-256 of a manifest, in hexadecimal."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"Expected a tokenizer's file {path}. Received: a folder without it")
    return files.read_bounded(path, _LARGEST)
