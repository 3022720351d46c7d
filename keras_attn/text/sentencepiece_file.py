"""SentencePiece's file format, as far as its library does not give access to it: pieces added, and found by type.

A model is a protocol buffer, whose field 1 repeats: a piece, with its string (1), score (2) and type (3). Fields may
come in any order, so that pieces are added by writing them behind the others (sentencepiece_model.proto).
"""

import struct
from collections.abc import Iterator, Sequence

_PIECE, _STRING, _SCORE, _TYPE = 1, 1, 2, 3
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # how a field is written
NORMAL, USER_DEFINED = 1, 4


def pieces_of_type(model: bytes, kind: int) -> list[str]:
    """Returns the pieces of a type, in the order of their ids."""
    return [piece for piece, _, its_kind in _pieces(model) if its_kind == kind]


def with_pieces(model: bytes, pieces: Sequence[tuple[str, int]]) -> bytes:
    """Returns a model with more pieces behind its own, each with its type.

    As a merge, a piece comes after all that are before it: its score is lower.
    """
    lowest = min(score for _, score, _ in _pieces(model))
    added = []
    for number, (piece, kind) in enumerate(pieces, 1):
        text = piece.encode()
        content = _tag(_STRING, _BYTES) + _varint(len(text)) + text
        content += _tag(_SCORE, _FOUR) + struct.pack("<f", lowest - number)
        content += _tag(_TYPE, _VARINT) + _varint(kind)
        added.append(_tag(_PIECE, _BYTES) + _varint(len(content)) + content)
    return model + b"".join(added)


def _pieces(model: bytes) -> Iterator[tuple[str, float, int]]:
    """Yields each piece, its score and its type."""
    for number, content in _fields(model):
        if number == _PIECE:
            piece = {_SCORE: struct.pack("<f", 0.0), _TYPE: NORMAL} | dict(_fields(content))
            yield piece[_STRING].decode(), struct.unpack("<f", piece[_SCORE])[0], piece[_TYPE]


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, position = _read_varint(message, position)
        elif kind in (_EIGHT, _FOUR, _BYTES):
            length = {_EIGHT: 8, _FOUR: 4}.get(kind)
            if length is None:
                length, position = _read_varint(message, position)
            value, position = message[position : position + length], position + length
        else:
            raise ValueError(f"Expected a SentencePiece model. Received: bytes with a field of the unknown kind {kind}")
        yield number, value


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while message[position] >= 0x80:
        value |= (message[position] & 0x7F) << shift
        shift, position = shift + 7, position + 1
    return value | message[position] << shift, position + 1


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)
