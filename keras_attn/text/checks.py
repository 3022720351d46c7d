"""The levels of a tokenizer, and the check of the text that it receives."""

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
