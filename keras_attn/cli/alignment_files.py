"""Writes the alignments of translated lines: Pharaoh lines, one HTML page, a picture of each sentence."""

import sys
from collections.abc import Sequence
from pathlib import Path

from keras_attn.cli.line_streaming import Output
from keras_attn.plots import WordAlignment, align_words, html_page, to_pharaoh
from keras_attn.translation import TextSearch, Translation


class AlignmentFiles:
    """Writes the alignments between words of the best translation of each line, as lines are translated.

    Any number of Pharaoh lines is written. The page and the pictures contain the first `max_plots` sentences, which
    also bounds the memory of the page, for it is written at the end.

    Args:
        translator: Its tokenizers merge tokens into words.
        pharaoh: Receives a line of links for each line.
        threshold: The weight of a link, see `keras_attn.plots.to_pharaoh`.
        page: Receives the HTML page.
        pictures: A folder, which receives `<number of the line>.png`.
        max_plots: Sentences in the page, and pictures, at most.
        page_options: Further keyword arguments of `keras_attn.plots.html_page`.
    """

    def __init__(
        self,
        translator: TextSearch,
        *,
        pharaoh: Output | None,
        threshold: float | None,
        page: Output | None,
        pictures: Path | None,
        max_plots: int,
        **page_options: str,
    ):
        self.translator, self.page_options = translator, page_options
        self.pharaoh, self.threshold = pharaoh, threshold
        self.page, self.pictures, self.max_plots = page, pictures, max_plots
        self.sentences, self.panels = 0, []

    def add(self, first: int, texts: Sequence[str], translations: Sequence[Translation]) -> None:
        """Writes the alignments of lines `first`, `first + 1`, ..."""
        links = []
        for number, (text, translation) in enumerate(zip(texts, translations, strict=True), start=first):
            self.sentences += bool(translation.tokens)
            is_plotted = translation.tokens and self.sentences <= self.max_plots and (self.page or self.pictures)
            if not (is_plotted or self.pharaoh):
                continue
            tokenizers = self.translator.source_tokenizer, self.translator.target_tokenizer
            words = align_words(translation, *tokenizers, source_text=text)
            if self.pharaoh:
                links.append(to_pharaoh(words, threshold=self.threshold) + "\n")
            if is_plotted:
                self._plot(number, words)
        if self.pharaoh:
            self.pharaoh.write("".join(links).encode())

    def close(self) -> None:
        """Writes the page; says on stderr if there were more sentences than plots."""
        has_more = self.sentences > self.max_plots and bool(self.page or self.pictures)
        count = f"{self.sentences:,} sentence{'s' * (self.sentences != 1)}"
        note = f"The first {self.max_plots:,} of {count}" if has_more else count
        if self.page:
            self.page.write(html_page(self.panels, note=f"{note}.", **self.page_options).encode())
        if has_more:
            print(f"{note} are plotted; --max-plots N plots more.", file=sys.stderr)

    def _plot(self, number: int, words: WordAlignment) -> None:
        if self.page:
            self.panels.append((number, words))
        if self.pictures:
            from keras_attn import plots  # matplotlib is slow to import

            plots.alignment(*words, path=self.pictures / f"{number:06}.png")
