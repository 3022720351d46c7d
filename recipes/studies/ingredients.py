"""BLEU of each ingredient of the best recurrent translators: added to one recipe, or taken from it.

    python -m recipes.studies.ingredients --seeds 3                           # Multi30k, German to English
    python -m recipes.studies.ingredients --ingredients word-dropout,bpe-dropout --seeds 3
    python -m recipes.studies.ingredients --ingredients context-gate --seeds 3 --earlier REPORT.json

The base is the recipe `nematus`: a conditional GRU with a tied output, label smoothing and a moving average of the
weights. Every other run differs from it by one ingredient, and from the same seed on in nothing else; tokenizers,
order of the batches and number of updates are the same. Differences are between mean BLEU over the seeds, with an
interval over seeds (`recipes.studies.repeated`); one seed is not enough where they are under 1 BLEU. The base is always
trained, unless `--earlier` names a report of this study that has it: its rows are kept, so that a study of many hours
can be made in parts, on several machines. Runs of a study that was killed, or is started again with more seeds or
ingredients, are not repeated.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from keras_attn.cli import command
from recipes.studies import repeated
from recipes.studies.options import changes_by_recipe, chosen, load_corpus, study_parser
from recipes.studies.study import Run, Study, merge_earlier, read_earlier

MAX_STEPS = {"multi30k": 3600, "multi30k-tok": 3600, "phrases": 1600}
DEFAULT_MAX_STEPS = 5000
BASE = "base"
# By name: the recipe, its settings, and what they are. The order is that of the runs.
INGREDIENTS = {
    BASE: ("nematus", (), "the recipe nematus"),
    "without-conditional-gru": ("rnnsearch", (), "one GRU, whose query has not read the last word: RNNsearch"),
    "layer-normalization": ("nematus", ("layer_normalization=true",), "layer normalisation in every GRU"),
    "deep-transitions": (
        "nematus",
        ("encoder_transitions=2", "decoder_transitions=4"),
        "two transitions a step in the encoder, four in the decoder",
    ),
    "recurrent-dropout": ("nematus", ("recurrent_dropout=0.2",), "dropout of the states, one mask a sentence: 0.2"),
    "word-dropout": ("nematus", ("word_dropout=0.1",), "dropout of whole words: 0.1"),
    "bpe-dropout": ("nematus", ("bpe_dropout=0.1",), "BPE-dropout: 0.1"),
    "guided-alignment": ("nematus", ("guided_alignment=0.1",), "guided alignment by IBM Model 1: 0.1"),
    "without-tied-embeddings": ("nematus", ("tie_embeddings=none",), "an output matrix of its own"),
    "without-label-smoothing": ("nematus", ("label_smoothing=0",), "no label smoothing"),
    "without-moving-average": ("nematus", ("ema_decay=0",), "the last weights instead of their moving average"),
    "checkpoint-averaging": (
        "nematus",
        ("ema_decay=0", "average_checkpoints=5"),
        "the mean of the last five validations' weights instead of their moving average",
    ),
    "context-gate": ("rnnsearch", ("context_gate=both",), "RNNsearch with a context gate"),
}


def main(argv=None) -> int:
    parser = study_parser("ingredients", __doc__, "multi30k")
    repeated.add_seeds(parser)
    parser.add_argument("--ingredients", metavar="NAME,...", default=",".join(INGREDIENTS), help="default: %(default)s")
    parser.add_argument("--earlier", type=Path, metavar="REPORT", help="report.json that has rows of other ingredients")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    names = chosen("--ingredients", arguments.ingredients, INGREDIENTS)
    changes = changes_by_recipe(arguments, *dict.fromkeys(recipe for recipe, _, _ in INGREDIENTS.values()))
    max_steps = arguments.max_steps or MAX_STEPS.get(arguments.corpus, DEFAULT_MAX_STEPS)
    variants = [
        Run(name, recipe, (f"max_steps={max_steps}", *changes[recipe], *own))
        for name, (recipe, own, _) in INGREDIENTS.items()
    ]

    study = Study(arguments, "ingredients_study", repeated.runs(variants, arguments), max_steps=max_steps)
    repeated.check(study)
    earlier = read_earlier(arguments, study.settings | {"seeds": arguments.seeds}, ("ingredients",))
    if BASE not in [row["name"] for row in earlier["ingredients"]]:
        names.append(BASE)
    load_corpus(arguments)
    with study.opened():
        todo = repeated.runs([variant for variant in variants if variant.name in names], arguments)
        study.work({run.name: [study.train_step(run)] for run in todo})
        write(study, variants, earlier)


def write(study: Study, variants: Sequence[Run], earlier: dict) -> None:
    """Writes the report and the figure of all ingredients that have a finished run, in this folder or in `earlier`."""
    here = repeated.rows(study, variants)
    study.arguments.ingredients = ",".join(row["name"] for row in here)
    if study.arguments.ingredients == ",".join(INGREDIENTS):
        study.arguments.ingredients = None
    merged = merge_earlier(earlier, ingredients=here)
    rows = sorted(merged["ingredients"], key=lambda row: list(INGREDIENTS).index(row["name"]))
    scores = [row["bleu"]["scores"] for row in rows]
    for row in rows:
        row["what"] = INGREDIENTS[row["name"]][2]
        row["bleu"]["interval"] = repeated.half_width(repeated.pooled_deviation(scores), len(row["bleu"]["scores"]))
        row |= repeated.difference(row, rows[0], scores)
    merged["ingredients"] = rows
    study.write_report(seeds=study.arguments.seeds, **merged, confidence=repeated.CONFIDENCE)
    for row in sorted(rows, key=lambda row: -row["difference"]):
        interval = "" if row["interval"] is None else f" ± {row['interval']:.2f}"
        print(f"{row['name']:>24}  BLEU {row['bleu']['mean']:5.2f}, {row['difference']:+.2f}{interval}")


if __name__ == "__main__":
    sys.exit(main())
