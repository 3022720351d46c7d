r"""BLEU against source length, with and without attention: figure 2 of Bahdanau, Cho, Bengio (ICLR 2015).

    python -m recipes.studies.length                                    # the embedded corpus
    python -m recipes.studies.length --corpus bible-en-es               # real text
    python -m recipes.studies.length --size-tolerance 3 --set rnnencdec.max_steps=7000 rnnencdec.units=400 \
        rnnencdec.hold_fraction=0.3

Trains RNNencdec-30, RNNencdec-50, RNNsearch-30 and RNNsearch-50, the paper's four: the number is the maximum number of
words of a training sentence on either side. They have the same tokenizers, sizes within 5 % of each other, and as many
updates with as many sentences each. Without attention a system learns more slowly, and after as many updates it is
behind on short sentences too, where in the paper both are alike: `--set` gives one recipe more updates, and
`--size-tolerance` allows it to be larger. For each length up to 60 words a test set is translated with beam search; the
folder gets report.json and length.svg. A study that was killed continues when it is started again.

Measured on `phrases` with the last of these commands (`recipes/README.md`; 92 minutes, two runs in parallel on two
cores that tests used too): with up to 10 words both RNNencdec have 78 BLEU, 79 % of RNNsearch's 99; with 51 to 60 words
they have 10 and 6, and RNNsearch-50 has 94. With 5,000 updates and the learning rate held for half of them, they had 75
and 72; with equal sizes and updates RNNencdec-50 had 59. More dropout does not help: RNNencdec-30 had 68 after 6,000.

Measured on the Bible (`recipes/README.md`; 69 minutes, two runs in parallel on 2 cores): RNNsearch-50 keeps 31 to 35
BLEU from 11 to 60 words; RNNsearch-30 keeps 30 up to 50 words and falls to 22 beyond; either RNNencdec falls from 26 or
25 BLEU for up to 10 words to 14 or 13 for up to 20, and to 9 in the end.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from keras_attn.cli import command
from recipes.studies.options import changes_by_recipe, load_corpus, study_parser
from recipes.studies.study import Run, Step, Study

MAX_STEPS = {"phrases": 1600, "bible-en-es": 4000}
DEFAULT_MAX_STEPS = 5000
RECIPES = {"rnnsearch": "RNNsearch", "rnnencdec": "RNNencdec"}  # the longest runs first: in parallel they end sooner
MAX_WORDS = (50, 30)
BINS = [(low, low + 9) for low in range(1, 60, 10)]  # source words, both ends included
SAMPLES = 1000
SIZE_TOLERANCE = 0.05


def main(argv=None) -> int:
    parser = study_parser("length", __doc__, "phrases")
    parser.add_argument(
        "--size-tolerance",
        metavar="PART",
        type=command.between(float, 0, 100),
        help=f"by which the largest may exceed the smallest (default: {SIZE_TOLERANCE})",
    )
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    changes = changes_by_recipe(arguments, *RECIPES)
    max_steps = arguments.max_steps or MAX_STEPS.get(arguments.corpus, DEFAULT_MAX_STEPS)
    runs = [
        Run(f"{recipe}-{words}", recipe, (f"max_words={words}", f"max_steps={max_steps}", *changes[recipe]))
        for recipe in RECIPES
        for words in MAX_WORDS
    ]

    with Study(arguments, "length_study", runs, max_steps=max_steps).opened() as study:
        corpus = load_corpus(arguments)
        sources, references = corpus.splits.get("lengths", corpus.splits["test"])
        lengths = [len(line.split()) for line in sources]
        if not any(low <= length <= high for low, high in BINS for length in lengths):
            raise ValueError(f"Expected test sentences of at most {BINS[-1][1]} words. {corpus.name} has none.")
        if len(study.reports()) < len(runs):
            given = arguments.size_tolerance
            study.check_sizes(corpus, runs, SIZE_TOLERANCE if given is None else given)
        text = study.out / "test.txt"
        text.write_text("".join(f"{line}\n" for line in sources), encoding="utf-8")
        study.work({run.name: [study.train_step(run), _translation(study, run, text)] for run in runs})
        write(study, corpus, lengths, references)


def _translation(study: Study, run: Run, text: Path) -> Step:
    output = study.out / f"{run.name}.txt"
    output.with_name(f"{output.name}.part").unlink(missing_ok=True)  # of a study that was killed
    options = [str(text), "--output", str(output), "--beam", str(study.arguments.beam)]
    return Step("keras_attn.__main__", ["translate", str(study.folder(run)), *options], output)


def write(study: Study, corpus, lengths: Sequence[int], references: Sequence[str]) -> None:
    """Writes the report and the figure of the finished runs."""
    reports = study.reports()
    bins = [[n for n, length in enumerate(lengths) if low <= length <= high] for low, high in BINS]
    described = [
        {"words": list(ends), "sentences": len(rows), "mean_words": round(sum(lengths[n] for n in rows) / len(rows), 2)}
        for ends, rows in zip(BINS, bins, strict=True)
        if rows
    ]
    systems = []
    for run in study.runs:
        with (study.out / f"{run.name}.txt").open(encoding="utf-8", newline="\n") as file:
            hypotheses = [line.removesuffix("\n") for line in file]
        systems.append(_system(run, reports[run.name], hypotheses, references, [rows for rows in bins if rows]))
    study.write_report(
        bins=described,
        systems=systems,
        samples=SAMPLES,
        confidence=0.95,
        signature=reports[study.runs[0].name]["bleu"]["signature"],
        overlong=sum(length > BINS[-1][1] for length in lengths),
    )
    for system in systems:
        print(f"{system['name']:>13}", *(f"{one['bleu']:6.2f}" for one in system["bins"]))


def _system(run: Run, trained: dict, hypotheses: list[str], references: Sequence[str], bins: list[list[int]]) -> dict:
    from keras_attn import evaluation

    recipe, words = run.name.split("-")
    system = {"name": f"{RECIPES[recipe]}-{words}", "recipe": recipe, "max_words": int(words), "bins": []}
    names = "parameters updates epochs training_pairs train_seconds target_tokens_per_second command"
    system |= {name: trained[name] for name in names.split()}
    for rows in bins:
        pair = [[lines[n] for n in rows] for lines in (hypotheses, references)]
        interval = evaluation.bleu_interval(*pair, samples=SAMPLES, tokenize=trained["config"]["tokenize"])
        bounds = {"bleu": interval.score.score, "low": interval.low, "high": interval.high}
        system["bins"].append({name: round(value, 2) for name, value in bounds.items()})
    return system


if __name__ == "__main__":
    sys.exit(main())
