"""Vocabularies of Marian: `.yml` and `.json` from words to ids, and SentencePiece's `.spm`."""

import re
from os import PathLike
from pathlib import Path

from keras_attn.converters.marian_file import yaml_entries
from keras_attn.text import SPECIAL_TOKENS, BPEModel, LookupModel, SpecialIds, Tokenizer, checked_text

_LARGEST = 1 << 27  # bytes of a file
_MOST = 1 << 24  # ids
# Marian reads files line by line, and separates words by nothing but the blank.
_LINE_ENDS = {ord("\n"): ord(" "), ord("\r"): ord(" ")}
_END, _UNKNOWN = ("</s>", "eos"), ("<unk>", "UNK")  # Marian's names, and those of Nematus, which mean ids 0 and 1


def marian_tokenizer(path: str | PathLike, *, size: int | None = None) -> Tokenizer:
    """A vocabulary of Marian as a `Tokenizer`: every word keeps its id.

    Marian has no id for padding, and its decoder begins with no word at all. Padding and a start token get the first
    two ids behind the vocabulary.

    Args:
        path: A file in `.yml`, `.yaml` or `.json`, from each word to its id; or a SentencePiece model in `.spm`.
        size: Marian's `dim-vocabs`: words with larger ids are unknown, and missing ids stand for nothing. None: the
            file decides.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is too large, or no vocabulary of Marian.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a vocabulary of Marian. Received: {path}, which does not exist")
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"Expected {path} to have at most {_LARGEST:,} bytes. Received: {path.stat().st_size:,}")
    if path.suffix == ".spm":
        return _of_pieces(path, size)
    if path.suffix not in (".yml", ".yaml", ".json"):
        raise ValueError(f"Expected a vocabulary of Marian in .yml, .yaml, .json or .spm. Received: {path}")
    words = _words_of(path)
    end, unknown = (_required(path, words, names, i) for i, names in enumerate((_END, _UNKNOWN)))
    size = size or max(words) + 1
    tokens = [words.get(i, f"<unused {i}>") for i in range(size)]
    added, special = _added(path, tokens, end, unknown)
    return Tokenizer("word", False, LookupModel("word", tokens + added, _LINE_ENDS, special))


def _of_pieces(path: Path, size: int | None) -> Tokenizer:
    content = path.read_bytes()
    try:
        model = BPEModel(content)
        pieces = model.vocabulary
        end, unknown = pieces.index(_END[0]), pieces.index(_UNKNOWN[0])
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"Expected {path} to be a SentencePiece model with the pieces </s> and <unk>. Received: another file"
        ) from error
    if size not in (None, len(pieces)):
        raise ValueError(f"Expected {path} to have {size} pieces, as the model has. Received: {len(pieces)}")
    added, special = _added(path, pieces, end, unknown)
    return Tokenizer("bpe", False, BPEModel(content, special, added))


def _words_of(path: Path) -> dict[int, str]:
    """The words of a file by id. Marian, too, reads JSON as YAML."""
    words: dict[int, str] = {}
    try:
        for word, token_id in yaml_entries(path.read_text(encoding="utf-8-sig")):
            if not word or not isinstance(token_id, str) or not re.fullmatch("[0-9]{1,9}", token_id):
                raise ValueError(f"Expected a word and its id. Received: {word[:80]!r} with {str(token_id)[:80]!r}")
            if int(token_id) >= _MOST:
                raise ValueError(f"Expected ids below {_MOST:,}. Received: {word[:80]!r} with id {token_id}")
            if (other := words.setdefault(int(token_id), checked_text(word))) != word:
                raise ValueError(
                    f"Expected words with ids of their own. Received: {other!r} and {word!r}, both with id {token_id}"
                )
    except ValueError as error:
        raise ValueError(f"Expected {path} to have words and their ids, as `word: id` in UTF-8. {error}") from error
    if not words:
        raise ValueError(f"Expected words with their ids in {path}. Received: none")
    if len(set(words.values())) < len(words):
        raise ValueError(f"Expected words that occur once in {path}. Received: one with two ids")
    return words


def _required(path: Path, words: dict[int, str], names: tuple[str, str], default: int) -> int:
    """The id of the end or of the unknown word, as `DefaultVocab::addRequiredVocabulary` finds it."""
    own, of_nematus = names
    if words.get(default, of_nematus) == of_nematus:
        return default
    found = [token_id for token_id, word in words.items() if word == own]
    if not found:
        raise ValueError(f"Expected {path} to have an entry {own}. Received: {len(words)} words without it")
    return found[0]


def _added(path: Path, tokens: list[str], end: int, unknown: int) -> tuple[list[str], SpecialIds]:
    """The tokens for padding and start, behind the others, and all special ids."""
    if max(end, unknown) >= len(tokens) or end == unknown:
        raise ValueError(
            f"Expected an end and an unknown word among the {len(tokens)} words of the model in {path}. Received: the "
            f"ids {end} and {unknown}"
        )
    taken = set(tokens)
    added = []
    for name in (SPECIAL_TOKENS[0], SPECIAL_TOKENS[2]):
        while name in taken:
            name = f"{name}_"
        added.append(name)
    size = len(tokens)
    return added, SpecialIds(pad=size, unknown=unknown, start=size + 1, end=end)
