"""Every score function under one budget, as in section 4.6 of Luong, Pham, Manning (EMNLP 2015).

    python -m recipes.studies.attention                         # Multi30k, German to English
    python -m recipes.studies.attention --scores dot,general    # some of them; the others later, in the same folder

The decoder is `LuongSeq2Seq`'s for all: there the decoder's state and the memory have one width, so that dot, scaled
dot and local attention, too, need no projection that the others lack. Sizes agree within 5 %, and the tokenizers, the
order of the batches, and the number of updates are the same. Additive and concat compute one function from weights that
begin differently: how far those two lie apart says how much of the other differences is chance.

Beside BLEU, chrF and perplexity on the test split, the report has the sharpness of the alignments, those of the
references, teacher-forced, so that every system is asked about the same words. A row, divided by its sum (which is 1
but for local-p's Gaussian), has an entropy in nats and a largest weight; of both the mean over all target tokens, the
end token included. A uniform row over S source tokens has ln S nats, whose mean stands beside them.

The committed study (`recipes/README.md`) shared two cores with other work, and its first two runs, additive and dot,
were halted for some minutes, which their seconds contain; BLEU, perplexity and sharpness do not depend on it.
"""

import argparse
import json
import math
import sys

import numpy as np

from keras_attn.cli import command
from recipes.studies import study as studies
from recipes.studies.study import Run, Study

UPDATES = {"multi30k": 1800, "phrases": 1200}
DEFAULT_UPDATES = 3000
SCORES = {
    "additive": ("attention=additive",),
    "dot": ("attention=dot",),
    "scaled-dot": ("attention=scaled_dot",),
    "general": ("attention=general",),
    "concat": ("attention=concat",),
    "cosine": ("attention=cosine",),
    "location": ("attention=location",),
    "local-m": ("attention=general", "local=m"),
    "local-p": ("attention=general", "local=p"),
}
SIZES = {  # smaller than the recipe's, for there are nine of them
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
    parser = command.Parser("recipes.studies.attention", description=__doc__.splitlines()[0])
    studies.add_options(parser, "multi30k")
    parser.add_argument("--scores", default=",".join(SCORES), help="default: %(default)s")
    return command.run(study, parser, argv)


def study(arguments: argparse.Namespace) -> None:
    names = arguments.scores.split(",")
    if unknown := [name for name in names if name not in SCORES]:
        raise ValueError(f"Expected --scores among: {','.join(SCORES)}. Received: {', '.join(unknown)!r}")
    changes = studies.changes(arguments, "luong")["luong"]
    updates = arguments.updates or UPDATES.get(arguments.corpus, DEFAULT_UPDATES)
    shared = (f"updates={updates}", *SIZES.get(arguments.corpus, ()), *changes)
    runs = {name: Run(name, "luong", (*own, *shared)) for name, own in SCORES.items()}

    from recipes import corpora

    with Study(arguments, "attention_study", list(runs.values()), updates=updates).opened() as held:
        corpus = corpora.load(arguments.corpus, arguments.source, arguments.target, data=arguments.data)
        finished = set(held.reports())
        if not set(names) <= finished:
            held.check_sizes(corpus, [run for run in runs.values() if run.name in finished.union(names)])
        held.work({name: [held.train_step(runs[name])] for name in names})
        for run in runs.values():
            if run.name in held.reports():
                measure(held, run, corpus)
        write(held)


def measure(held: Study, run: Run, corpus) -> None:
    """Writes `<score>.json`, the run's figures and those that its own report lacks, unless it is there."""
    path = held.out / f"{run.name}.json"
    if path.exists():
        return
    from keras_attn import evaluation
    from keras_attn.translator import Translator
    from recipes.training import report

    trained = held.reports()[run.name]
    with command.quietly():
        translator = Translator.from_preset(held.folder(run))
    sources, references = corpus.splits["test"]
    hypotheses = [block[2] for block in report.read_translations(held.folder(run) / "translations.txt")]
    interval = evaluation.bleu_interval(hypotheses, references, samples=SAMPLES, tokenize=trained["config"]["tokenize"])
    found = {
        "name": run.name,
        "bleu": trained["bleu"] | {"low": round(interval.low, 2), "high": round(interval.high, 2)},
    }
    names = "chrf parameters updates epochs train_seconds target_tokens_per_second decode_seconds command"
    found |= {name: trained[name] for name in names.split()}
    forced = [one for one in translator.score(sources, references) if one.source_token_ids]
    log_probs = np.concatenate([one.token_log_probs for one in forced])
    found["perplexity"] = round(math.exp(-log_probs.mean()), 3)
    found["sharpness"] = {name: round(value, 4) for name, value in sharpness([one.alignment for one in forced]).items()}
    report.write(path, found)


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


def write(held: Study) -> None:
    """The report and the figure of all scores that are measured."""
    from recipes.studies import figures

    paths = [held.out / f"{run.name}.json" for run in held.runs]
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    measured = [row["name"] for row in rows]  # in this call or an earlier one
    held.arguments.scores = None if measured == list(SCORES) else ",".join(measured)
    found = held.write_report(scores=rows, samples=SAMPLES, confidence=0.95)
    figures.attention(found, held.out / "attention.svg")
    for row in sorted(rows, key=lambda row: -row["bleu"]["score"]):
        print(
            f"{row['name']:>10}  BLEU {row['bleu']['score']:5.2f}, chrF {row['chrf']['score']:5.2f}, perplexity "
            f"{row['perplexity']:6.3f}, entropy {row['sharpness']['entropy']:.3f} nats, {row['train_seconds']:.0f} s"
        )
    print(f"The study is in {held.out}: report.json and attention.svg.")


if __name__ == "__main__":
    sys.exit(main())
