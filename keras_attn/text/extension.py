"""A vocabulary that is extended by what another one has, without another spelling of what it could spell before."""

from typing import Any

from keras_attn.text.bpe_model import BLANK_MARK, BPEModel
from keras_attn.text.checks import LEVELS
from keras_attn.text.lookup_model import LookupModel
from keras_attn.text.sentencepiece_file import NORMAL, USER_DEFINED, pieces_of_type, with_pieces


def extended_model(tokenizer: Any, other: Any) -> BPEModel | LookupModel:
    """The model of `Tokenizer.extended`, for two of these, with its errors."""
    for one in (tokenizer, other):
        if one.level not in LEVELS or (one.level == "bpe" and one._model.is_foreign):
            raise ValueError(
                f"Expected tokenizers that were trained here: another program's of level {one.level!r} is not extended."
            )
    if (other.level, other.lowercase) != (tokenizer.level, tokenizer.lowercase):
        raise ValueError(
            f"Expected a tokenizer of level {tokenizer.level!r} and lowercase={tokenizer.lowercase}. Received: level "
            f"{other.level!r} and lowercase={other.lowercase}"
        )
    if tokenizer.level == "bpe":
        return BPEModel(_extended_pieces(tokenizer.sentencepiece_model, other.sentencepiece_model))
    known, special = set(tokenizer.vocabulary), other.special_ids
    tokens = [other.vocabulary[token_id] for token_id in special.ordinary(other.vocabulary_size)]
    vocabulary = [*tokenizer.vocabulary, *(token for token in tokens if token not in known)]
    return LookupModel(tokenizer.level, vocabulary, tokenizer.character_table, tokenizer.special_ids)


def _extended_pieces(model: bytes, other: bytes) -> bytes:
    own = pieces_of_type(model, NORMAL)
    known, characters = {*own, *pieces_of_type(model, USER_DEFINED)}, {piece for piece in own if len(piece) == 1}
    added = [(piece, USER_DEFINED) for piece in pieces_of_type(other, USER_DEFINED) if piece not in known]
    added += [(piece, NORMAL) for piece in pieces_of_type(other, NORMAL) if set(piece) - characters]
    while True:
        extended = BPEModel(with_pieces(model, added)) if added else BPEModel(model)
        # The merges of both lead to other pieces on the way, so that some of the new ones are never reached.
        reached = [piece for piece in added if extended.cut(piece[0].replace(BLANK_MARK, " ")) == [piece[0]]]
        if len(reached) == len(added):
            return extended.sentencepiece_model
        added = reached
