"""Text: tokenizers, and files of parallel lines."""

from keras_attn.text.bpe_dropout import BPEDropout
from keras_attn.text.bpe_model import BPEModel
from keras_attn.text.lookup_model import APOSTROPHES, LETTERS, LookupModel, visible_name
from keras_attn.text.special_tokens import (
    BLANKS,
    DEFAULT_IDS,
    END_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    START_ID,
    UNKNOWN_ID,
    SpecialIds,
    checked_text,
)
from keras_attn.text.temporary_ids import (
    add_temporary_ids,
    check_joint,
    temporary_ids,
    with_temporary_ids,
    without_temporary_ids,
)
from keras_attn.text.text_files import (
    PACKED,
    PathLike,
    block_lines,
    corpus_paths,
    iterate_blocks,
    iterate_lines,
    parallel_paths,
    read_lines,
    read_parallel,
    text_paths,
    unequal_lengths_error,
    without_byte_order_mark,
)
from keras_attn.text.tokenizer import Tokenizer, WordNumbers, encode_lines
