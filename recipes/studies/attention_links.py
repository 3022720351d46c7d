"""Links between words from the attention of a trained model, for every layer and row, and from the diagonal."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from keras_attn import Translator, plots
from keras_attn.evaluation import Link, parse_links
from keras_attn.plots import WordAlignment
from keras_attn.translation import Translation, padded

ROWS = {"own": 0, "next": 1}  # offset of a word's rows: those that predict its pieces, or have just read them
NEXT_WORD = "next-word"  # the rows that predict the next word, the first of which has just read the whole word
_BATCH = 32


def candidates(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> dict[tuple[str, str], list[WordAlignment]]:
    """Alignments between the words of given translations, by (attention, row).

    The attention is "all" for the alignment that `Translator.score` returns; for a model with `attentions`, such as the
    Transformer, also "layer 1" and so on, the mean of that layer's heads. The row is a key of `ROWS`, or `NEXT_WORD`.

    Raises:
        ValueError: for a sentence whose pieces do not add up to the words between its blanks.
    """
    forced = translator.score(sources, targets, batch_size=_BATCH)
    by_attention = {"all": [one.alignment for one in forced]}
    if hasattr(translator.model, "attentions"):
        for aligned in _by_layer(translator.model, forced):
            for number, alignment in enumerate(aligned, start=1):
                by_attention.setdefault(f"layer {number}", []).append(alignment)
    panels = {}
    for attention, weights in by_attention.items():
        for name, offset in ROWS.items():
            rows = [np.concatenate([one[offset:], one[len(one) - offset :]]) for one in weights]  # each (T, S)
            panels[attention, name] = [
                panel(translator, replace(one, alignment=alignment), source, target)
                for one, alignment, source, target in zip(forced, rows, sources, targets, strict=True)
            ]
        panels[attention, NEXT_WORD] = [_next_word(panel) for panel in panels[attention, "own"]]
    return panels


def _next_word(panel: WordAlignment) -> WordAlignment:
    """Each word with the row of the next word, and the end of the sentence with its own."""
    return panel._replace(alignment=np.concatenate([panel.alignment[1:], panel.alignment[-1:]]))  # (T, S)


def _by_layer(model, forced: Sequence[Translation]) -> Iterator[np.ndarray]:
    """Yields for each sentence the alignments of all layers `(layers, T, S)`, each the mean of its heads."""
    import keras

    start = model.target_special_ids.start
    for first in range(0, len(forced), _BATCH):
        chunk = forced[first : first + _BATCH]
        sides = [one.source_token_ids for one in chunk], [(start, *one.token_ids[:-1]) for one in chunk]
        ids = [padded(rows, (len(rows), max(map(len, rows)))) for rows in sides]  # (B, S), (B, T)
        cross = model.attentions(dict(zip(("encoder_token_ids", "decoder_token_ids"), ids, strict=True)))["cross"]
        layers = keras.ops.convert_to_numpy(cross).mean(axis=2)  # (layers, B, T, S)
        for row, (source, target) in enumerate(zip(*sides, strict=True)):
            yield layers[:, row, : len(target), : len(source)]


def panel(translator: Translator, translation: Translation, source: str, target: str) -> WordAlignment:
    """The alignment of a translation between the words of its texts.

    Raises:
        ValueError: if its pieces do not add up to the words between blanks.
    """
    words = plots.align_words(translation, translator.source_tokenizer, translator.target_tokenizer)
    counts = len(words.source_tokens) - 1, len(words.target_tokens) - 1  # without </s>
    if counts != (len(source.split()), len(target.split())):
        raise ValueError(f"Expected words separated by blanks. Received {counts} words for {source!r} and {target!r}.")
    return words


def links(panel: WordAlignment) -> frozenset[Link]:
    """Links each target word to the source word of the largest weight; to none if that is the end of the sentence."""
    return parse_links(plots.to_pharaoh(panel)).sure


def diagonal(source: str, target: str) -> frozenset[Link]:
    """Links each target word to the source word at the same relative position: i = floor((j + 1/2) S / T)."""
    lengths = len(source.split()), len(target.split())
    return frozenset(((2 * j + 1) * lengths[0] // (2 * lengths[1]), j) for j in range(lengths[1]))
