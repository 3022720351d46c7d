"""BLEU of ensembles of models that differ by their seed alone, and of one of them.

    python -m recipes.studies.ensembles --seeds 4                             # Multi30k, German to English
    python -m recipes.studies.ensembles --recipe rnnsearch --seeds 2 --set epochs=10

Trains a recipe with several seeds, and scores each model, and the ensembles of the first two, the first three and so on
(`keras_attn.models.Ensemble`: one search, whose next token all models choose together by the mean of their
probabilities). The score of a single model is the mean over the seeds, with an interval (`recipes.studies.repeated`).
Runs and ensembles of a study that was killed, or is started again with more seeds, are not repeated.
"""

import argparse
import json
import sys
from pathlib import Path

from keras_attn.cli import command
from recipes.studies import repeated
from recipes.studies.options import changes_by_recipe, load_corpus, study_parser
from recipes.studies.study import Run, Study


def main(argv=None) -> int:
    parser = study_parser("ensembles", __doc__, "multi30k")
    repeated.add_seeds(parser)
    parser.set_defaults(seeds=4)
    parser.add_argument("--recipe", default="nematus", help="default: %(default)s")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    if arguments.seeds < 2:
        raise ValueError(f"Expected --seeds of at least 2, for an ensemble. Received: {arguments.seeds}")
    changes = changes_by_recipe(arguments, arguments.recipe)[arguments.recipe]
    steps = (f"max_steps={arguments.max_steps}",) if arguments.max_steps else ()
    variant = Run(arguments.recipe, arguments.recipe, (*steps, *changes))

    settings = {"recipe": arguments.recipe, "max_steps": arguments.max_steps}
    study = Study(arguments, "ensembles_study", repeated.runs([variant], arguments), **settings)
    repeated.check(study)
    load_corpus(arguments)
    with study.opened():
        study.work({run.name: [study.train_step(run)] for run in study.runs})
        scored = {many: _scores(study, study.runs[:many]) for many in range(2, arguments.seeds + 1)}
        study.work({path.stem: [study.ensemble_step(study.runs[:many], path)] for many, path in scored.items()})
        write(study, variant, scored)


def _scores(study: Study, runs: list[Run]) -> Path:
    """The file of an ensemble's scores."""
    return study.out / f"ensemble-seeds-{runs[0].seed}-{runs[-1].seed}.json"


def write(study: Study, variant: Run, scored: dict[int, Path]) -> None:
    """Writes the report."""
    (single,) = repeated.rows(study, [variant])
    ensembles = []
    for many, path in scored.items():
        (system,) = json.loads(path.read_text(encoding="utf-8"))["systems"]
        bleu, chrf = (round(system[metric]["score"], 2) for metric in ("bleu", "chrf"))
        gain = round(bleu - single["bleu"]["mean"], 2)
        ensembles.append({"models": many, "bleu": bleu, "chrf": chrf, "gain": gain, "seconds": system["seconds"]})
    study.write_report(seeds=study.arguments.seeds, single=single, ensembles=ensembles, confidence=repeated.CONFIDENCE)
    interval = "" if single["bleu"]["interval"] is None else f" ± {single['bleu']['interval']:.2f}"
    print(f"single model  BLEU {single['bleu']['mean']:5.2f}{interval}")
    for row in ensembles:
        print(f"{row['models']:>5} models  BLEU {row['bleu']:5.2f}  ({row['gain']:+.2f})")


if __name__ == "__main__":
    sys.exit(main())
