"""Marian's files, read within bounds: YAML, a model's options and weights by the names of type s2s, vocabularies."""

import math
import re
import zipfile
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import numpy as np

from keras_attn import files
from keras_attn.requirements import require
from keras_attn.text import SPECIAL_TOKENS, BPEModel, LookupModel, SpecialIds, Tokenizer, checked_text

Weights = dict[str, np.ndarray]
Options = dict[str, str | list[str]]

_CONFIG = "special:model.yml"
_LARGEST_CONFIG = 1 << 16  # bytes; one has some 2 kB
_LARGEST = 1 << 27  # bytes of a file
_MOST = 1 << 24  # ids
# Marian reads files line by line, and separates words by nothing but the blank.
_LINE_ENDS = {ord("\n"): ord(" "), ord("\r"): ord(" ")}
_END, _UNKNOWN = ("</s>", "eos"), ("<unk>", "UNK")  # Marian's names, and those of Nematus, which mean ids 0 and 1
_LONGEST_HEADER = 10_000  # characters before an array
TYPES = ("s2s", "nematus", "amun")
# The names of types amun and nematus, with those of type s2s, from `models/amun.h` and `models/nematus.h`.
_NAMES = (
    (r"encoder_(r_)?(Ux?|bx?)_drt_(\d+)", lambda m: f"encoder_bi_{m[1] or ''}cell{int(m[3]) + 1}_{m[2]}"),
    (r"encoder_(r_)?(Ux?|Wx?|bx?|gamma[12])", lambda m: f"encoder_bi_{m[1] or ''}{m[2]}"),
    (r"decoder_(Ux?|bx?)_nl_drt_(\d+)", lambda m: f"decoder_cell{int(m[2]) + 2}_{m[1]}"),
    (r"decoder_(Ux?|bx?)_nl", lambda m: f"decoder_cell2_{m[1]}"),
    (r"decoder_Wc(x?)", lambda m: f"decoder_cell2_W{m[1]}"),
    (r"decoder_(Ux?|Wx?|bx?)", lambda m: f"decoder_cell1_{m[1]}"),
    (r"ff_logit_(prev|lstm|ctx)_(W|b|ln_s|ln_b)", lambda m: f"decoder_ff_logit_l1_{m[2]}{_INPUTS.index(m[1])}"),
    (r"ff_logit_l1_(gamma[012])", lambda m: f"decoder_ff_logit_l1_{m[1]}"),
    (r"ff_logit_(W|b)", lambda m: f"decoder_ff_logit_l2_{m[1]}"),
    (r"ff_state_(W|b|gamma|ln_s|ln_b)", lambda m: f"decoder_ff_state_{m[1]}"),
    (r"Wemb_dec", lambda m: "decoder_Wemb"),
)
_INPUTS = ("prev", "lstm", "ctx")  # of the read-out: the last word, the state, the context
_IGNORED = ("decoder_c_tt", "uidx", "history_errs")  # what Nematus' files have besides weights


def yaml_entries(text: str) -> Iterator[tuple[str, str | list[str]]]:
    """Yields the entries of a YAML mapping from scalars to scalars or lists of scalars, all of them as text.

    PyYAML's events are read one by one, so that nothing is built of aliases and of collections that are nested deeper.

    Raises:
        ValueError: for anything else; the message has the line.
        ModuleNotFoundError: without PyYAML.
    """
    require("marian", "yaml", purpose="reading Marian's files")
    import yaml

    key, items, depth = None, [], 0  # depth 1 is the mapping, 2 a list in it
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader)):
            if isinstance(event, yaml.ScalarEvent) and depth == 2:
                items.append(event.value)
            elif isinstance(event, yaml.ScalarEvent) and depth == 1 and key is None:
                key = event.value
            elif isinstance(event, yaml.ScalarEvent) and depth == 1:
                yield key, event.value
                key = None
            elif isinstance(event, yaml.MappingStartEvent) and depth == 0:
                depth = 1
            elif isinstance(event, yaml.SequenceStartEvent) and depth == 1 and key is not None:
                items, depth = [], 2
            elif isinstance(event, yaml.SequenceEndEvent):
                yield key, items
                key, depth = None, 1
            elif isinstance(event, yaml.MappingEndEvent):
                depth = 0
            elif isinstance(event, yaml.NodeEvent):  # an alias, or one of the others where it should not be
                kind = type(event).__name__.removesuffix("Event")
                line = event.start_mark.line + 1
                raise ValueError(f"Expected `name: value` in each line. Received in line {line}: {kind} of YAML")
    except yaml.YAMLError as error:
        raise ValueError(f"Expected YAML. Received: {' '.join(str(error).split())}") from error


def read_model(path: Path) -> tuple[Options, Weights]:
    """Reads the options and the weights of a model.

    Raises:
        ValueError: if it is no model of Marian in `.npz`, of one of `TYPES`.
    """
    try:
        files.check_archive(path)
        with zipfile.ZipFile(path) as archive:
            parts = {part.filename.removesuffix(".npy"): part for part in archive.infolist()}
            if len(parts) < len(archive.infolist()):
                raise ValueError("Some of its arrays are stored twice.")
            if _CONFIG not in parts:
                raise ValueError(f"It has no {_CONFIG}, in which Marian keeps the options.")
            if parts[_CONFIG].file_size > _LARGEST_CONFIG:
                raise ValueError(f"Its {_CONFIG} has more than {_LARGEST_CONFIG:,} bytes.")
            stored = {name: _array(archive, part) for name, part in parts.items() if name not in _IGNORED}
    except Exception as error:  # damaged files fail in many ways
        raise ValueError(
            f"Expected {str(path)!r} to be a model that Marian saved as .npz. Received: {error}"
        ) from error
    options = _options(stored.pop(_CONFIG).tobytes(), path)
    weights = {}
    for name, array in stored.items():
        name = _name_of_s2s(name, options)
        if array.dtype != np.float32 or name in weights:
            raise ValueError(f"Expected weights in float32, each once. Received: {name!r} in {array.dtype}")
        weights[name] = array.reshape(1, -1) if array.ndim == 1 else array  # Nematus' biases have one axis
    return options, weights


def _array(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> np.ndarray:
    """One array; its size is checked before it is read."""
    with archive.open(part) as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"{part.filename} has the format {version} of NumPy.")
        shape, fortran, dtype = read_header[version](file, max_header_size=_LONGEST_HEADER)
        if dtype.hasobject or any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize > part.file_size:
            raise ValueError(f"{part.filename} has {dtype} {shape}, in {part.file_size:,} bytes.")
        content = file.read(math.prod(shape) * dtype.itemsize)
    if len(content) < math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{part.filename} is truncated.")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _options(content: bytes, path: Path) -> Options:
    try:
        options = dict(yaml_entries(content.rstrip(b"\0").decode("utf-8")))
    except ValueError as error:
        raise ValueError(f"Expected options in {_CONFIG} of {str(path)!r}. {error}") from error
    if options.get("type") not in TYPES:
        raise ValueError(
            f"Expected a model of type {', '.join(TYPES)}. Received: {str(path)!r} of type {options.get('type')}"
        )
    return options


def _name_of_s2s(name: str, options: Options) -> str:
    if options["type"] == "s2s":
        return name
    bare, suffix = re.fullmatch(r"(.*?)(_lns|_lnb)?", name).groups()
    for pattern, own in _NAMES:
        if match := re.fullmatch(pattern, bare):
            return own(match) + (suffix or "")
    shared = "true" in (options.get("tied-embeddings-src"), options.get("tied-embeddings-all"))
    return "encoder_Wemb" if name == "Wemb" and not shared else name


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
    path = files.existing(path, "a vocabulary of Marian")
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
