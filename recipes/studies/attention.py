"""Every score function under one budget, as in section 4.6 of Luong, Pham, Manning (EMNLP 2015).

    python -m recipes.studies.attention                         # Multi30k, German to English
    python -m recipes.studies.attention --scores dot,general    # two of them; others can be added later

All runs are `LuongSeq2Seq`, whose decoder state and memory have the same width, so that dot, scaled dot and local
attention do not need a projection that the other scores lack. Sizes agree within 5 %; the tokenizers, the order of the
batches, and the number of updates are the same. Additive and concat compute the same function from weights that are
initialised differently: the difference between these two shows how much of the other differences is chance.

The report has BLEU, chrF and perplexity on the test split, and the sharpness of the alignments. The alignments are
those of the references, teacher-forced, so that all systems align the same words. A row is divided by its sum (which is
1 except for local-p's Gaussian); sharpness is its entropy in nats and its largest weight, averaged over all target
tokens, the end token included. The mean entropy of uniform rows, ln S for S source tokens, is given for comparison.

The committed study (`recipes/README.md`) shared two cores with other work, and its first two runs, additive and dot,
were suspended for some minutes, which their seconds include; BLEU, perplexity and sharpness do not depend on this.
"""

import argparse
import json
import math
import sys

import numpy as np

from keras_attn.cli import command
from recipes.studies.options import changes_by_recipe, chosen, load_corpus, study_parser
from recipes.studies.study import Run, Study

MAX_STEPS = {"multi30k": 1800, "phrases": 1200}
DEFAULT_MAX_STEPS = 3000
SCORES = ("additive", "dot", "scaled-dot", "general", "concat", "cosine", "location", "local-m", "local-p")
SIZES = {  # smaller than the recipe's, because there are nine runs
    "multi30k": (
        "source_vocabulary_size=4000",
        "target_vocabulary_size=4000",
        "units=192",
        "embedding_size=192",
        "readout_size=192",
    )
}
SAMPLES = 1000


def main(argv=None) -> int:
    parser = study_parser("attention", __doc__, "multi30k")
    parser.add_argument("--scores", default=",".join(SCORES), help="default: %(default)s")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    names = chosen("--scores", arguments.scores, SCORES)
    changes = changes_by_recipe(arguments, "luong")["luong"]
    max_steps = arguments.max_steps or MAX_STEPS.get(arguments.corpus, DEFAULT_MAX_STEPS)
    shared = (f"max_steps={max_steps}", *SIZES.get(arguments.corpus, ()), *changes)
    runs = {name: Run(name, "luong", (f"attention={name.replace('-', '_')}", *shared)) for name in SCORES}

    with Study(arguments, "attention_study", list(runs.values()), max_steps=max_steps).opened() as study:
        corpus = load_corpus(arguments)
        finished = set(study.reports())
        if not set(names) <= finished:
            study.check_sizes(corpus, [run for run in runs.values() if run.name in finished.union(names)])
        study.work({name: [study.train_step(runs[name])] for name in names})
        for run in runs.values():
            if run.name in study.reports():
                measure(study, run, corpus)
        write(study)


def measure(study: Study, run: Run, corpus) -> None:
    """Writes `<score>.json`, the run's figures and those that its own report lacks, unless the file exists."""
    path = study.out / f"{run.name}.json"
    if path.exists():
        return
    from keras_attn import Translator, evaluation
    from keras_attn.training import report
    from recipes.studies.aligners import sharpness

    trained = study.reports()[run.name]
    with command.quietly():
        translator = Translator.from_preset(study.folder(run))
    sources, references = corpus.splits["test"]
    hypotheses = [block[2] for block in report.read_translations(study.folder(run) / "translations.txt")]
    interval = evaluation.bleu_interval(hypotheses, references, samples=SAMPLES, tokenize=trained["config"]["tokenize"])
    row = {
        "name": run.name,
        "bleu": trained["bleu"] | {"low": round(interval.low, 2), "high": round(interval.high, 2)},
    }
    names = "chrf parameters updates epochs train_seconds target_tokens_per_second decode_seconds command"
    row |= {name: trained[name] for name in names.split()}
    forced = [one for one in translator.score(sources, references) if one.source_token_ids]
    log_probs = np.concatenate([one.token_log_probs for one in forced])
    row["perplexity"] = round(math.exp(-log_probs.mean()), 3)
    row["sharpness"] = {name: round(value, 4) for name, value in sharpness([one.alignment for one in forced]).items()}
    report.write(path, row)


def write(study: Study) -> None:
    """Writes the report and the figure of all scores that are measured."""
    paths = [study.out / f"{run.name}.json" for run in study.runs]
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    measured = [row["name"] for row in rows]  # in this call or an earlier one
    study.arguments.scores = None if measured == list(SCORES) else ",".join(measured)
    study.write_report(scores=rows, samples=SAMPLES, confidence=0.95)
    for row in sorted(rows, key=lambda row: -row["bleu"]["score"]):
        print(
            f"{row['name']:>10}  BLEU {row['bleu']['score']:5.2f}, chrF {row['chrf']['score']:5.2f}, perplexity "
            f"{row['perplexity']:6.3f}, entropy {row['sharpness']['entropy']:.3f} nats, {row['train_seconds']:.0f} s"
        )


if __name__ == "__main__":
    sys.exit(main())
