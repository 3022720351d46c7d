r"""Pronunciation in the languages of the second SIGMORPHON shared task (2021), beside the task's baseline.

    python -m recipes.studies.g2p --seeds 3                                  # the seven languages of 8,000 words
    python -m recipes.studies.g2p --languages low,eng_us --systems hard_monotonic --seeds 5
    python -m recipes.studies.g2p --languages low --systems hard_monotonic,nematus --max-steps 500 \
        --from hard_monotonic=RUN nematus=RUN        # goes on from runs of all languages, each of which has a tag

Each system is trained on the task's own training words of each language, letters to phones (Korean syllables are
decomposed into consonants and vowels, the corpus' side "decomposed"); the weights are those with
the best word error rate on its development words, which are translated greedily. Its test words are then translated
with beam search. The score is the task's: word error rate (WER), the percentage of words whose phones are not all
right; beside it is phoneme error rate (PER), the edits per phone. A word has one right answer.

Of several seeds a single model's score is the mean, with an interval over seeds that is pooled over the languages with
equally many words (`recipes.studies.repeated`). The seeds of a system are also an ensemble, and so are all models of
all systems: by probability (`keras_attn.models.Ensemble`) and by vote (`keras_attn.translation.vote`). Means are over
the seven languages with 8,000 training words ("medium"), and over the eight with 800 ("low"), where all are there.

The baseline is the task's own, an ensemble of neural transducers (Ashby et al. 2021; `BASELINE` has its WER on the test
words). Training takes as many updates as the recipe has, or `--max-steps`, within `--minutes` a run. Runs and ensembles
of a study that was killed, or is started again with more seeds, languages or systems, are not repeated. Text of
one's own is a `--corpus FOLDER` with a folder for each language, such as `ady`, of `train.letters`, `train.phones`, ...

Reference: Ashby et al. Results of the Second SIGMORPHON Shared Task on Multilingual Grapheme-to-Phoneme Conversion.
SIGMORPHON 2021.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from keras_attn.cli import command
from recipes import named_corpora
from recipes.studies import repeated
from recipes.studies.options import changes_by_recipe, chosen, settings_for, study_parser
from recipes.studies.study import Run, Step, Study

CORPUS = "g2p"
ALL = "all"
SYSTEMS = {  # the recipe, and the settings changed
    "hard_monotonic": ("hard_monotonic", ()),
    "hard_monotonic-first-order": ("hard_monotonic", ("order=1",)),
    "rnnsearch": ("rnnsearch", ()),
    "nematus": ("nematus", ()),
    "luong": ("luong", ()),
}
DECOMPOSED = {"kor": "decomposed"}  # the source side, instead of letters
KINDS = ("probability", "vote")  # of ensembles
SINGLE = "single"
BASELINE = {"eng_us": 41.94}
BASELINE |= {"arm_e": 7.0, "bul": 18.3, "dut": 14.7, "fre": 8.5, "geo": 0.0, "jpn_hira": 5.2, "kor": 16.3}
BASELINE |= {"ady": 22, "ice": 12, "ita": 19, "khm": 34, "lav": 55, "mlt_latn": 19, "rum": 10, "wel_sw": 10}


def main(argv=None) -> int:
    parser = study_parser("g2p", __doc__, CORPUS)
    parser.set_defaults(source="letters", target="phones")
    repeated.add_seeds(parser)
    option = parser.add_argument
    option(
        "--languages", metavar="NAME,...", default="medium", help=f"or {', '.join(named_corpora.G2P_LANGUAGES)}, {ALL}"
    )
    option("--systems", metavar="NAME,...", default="hard_monotonic,rnnsearch", help=f"of {', '.join(SYSTEMS)}")
    option("--minutes", type=float, help="of training a run at most, validation included")
    option("--from", nargs="+", metavar="SYSTEM=RUN", dest="starts", default=[], help="go on from multilingual runs")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    languages = _languages(arguments.languages)
    systems = chosen("--systems", arguments.systems, SYSTEMS)
    changes = changes_by_recipe(arguments, *dict.fromkeys(recipe for recipe, _ in SYSTEMS.values()))
    every, starts = _languages(ALL), _starts(arguments.starts, systems)
    variants = {
        (language, system): _variant(arguments, language, system, changes, starts)
        for language in every
        for system in SYSTEMS
    }

    from keras_attn.training import corpora

    settings = {"max_steps": arguments.max_steps, "minutes": arguments.minutes}
    settings["starts"] = [f"{system}={Path(run).name}" for system, run in starts.items()] or None
    todo = [variants[language, system] for language in languages for system in systems]
    study = Study(arguments, "g2p_study", repeated.runs(todo, arguments), **settings)
    repeated.check(study, "wer")
    for language in languages:
        corpora.load(_corpus(arguments, language), *_sides(arguments, language), data=arguments.data)
    with study.opened():
        study.work({run.name: [study.train_step(run)] for run in study.runs})
        # If only some systems go on from a run, their tokenizers are not those of the others.
        joint = [systems] if len(starts) in (0, len(systems)) else []
        steps = [step for language in languages for step in _ensembles(study, language, systems, joint, variants)]
        study.work({step.output.stem: [step] for step in steps})
        study.runs = repeated.runs(list(variants.values()), arguments)  # of earlier calls, too
        write(study, variants)


def _languages(text: str) -> list[str]:
    """The languages of a comma-separated list of languages and amounts, in their usual order.

    Raises:
        ValueError: for another name.
    """
    every = [language for some in named_corpora.G2P_LANGUAGES.values() for language in some]
    groups = {ALL: every, **named_corpora.G2P_LANGUAGES, **{language: [language] for language in every}}
    wanted = {language for name in chosen("--languages", text, groups) for language in groups[name]}
    return [language for language in every if language in wanted]


def _corpus(arguments: argparse.Namespace, language: str) -> str:
    """The name of a language's corpus, or its folder below that of `--corpus`."""
    return f"g2p/{language}" if arguments.corpus == CORPUS else str(Path(arguments.corpus, language))


def _sides(arguments: argparse.Namespace, language: str) -> tuple[str, str]:
    """The sides of a language's corpus; text of one's own is read as it is."""
    is_known = (arguments.corpus, arguments.source) == (CORPUS, "letters")
    return DECOMPOSED.get(language, "letters") if is_known else arguments.source, arguments.target


def _starts(texts: Sequence[str], systems: Sequence[str]) -> dict[str, str]:
    """The run that each system goes on from.

    Raises:
        ValueError: for anything but SYSTEM=RUN, or two runs of a system.
    """
    starts = dict(text.partition("=")[::2] for text in texts)
    if wrong := [text for text in texts if text.partition("=")[0] not in systems or not text.partition("=")[2]]:
        raise ValueError(f"Expected --from SYSTEM=RUN with a system of: {','.join(systems)}. Received: {wrong[0]!r}")
    if len(starts) < len(texts):
        raise ValueError(f"Expected --from with one run for each system. Received: {' '.join(texts)}")
    return starts


def _variant(
    arguments: argparse.Namespace, language: str, system: str, changes: dict[str, list[str]], starts: dict[str, str]
) -> Run:
    recipe, own = SYSTEMS[system]
    known = settings_for(recipe, "g2p/*") if arguments.corpus != CORPUS else ()  # a folder is not known
    steps = (f"max_steps={arguments.max_steps}",) if arguments.max_steps else ()
    settings = (*known, *steps, *changes[recipe], *own)
    start = ("--from", starts[system], "--tags", "corpus") if system in starts else ()
    where = _corpus(arguments, language), _sides(arguments, language)
    return Run(f"{language}-{system}", recipe, settings, *where, options=start)


def _ending(arguments: argparse.Namespace, kind: str) -> str:
    """The end of the name of an ensemble's file."""
    return f"-{kind}-seeds-{arguments.seed}-{arguments.seed + arguments.seeds - 1}.json"


def _ensembles(
    study: Study, language: str, systems: Sequence[str], joint: Sequence[Sequence[str]], variants: dict
) -> list[Step]:
    """The commands that score the ensembles of each system, and of these systems together."""
    arguments, steps = study.arguments, []
    groups = {"+".join(members): members for members in ([[system] for system in systems] + [*joint])}
    for name, members in groups.items():
        models = repeated.runs([variants[language, system] for system in members], arguments)
        for kind in KINDS if len(models) > 1 else ():
            output = study.out / f"{language}-{name}{_ending(arguments, kind)}"
            steps.append(study.ensemble_step(models, output, "--combine", kind))
    return steps


def write(study: Study, variants: dict[tuple[str, str], Run]) -> None:
    """Writes the report and the figure of all finished runs and ensembles, of this call or an earlier one."""
    languages = []
    for amount, names in named_corpora.G2P_LANGUAGES.items():
        keys = {variant.name: key for key, variant in variants.items() if key[0] in names}
        rows = repeated.rows(study, [variants[key] for key in keys.values()], "wer")
        for name in names:
            own = [row for row in rows if keys[row["name"]][0] == name]
            scores = [row | {"name": keys[row["name"]][1], "kind": SINGLE} for row in own] + _combined(study, name)
            words = {key: own[0][key] for key in ("training_pairs", "test_sentences")} if own else {}
            row = {"language": name, "amount": amount, "baseline": BASELINE[name], **words, "scores": scores}
            languages += [row] * bool(own)
    study.arguments.languages = ",".join(row["language"] for row in languages)
    found = {one["name"] for row in languages for one in row["scores"]}
    study.arguments.systems = ",".join(system for system in SYSTEMS if system in found)
    report = study.write_report(
        corpus=study.settings["corpus"],
        seeds=study.arguments.seeds,
        languages=languages,
        means=means(languages),
        confidence=repeated.CONFIDENCE,
    )
    for row in [*report["languages"], *report["means"]]:
        print(
            f"{row.get('language') or 'mean, ' + row['amount']:>12}  WER {row['baseline']:5.2f}  baseline of the task"
        )
        for one in row["scores"]:
            print(f"{'':>12}  WER {one['wer']['mean']:5.2f}  PER {one['per']:5.2f}  {one['name']}, {one['kind']}")


def _combined(study: Study, language: str) -> list[dict]:
    """The scores of a language's finished ensembles of as many seeds."""
    rows = []
    for kind in KINDS:
        ending = _ending(study.arguments, kind)
        for path in sorted(study.out.glob(f"{language}-*{ending}")):
            (system,) = json.loads(path.read_text(encoding="utf-8"))["systems"]
            name = path.name.removeprefix(f"{language}-").removesuffix(ending)
            wer = {"mean": system["wer"]["score"], "interval": None, "signature": system["wer"]["signature"]}
            figures = {"per": system["per"]["score"], "models": 1 + len(system["ensemble"])}
            rows.append({"name": name, "kind": kind, "wer": wer, **figures, "decode_seconds": system["seconds"]})
    return rows


def means(languages: Sequence[dict]) -> list[dict]:
    """The means over the languages with equally many words, where all of them are there, of what all of them have."""
    rows = []
    for amount, names in named_corpora.G2P_LANGUAGES.items():
        own = [row for row in languages if row["amount"] == amount]
        if not len(own) == len(names) > 1:
            continue
        scores: dict[tuple[str, str], list[dict]] = {}
        for one in (one for row in own for one in row["scores"]):
            scores.setdefault((one["name"], one["kind"]), []).append(one)
        row = {"amount": amount, "languages": len(own), "baseline": _mean(row["baseline"] for row in own)}
        row["scores"] = [
            {"name": name, "kind": kind, "per": _mean(one["per"] for one in many)}
            | {"wer": {"mean": _mean(one["wer"]["mean"] for one in many), "interval": None}}
            for (name, kind), many in scores.items()
            if len(many) == len(own)
        ]
        rows.append(row)
    return rows


def _mean(values: Iterable[float]) -> float:
    return round(statistics.mean(values), 2)


if __name__ == "__main__":
    sys.exit(main())
