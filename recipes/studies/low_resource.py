"""BLEU against the number of training pairs, after Sennrich & Zhang, Revisiting Low-Resource NMT (ACL 2019).

    python -m recipes.studies.low_resource --seeds 3                    # 5,000, 10,000 and 29,000 pairs of Multi30k
    python -m recipes.studies.low_resource --sizes 5000,29000 --adapted word_dropout=0.2 recurrent_dropout=0.3

`plain` is the recipe `nematus` as it is for the whole corpus. `adapted` has what the paper finds to matter where text
is scarce: a smaller vocabulary, smaller batches, more dropout, dropout of whole words, BPE-dropout, and stronger label
smoothing; `--adapted` changes its settings. The pairs are drawn once by `--seed`, each smaller set from the larger
ones; validation and test text are the corpus'. The updates are in proportion to the square root of the number of pairs,
`--max-steps` for the whole corpus, so that smaller sets are read more often, and both systems read as many sentences.
The weights are those of the best validation. Runs of a study that was killed, or is started again with more seeds or
sizes, are not repeated.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_attn.cli import command
from keras_attn.training import override
from recipes import nematus
from recipes.studies import repeated
from recipes.studies.options import changes_by_recipe, load_corpus, numbers, settings_for, study_parser
from recipes.studies.study import Run, Study, write_corpus

RECIPE = "nematus"
SIZES = (5000, 10000, 29000)
MAX_STEPS = 3600
KINDS = ("plain", "adapted")
VOCABULARY = {8000: 2000, 15000: 3000, math.inf: 5000}  # of either side, by the largest number of pairs
_ADAPTED = (
    "word_dropout=0.1",
    "recurrent_dropout=0.2",
    "bpe_dropout=0.1",
    "embedding_dropout=0.4",
    "output_dropout=0.5",
    "label_smoothing=0.2",
)


def main(argv=None) -> int:
    parser = study_parser("low_resource", __doc__, "multi30k")
    repeated.add_seeds(parser)
    parser.add_argument("--sizes", metavar="N,...", default=",".join(map(str, SIZES)), help="default: %(default)s")
    parser.add_argument("--adapted", nargs="+", action="extend", default=[], metavar="NAME=VALUE")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    changes = changes_by_recipe(arguments, RECIPE)[RECIPE]

    corpus = load_corpus(arguments)
    pairs = len(corpus.splits["train"][0])
    sizes = numbers("--sizes", arguments.sizes, int, 1, pairs)
    arguments.source, arguments.target = corpus.source, corpus.target
    max_steps = arguments.max_steps or MAX_STEPS
    study = Study(arguments, "low_resource_study", [], max_steps=max_steps, adapted=arguments.adapted)
    shared = [*settings_for(RECIPE, arguments.corpus), *changes]
    variants = []
    for size in sizes:
        steps = max(1, round(max_steps * math.sqrt(size / pairs)))
        settings = {
            "plain": (*shared, f"max_steps={steps}"),
            "adapted": adapted(size, steps, shared, arguments.adapted),
        }
        variants += [Run(f"{kind}-{size}", RECIPE, settings[kind], _text(study, size)) for kind in KINDS]
    study.runs = repeated.runs(variants, arguments)
    repeated.check(study)
    with study.opened():
        for size in sizes:
            _write_text(corpus, size, arguments.seed, _text(study, size))
        if len(study.reports()) < len(study.runs):
            _check_vocabularies(study, corpus)
        study.work({run.name: [study.train_step(run)] for run in study.runs})
        write(study, variants, sizes)


def adapted(size: int, steps: int, shared: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """The settings of the adapted system: half the sentences a batch, and twice the updates."""
    batch_size = max(1, override(nematus.Config(), list(shared)).batch_size // 2)
    vocabulary = next(many for most, many in VOCABULARY.items() if size < most)
    sizes = [f"{side}_vocabulary_size={vocabulary}" for side in ("source", "target")]
    return (*shared, f"max_steps={2 * steps}", f"batch_size={batch_size}", *sizes, *_ADAPTED, *more)


def _text(study: Study, size: int) -> Path:
    return study.out / f"train-{size}"


def _write_text(corpus, size: int, seed: int, folder: Path) -> None:
    """Writes a corpus that has so many of the training pairs, in their order, and the other splits as they are."""
    train = corpus.splits["train"]
    kept = sorted(np.random.default_rng(seed).permutation(len(train[0]))[:size])
    splits = corpus.splits | {"train": [[lines[n] for n in kept] for lines in train]}
    write_corpus(folder, (corpus.source, corpus.target), splits)


def _check_vocabularies(study: Study, corpus) -> None:
    """Raises ValueError if the smallest set, that of the first runs, has too little text for the vocabularies."""
    from keras_attn.training import corpora, fitting

    first = study.runs[: len(KINDS)]
    text = corpora.load(first[0].corpus, corpus.source, corpus.target)
    for config in study.configs(first).values():
        fitting.train_tokenizers(config, *text.splits["train"])


def write(study: Study, variants: Sequence[Run], sizes: Sequence[int]) -> None:
    """Writes the report and the figure."""
    rows = repeated.rows(study, variants)
    for row in rows:
        kind, _, size = row["name"].rpartition("-")
        row |= {"kind": kind, "size": int(size)}
    scores = [row["bleu"]["scores"] for row in rows]
    gains = []
    for size in sizes:
        plain, adapted = (next(row for row in rows if (row["kind"], row["size"]) == (kind, size)) for kind in KINDS)
        gains.append({"size": size} | repeated.difference(adapted, plain, scores))
    study.write_report(
        corpus=study.settings["corpus"],
        seeds=study.arguments.seeds,
        systems=rows,
        gains=gains,
        confidence=repeated.CONFIDENCE,
    )
    for row in rows:
        interval = "" if row["bleu"]["interval"] is None else f" ± {row['bleu']['interval']:.2f}"
        print(f"{row['size']:>9,} pairs, {row['kind']:>8}  BLEU {row['bleu']['mean']:5.2f}{interval}")


if __name__ == "__main__":
    sys.exit(main())
