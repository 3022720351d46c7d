"""Pictures of the tasks that are more than one alignment."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import keras
import numpy as np

from keras_attn import Tokenizer, Translation, plots
from keras_attn.plots.plot_style import BLUE, GREY, ORANGE, drawing, plain_axes
from recipes.tasks.task import longest


def forecast_week(forecast, truth, alpha: np.ndarray, names: Sequence[str], path: Path) -> None:
    """A forecast with the truth, and below them the weights `(hours, n)` of the driving series at each hour."""
    hours = len(alpha)
    with drawing(path, figsize=(5.0, 3.4)) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True)
        upper.plot(truth, color=GREY, linewidth=1.6, label="rents")
        upper.plot(forecast, color=BLUE, linewidth=1.0, label="forecast")
        upper.legend(fontsize=8, frameon=False, ncols=2, loc="upper left")
        plain_axes(upper)
        lower.pcolormesh(np.arange(hours + 1), np.arange(len(names) + 1), alpha.T, cmap="gray", vmin=0)
        lower.set_yticks(np.arange(len(names)) + 0.5, names)
        lower.tick_params(length=0, labelsize=8)
        lower.set_xlabel("hours", fontsize=8.5)


def caption(image: np.ndarray, found: Translation, path: Path) -> None:
    """The light of an image, once for each word of its caption, with the word's attention."""
    plots.image_alignment(found.alignment, image[:, :, 0], found.tokens, columns=6, path=path)


def heaviest_sentences(tokenizer: Tokenizer, ids, of_words, of_sentences, path: Path) -> None:
    """The five sentences `(N,)` of a text with the largest weights, each with those of its words `(N, S)`."""
    panels = []
    for n in sorted(of_sentences.argsort()[-5:]):
        words = tokenizer.tokens(ids[n][ids[n] > 0])
        weights = of_words[n, : len(words)] / of_words[n].max()
        panels.append((weights[None], words, [f"{of_sentences[n]:.2f}"]))
    plots.alignments(panels, columns=1, titles=[""] * len(panels), path=path)


def hops_of_stories(network: keras.Model, tests: Iterable[tuple], tokenizer: Tokenizer, path: Path) -> None:
    """The weights of a story's sentences in each hop, with its question and the answer: of each test the longest story.

    A test is its questions, their ids and the answers'; `network` gives logits of answers, and the weights of each hop.
    """
    panels, titles = [], []
    for asked, texts, answers in tests:
        logits, *weights = network.predict(texts, verbose=0)
        n = longest(logits.argmax(-1) == answers, [len(one.story) for one in asked])
        hops, story = np.stack(weights, axis=-1)[n], asked[n].story
        panels.append((hops[-len(story) :], [str(hop + 1) for hop in range(len(weights))], story))
        titles.append(f"{asked[n].text.removeprefix('where is ')}?\n{tokenizer.vocabulary[logits[n].argmax()]}")
    plots.alignments(panels, titles=titles, path=path)


def polygons(elements: Sequence[np.ndarray], rings: Sequence[list[int]], right: Sequence[bool], path: Path) -> None:
    """Points, three special elements before them, and the polygon through some of them, orange if it is wrong."""
    with drawing(path, figsize=(6.4, 1.7)) as figure:
        for axes, points, ring, is_right in zip(figure.subplots(1, 4), elements, rings, right, strict=False):
            axes.plot(*points[[*ring, *ring[:1]], :2].T, color=BLUE if is_right else ORANGE, linewidth=1.2)
            axes.plot(*points[3:, :2].T, "o", color=GREY, markersize=3)
            axes.set(xticks=[], yticks=[], aspect="equal")
