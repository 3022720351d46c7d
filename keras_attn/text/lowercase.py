"""Lower case, one character for one, so that Python, SentencePiece and a TensorFlow graph agree."""

import functools


@functools.cache
def lowercase_table() -> dict[int, int]:
    """Returns Unicode's simple lower-case mapping of code points: the first character that `str.lower` gives.

    Only "İ" has a second one.
    """
    pairs = ((code, ord(chr(code).lower()[0])) for code in range(0x110000))
    return {code: lower for code, lower in pairs if code != lower}
