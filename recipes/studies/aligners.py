"""The aligners with which the alignment study compares attention, the scores, and two directions made one."""

import operator
from collections.abc import Callable, Sequence, Set
from pathlib import Path

from keras_attn.evaluation import Gold, Link, Model1, alignment_error_rate, grow_diag_final_and
from keras_attn.requirements import is_installed
from keras_attn.training import corpora
from recipes.studies import attention_links, eflomal_links

ITERATIONS = 5  # of EM
MAX_WORDS = 60  # of Model 1's sentences
METHODS: dict[str, Callable] = {"intersection": operator.and_, "grow-diag-final-and": grow_diag_final_and}


class Scorer:
    """Scores links: by AER on the development part, by AER, precision and recall on the others and on all."""

    def __init__(self, gold: Sequence[Gold], development: int):
        self.gold, self.development = gold, development

    def __call__(self, links: Sequence[Set[Link]]) -> dict:
        n = self.development
        parts = {"development": slice(n), "test": slice(n, None), "all": slice(None)}
        scores = {name: alignment_error_rate(links[part], self.gold[part]).to_dict() for name, part in parts.items()}
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
    rows = [{"name": "diagonal"} | scorer([attention_links.diagonal(*pair) for pair in pairs])]
    rows += _model1(corpora.pairs_up_to(MAX_WORDS, corpus.splits["train"]), gold, scorer)
    if (out / "eflomal").exists() or is_installed("eflomal"):
        forward, backward = eflomal(out, corpus, gold)
        rows += [{"name": "eflomal"} | scorer(forward), *scorer.symmetrised("eflomal", forward, backward)]
    else:
        print("eflomal is not installed (pip install eflomal): it is not among the aligners.")
    return rows


def eflomal(out: Path, corpus: corpora.Corpus, gold) -> tuple[list[set[Link]], list[set[Link]]]:
    """eflomal's links of the gold's sentences, forward and backward; it aligns them with the training pairs."""
    languages = corpus.source, corpus.target
    return eflomal_links.align(out, languages, corpus.splits["train"], (gold.sources, gold.targets))


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
