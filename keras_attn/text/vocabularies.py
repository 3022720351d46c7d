"""Vocabularies of other programs as models of a tokenizer: lists, files, layers of Keras, Hugging Face's files.

Hugging Face's format is the JSON file of the package `tokenizers`.
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from keras_attn import files
from keras_attn.text.lookup_model import LookupModel
from keras_attn.text.special_tokens import DEFAULT_IDS, LEVELS, SPECIAL_TOKENS, SpecialIds, checked_text
from keras_attn.text.text_files import read_lines

HUGGING_FACE = "hugging_face"  # the level of its tokenizers
_LARGEST = 1 << 27  # bytes of a file; Gemma's has 33 MB
_WORD_MARKS = {"Metaspace": "▁", "ByteLevel": "Ġ"}  # with which a piece that opens a word begins, by decoder
_DEFAULTS = dict(zip(("pad", "unknown", "start", "end"), SPECIAL_TOKENS, strict=True))
# The standardization of `TextVectorization`; TensorFlow's `lower` and `split` know ASCII alone.
_ASCII_BLANKS = dict.fromkeys(map(ord, "\t\n\v\f\r"), ord(" "))
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_PUNCTUATION = dict.fromkeys(map(ord, "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'"))
_STANDARDIZED = {
    None: {},
    "lower": _ASCII_LOWER,
    "strip_punctuation": _PUNCTUATION,
    "lower_and_strip_punctuation": _ASCII_LOWER | _PUNCTUATION,
}


class _Source(NamedTuple):
    """Tokens by id, the special tokens that their origin names, and how it splits text, if it does."""

    tokens: list[str]
    special: Mapping[str, str | None] = MappingProxyType({})
    level: str | None = None
    lowercase: bool = False
    table: dict[int, int | None] | None = None


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
        self.vocabulary = _by_id(self._tokenizer.get_vocab(with_added_tokens=True))
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
            places = [n for n, token_id in enumerate(ids) if token_id == self.special_ids.unknown]
            parts = [self._decode(ids[a + 1 : b]) for a, b in itertools.pairwise([-1, *places, len(ids)])]
        return "".join(part + surface for part, surface in zip(parts, [*unknown, ""], strict=True))

    def opens_word(self, token: str) -> bool:
        """Returns True if a word begins with this token, as with all tokens of a decoder without marks."""
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

    def __reduce__(self):
        return type(self).restore, (self.manifest(),)  # the package's object loses `encode_special_tokens`

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


def model_of(
    vocabulary: Any, level: str | None, lowercase: bool, special: Mapping[str, str | int | None]
) -> tuple[str, bool, LookupModel | HuggingFaceModel]:
    """The arguments of `Tokenizer` for a vocabulary; see `Tokenizer.from_vocabulary`."""
    if level is not None and level not in LEVELS[1:]:
        raise ValueError(f"Expected level to be one of {', '.join(LEVELS[1:])}. Received: {level!r}")
    if isinstance(vocabulary, (str, PathLike)) and Path(vocabulary).suffix == ".json":
        text, document = _read_document(Path(vocabulary))
        words, own = _looked_up_words(document), {"unknown": _unknown_of(document)}
        if level is not None or lowercase:
            raise ValueError("Expected no level and no lowercase: the tokenizer of Hugging Face decides on both.")
        if words is None:
            model = HuggingFaceModel(text, DEFAULT_IDS)
            model.special_ids = _special_ids(model.vocabulary, own, special)
            return HUGGING_FACE, False, model
        source = _Source(words, own)
    elif hasattr(vocabulary, "get_vocabulary"):
        source = _of_layer(vocabulary, level, lowercase)
    elif isinstance(vocabulary, (str, PathLike)):
        source = _Source(_checked(read_lines(vocabulary), str(vocabulary), "in lines", first=1))
    else:
        source = _Source(_checked(vocabulary, "the list", "as ids"))
    level = source.level or level or "word"
    lowercase = source.lowercase or lowercase
    table = LookupModel.table(level, lowercase) if source.table is None else source.table
    ids = _special_ids(source.tokens, source.special, special)
    return level, lowercase, LookupModel(level, source.tokens, table, ids)


def _checked(tokens: Iterable[str], where: str, places: str, first: int = 0) -> list[str]:
    if isinstance(tokens, (Mapping, bytes)) or not isinstance(tokens, Iterable):
        raise ValueError(
            "Expected a vocabulary as a list of tokens in the order of their ids, a file, a layer of Keras "
            f"(TextVectorization, StringLookup) or a JSON file of Hugging Face. Received: {type(tokens).__name__}"
        )
    places_of: dict[str, int] = {}
    for place, token in enumerate(map(checked_text, tokens), first):
        if token in places_of:
            raise ValueError(
                f"Expected tokens that occur once each in {where}. Received: {token!r} twice, {places} "
                f"{places_of[token]} and {place}"
            )
        places_of[token] = place
    if not places_of:
        raise ValueError(f"Expected at least one token in {where}. Received: none")
    return [str(token) for token in places_of]  # a layer may have NumPy's strings


def _of_layer(layer: Any, level: str | None, lowercase: bool) -> _Source:
    """A `TextVectorization`, which splits text, or a `StringLookup`, which does not."""
    config, name = layer.get_config(), type(layer).__name__
    if config.get("output_mode", "int") != "int":
        raise ValueError(f"Expected a {name} whose output_mode is 'int'. Received: {config['output_mode']!r}")
    if config.get("num_oov_indices", 1) > 1:
        raise ValueError(
            f"Expected a {name} with one id for unknown tokens at most. Received: {config['num_oov_indices']}, among "
            "which it chooses by a hash"
        )
    tokens = _checked(layer.get_vocabulary(), f"the {name}", "as ids")
    if "standardize" not in config:
        unknown = config.get("oov_token") if config.get("num_oov_indices") else None
        return _Source(tokens, {"pad": config.get("mask_token"), "unknown": unknown})
    standardize, split, ngrams = (config[key] for key in ("standardize", "split", "ngrams"))
    known = standardize is None or (isinstance(standardize, str) and standardize in _STANDARDIZED)
    if not known or split not in ("whitespace", "character") or ngrams is not None:
        raise ValueError(
            f"Expected a {name} that splits at whitespace or characters, without ngrams, and with a standardize among "
            f"{', '.join(filter(None, _STANDARDIZED))} or None; for a function, apply it to the text before, and give "
            f"`layer.get_vocabulary()`. Received: standardize={standardize!r}, split={split!r}, ngrams={ngrams!r}"
        )
    if level is not None or lowercase:
        raise ValueError(f"Expected no level and no lowercase: the {name} decides on both.")
    split_table = _ASCII_BLANKS if split == "whitespace" else {}
    level = "word" if split == "whitespace" else "character"
    special = {"pad": tokens[0], "unknown": tokens[1]}  # "" and "[UNK]", always
    return _Source(tokens, special, level, "lower" in (standardize or ""), split_table | _STANDARDIZED[standardize])


def _special_ids(tokens: list[str], own: Mapping[str, str | None], given: Mapping[str, str | int | None]) -> SpecialIds:
    """The ids of the special tokens: of those given, or for one that is not, of the one that the origin names."""
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    found = {}
    for name, token in given.items():
        if token == _DEFAULTS[name] and token not in ids and own.get(name) is not None:
            token = own[name]
        if isinstance(token, str) and token not in ids:
            none = "" if name == "pad" else ", or be None if there is none"
            raise ValueError(
                f"Expected the vocabulary to have the token {token!r}; `{name}` may name another entry or its "
                f"id{none}. Received: {len(tokens)} tokens without it"
            )
        found[name] = ids[token] if isinstance(token, str) else token
    special = SpecialIds(**found)
    special.check(len(tokens))
    return special


def _read_document(path: Path) -> tuple[str, dict[str, Any]]:
    """Returns the text and the content of a file.

    Raises:
        FileNotFoundError: If it does not exist.
        ValueError: If it is no tokenizer of Hugging Face, or too large.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected a tokenizer's file {path}. Received: a path that does not exist")
    content = files.read_bounded(path, _LARGEST)
    try:
        text = content.decode("utf-8-sig")
        document = json.loads(text)
        if not isinstance(document["model"], dict) or not isinstance(document.get("added_tokens") or [], list):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(
            f"Expected {path} to be a tokenizer of Hugging Face, with an entry `model`. Received: another file"
        ) from None
    return text, document


def _looked_up_words(document: dict[str, Any]) -> list[str] | None:
    """The words by id, if all that the tokenizer does is to separate them by blanks and look them up; else None."""
    model, added = document["model"], document.get("added_tokens") or []
    splits = (document.get("pre_tokenizer") or {}).get("type") == "WhitespaceSplit"
    plain = document.get("normalizer") is None and document.get("decoder") is None
    special = all(token.get("special") for token in added)
    if not (model.get("type") == "WordLevel" and splits and plain and special):
        return None
    return _by_id(model["vocab"] | {token["content"]: token["id"] for token in added})


def _unknown_of(document: dict[str, Any]) -> str | None:
    """The entry that stands for unknown tokens, if the model has one."""
    model = document["model"]
    if model.get("type") == "Unigram" and model.get("unk_id") is not None:
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def _by_id(vocabulary: dict[str, int]) -> list[str]:
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
    """The prefixes of pieces that open a word and of those that continue one; "" if unknown."""
    parts = [] if decoder is None else decoder.get("decoders", [decoder])
    for part in parts:
        if part.get("type") == "WordPiece":
            return "", part.get("prefix", "##")
        if part.get("type") in _WORD_MARKS:
            return part.get("replacement", _WORD_MARKS[part["type"]]), ""
    return "", ""
