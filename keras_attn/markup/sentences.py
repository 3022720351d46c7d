"""Sentences of a text, by sentencex."""

from keras_attn.requirements import require


def check_sentence_splitter() -> None:
    """Refuses to go on if sentencex is not installed.

    Raises:
        ModuleNotFoundError: If it is not.
    """
    require("sentences", "sentencex", purpose="split_sentences")


def sentences_of(text: str, language: str) -> list[tuple[int, int]]:
    """Returns the (start, end) of each sentence of a text, without the blanks around it.

    Args:
        text: A paragraph, in which each run of blanks is one blank.
        language: The code of its language, such as "en". One that sentencex does not know is treated like a similar
            one, or like English.

    Raises:
        ModuleNotFoundError: If sentencex is not installed.
    """
    check_sentence_splitter()
    from sentencex import segment

    spans, start = [], 0
    for sentence in segment(language, text):
        content = sentence.strip(" ")
        if content:
            first = start + sentence.index(content)
            spans.append((first, first + len(content)))
        start += len(sentence)
    return spans
