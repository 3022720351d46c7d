"""Text: tokenizers, and files of parallel lines."""

from keras_attn.text.text_files import PathLike, iterate_lines, read_lines, read_parallel, unequal
from keras_attn.text.tokenizer import BLANKS, END_ID, PAD_ID, SPECIAL_TOKENS, START_ID, UNKNOWN_ID, Tokenizer

__all__ = [
    "BLANKS",
    "END_ID",
    "PAD_ID",
    "SPECIAL_TOKENS",
    "START_ID",
    "UNKNOWN_ID",
    "PathLike",
    "Tokenizer",
    "iterate_lines",
    "read_lines",
    "read_parallel",
    "unequal",
]
