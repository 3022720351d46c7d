"""Links between words from what a trained model attends to, every way that it can be read; and from the diagonal."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from keras_attn import plots
from keras_attn.decoding import padded
from keras_attn.evaluation import Link, parse_links
from keras_attn.plots import WordAlignment
from keras_attn.text import START_ID
from keras_attn.translator import Translation, Translator

ROWS = {"own": 0, "next": 1}  # a word's row, how far below: that of writing it, or the next, which has read it
_BATCH = 32


def candidates(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> dict[tuple[str, str], list[WordAlignment]]:
    """Alignments between words of given translations, by (attention, row).

    The attention is "all" for what `Translator.score` gives; for a model with `attentions`, as the Transformer, also
    "layer 1" and so on, the mean of that layer's heads. The row is a key of `ROWS`.

    Raises:
        ValueError: for a sentence whose pieces do not make up the words that stand between its blanks.
    """
    forced = translator.score(sources, targets, batch_size=_BATCH)
    found = {"all": [one.alignment for one in forced]}
    if hasattr(translator.model, "attentions"):
        for aligned in _by_layer(translator.model, forced):
            for number, alignment in enumerate(aligned, start=1):
                found.setdefault(f"layer {number}", []).append(alignment)
    panels = {}
    for attention, weights in found.items():
        for name, below in ROWS.items():
            rows = [np.concatenate([one[below:], one[len(one) - below :]]) for one in weights]  # each (T, S)
            panels[attention, name] = [
                _panel(translator, replace(one, alignment=alignment), source, target)
                for one, alignment, source, target in zip(forced, rows, sources, targets, strict=True)
            ]
    return panels


def _by_layer(model, forced: Sequence[Translation]) -> Iterator[np.ndarray]:
    """For each sentence the alignments of all layers `(layers, T, S)`, each the mean of its heads."""
    import keras

    for first in range(0, len(forced), _BATCH):
        chunk = forced[first : first + _BATCH]
        sides = [one.source_token_ids for one in chunk], [(START_ID, *one.token_ids[:-1]) for one in chunk]
        ids = [padded(rows, (len(rows), max(map(len, rows)))) for rows in sides]  # (B, S), (B, T)
        cross = model.attentions(dict(zip(("encoder_token_ids", "decoder_token_ids"), ids, strict=True)))["cross"]
        layers = keras.ops.convert_to_numpy(cross).mean(axis=2)  # (layers, B, T, S)
        for row, (source, target) in enumerate(zip(*sides, strict=True)):
            yield layers[:, row, : len(target), : len(source)]


def _panel(translator: Translator, translation: Translation, source: str, target: str) -> WordAlignment:
    panel = plots.align_words(translation, translator.source_tokenizer, translator.target_tokenizer)
    counts = len(panel.source_tokens) - 1, len(panel.target_tokens) - 1  # without </s>
    if counts != (len(source.split()), len(target.split())):
        raise ValueError(f"Expected words with blanks between. Received {counts} words for {source!r} and {target!r}.")
    return panel


def links(panel: WordAlignment) -> frozenset[Link]:
    """Each target word with the source word of the most weight; with none where that is the end of the sentence."""
    return parse_links(plots.to_pharaoh(panel)).sure


def diagonal(source: str, target: str) -> frozenset[Link]:
    """Each target word with the source word at the same share of the sentence: i = floor((j + 1/2) S / T)."""
    lengths = len(source.split()), len(target.split())
    return frozenset(((2 * j + 1) * lengths[0] // (2 * lengths[1]), j) for j in range(lengths[1]))
