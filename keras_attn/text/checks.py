"""The levels of a tokenizer, and the checks of its training's arguments and of the text that it receives."""

from collections.abc import Iterable, Sequence
from operator import index

from keras_attn.text.lowercase import lowercase_table
from keras_attn.text.special_tokens import BLANKS, SPECIAL_TOKENS

LEVELS = ("bpe", "word", "symbol", "character")  # that can be trained
HUGGING_FACE = "hugging_face"


def checked_text(text: str) -> str:
    """Returns a text if it is valid.

    Raises:
        ValueError: If it is no str, or has half of a surrogate pair.
    """
    if not isinstance(text, str):
        raise ValueError(f"Expected text as a str. Received: {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            "Expected text that can be encoded in UTF-8. Received: the lone surrogate "
            f"U+{ord(text[error.start]):04X} at character {error.start}"
        ) from None
    return text


def checked_ids(ids: Iterable[int], size: int) -> list[int]:
    """Returns ids as a list if they are of a vocabulary of this size.

    Raises:
        ValueError: If one is no whole number, or outside.
    """
    try:
        ids = [index(token_id) for token_id in ids]
    except TypeError:
        raise ValueError(f"Expected ids to be whole numbers. Received: {ids!r}") from None
    for token_id in ids:
        if not 0 <= token_id < size:
            raise ValueError(f"Expected ids from 0 to {size - 1}. Received: {token_id}")
    return ids


def check_training(
    lines: Iterable[str], level: str, vocabulary_size: int | None, min_frequency: int, tags: Sequence[str], lower: bool
) -> None:
    """Refuses arguments of `Tokenizer.train` that are out of range.

    Raises:
        ValueError: For the first that is.
    """
    if level not in LEVELS:
        raise ValueError(f"Expected level to be one of {', '.join(LEVELS)}. Received: {level!r}")
    if isinstance(lines, str):
        raise ValueError("Expected lines to be an iterable of lines. Received: a single str")
    if isinstance(tags, str) or not isinstance(tags, Sequence) or len(set(tags)) < len(tags):
        raise ValueError(f"Expected tags as a list of tokens that differ from each other. Received: {tags!r}")
    special = len(SPECIAL_TOKENS) + len(tags)
    if vocabulary_size is not None and vocabulary_size <= special:
        raise ValueError(
            f"Expected vocabulary_size of at least {special + 1}, {special} of them special. "
            f"Received: {vocabulary_size}"
        )
    if min_frequency < 1 or (min_frequency > 1 and level in ("bpe", "symbol")):
        raise ValueError(
            "Expected min_frequency of at least 1, and of 1 for the levels bpe and symbol, which have no "
            f"frequency limit. Received: {min_frequency} for level {level}"
        )
    if tags and level == "character":
        raise ValueError("Expected no tags for the level character, each of whose tokens is one character.")
    for tag in tags:
        if not tag or any(character in f"{BLANKS}▁," for character in checked_text(tag)) or tag in SPECIAL_TOKENS:
            raise ValueError(f"Expected tags without blanks and commas, such as '<2fr>'. Received: {tag!r}")
        if lower and tag != tag.translate(lowercase_table()):
            raise ValueError(f"Expected tags in lower case with lowercase=True. Received: {tag!r}")
