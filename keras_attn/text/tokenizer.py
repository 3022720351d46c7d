"""Text to ids and back: SentencePiece BPE, words, symbols or characters.

A tokenizer is plain Python and holds all that a TensorFlow graph needs to give the same ids:

* level "bpe": `sentencepiece_model`, the bytes of a SentencePiece model, from which
  `tf_text.SentencepieceTokenizer` gives the same ids and the same text. The model carries its normalisation:
  none or, with `lowercase`, the table below.
* the other levels: `character_table`, one character for one, then `separator`, then `vocabulary`. A graph
  decodes UTF-8, maps the code points, splits at the separator and drops what is empty (the separator ""
  splits into characters), and looks up `vocabulary[4:]`, 1 being the default.

`PAD_ID`, `UNKNOWN_ID`, `START_ID` and `END_ID` open every vocabulary and never come from text: a word `<pad>`
in a text is an unknown word.
"""

import collections
import functools
import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

PAD_ID, UNKNOWN_ID, START_ID, END_ID = 0, 1, 2, 3
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
LEVELS = ("bpe", "word", "symbol", "character")
# Unicode's White_Space, written out: Python's str.split, its \s, RE2's \s and C's isspace all differ.
BLANKS = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

_BLANK_MARK = "▁"  # U+2581, SentencePiece's sign for a blank inside a piece
_FORMAT = 1
_MANIFEST, _MODEL = "tokenizer.json", "sentencepiece.model"


class Tokenizer:
    """Text to lists of int ids and back, without start and end ids. Make one with `train` or `load`.

    What comes back from `decode(encode(text))`:

    * "bpe": the text, every character and blank of it, but "▁" (U+2581) becomes a blank. Characters that
      training did not see are spelled in bytes of UTF-8; with `byte_fallback=False` they become `<unk>`.
    * "word", "symbol": the tokens with one blank between two. Any of the 25 `BLANKS` separates tokens.
    * "character": the text, where every character is known.

    With `lowercase`, each character becomes its Unicode simple lower-case mapping, one character for one,
    whatever its neighbours: unlike with `str.lower`, "İ" becomes "i", and "Σ" always "σ".

    Attributes:
        level: str, one of "bpe", "word", "symbol", "character".
        lowercase: bool.
        vocabulary: list of str, one token an id; the first four are `<pad> <unk> <s> </s>`.
        sentencepiece_model: bytes, the model of level "bpe", else None.
        character_table: dict of code points for `str.translate`; empty for "bpe", whose model has its own.
        separator: str that stands between tokens: a blank for words and symbols, "" for the rest.

    Example:

    ```python
    tokenizer = Tokenizer.train(["ein Mann läuft", "zwei Männer laufen"], level="word")
    ids = tokenizer.encode("ein  Mann schläft")    # [6, 4, 1]
    tokenizer.decode(ids)                          # "ein Mann <unk>"
    ```
    """

    sentencepiece_model: bytes | None = None
    separator = ""

    def __init__(self, level: str, vocabulary: list[str], lowercase: bool, character_table: dict[int, int]):
        self.level = level
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.character_table = character_table

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        *,
        level: str = "bpe",
        vocabulary_size: int | None = None,
        minimum_count: int = 1,
        lowercase: bool = False,
        byte_fallback: bool = True,
    ) -> "Tokenizer":
        """Learns a vocabulary from text; the same lines always give the same tokenizer.

        For a vocabulary that two languages share, train on the lines of both and use the tokenizer twice.

        Args:
            lines: iterable of str, read once.
            level: "bpe" (pieces of words), "word" and "symbol" (what stands between blanks; symbols are a
                closed set, such as phones, and never cut by frequency) or "character".
            vocabulary_size: int, entries with the four special ones. For "bpe" exact; None means 8,000 or, of
                a small text, all that it allows. Otherwise a cap, the most frequent first; None means no cap.
            minimum_count: int, for "word" and "character": those seen less often are unknown.
            lowercase: bool, lower-case every text.
            byte_fallback: bool, for "bpe": keep 256 entries for the bytes of unseen characters.

        Raises:
            ValueError: for an unknown level, text without a word, text that is no valid Unicode, or a
                vocabulary size that the text does not allow; the sentence names the nearest that it does.
        """
        if level not in LEVELS:
            raise ValueError(f"Expected level to be one of {', '.join(LEVELS)}, received {level!r}.")
        if isinstance(lines, str):
            raise ValueError("Expected lines to be an iterable of lines, received a single str.")
        if vocabulary_size is not None and vocabulary_size <= len(SPECIAL_TOKENS):
            raise ValueError(
                f"Expected vocabulary_size of at least 5, for the four special tokens and one more, "
                f"received {vocabulary_size}."
            )
        if minimum_count < 1 or (minimum_count > 1 and level in ("bpe", "symbol")):
            raise ValueError(
                f"Expected minimum_count of at least 1, and 1 for the levels bpe and symbol, which have no "
                f"frequency cut, received {minimum_count} for level {level}."
            )
        lines = (_checked_text(line) for line in lines)
        if level == "bpe":
            model = _train_sentencepiece(list(lines), vocabulary_size, lowercase, byte_fallback)
            tokenizer = _Pieces(model, lowercase)
            if vocabulary_size is not None and tokenizer.vocabulary_size < vocabulary_size:
                raise ValueError(
                    f"Expected vocabulary_size of at most {tokenizer.vocabulary_size}, the largest possible "
                    f"for this text, received {vocabulary_size}."
                )
            return tokenizer
        return _Words.count(lines, level, vocabulary_size, minimum_count, lowercase)

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, special ones included."""
        return len(self.vocabulary)

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hexadecimal of all that decides the ids: equal for equal tokenizers."""
        return _digest(self._manifest())

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without start and end. Blank text may have none."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts, faster."""
        if isinstance(texts, str):
            raise ValueError("Expected a list of texts, received a single str; use encode.")
        return self._encode([_checked_text(text) for text in texts])

    def pieces(self, text: str) -> list[str]:
        """What `encode` cuts the text into, an entry an id; unknown words keep their letters."""
        return self._cut(_checked_text(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where in the text each id of `encode(text)` stands: (start, end) in characters, blanks of its own included.

        All bytes of a character that is spelled in bytes have the span of that character.
        """
        return self._spans(_checked_text(text))

    def decode(self, ids: Iterable[int], unknown: Sequence[str] | None = None) -> str:
        """The text of ids up to the first end; pads and starts are skipped.

        Args:
            ids: iterable of int.
            unknown: what to write for each unknown id up to the end, in their order; None: `<unk>`.
        """
        kept = []
        for token_id in self._checked_ids(ids):
            if token_id == END_ID:
                break
            if token_id not in (PAD_ID, START_ID):
                kept.append(token_id)
        count = kept.count(UNKNOWN_ID)
        unknown = [SPECIAL_TOKENS[UNKNOWN_ID]] * count if unknown is None else list(unknown)
        if len(unknown) != count:
            raise ValueError(f"Expected a string for each of the {count} unknown ids, received {len(unknown)}.")
        return self._join(kept, unknown)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The vocabulary's entry for every id, special ones included: labels for the rows of an alignment."""
        return [self.vocabulary[token_id] for token_id in self._checked_ids(ids)]

    def words(self, ids: Iterable[int]) -> list[tuple[str, list[int]]]:
        """Ids merged into words: (word, positions of its ids), up to the first end, itself a word `</s>`.

        Positions index `ids`; pads and starts belong to no word, a blank to the word after it or, where there
        is none, before it.
        """
        ids = self._checked_ids(ids)
        groups, end, visible = [], [], True  # visible: the open word has more than blanks
        for position, token_id in enumerate(ids):
            if token_id in (PAD_ID, START_ID):
                continue
            if token_id == END_ID:
                end = [[position]]
                break
            token = self.vocabulary[token_id]
            if not groups or (visible and self._opens_word(token)):
                groups.append([])
                visible = False
            groups[-1].append(position)
            visible = visible or bool(token.strip(_BLANK_MARK + " "))
        if not visible and len(groups) > 1:
            blanks = groups.pop()
            groups[-1] += blanks
        return [(self._surface([ids[position] for position in group]), group) for group in groups + end]

    def save(self, directory: str | os.PathLike) -> None:
        """Writes `tokenizer.json` and, for "bpe", `sentencepiece.model`.

        Raises:
            ValueError: where the folder holds another tokenizer, which is left as it is.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        manifest = {"format": _FORMAT, "sha256": self.fingerprint} | self._manifest()
        files = {_MANIFEST: json.dumps(manifest, ensure_ascii=False, indent=0).encode()}
        if self.sentencepiece_model is not None:
            files = {_MODEL: self.sentencepiece_model} | files  # the manifest last: it vouches for the model
        for name, content in files.items():
            path = directory / name
            if path.exists() and path.read_bytes() != content:
                raise ValueError(f"Expected {directory} without a tokenizer, received one with another {name}.")
        for name, content in files.items():
            partial = directory / f".{name}.tmp-{os.getpid()}"
            partial.write_bytes(content)
            os.replace(partial, directory / name)

    @staticmethod
    def load(directory: str | os.PathLike) -> "Tokenizer":
        """The tokenizer that `save` wrote.

        Raises:
            FileNotFoundError: where one of its files is missing.
            ValueError: where one is truncated, changed or of a later format.
        """
        path = Path(directory) / _MANIFEST
        try:
            manifest = json.loads(_read(path))
            recorded = (manifest.pop("format"), manifest.pop("sha256"))
        except (ValueError, KeyError, AttributeError, TypeError):
            recorded = manifest = None
        if manifest is None or recorded != (_FORMAT, _digest(manifest)):
            raise ValueError(
                f"Expected {path} to be what Tokenizer.save wrote in format {_FORMAT}, received a file that "
                f"is truncated, changed or of another format."
            )
        if manifest["level"] != "bpe":
            table = {ord(key): ord(value) for key, value in manifest["character_table"].items()}
            return _Words(manifest["level"], manifest["vocabulary"], manifest["lowercase"], table)
        model = _read(path.with_name(_MODEL))
        if hashlib.sha256(model).hexdigest() != manifest["sentencepiece_sha256"]:
            raise ValueError(
                f"Expected {path.with_name(_MODEL)} to be the {manifest['sentencepiece_bytes']:,} bytes that "
                f"Tokenizer.save wrote, received {len(model):,} bytes that are truncated or changed."
            )
        return _Pieces(model, manifest["lowercase"])

    def _manifest(self) -> dict:
        return {"level": self.level, "lowercase": self.lowercase} | self._content()

    def _checked_ids(self, ids: Iterable[int]) -> list[int]:
        ids = [int(token_id) for token_id in ids]
        for token_id in ids:
            if not 0 <= token_id < len(self.vocabulary):
                raise ValueError(f"Expected ids from 0 to {len(self.vocabulary) - 1}, received {token_id}.")
        return ids

    def _surface(self, ids: list[int]) -> str:
        return SPECIAL_TOKENS[END_ID] if ids == [END_ID] else self.decode(ids).strip(" ")


class _Pieces(Tokenizer):
    """Level "bpe": a SentencePiece model.

    No blank is put before the text (SentencePiece's `add_dummy_prefix`), though that gives 0.3 % fewer ids on
    Multi30k: tensorflow-text then drops every leading blank when it detokenises and Python just one.
    """

    def __init__(self, model: bytes, lowercase: bool):
        import sentencepiece

        self.sentencepiece_model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        vocabulary = [self._processor.id_to_piece(index) for index in range(self._processor.get_piece_size())]
        super().__init__("bpe", vocabulary, lowercase, {})

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode(texts)

    def _cut(self, text: str) -> list[str]:
        return self._processor.encode(text, out_type=str)

    def _spans(self, text: str) -> list[tuple[int, int]]:
        # Normalisation gives a character for each, so pieces are as long as the text that they stand for.
        spans, start, missing = [], 0, 0  # missing: bytes of the current character that are still to come
        for token_id, piece in zip(self._processor.encode(text), self._cut(text), strict=True):
            end = start + len(piece)
            if self._processor.is_byte(token_id):  # "<0xE2>": the first byte says how many its character has
                first = int(piece[3:5], 16)
                missing = (missing or 1 + sum(first >= least for least in (0xC0, 0xE0, 0xF0))) - 1
                end = start + 1
            spans.append((start, end))
            start = start if missing else end
        return spans

    def _join(self, ids: list[int], unknown: list[str]) -> str:
        parts, first = [], 0
        for surface in unknown:
            last = ids.index(UNKNOWN_ID, first)
            parts += self._processor.decode(ids[first:last]), surface
            first = last + 1
        return "".join([*parts, self._processor.decode(ids[first:])])

    def _opens_word(self, token: str) -> bool:
        return token.startswith(_BLANK_MARK)

    def _content(self) -> dict:
        model = self.sentencepiece_model
        return {"sentencepiece_bytes": len(model), "sentencepiece_sha256": hashlib.sha256(model).hexdigest()}


class _Words(Tokenizer):
    """Levels "word", "symbol" and "character": a list of tokens."""

    def __init__(self, level: str, vocabulary: list[str], lowercase: bool, character_table: dict[int, int]):
        super().__init__(level, vocabulary, lowercase, character_table)
        self.separator = "" if level == "character" else " "
        self._ids = {token: index for index, token in enumerate(vocabulary) if index >= len(SPECIAL_TOKENS)}

    @classmethod
    def count(cls, lines: Iterable[str], level: str, size: int | None, minimum_count: int, lowercase: bool) -> Self:
        blanks = {} if level == "character" else dict.fromkeys(map(ord, BLANKS), ord(" "))
        blanks.pop(ord(" "), None)
        table = blanks | (_lowercase_table() if lowercase else {})
        tokenizer = cls(level, list(SPECIAL_TOKENS), lowercase, table)
        counts = collections.Counter()
        for line in lines:
            counts.update(tokenizer._cut(line))
        for special in SPECIAL_TOKENS:
            counts.pop(special, None)
        tokens = sorted((t for t, n in counts.items() if n >= minimum_count), key=lambda t: (-counts[t], t))
        if not tokens:
            raise ValueError(
                f"Expected text with at least one {level} seen {minimum_count} times or more, received none."
            )
        kept = None if size is None else size - len(SPECIAL_TOKENS)
        return cls(level, [*SPECIAL_TOKENS, *tokens[:kept]], lowercase, table)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [[self._ids.get(token, UNKNOWN_ID) for token in self._cut(text)] for text in texts]

    def _cut(self, text: str) -> list[str]:
        text = text.translate(self.character_table)
        return [token for token in text.split(self.separator) if token] if self.separator else list(text)

    def _spans(self, text: str) -> list[tuple[int, int]]:
        token = re.compile(f"[^{self.separator}]+" if self.separator else "(?s:.)")
        return [match.span() for match in token.finditer(text.translate(self.character_table))]

    def _join(self, ids: list[int], unknown: list[str]) -> str:
        unknown = iter(unknown)
        return self.separator.join(next(unknown) if i == UNKNOWN_ID else self.vocabulary[i] for i in ids)

    def _opens_word(self, token: str) -> bool:
        return bool(self.separator) or token == " "

    def _content(self) -> dict:
        table = {chr(key): chr(value) for key, value in self.character_table.items()}
        return {"character_table": table, "vocabulary": self.vocabulary}


def _checked_text(text: str) -> str:
    if not isinstance(text, str):
        raise ValueError(f"Expected text as a str, received {type(text).__name__}.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Expected text that UTF-8 can write, received the lone surrogate "
            f"U+{ord(text[error.start]):04X} at character {error.start}."
        ) from None
    return text


@functools.cache
def _lowercase_table() -> dict[int, int]:
    """Unicode's simple lower-case mapping: `str.lower`'s first character; only that of "İ" has a second."""
    pairs = ((code, ord(chr(code).lower()[0])) for code in range(0x110000))
    return {code: lower for code, lower in pairs if code != lower}


def _train_sentencepiece(lines: list[str], vocabulary_size: int | None, lowercase: bool, byte_fallback: bool) -> bytes:
    import sentencepiece

    if not any(line.strip(BLANKS) for line in lines):
        raise ValueError(f"Expected text with at least one word, received {len(lines)} blank lines.")
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.tsv")  # SentencePiece reads normalisation rules from a file alone
        table = _lowercase_table() if lowercase else {}
        rules.write_text("".join(f"{code:X}\t{lower:X}\n" for code, lower in table.items()))
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocabulary_size or 8000,
                hard_vocab_limit=False,  # a smaller result is refused by the caller, with its size
                character_coverage=1.0,
                byte_fallback=byte_fallback,
                max_sentence_length=2**30,  # bytes; a longer line would be left out without a word
                normalization_rule_name="" if lowercase else "identity",
                normalization_rule_tsv=str(rules) if lowercase else "",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                pad_id=PAD_ID,
                unk_id=UNKNOWN_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                pad_piece=SPECIAL_TOKENS[PAD_ID],
                unk_surface=SPECIAL_TOKENS[UNKNOWN_ID],
                minloglevel=2,
            )
        except RuntimeError as error:
            needed = re.search(r"smaller than required_chars\. (\d+) vs (\d+)", str(error))
            if needed is None:
                raise ValueError(f"Expected text to train SentencePiece on, received: {error}") from None
            raise ValueError(
                f"Expected vocabulary_size of at least {needed[2]}, for every character of the text, "
                f"received {needed[1]}."
            ) from None
    return model.getvalue()


def _digest(manifest: dict) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"Expected a tokenizer's file {path}, received a folder without it.")
    return path.read_bytes()
