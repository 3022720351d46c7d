"""Tokenizers in Hugging Face's format, the JSON file of the package `tokenizers`."""

import json
from pathlib import Path
from typing import Any, Self

from keras_attn.text.special_tokens import SpecialIds

_LARGEST = 1 << 27  # bytes; Gemma's has 33 MB
_WORD_MARKS = {"Metaspace": "▁", "ByteLevel": "Ġ"}  # with which a piece that opens a word begins, by decoder


class HuggingFaceModel:
    """A tokenizer of the package `tokenizers`, which must be installed.

    Its template of start and end tokens, truncation and padding are not used. Special tokens are never read from text.

    Args:
        document: str, the JSON.
        special_ids: The special ids of the vocabulary.

    Raises:
        ModuleNotFoundError: If `tokenizers` is not installed.
        ValueError: If the package cannot read the JSON, or the ids have gaps.
    """

    sentencepiece_model = None
    separator = ""

    def __init__(self, document: str, special_ids: SpecialIds):
        try:
            import tokenizers
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "Expected the package tokenizers for a tokenizer of Hugging Face: pip install tokenizers. Without it "
                "only a WordLevel model is read, whose words are separated by blanks (WhitespaceSplit).",
                name="tokenizers",
            ) from None
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(document)
        except Exception as error:  # the package raises nothing more precise
            raise ValueError(f"Expected a tokenizer of Hugging Face. Received: {error}") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # "<s>" in a text is text
        self._document = document
        self.special_ids = special_ids
        self.vocabulary = by_id(self._tokenizer.get_vocab(with_added_tokens=True))
        self.character_table: dict[int, int] = {}
        self._mark, self._continues = _word_marks(json.loads(document).get("decoder"))

    def encode(self, texts: list[str], threads: int | None = None) -> list[list[int]]:
        """Returns the ids of each text; the package decides on the number of threads."""
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [self._ordinary(encoding.ids) for encoding in encodings]

    def cut(self, text: str) -> list[str]:
        """Returns the part of the text that each id stands for."""
        return [text[start:end] for start, end in self.spans(text)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the (start, end) of each id in the text."""
        return self._tokenizer.encode(text, add_special_tokens=False).offsets

    def join(self, ids: list[int], unknown: list[str]) -> str:
        """Returns the text of ids, with a string of `unknown` for each unknown id."""
        text = self._decode(ids)
        if not unknown:
            return text
        parts = text.split(self.vocabulary[self.special_ids.unknown])
        if len(parts) != len(unknown) + 1:  # a decoder that writes the unknown token in another way
            parts = [self._decode(run) for run in _runs(ids, self.special_ids.unknown)]
        return "".join(part + surface for part, surface in zip(parts, [*unknown, ""], strict=True))

    def opens_word(self, token: str) -> bool:
        """Whether a word begins with this token; True for all tokens of a decoder without marks."""
        if self._continues:
            return not token.startswith(self._continues)
        return token.startswith(self._mark)

    def manifest(self) -> dict[str, Any]:
        """Returns what `tokenizer.json` records of this model."""
        return {"hugging_face": self._document, "special_ids": self.special_ids.get_config()}

    @classmethod
    def restore(cls, manifest: dict[str, Any]) -> Self:
        """Returns the model that a `manifest` records; any error if it records none."""
        model = cls(manifest["hugging_face"], SpecialIds(**manifest["special_ids"]))
        model.special_ids.check(len(model.vocabulary))
        return model

    def __getstate__(self):
        return self.manifest()

    def __setstate__(self, manifest):
        self.__init__(manifest["hugging_face"], SpecialIds(**manifest["special_ids"]))

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def _ordinary(self, ids: list[int]) -> list[int]:
        """The ids of a text, with the unknown id for pad, start and end, which a model of whole words may find."""
        special = self.special_ids
        if special.reserved.isdisjoint(ids):
            return ids
        if special.unknown is None:
            raise ValueError("Expected text without special tokens, because the vocabulary has no unknown token.")
        return [special.unknown if token_id in special.reserved else token_id for token_id in ids]


def read_document(path: Path) -> tuple[str, dict[str, Any]]:
    """Returns the text and the content of a file.

    Raises:
        FileNotFoundError: If it does not exist.
        ValueError: If it is no tokenizer of Hugging Face, or too large.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected a tokenizer's file {path}. Received: a path that does not exist")
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"Expected {path} to have at most {_LARGEST:,} bytes. Received: {path.stat().st_size:,}")
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
        if not isinstance(document["model"], dict) or not isinstance(document.get("added_tokens") or [], list):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(
            f"Expected {path} to be a tokenizer of Hugging Face, with an entry `model`. Received: another file"
        ) from None
    return text, document


def looked_up_words(document: dict[str, Any]) -> list[str] | None:
    """The words by id, if all that the tokenizer does is to separate them by blanks and look them up; else None."""
    model, added = document["model"], document.get("added_tokens") or []
    splits = (document.get("pre_tokenizer") or {}).get("type") == "WhitespaceSplit"
    plain = document.get("normalizer") is None and document.get("decoder") is None
    special = all(token.get("special") for token in added)
    if not (model.get("type") == "WordLevel" and splits and plain and special):
        return None
    return by_id(model["vocab"] | {token["content"]: token["id"] for token in added})


def unknown_of(document: dict[str, Any]) -> str | None:
    """The entry that stands for unknown tokens, if the model has one."""
    model = document["model"]
    if model.get("type") == "Unigram" and model.get("unk_id") is not None:
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def by_id(vocabulary: dict[str, int]) -> list[str]:
    """The tokens of a vocabulary in the order of their ids.

    Raises:
        ValueError: If two tokens have one id, or an id below the largest is missing.
    """
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    for place, token in enumerate(tokens):
        if vocabulary[token] != place:
            raise ValueError(
                f"Expected a vocabulary whose {len(tokens)} tokens have the ids from 0 to {len(tokens) - 1}. Received: "
                f"{token!r} with id {vocabulary[token]} in the place of {place}"
            )
    return tokens


def _word_marks(decoder: dict[str, Any] | None) -> tuple[str, str]:
    """What a piece that opens a word begins with, and what one that continues a word begins with; "" if unknown."""
    parts = [] if decoder is None else decoder.get("decoders", [decoder])
    for part in parts:
        if part.get("type") == "WordPiece":
            return "", part.get("prefix", "##")
        if part.get("type") in _WORD_MARKS:
            return part.get("replacement", _WORD_MARKS[part["type"]]), ""
    return "", ""


def _runs(ids: list[int], separator: int) -> list[list[int]]:
    runs = [[]]
    for token_id in ids:
        if token_id == separator:
            runs.append([])
        else:
            runs[-1].append(token_id)
    return runs
