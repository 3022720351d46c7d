"""Level "bpe": byte-pair encoding by SentencePiece."""

import hashlib
import io
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from keras_attn.text.special_tokens import (
    BLANKS,
    DEFAULT_IDS,
    END_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    START_ID,
    UNKNOWN_ID,
    SpecialIds,
    lowercase_table,
)

BLANK_MARK = "▁"  # U+2581, SentencePiece's sign for a blank inside a piece
DEFAULT_VOCABULARY_SIZE = 8000
_FEW = 256  # texts, of 100 characters on average, for which to start threads takes longer than they save


class BPEModel:
    """A SentencePiece model.

    In one that is trained here, no blank is put before the text (SentencePiece's `add_dummy_prefix`), although that
    would give 0.3 % fewer ids on Multi30k: when they detokenize, tensorflow-text then drops every leading blank and
    Python only one. A model of another program, of any type and normalization, has `special_ids` of its own.

    Args:
        model: The bytes of the SentencePiece model.
        special_ids: The special ids.
        added: Tokens of the vocabulary that are behind the model's pieces, and that no text is encoded to.

    Attributes:
        vocabulary: list of str, one piece for each id.
        character_table: Empty, because the model carries its normalization.
        separator: "", because pieces include their blanks.
    """

    separator = ""

    def __init__(self, model: bytes, special_ids: SpecialIds = DEFAULT_IDS, added: Sequence[str] = ()):
        import sentencepiece

        self.sentencepiece_model = model
        self.special_ids = special_ids
        self._added = list(added)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = [self._processor.id_to_piece(index) for index in range(self._processor.get_piece_size())]
        self.vocabulary = pieces + self._added
        self.character_table: dict[int, int] = {}

    @classmethod
    def train(
        cls,
        lines: list[str],
        vocabulary_size: int | None,
        lowercase: bool,
        byte_fallback: bool,
        tags: Sequence[str] = (),
    ) -> Self:
        """Trains SentencePiece; see `Tokenizer.train`."""
        if not any(line.strip(BLANKS) for line in lines):
            raise ValueError(f"Expected text with at least one word. Received: {len(lines)} blank lines")
        model = cls(_train_sentencepiece(lines, vocabulary_size, lowercase, byte_fallback, tags))
        if vocabulary_size is not None and len(model.vocabulary) < vocabulary_size:
            raise ValueError(
                f"Expected vocabulary_size of at most {len(model.vocabulary)}, the largest possible for this text. "
                f"Received: {vocabulary_size}"
            )
        return model

    def extended(self, other: Self) -> Self:
        """Returns a model with pieces of another behind its own; see `Tokenizer.extended`."""
        added = _missing_pieces(self.sentencepiece_model, other.sentencepiece_model)
        while True:
            extended = type(self)(_with_pieces(self.sentencepiece_model, added) if added else self.sentencepiece_model)
            # The merges of both lead to other pieces on the way, so that some of the new ones are never reached.
            reached = [piece for piece in added if extended.cut(piece[0].replace(BLANK_MARK, " ")) == [piece[0]]]
            if len(reached) == len(added):
                return extended
            added = reached

    def encode(self, texts: list[str], threads: int | None) -> list[list[int]]:
        """Returns the ids of each text."""
        if threads is None and len(texts) <= _FEW and sum(map(len, texts)) <= 100 * _FEW:
            return [self._processor.encode(text) for text in texts]
        return self._processor.encode(texts, num_threads=threads or -1)

    def cut(self, text: str) -> list[str]:
        """Returns the pieces of a text, one for each id."""
        return self._processor.encode(text, out_type=str)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the (start, end) of each piece in the text."""
        if self.is_foreign:
            return self._foreign_spans(text)
        # Normalization maps one character to one, so that a piece is as long as the text that it stands for.
        spans, start, missing = [], 0, 0  # missing: bytes of the current character that are still to come
        for token_id, piece in zip(self._processor.encode(text), self.cut(text), strict=True):
            end = start + len(piece)
            if self._processor.is_byte(token_id):  # "<0xE2>": the first byte says how many its character has
                first = int(piece[3:5], 16)
                missing = (missing or 1 + sum(first >= least for least in (0xC0, 0xE0, 0xF0))) - 1
                end = start + 1
            spans.append((start, end))
            start = start if missing else end
        return spans

    def join(self, ids: list[int], unknown: list[str]) -> str:
        """Returns the text of ids, with a string of `unknown` for each unknown id."""
        if self.is_foreign:  # a blank before the text is not decoded, and so pieces of it cannot be decoded apart
            surfaces = iter(unknown)
            unknown_id = self.special_ids.unknown
            return self._processor.decode([next(surfaces) if i == unknown_id else self.vocabulary[i] for i in ids])
        parts, first = [], 0
        for surface in unknown:
            last = ids.index(UNKNOWN_ID, first)
            parts += self._processor.decode(ids[first:last]), surface
            first = last + 1
        return "".join([*parts, self._processor.decode(ids[first:])])

    def opens_word(self, token: str) -> bool:
        """Returns True if a word begins with this piece."""
        return token.startswith(BLANK_MARK)

    def manifest(self) -> dict[str, Any]:
        """Returns what `tokenizer.json` records of this model."""
        model = self.sentencepiece_model
        recorded = {"sentencepiece_bytes": len(model), "sentencepiece_sha256": hashlib.sha256(model).hexdigest()}
        foreign = {"special_ids": self.special_ids.get_config(), "added": self._added} if self.is_foreign else {}
        return recorded | foreign

    def _foreign_spans(self, text: str) -> list[tuple[int, int]]:
        if hasattr(self._processor, "encode_as_offset_mapping"):
            return self._processor.encode_as_offset_mapping(text)["offsets"]
        pieces = self._processor.encode(text, out_type="immutable_proto").pieces  # SentencePiece before 0.2.3
        return [(piece.begin, piece.end) for piece in pieces]

    @property
    def is_foreign(self) -> bool:
        """True for a model of another program, with special ids and perhaps normalization of its own."""
        return self.special_ids != DEFAULT_IDS


_PATH_LENGTH = 300  # bytes of the recorded path, wherever temporary files are: equal text has equal models
_RESERVED = "\u2585"  # SentencePiece's sign for an unknown character; it silently leaves out lines that have it


def _train_sentencepiece(
    lines: list[str], vocabulary_size: int | None, lowercase: bool, byte_fallback: bool, tags: Sequence[str]
) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        # SentencePiece reads normalization rules only from a file, and its model records the path.
        rules = Path(folder, "rules.tsv")
        recorded = f"{folder}{'/' * (_PATH_LENGTH - len(os.fsencode(rules)))}/rules.tsv"
        table = lowercase_table() if lowercase else {}
        rules.write_text("".join(f"{code:X}\t{lower:X}\n" for code, lower in table.items()))
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line.replace(_RESERVED, " ") for line in lines),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocabulary_size or DEFAULT_VOCABULARY_SIZE,
                hard_vocab_limit=False,  # `BPEModel.train` refuses a smaller result and names its size
                character_coverage=1.0,
                byte_fallback=byte_fallback,
                user_defined_symbols=list(tags),
                max_sentence_length=2**30,  # bytes; SentencePiece silently leaves out longer lines
                normalization_rule_name="" if lowercase else "identity",
                normalization_rule_tsv=recorded if lowercase else "",
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
                raise ValueError(f"Expected text that SentencePiece can be trained on. Received: {error}") from None
            raise ValueError(
                f"Expected vocabulary_size of at least {needed[2]}, so that it has every character of the text. "
                f"Received: {needed[1]}"
            ) from None
    path = os.fsencode(recorded)  # another one each time; what takes its place has the same length, as protobuf needs
    return model.getvalue().replace(path, b"rules.tsv".rjust(len(path), b"/"))


def _model_proto(model: bytes) -> Any:
    try:
        from sentencepiece.sentencepiece_model_pb2 import ModelProto
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Expected the package protobuf for extending a vocabulary of level 'bpe': pip install protobuf.",
            name="google.protobuf",
        ) from None
    return ModelProto.FromString(model)


def _missing_pieces(model: bytes, other: bytes) -> list[tuple[str, int]]:
    """The pieces of another model, with their types, that this one lacks and could not spell: tags first."""
    proto, others = _model_proto(model), _model_proto(other)
    tag, normal = proto.SentencePiece.USER_DEFINED, proto.SentencePiece.NORMAL
    own = {one.piece for one in proto.pieces if one.type == normal}
    known, characters = own | {one.piece for one in proto.pieces if one.type == tag}, {p for p in own if len(p) == 1}
    added = [(one.piece, tag) for one in others.pieces if one.type == tag and one.piece not in known]
    return added + [(p.piece, normal) for p in others.pieces if p.type == normal and set(p.piece) - characters]


def _with_pieces(model: bytes, pieces: Sequence[tuple[str, int]]) -> bytes:
    """A model with more pieces behind its own. As a merge, each comes after all before it: its score is lower."""
    proto = _model_proto(model)
    lowest = min(one.score for one in proto.pieces)
    for number, (piece, kind) in enumerate(pieces, 1):
        proto.pieces.add(piece=piece, score=lowest - number, type=kind)
    return proto.SerializeToString(deterministic=True)
