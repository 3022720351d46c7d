"""The peers of pronunciation: g2p-en, phonetisaurus and yoyodyne, beside runs of this project, on the same test words.

    python -m tests.benchmarks.pronunciation_peers WORK --corpus cmudict --systems g2p-en phonetisaurus --runs RUN
    python -m tests.benchmarks.pronunciation_peers WORK --corpus g2p/fre --systems phonetisaurus yoyodyne --runs RUN

Each peer gets an environment of its own in WORK from the package index, once. Each answers the distinct test words on
one core; its score is that of `keras-attn evaluate` for pronunciations, words a second are without loading the model.

- g2p-en: its network alone, without its dictionary, for English. It was trained on all of CMUdict, so that it has seen
  the test words. It is greedy; stress is left out.
- phonetisaurus: trained on the training words with its own settings, an 8-gram model of aligned letters and phones.
- yoyodyne: `HardAttentionLSTMModel` with the settings of its example file (Wu and Cotterell's: first order, monotonic,
  400 units, dropout 0.3, Adam at 1e-3) and of its example of a trainer (gradient norm 3, 100 epochs, patience 10), in
  batches of 32, on all cores for at most `--minutes`; the weights with the best accuracy on the validation words.
- RUN: a run of `recipes.train` on the corpus, with a beam of 5, on `$KERAS_BACKEND`. Of a run whose model is not there
  `--reports` takes the report, which has no rate.

WORK/report.json is for the results page: `python -m recipes.pages.results WORK --report cmudict/peers`.
"""

import argparse
import contextlib
import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from keras_attn.cli import command
from keras_attn.cli.command import run_folder
from keras_attn.training import read_report
from tests.benchmarks.measuring import called, installed, run_process

PACKAGES = {
    "g2p-en": ("g2p-en==2.1.0",),
    "phonetisaurus": ("phonetisaurus==0.3.0",),
    "yoyodyne": ("torch==2.13.0", "yoyodyne==0.5.27"),  # torch first: it chooses the build
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
BEAM = 5
# What a row has of a run's report.
OF_REPORTS = ("wer", "wer_without_stress", "wer_of_stress", "per", "parameters", "train_seconds", "command")
# `G2p()` looks a word up in its dictionary first, and needs NLTK's data for that: here the network answers alone.
G2P_EN = """
import json, re, sys, time
import nltk
nltk.download = lambda *_: False  # importing g2p_en asks for it
nltk.corpus.cmudict.dict = dict  # an empty dictionary
from g2p_en import G2p
network, words = G2p(), open(sys.argv[1], encoding="utf-8").read().splitlines()
begin = time.perf_counter()
found = [network.predict(word.replace(" ", "")) for word in words]
seconds = time.perf_counter() - begin
phones = [" ".join(re.sub("[0-9]", "", phone) for phone in one) for one in found]
print(json.dumps({"phones": phones, "seconds": seconds}))
"""
# The first call, which compiles, is not counted.
OURS = """
import json, sys, time
from pathlib import Path
from keras_attn import Translator
from keras_attn.training import length_penalty
path, run, beam = sys.argv[1:]
words, translator = Path(path).read_text("utf-8").splitlines(), Translator.from_preset(run)
options = {"beam_size": int(beam), "return_alignments": False, "length_penalty": length_penalty(Path(run), None)}
translator.generate(words, **options)
begin = time.perf_counter()
found = translator.generate(words, **options)
print(json.dumps({"phones": [one.text for one in found], "seconds": time.perf_counter() - begin}))
"""
Pairs = tuple[list[str], list[str]]  # words, and a pronunciation of each


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Runs what starts meanwhile on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def programs(work: Path, system: str) -> Path:
    """The folder of a peer's programs, installed on first use."""
    return installed(work / "environments" / system, *PACKAGES[system])


def without_loading(answers, words: list[str]) -> tuple[list[str], float]:
    """The answers of a program that loads its model each time, and the seconds without that.

    Of words so few that they take no longer than one, the seconds are not a number.
    """
    begin = time.monotonic()
    answers(words[:1])
    loading, begin = time.monotonic() - begin, time.monotonic()
    found = answers(words)
    seconds = time.monotonic() - begin - loading
    return found, seconds if seconds > 0 else math.nan


def of_g2p_en(work: Path, words: list[str], train: Pairs, validation: Pairs, minutes: float) -> dict:
    """g2p-en's network."""
    python = programs(work, "g2p-en") / "python"
    with one_core():
        found = run_process("-c", G2P_EN, listed(work, words), python=python, **ONE_THREAD)
    return found | {"about": "its network, which has seen the test words; greedy"}


def of_phonetisaurus(work: Path, words: list[str], train: Pairs, validation: Pairs, minutes: float) -> dict:
    """Phonetisaurus, whose words have no blanks between their letters."""
    program = programs(work, "phonetisaurus") / "phonetisaurus"
    lexicon, model = work / "lexicon.txt", work / "phonetisaurus.fst"
    lines = (f"{word.replace(' ', '')}\t{phones}\n" for word, phones in zip(*train, strict=True))
    lexicon.write_text("".join(lines), encoding="utf-8")
    begin = time.monotonic()
    called(program, "train", "--model", model, "--lexicon-word-separator", "\t", lexicon, cwd=work, **ONE_THREAD)
    trained = time.monotonic() - begin

    def answers(some: list[str]) -> list[str]:
        spelled = [word.replace(" ", "") for word in some]
        with one_core():
            found = called(program, "predict", "--model", model, *spelled, **ONE_THREAD)
        phones = dict(line.partition(" ")[::2] for line in found.stdout.splitlines())
        return [phones.get(word, "") for word in spelled]

    phones, seconds = without_loading(answers, words)
    about = {"train_seconds": round(trained, 1), "about": "8-grams of aligned letters and phones"}
    return {"phones": phones, "seconds": seconds} | about


def of_yoyodyne(work: Path, words: list[str], train: Pairs, validation: Pairs, minutes: float) -> dict:
    """Yoyodyne's hard monotonic attention."""
    program = programs(work, "yoyodyne") / "yoyodyne"
    folder = work / "yoyodyne"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, sides in {"train": train, "val": validation}.items():
        lines = map("\t".join, zip(*sides, strict=True))
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    data = {"train": {name: str(folder / f"{name}.tsv") for name in ("train", "val")}}
    data["predict"] = {"predict": str(folder / "test.tsv"), "target_col": 0}  # none: it would limit the answer's length
    for name, own in data.items():
        text = json.dumps(yoyodyne_settings(folder, minutes, own))  # JSON is YAML
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    begin = time.monotonic()
    called(program, "fit", "--config", folder / "train.yaml", cwd=folder)
    trained = time.monotonic() - begin
    checkpoint = max(folder.rglob("*.ckpt"), key=lambda path: path.stat().st_mtime)

    def answers(some: list[str]) -> list[str]:
        (folder / "test.tsv").write_text("".join(f"{word}\n" for word in some), encoding="utf-8")
        with one_core():
            files = "--config", folder / "predict.yaml", "--ckpt_path", checkpoint
            called(program, "predict", *files, cwd=folder, **ONE_THREAD)
        lines = (folder / "answers.txt").read_text(encoding="utf-8").splitlines()
        return [re.sub(" +", " ", one).strip() for one in lines]

    phones, seconds = without_loading(answers, words)
    about = {"train_seconds": round(trained, 1), "about": "hard monotonic attention of first order, 400 units; greedy"}
    return {"phones": phones, "seconds": seconds} | about


def yoyodyne_settings(folder: Path, minutes: float, data: dict) -> dict:
    """Its example files for this model and for a trainer, with the text of one of its two commands."""
    seconds = round(60 * minutes)
    limit = f"00:{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    stopping = {"monitor": "val_loss", "patience": 10}
    encoder = {"dropout": 0.3, "embedding_size": 200, "hidden_size": 400}
    sizes = {"attention_context": 1, "enforce_monotonic": True, "embedding_size": 200}
    sizes |= {"decoder_dropout": 0.3, "decoder_hidden_size": 400}
    return {
        "seed_everything": 0,
        "trainer": {"accelerator": "cpu", "gradient_clip_val": 3, "max_epochs": 100, "max_time": limit}
        | {"callbacks": [{"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": stopping}]},
        "model": {
            "class_path": "yoyodyne.models.HardAttentionLSTMModel",
            "init_args": sizes
            | {"source_encoder": {"class_path": "yoyodyne.models.modules.LSTMEncoder", "init_args": encoder}}
            | {"optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.001}}},
        },
        "data": {"model_dir": str(folder / "model"), "source_sep": " ", "target_sep": " ", "batch_size": 32} | data,
        "checkpoint": {"filename": "best", "monitor": "val_accuracy", "mode": "max"},
        "prediction": {"path": str(folder / "answers.txt")},
    }


SYSTEMS = {"g2p-en": of_g2p_en, "phonetisaurus": of_phonetisaurus, "yoyodyne": of_yoyodyne}


def of_run(work: Path, words: list[str], run: Path) -> dict:
    """A run of this project."""
    with one_core():
        found = run_process("-c", OURS, listed(work, words), run.resolve(), BEAM, **ONE_THREAD)
    return of_report(read_report(run) | {"beam_size": BEAM}) | found


def of_report(report: dict) -> dict:
    """The scores in the report of a run."""
    return {name: report[name] for name in OF_REPORTS if name in report} | {"about": f"beam of {report['beam_size']}"}


def listed(work: Path, words: Sequence[str]) -> Path:
    """A file of words, one a line."""
    path = work / "words.txt"
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return path


def measure(arguments: argparse.Namespace) -> None:
    """Measures all systems, and writes the report.

    Raises:
        ValueError: for g2p-en without CMUdict, or a run on another corpus.
    """
    from keras_attn.evaluation import by_metric
    from keras_attn.training import corpora, report, surroundings

    corpus = corpora.load(arguments.corpus, "letters", "phones", data=arguments.data)
    reports = {run.resolve().name: read_report(run) for run in arguments.runs}
    reports |= {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in arguments.reports}
    if "g2p-en" in arguments.systems and corpus.name != "cmudict":
        raise ValueError(f"Expected g2p-en with cmudict, whose phones it gives. Received: {corpus.name}")
    if wrong := [name for name, one in reports.items() if one["corpus"] not in (corpus.name, arguments.corpus)]:
        raise ValueError(f"Expected runs of recipes.train on {corpus.name}. Received: {', '.join(wrong)}")
    work, test = arguments.work.resolve(), corpus.splits["test"]
    work.mkdir(parents=True, exist_ok=True)
    words = list(dict.fromkeys(test[0]))
    splits = corpus.splits["train"], corpus.splits["val"]
    found = {name: SYSTEMS[name](work, words, *splits, arguments.minutes) for name in arguments.systems}
    found |= {run.resolve().name: of_run(work, words, run) for run in arguments.runs}
    for one in found.values():
        phones, seconds = dict(zip(words, one.pop("phones"), strict=True)), one.pop("seconds")
        one |= by_metric.all_scores("wer", *test, [phones[word] for word in test[0]], "none")
        if not math.isnan(seconds):
            one["words_per_second"] = round(len(words) / seconds, 1)
    found |= {path.stem: of_report(reports[path.stem]) for path in arguments.reports}
    settings = {"study": "pronunciation_peers", "corpus": corpus.name, "source": "letters", "target": "phones"}
    settings |= {"command": command_line(arguments, corpus.name), "test_words": len(words)}
    rows = [{"name": name} | one for name, one in found.items()]
    report.write(work / "report.json", settings | {"systems": rows} | surroundings())
    for row in rows:
        rate = f"  {row['words_per_second']:,} words/s on one core" if "words_per_second" in row else ""
        print(f"{row['name']:>24}  WER {row['wer']['score']:5.2f}{rate}")
    print(f"The report is in {work}.")


def command_line(arguments: argparse.Namespace, corpus: str) -> str:
    """The command without the folders of this machine."""
    parts = ["python -m tests.benchmarks.pronunciation_peers WORK --corpus", corpus, "--systems", *arguments.systems]
    parts += ["--runs", *(run.resolve().name for run in arguments.runs)] if arguments.runs else []
    names = [f"{path.resolve().parent.name}/{path.name}" for path in arguments.reports]
    parts += ["--reports", *names] if names else []
    parts += ["--minutes", f"{arguments.minutes:g}"] if "yoyodyne" in arguments.systems else []
    return " ".join(parts)


def main(argv=None) -> int:
    parser = command.Parser("tests.benchmarks.pronunciation_peers", description=__doc__)
    option = parser.add_argument
    option("work", metavar="WORK", type=Path, help="folder of the environments, the models and the report")
    option("--corpus", default="cmudict", help="cmudict, g2p/LANGUAGE or a folder (default: %(default)s)")
    option("--systems", nargs="*", choices=list(SYSTEMS), default=list(SYSTEMS), help="default: all")
    option("--runs", metavar="RUN", nargs="*", type=run_folder, default=[], help="finished runs of the corpus")
    option("--reports", metavar="FILE", nargs="*", type=Path, default=[], help="of runs whose models are not there")
    option("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    minutes = command.between(float, 0.001, 10_000)
    option("--minutes", type=minutes, default=20.0, help="of yoyodyne's training (default: %(default)s)")
    return command.run(measure, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
