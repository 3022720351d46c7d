"""Alignments between words: merged from those of pieces, written as Pharaoh lines or as an interactive HTML page."""

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from keras_attn.text import SPECIAL_TOKENS, Tokenizer, without_temporary_ids

_END = SPECIAL_TOKENS[3]


class WordAlignment(NamedTuple):
    """The alignment of a sentence: `alignment (T, S)`, its columns' `source_tokens` and its rows' `target_tokens`."""

    alignment: ArrayLike
    source_tokens: Sequence[str]
    target_tokens: Sequence[str]


class SentenceComparison(NamedTuple):
    """Translations of a sentence: `heading`, `lines` (label, text) above them, `systems` as (name, alignment)."""

    heading: str
    lines: Sequence[tuple[str, str]]
    systems: Sequence[tuple[str, WordAlignment]]


def merge_alignment(
    alignment: ArrayLike, source_groups: Sequence[Sequence[int]], target_groups: Sequence[Sequence[int]]
) -> np.ndarray:
    """Merges an alignment of pieces into one of words.

    The attention to a source word is the sum over its pieces; the attention of a target word is the mean over its
    pieces. Rows that sum to 1 still do if every source piece is in a group.

    Args:
        alignment: `(T, S)`.
        source_groups: For each source word the indices of its pieces, as `Tokenizer.words` gives them.
        target_groups: The same for the target.

    Returns:
        `(len(target_groups), len(source_groups))`, float64.

    Raises:
        ValueError: If the alignment is not a matrix, a group is empty, or an index is out of range.

    Example:
        >>> keras_attn.plots.merge_alignment([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]], [[0, 1], [2]], [[0], [1]])
        array([[0.8, 0.2],
               [0.4, 0.6]])
    """
    alignment = as_matrix(alignment)
    for axis, groups, name in ((1, source_groups, "source_groups"), (0, target_groups, "target_groups")):
        for group in groups:
            if not len(group) or min(group) < 0 or max(group) >= alignment.shape[axis]:
                raise ValueError(
                    f"Expected every group of {name} to have indices from 0 to {alignment.shape[axis] - 1}. "
                    f"Received: {list(group)}"
                )
    columns = [alignment[:, list(group)].sum(axis=1) for group in source_groups]
    merged = np.stack(columns, axis=1) if columns else np.zeros((alignment.shape[0], 0))
    rows = [merged[list(group)].mean(axis=0) for group in target_groups]
    return np.stack(rows) if rows else np.zeros((0, merged.shape[1]))


def align_words(
    translation, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, source_text: str | None = None
) -> WordAlignment:
    """Returns the alignment of a `Translation` between whole words. The last word of both sides is `</s>`.

    Words are separated by blanks, so that word n of the alignment is word n of the text.

    Args:
        translation: A `keras_attn.Translation` with an alignment. A blank one gives an empty alignment.
        source_tokenizer: The source tokenizer of the translator.
        target_tokenizer: The target tokenizer of the translator.
        source_text: The text that was translated. If given, unknown source words keep their letters.

    Raises:
        ValueError: If the translation was made without its alignment.

    Example:
        >>> translation = translator.generate(["two dogs run"])[0]
        >>> words = keras_attn.plots.align_words(translation, translator.source_tokenizer, translator.target_tokenizer)
        >>> words.source_tokens, words.target_tokens
        (['two', 'dogs', 'run', '</s>'], ['deux', 'chiens', 'courent', '</s>'])
    """
    if not translation.token_ids:
        return WordAlignment(np.zeros((0, 0)), [], [])
    if translation.alignment is None:
        raise ValueError("Expected a translation with its alignment. Received: one made with return_alignments=False")
    sources = _words(source_tokenizer, translation.source_token_ids, translation.source_tokens)
    targets = _words(target_tokenizer, translation.token_ids, translation.tokens)
    labels, target_labels = [word for word, _ in sources], [word for word, _ in targets]
    unknown = source_tokenizer.special_ids.unknown
    if source_text is not None and unknown in translation.source_token_ids:
        pieces = source_tokenizer.pieces(source_text)
        for n, (_, group) in enumerate(sources):
            if any(translation.source_token_ids[position] == unknown for position in group):
                labels[n] = "".join(pieces[position] for position in group).replace("▁", " ").strip()
    if translation.source_token_ids[-1:] == (source_tokenizer.special_ids.end,):
        labels[-1] = _END  # whatever the vocabulary calls it
    if translation.token_ids[-1:] == (target_tokenizer.special_ids.end,):
        target_labels[-1] = _END
    groups = [[positions for _, positions in words] for words in (sources, targets)]
    return WordAlignment(merge_alignment(translation.alignment, *groups), labels, target_labels)


def _words(tokenizer, token_ids, tokens) -> list[tuple[str, list[int]]]:
    """`Tokenizer.words`, also of copied words, which have temporary ids."""
    ids, unknown = without_temporary_ids(tokenizer, token_ids), tokenizer.special_ids.unknown
    words = tokenizer.words(ids)
    for n, (_, group) in enumerate(words):
        if any(ids[position] != token_ids[position] for position in group):
            letters = [tokens[position] for position in group if ids[position] == unknown]
            words[n] = tokenizer.decode([ids[position] for position in group], letters), group
    return words


def to_pharaoh(words: WordAlignment, *, threshold: float | None = None) -> str:
    """Returns the links between words in the format of Pharaoh and Moses: `i-j`, source word i with target word j.

    Words are counted from 0. Without a threshold each target word is linked to the source word that it attends to
    most, to the first of several equal ones, and to none if that is `</s>`. With a threshold it is linked to every
    source word with at least this weight. `</s>` is never linked.

    Args:
        words: The alignment, as `align_words` returns it.
        threshold: Minimum weight of a link, from 0 to 1.

    Returns:
        The links in the order of the target words, separated by blanks; "" if there are none.

    Example:
        >>> words = WordAlignment([[0.9, 0.1], [0.2, 0.8]], ["two", "dogs"], ["deux", "chiens"])
        >>> keras_attn.plots.to_pharaoh(words)
        '0-0 1-1'
    """
    weights = np.asarray(words.alignment)
    sources, targets = (
        len(labels) - (labels[-1:] == [_END]) for labels in map(list, (words.source_tokens, words.target_tokens))
    )
    links = []
    for j, row in enumerate(weights[:targets]):
        linked = [int(row.argmax())] if threshold is None else np.flatnonzero(row >= threshold)
        links += [f"{i}-{j}" for i in linked if i < sources]
    return " ".join(links)


def html_page(
    sentences: Iterable[tuple[int, WordAlignment]],
    *,
    title: str,
    note: str = "",
    source_language: str = "",
    target_language: str = "",
) -> str:
    """Returns a self-contained HTML page on which pointing at a word highlights the words that it is aligned to.

    Words of both sides can be pointed at, with the mouse or with the arrow keys, and each aligned word is highlighted
    in proportion to its weight. The page has a light and a dark theme. Its content security policy blocks every
    external resource and every other script.

    Args:
        sentences: Pairs of a sentence's number and its alignment.
        title: Title of the page.
        note: A sentence under the title.
        source_language: Code of the source language, such as "de", for fonts and screen readers.
        target_language: Code of the target language.

    Raises:
        ValueError: If the labels of an alignment do not match its shape.

    Example:
        >>> words = WordAlignment([[0.9, 0.1], [0.2, 0.8]], ["two", "dogs"], ["deux", "chiens"])
        >>> page = keras_attn.plots.html_page([(1, words)], title="Dogs")
        >>> "chiens" in page
        True
    """
    languages = source_language, target_language
    articles = [_article(f"<h2>{number:,}</h2>", f"{number:,}", words, *languages) for number, words in sentences]
    return _page(articles, title, note)


def comparison_page(
    comparisons: Iterable[SentenceComparison],
    *,
    title: str,
    note: str = "",
    source_language: str = "",
    target_language: str = "",
) -> str:
    """Returns a page like that of `html_page`, with the translations of several systems side by side.

    Args:
        comparisons: A comparison for each sentence.
        title, note, source_language, target_language: As in `html_page`.

    Raises:
        ValueError: If the labels of an alignment do not match its shape.

    Example:
        >>> words = WordAlignment([[0.9, 0.1], [0.2, 0.8]], ["two", "dogs"], ["deux", "chiens"])
        >>> comparison = SentenceComparison("Dogs", [("source", "two dogs")], [("RNNsearch", words)])
        >>> page = keras_attn.plots.comparison_page([comparison], title="Systems")
        >>> "RNNsearch" in page
        True
    """
    sections = []
    for heading, lines, systems in comparisons:
        texts = [
            f'<p class="line" dir="auto"><b>{html.escape(label)}</b>{html.escape(text)}</p>' for label, text in lines
        ]
        articles = [
            _article(f"<h3>{html.escape(name)}</h3>", f"{heading}, {name}", words, source_language, target_language)
            for name, words in systems
        ]
        top = f"<section>\n<h2>{html.escape(heading)}</h2>"
        sections.append("\n".join([top, *texts, '<div class="systems">', *articles, "</div>\n</section>"]))
    return _page(sections, title, note)


def _page(articles: Sequence[str], title: str, note: str) -> str:
    page = files("keras_attn.plots").joinpath("word_alignment.html").read_text(encoding="utf-8")
    digests = {
        name: base64.b64encode(hashlib.sha256(re.search(f"<{name}>(.*?)</{name}>", page, re.S)[1].encode()).digest())
        for name in ("script", "style")
    }
    policy = "; ".join(f"{name}-src 'sha256-{digest.decode()}'" for name, digest in digests.items())
    # Inserted text is escaped, so it cannot contain a mark.
    for mark, text in {"title": title, "note": note, "policy": f"default-src 'none'; {policy}"}.items():
        page = page.replace(f"<!--{mark}-->", html.escape(text))
    return page.replace("<!--articles-->", "\n".join(articles) or "<p>No sentences.</p>")


def _article(heading: str, name: str, words: WordAlignment, source_language: str, target_language: str) -> str:
    weights = as_matrix(words.alignment)
    if weights.shape != (len(words.target_tokens), len(words.source_tokens)):
        raise ValueError(
            f"Expected an alignment (T, S) of {len(words.target_tokens)} target and {len(words.source_tokens)} "
            f"source words. Received: shape {weights.shape}"
        )
    percent = ";".join(" ".join(str(round(100 * weight)) for weight in row) for row in weights)
    rows = [
        _row("source", words.source_tokens, source_language, name),
        _row("target", words.target_tokens, target_language, name),
    ]
    return "\n".join(
        [
            f'<article data-weights="{percent}">',
            heading,
            *rows,
            '<p class="said" role="status"></p>',
            "</article>",
        ]
    )


def _row(side: str, words: Sequence[str], language: str, name: str) -> str:
    spoken = f' lang="{html.escape(language)}"' if language else ""
    spans = []
    for n, word in enumerate(words):
        kind = "word end" if word == _END and n == len(words) - 1 else "word"
        # The Tab key stops once in each row; the arrow keys move within it.
        spans.append(
            f'<span class="{kind}" role="option" tabindex="{0 if n == 0 else -1}">{html.escape(word) or "␣"}</span>'
        )
    role = f'role="listbox" aria-orientation="horizontal" aria-label="{side} {html.escape(name)}"'
    return f'<p class="{side}" {role} dir="auto"{spoken}>{" ".join(spans)}</p>'


def as_matrix(alignment: ArrayLike) -> np.ndarray:
    """Returns the alignment as a float64 matrix `(T, S)`."""
    alignment = np.asarray(alignment, dtype="float64")
    if alignment.ndim != 2:
        raise ValueError(f"Expected an alignment of shape (T, S). Received: shape {alignment.shape}")
    if not np.isfinite(alignment).all():
        raise ValueError("Expected an alignment of finite numbers. Received: NaN or infinity")
    return alignment
