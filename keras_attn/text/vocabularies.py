"""Vocabularies of other programs as models of a tokenizer: lists, files, layers of Keras, Hugging Face's files."""

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from keras_attn.text.checks import HUGGING_FACE, LEVELS, checked_text
from keras_attn.text.hugging_face import HuggingFaceModel, looked_up_words, read_document, unknown_of
from keras_attn.text.lookup_model import LookupModel
from keras_attn.text.special_tokens import DEFAULT_IDS, SPECIAL_TOKENS, SpecialIds
from keras_attn.text.text_files import read_lines

_LARGEST = 1 << 27  # bytes of a file with one token a line
_DEFAULTS = dict(zip(("pad", "unknown", "start", "end"), SPECIAL_TOKENS, strict=True))
# What `TextVectorization` does to a text; TensorFlow's `lower` and `split` know ASCII alone.
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


def model_of(
    vocabulary: Any, level: str | None, lowercase: bool, special: Mapping[str, str | int | None]
) -> tuple[str, bool, LookupModel | HuggingFaceModel]:
    """The arguments of `Tokenizer` for a vocabulary; see `Tokenizer.from_vocabulary`."""
    if level is not None and level not in LEVELS[1:]:
        raise ValueError(f"Expected level to be one of {', '.join(LEVELS[1:])}. Received: {level!r}")
    if isinstance(vocabulary, (str, PathLike)) and Path(vocabulary).suffix == ".json":
        text, document = read_document(Path(vocabulary))
        words, own = looked_up_words(document), {"unknown": unknown_of(document)}
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
        source = _Source(_of_file(Path(vocabulary)))
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


def _of_file(path: Path) -> list[str]:
    if path.is_file() and path.stat().st_size > _LARGEST:
        raise ValueError(f"Expected {path} to have at most {_LARGEST:,} bytes. Received: {path.stat().st_size:,}")
    lines = read_lines(path)
    lines[:1] = [line.removeprefix("\ufeff") for line in lines[:1]]  # the byte order mark of an editor
    return _checked([line.removesuffix("\r") for line in lines], str(path), "in lines", first=1)


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
