"""The alignments of translated lines as files: Pharaoh lines, one HTML page, a picture of each sentence."""

import sys
from collections.abc import Sequence
from pathlib import Path

from keras_attn.cli.line_streaming import Output
from keras_attn.plots import WordAlignment, align_words, html_page, to_pharaoh
from keras_attn.translator import Translation, Translator


class AlignmentFiles:
    """Writes alignments between words, of the best translation of each line, as lines are translated.

    Pharaoh lines have no bound. What is to be looked at has one, `most` sentences, which also bounds the
    memory that the page takes until it is written, at the end.

    Args:
        translator: Whose tokenizers know what a word is.
        pharaoh: Gets a line for every line.
        threshold: Of a link, see `keras_attn.plots.to_pharaoh`.
        page: Gets the HTML page.
        pictures: A folder; gets `<number of the line>.png`.
        most: Sentences in the page, and pictures.
        about: Further keyword arguments of `keras_attn.plots.html_page`.
    """

    def __init__(
        self,
        translator: Translator,
        *,
        pharaoh: Output | None,
        threshold: float | None,
        page: Output | None,
        pictures: Path | None,
        most: int,
        **about: str,
    ):
        self.translator, self.about = translator, about
        self.pharaoh, self.threshold = pharaoh, threshold
        self.page, self.pictures, self.most = page, pictures, most
        self.sentences, self.panels = 0, []

    def add(self, first: int, texts: Sequence[str], translations: Sequence[Translation]) -> None:
        """Takes lines `first`, `first + 1`, ... with their translations."""
        links = []
        for number, (text, translation) in enumerate(zip(texts, translations, strict=True), start=first):
            self.sentences += bool(translation.tokens)
            is_drawn = translation.tokens and self.sentences <= self.most and (self.page or self.pictures)
            if not (is_drawn or self.pharaoh):
                continue
            tokenizers = self.translator.source_tokenizer, self.translator.target_tokenizer
            panel = align_words(translation, *tokenizers, source_text=text)
            if self.pharaoh:
                links.append(to_pharaoh(panel, threshold=self.threshold) + "\n")
            if is_drawn:
                self._draw(number, panel)
        if self.pharaoh:
            self.pharaoh.write("".join(links).encode())

    def close(self) -> None:
        """Writes the page, and says how much of the text was drawn."""
        few = self.sentences > self.most and bool(self.page or self.pictures)
        count = f"{self.sentences:,} sentence{'s' * (self.sentences != 1)}"
        note = f"The first {self.most:,} of {count}" if few else count
        if self.page:
            self.page.write(html_page(self.panels, note=f"{note}.", **self.about).encode())
        if few:
            print(f"{note} are drawn; --drawn N draws more.", file=sys.stderr)

    def _draw(self, number: int, panel: WordAlignment) -> None:
        if self.page:
            self.panels.append((number, panel))
        if self.pictures:
            from keras_attn import plots  # matplotlib is slow to import

            plots.alignment(*panel, path=self.pictures / f"{number:06}.png")
