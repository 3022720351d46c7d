"""Alignments between words: merged from pieces, as Pharaoh lines, and as one HTML page to point at.

Pictures of them are drawn by `keras_attn.plots`.
"""

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from keras_attn.text import SPECIAL_TOKENS, UNKNOWN_ID, Tokenizer

_END = SPECIAL_TOKENS[3]


class SentenceComparison(NamedTuple):
    """Several translations of one sentence: a heading, lines of (label, text) over them, and (system, panel) pairs."""

    heading: str
    lines: Sequence[tuple[str, str]]
    panels: Sequence[tuple[str, "WordAlignment"]]


class WordAlignment(NamedTuple):
    """One alignment: weights `(T, S)`, S source labels for the columns, T target labels for the rows."""

    alignment: ArrayLike
    source_tokens: Sequence[str]
    target_tokens: Sequence[str]


def merge_alignment(
    alignment: ArrayLike, source_groups: Sequence[Sequence[int]], target_groups: Sequence[Sequence[int]]
) -> np.ndarray:
    """Alignment of words from that of their pieces.

    Attention to a source word is the sum over its pieces; that of a target word is the mean over its pieces.
    So rows that sum to one still do when every source piece is in a group.

    Args:
        alignment: `(T, S)`.
        source_groups: For each source word the indices of its pieces, as `Tokenizer.words` gives them.
        target_groups: The same for the target.

    Returns:
        `(len(target_groups), len(source_groups))`, float64.

    Raises:
        ValueError: If the alignment is not a matrix, a group is empty, or an index lies outside.
    """
    alignment = as_matrix(alignment)
    for axis, groups, name in ((1, source_groups, "source_groups"), (0, target_groups, "target_groups")):
        for group in groups:
            if not len(group) or min(group) < 0 or max(group) >= alignment.shape[axis]:
                raise ValueError(
                    f"Expected every group of {name} to hold indices from 0 to {alignment.shape[axis] - 1}, "
                    f"received {list(group)}."
                )
    columns = [alignment[:, list(group)].sum(axis=1) for group in source_groups]
    merged = np.stack(columns, axis=1) if columns else np.zeros((alignment.shape[0], 0))
    rows = [merged[list(group)].mean(axis=0) for group in target_groups]
    return np.stack(rows) if rows else np.zeros((0, merged.shape[1]))


def align_words(
    translation, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, source_text: str | None = None
) -> WordAlignment:
    """The alignment of a `Translation` between whole words; `</s>` closes both sides and is one of them.

    Words are what stands between blanks, so that the n-th word of the panel is the n-th word of the line.

    Args:
        translation: A `keras_attn.Translation` with an alignment; a blank one gives an empty panel.
        source_tokenizer: Of the translator.
        target_tokenizer: Of the translator.
        source_text: The text that was translated. Unknown source words then keep their letters.

    Raises:
        ValueError: If the translation was made without its alignment.

    Example:

    >>> translation = translator.generate(["two dogs run"])[0]
    >>> panel = align_words(translation, translator.source_tokenizer, translator.target_tokenizer)
    >>> panel.source_tokens, panel.target_tokens
    (['two', 'dogs', 'run', '</s>'], ['deux', 'chiens', 'courent', '</s>'])
    """
    if not translation.token_ids:
        return WordAlignment(np.zeros((0, 0)), [], [])
    if translation.alignment is None:
        raise ValueError("Expected a translation with its alignment. Received one made with return_alignments=False.")
    sources = source_tokenizer.words(translation.source_token_ids)
    targets = target_tokenizer.words(translation.token_ids)
    labels = [word for word, _ in sources]
    if source_text is not None and UNKNOWN_ID in translation.source_token_ids:
        pieces = source_tokenizer.pieces(source_text)
        for n, (_, group) in enumerate(sources):
            if any(translation.source_token_ids[position] == UNKNOWN_ID for position in group):
                labels[n] = "".join(pieces[position] for position in group).replace("▁", " ").strip()
    groups = [[positions for _, positions in words] for words in (sources, targets)]
    return WordAlignment(merge_alignment(translation.alignment, *groups), labels, [word for word, _ in targets])


def to_pharaoh(panel: WordAlignment, *, threshold: float | None = None) -> str:
    """Links between words as Pharaoh and Moses write them: `i-j`, source word i with target word j, from 0.

    Without a threshold each target word is linked to the one source word that it attends to most, the first
    of equals, and to none if that is `</s>`. With one, to every source word whose weight reaches it. `</s>`
    is never linked.

    Args:
        panel: As `align_words` gives it.
        threshold: The least weight of a link, from 0 to 1.

    Returns:
        The links in the order of the target words, with a blank between two; "" where there are none.

    Example:

    >>> to_pharaoh(WordAlignment([[0.9, 0.1], [0.2, 0.8]], ["two", "dogs"], ["deux", "chiens"]))
    '0-0 1-1'
    """
    weights = np.asarray(panel.alignment)
    words = [len(labels) - (labels[-1:] == [_END]) for labels in map(list, (panel.source_tokens, panel.target_tokens))]
    links = []
    for j, row in enumerate(weights[: words[1]]):
        linked = [int(row.argmax())] if threshold is None else np.flatnonzero(row >= threshold)
        links += [f"{i}-{j}" for i in linked if i < words[0]]
    return " ".join(links)


def html_page(
    panels: Iterable[tuple[int, WordAlignment]],
    *,
    title: str,
    note: str = "",
    source_language: str = "",
    target_language: str = "",
) -> str:
    """One page that needs nothing else: pointing at a word lights the words that it is aligned to.

    A word lights in proportion to its weight, from either side, under a pointer or with the arrow keys. The
    page reads in light and in dark, and its policy lets nothing be loaded and no other script run.

    Args:
        panels: Pairs of a sentence's number and its panel.
        title: Of the page.
        note: A sentence under it.
        source_language: Its code, such as "de", for fonts and screen readers.
        target_language: The same for the target.

    Raises:
        ValueError: If labels and alignment of a panel do not go together.
    """
    languages = source_language, target_language
    articles = [_article(f"<h2>{number:,}</h2>", f"{number:,}", panel, *languages) for number, panel in panels]
    return _page(articles, title, note)


def comparison_page(
    comparisons: Iterable[SentenceComparison],
    *,
    title: str,
    note: str = "",
    source_language: str = "",
    target_language: str = "",
) -> str:
    """As `html_page`, with several systems' translations of each sentence side by side.

    Args:
        comparisons: One for each sentence.
        title, note, source_language, target_language: As in `html_page`.

    Raises:
        ValueError: If labels and alignment of a panel do not go together.
    """
    sections = []
    for heading, lines, panels in comparisons:
        texts = [
            f'<p class="line" dir="auto"><b>{html.escape(label)}</b>{html.escape(text)}</p>' for label, text in lines
        ]
        articles = [
            _article(f"<h3>{html.escape(name)}</h3>", f"{heading}, {name}", panel, source_language, target_language)
            for name, panel in panels
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
    # What is put in is escaped and so holds no mark of its own.
    for mark, text in {"title": title, "note": note, "policy": f"default-src 'none'; {policy}"}.items():
        page = page.replace(f"<!--{mark}-->", html.escape(text))
    return page.replace("<!--articles-->", "\n".join(articles) or "<p>No sentences.</p>")


def _article(heading: str, name: str, panel: WordAlignment, source_language: str, target_language: str) -> str:
    weights = as_matrix(panel.alignment)
    if weights.shape != (len(panel.target_tokens), len(panel.source_tokens)):
        raise ValueError(
            f"Expected an alignment (T, S) of {len(panel.target_tokens)} target and {len(panel.source_tokens)} "
            f"source words. Received shape {weights.shape}."
        )
    percent = ";".join(" ".join(str(round(100 * weight)) for weight in row) for row in weights)
    rows = [
        _row("source", panel.source_tokens, source_language, name),
        _row("target", panel.target_tokens, target_language, name),
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
        # One stop of the Tab key for a row; its arrow keys do the rest.
        spans.append(
            f'<span class="{kind}" role="option" tabindex="{0 if n == 0 else -1}">{html.escape(word) or "␣"}</span>'
        )
    role = f'role="listbox" aria-orientation="horizontal" aria-label="{side} {html.escape(name)}"'
    return f'<p class="{side}" {role} dir="auto"{spoken}>{" ".join(spans)}</p>'


def as_matrix(alignment: ArrayLike) -> np.ndarray:
    """The alignment as float64, refused where it is no matrix."""
    alignment = np.asarray(alignment, dtype="float64")
    if alignment.ndim != 2:
        raise ValueError(f"Expected an alignment of shape (T, S), received shape {alignment.shape}.")
    return alignment
