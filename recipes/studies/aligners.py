"""Links between words: from the attention of a trained model, by the diagonal, by IBM Model 1 and by eflomal; scores.

eflomal aligns words by Gibbs sampling (Östling & Tiedemann, Efficient Word Alignment with Markov Chain Monte Carlo, The
Prague Bulletin of Mathematical Linguistics 106, 2016). It is no dependency of this project: `pip install eflomal`. It
takes its random numbers from the system, so that its links differ a little from run to run; a study makes them once.
"""

import math
import operator
from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from keras_attn import Translator, files, plots
from keras_attn.evaluation import Gold, Link, Model1, alignment_error_rate, grow_diag_final_and, parse_links
from keras_attn.plots import WordAlignment
from keras_attn.requirements import is_installed
from keras_attn.text import read_lines
from keras_attn.training import corpora
from keras_attn.translation import Translation

ITERATIONS = 5  # of EM
MAX_WORDS = 60  # of Model 1's sentences
METHODS: dict[str, Callable] = {"intersection": operator.and_, "grow-diag-final-and": grow_diag_final_and}
ROWS = {"own": 0, "next": 1}  # offset of a word's rows: those that predict its pieces, or have just read them
NEXT_WORD = "next-word"  # the rows that predict the next word, the first of which has just read the whole word
_EFLOMAL = "eflomal"  # its folder in the study's
_SIDES = "forward", "backward"


def candidates(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> dict[tuple[str, str], list[WordAlignment]]:
    """Alignments between the words of given translations, by (attention, row).

    The attention is "all" for the alignment that `Translator.score` returns; for a model with `attentions`, such as the
    Transformer, also "layer 1" and so on, the mean of that layer's heads. The row is a key of `ROWS`, or `NEXT_WORD`.

    Raises:
        ValueError: for a sentence whose pieces do not add up to the words between its blanks.
    """
    is_layered = hasattr(translator.model, "attentions")
    forced = translator.score(sources, targets, batch_size=32, each_head=is_layered)
    by_attention = {"all": [one.alignment for one in forced]}
    for one in forced if is_layered else ():
        heads = one.head_alignments  # (layers N, T, S)
        layers = heads.reshape(-1, translator.model.num_heads, *heads.shape[1:]).mean(axis=1)  # (layers, T, S)
        for number, alignment in enumerate(layers, start=1):
            by_attention.setdefault(f"layer {number}", []).append(alignment)
    panels = {}
    for attention, weights in by_attention.items():
        for name, offset in ROWS.items():
            rows = [np.concatenate([one[offset:], one[len(one) - offset :]]) for one in weights]  # each (T, S)
            panels[attention, name] = panels_of(translator, forced, rows, sources, targets)
        panels[attention, NEXT_WORD] = [_next_word(panel) for panel in panels[attention, "own"]]
    return panels


def _next_word(panel: WordAlignment) -> WordAlignment:
    """Each word with the row of the next word, and the end of the sentence with its own."""
    return panel._replace(alignment=np.concatenate([panel.alignment[1:], panel.alignment[-1:]]))  # (T, S)


def panels_of(translator: Translator, forced: Sequence[Translation], alignments, sources, targets) -> list:
    """The alignments `(T, S)` of given translations between the words of their texts.

    Raises:
        ValueError: if the pieces of one do not add up to the words between blanks.
    """
    panels, tokenizers = [], (translator.source_tokenizer, translator.target_tokenizer)
    for one, alignment, source, target in zip(forced, alignments, sources, targets, strict=True):
        words = plots.align_words(replace(one, alignment=alignment), *tokenizers)
        counts = len(words.source_tokens) - 1, len(words.target_tokens) - 1  # without </s>
        if counts != (len(source.split()), len(target.split())):
            raise ValueError(f"Expected words separated by blanks. Received {counts} for {source!r} and {target!r}.")
        panels.append(words)
    return panels


def links(panel: WordAlignment) -> frozenset[Link]:
    """Links each target word to the source word of the largest weight; to none if that is the end of the sentence."""
    return parse_links(plots.to_pharaoh(panel)).sure


def diagonal(source: str, target: str) -> frozenset[Link]:
    """Links each target word to the source word at the same relative position: i = floor((j + 1/2) S / T)."""
    lengths = len(source.split()), len(target.split())
    return frozenset(((2 * j + 1) * lengths[0] // (2 * lengths[1]), j) for j in range(lengths[1]))


def sharpness(alignments: list[np.ndarray]) -> dict[str, float]:
    """Means over the rows of all alignments `(T, S)`: entropy in nats, largest weight, and ln S for comparison."""
    entropies, largest, uniform = [], [], []
    for alignment in alignments:
        weights = np.asarray(alignment, "float64")  # (T, S)
        weights = weights / weights.sum(axis=-1, keepdims=True)  # (T, S)
        entropies.append(-(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(axis=-1))  # (T,)
        largest.append(weights.max(axis=-1))  # (T,)
        uniform.append(np.full(len(weights), math.log(weights.shape[1])))  # (T,)
    names = {"entropy": entropies, "largest_weight": largest, "uniform_entropy": uniform}
    return {name: float(np.concatenate(values).mean()) for name, values in names.items()}


class Scorer:
    """Scores links: by AER on the development part, by AER, precision and recall on the others and on all."""

    def __init__(self, gold: Sequence[Gold], development: int):
        self.gold, self.development = gold, development

    def __call__(self, links: Sequence[Set[Link]]) -> dict:
        n = self.development
        parts = {"development": slice(n), "test": slice(n, None), "all": slice(None)}
        scores = {name: asdict(alignment_error_rate(links[part], self.gold[part])) for name, part in parts.items()}
        rounded = {name: {key: round(value, 2) for key, value in one.items()} for name, one in scores.items()}
        return rounded | {"development": rounded["development"]["aer"]}

    def symmetrised(self, name: str, forward: Sequence[Set[Link]], backward: Sequence[Set[Link]]) -> list[dict]:
        """A row for each method of `METHODS`; the links of both directions are (source word, target word)."""
        return [
            {"name": f"{name}, {method}", "symmetrised": method}
            | self([method_of(*pair) for pair in zip(forward, backward, strict=True)])
            for method, method_of in METHODS.items()
        ]


def turned(links: Sequence[Set[Link]]) -> list[set[Link]]:
    """The links of the other direction, (target word, source word), with the source word first."""
    return [{(i, j) for j, i in one} for one in links]


def baselines(out: Path, corpus: corpora.Corpus, gold, scorer: Scorer) -> list[dict]:
    """The rows of the diagonal, IBM Model 1 and, if it is installed or has run in this folder, eflomal."""
    pairs = list(zip(gold.sources, gold.targets, strict=True))
    rows = [{"name": "diagonal"} | scorer([diagonal(*pair) for pair in pairs])]
    rows += _model1(corpora.pairs_up_to(MAX_WORDS, corpus.splits["train"]), gold, scorer)
    if (out / _EFLOMAL).exists() or is_installed("eflomal"):
        forward, backward = eflomal(out, corpus, gold)
        rows += [{"name": "eflomal"} | scorer(forward), *scorer.symmetrised("eflomal", forward, backward)]
    else:
        print("eflomal is not installed (pip install eflomal): it is not among the aligners.")
    return rows


def _model1(training: Sequence[Sequence[str]], gold, scorer: Scorer) -> list[dict]:
    def links(texts, pair):
        model = Model1(*texts, iterations=ITERATIONS)
        return [model.links(*lines) for lines in zip(*pair, strict=True)]

    text = gold.sources, gold.targets
    forward = links(training, text)
    added = links([[*side, *lines] for side, lines in zip(training, text, strict=True)], text)
    backward = turned(links(training[::-1], text[::-1]))
    rows = [{"name": "IBM Model 1"} | scorer(forward), {"name": "IBM Model 1, gold text added"} | scorer(added)]
    rows += scorer.symmetrised("IBM Model 1", forward, backward)
    return [row | {"iterations": ITERATIONS} for row in rows]


def check_eflomal(out: Path) -> None:
    """Raises ModuleNotFoundError if eflomal is not installed, unless the study's folder has its links."""
    if not (out / _EFLOMAL).exists() and not is_installed("eflomal"):
        raise ModuleNotFoundError(
            "Expected eflomal to be installed, whose links guide a system (pip install eflomal). Without it choose "
            "the other systems by --systems.",
            name="eflomal",
        )


def guide(out: Path, languages: tuple[str, str]) -> Path:
    """The file in a study's folder that has the links of the training pairs in this direction."""
    return out / _EFLOMAL / f"{'-'.join(languages)}.links"


def eflomal(out: Path, corpus: corpora.Corpus, gold) -> tuple[list[set[Link]], list[set[Link]]]:
    """eflomal's links of the gold's sentences, forward and backward; it aligns them with the training pairs, once.

    The training pairs' links, symmetrised by grow-diag-final-and, are in the files of `guide`.
    """
    folder, training, languages = out / _EFLOMAL, corpus.splits["train"], (corpus.source, corpus.target)
    if not folder.exists():
        import eflomal

        sides = [[*side, *added] for side, added in zip(training, (gold.sources, gold.targets), strict=True)]
        with files.staging(out) as temporary:
            new = temporary / _EFLOMAL
            new.mkdir()
            paths = [str(new / f"{side}.links") for side in _SIDES]
            eflomal.Aligner().align(*sides, links_filename_fwd=paths[0], links_filename_rev=paths[1])
            links = [grow_diag_final_and(*pair) for pair in zip(*map(_read_links, paths), strict=True)]
            own = links[: len(training[0])]
            _write_links(guide(temporary, languages), own)
            _write_links(guide(temporary, languages[::-1]), [{(j, i) for i, j in one} for one in own])
            files.publish(new, folder)
    forward, backward = (_read_links(folder / f"{side}.links")[len(training[0]) :] for side in _SIDES)
    return forward, backward


def _read_links(path: str | Path) -> list[set[Link]]:
    return [set(parse_links(line).sure) for line in read_lines(Path(path))]


def _write_links(path: Path, links: Sequence[set[Link]]) -> None:
    lines = (" ".join(f"{i}-{j}" for i, j in sorted(one)) for one in links)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
