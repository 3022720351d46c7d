"""The models that tokenizers consist of, made from what a tokenizer's files record."""

from typing import Any

from keras_attn.text.bpe_model import BPEModel
from keras_attn.text.checks import HUGGING_FACE, LEVELS, checked_text
from keras_attn.text.hugging_face import HuggingFaceModel
from keras_attn.text.lookup_model import LookupModel
from keras_attn.text.special_tokens import SPECIAL_TOKENS, SpecialIds

TokenizerModel = BPEModel | LookupModel | HuggingFaceModel


def restore(manifest: dict[str, Any], sentencepiece_model: bytes | None) -> tuple[str, bool, TokenizerModel]:
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
