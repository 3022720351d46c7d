"""The systems of `pronunciation_peers`: how each is installed, trained and asked."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from keras_attn.training import read_report

PACKAGES = {
    "g2p-en": ("g2p-en==2.1.0",),
    "phonetisaurus": ("phonetisaurus==0.3.0",),
    "yoyodyne": ("torch==2.13.0", "yoyodyne==0.5.27"),  # torch first: it chooses the build
}
PROGRAM = Path(__file__).with_name("pronunciation_program.py")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
BEAM = 5
OF_REPORTS = "wer", "per", "parameters", "train_seconds", "command"  # what a row has of a run's report
Pairs = tuple[list[str], list[str]]  # words, and a pronunciation of each


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """What starts meanwhile runs on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def called(*line, cwd: Path | None = None) -> str:
    """What a program prints, in one thread.

    Raises:
        RuntimeError: if it fails.
    """
    call = list(map(str, line))
    ended = subprocess.run(call, capture_output=True, text=True, cwd=cwd, env=os.environ | ONE_THREAD)
    if ended.returncode:
        raise RuntimeError(f"Expected {Path(line[0]).name} to answer. It ended: {ended.stderr.strip()[-400:]}")
    return ended.stdout


def shown(*line, cwd: Path | None = None) -> None:
    """Runs a program whose output is seen meanwhile.

    Raises:
        RuntimeError: if it fails.
    """
    ended = subprocess.run(line, cwd=cwd, stdout=sys.stderr)
    if ended.returncode:
        raise RuntimeError(f"Expected {Path(line[0]).name} to succeed. It ended with {ended.returncode}.")


def installed(work: Path, system: str) -> Path:
    """The folder of a peer's programs, installed on first use."""
    programs = work / "environments" / system / "bin"
    complete = programs.parent / "complete"
    if not complete.exists():
        shown(sys.executable, "-m", "venv", programs.parent)
        for package in PACKAGES[system]:
            shown(programs / "python", "-m", "pip", "install", "-q", package)
        complete.touch()
    return programs


def timed(python: Path | str, *arguments) -> dict:
    """The answers of `pronunciation_program`, and their seconds."""
    with one_core():
        return json.loads(called(python, PROGRAM, *arguments).splitlines()[-1])


def of_g2p_en(work: Path, words: list[str], train: Pairs, validation: Pairs, minutes: float) -> dict:
    found = timed(installed(work, "g2p-en") / "python", "g2p-en", listed(work, words))
    return found | {"about": "its network, which has seen the test words; greedy"}


def of_phonetisaurus(work: Path, words: list[str], train: Pairs, validation: Pairs, minutes: float) -> dict:
    program = installed(work, "phonetisaurus") / "phonetisaurus"
    lexicon, model = work / "lexicon.txt", work / "phonetisaurus.fst"
    lines = (f"{spelled(word)}\t{phones}\n" for word, phones in zip(*train, strict=True))
    lexicon.write_text("".join(lines), encoding="utf-8")
    begin = time.monotonic()
    called(program, "train", "--model", model, "--lexicon-word-separator", "\t", lexicon, cwd=work)
    trained = time.monotonic() - begin

    def answers(some: list[str]) -> tuple[dict[str, str], float]:
        begin = time.monotonic()
        with one_core():
            found = called(program, "predict", "--model", model, *map(spelled, some))
        pairs = (line.partition(" ") for line in found.splitlines())
        return {word: phones for word, _, phones in pairs}, time.monotonic() - begin

    _, loading = answers(words[:1])
    found, seconds = answers(words)
    phones = [found.get(spelled(word), "") for word in words]
    return {
        "phones": phones,
        "seconds": max(seconds - loading, 1e-9),
        "train_seconds": round(trained, 1),
        "about": "8-grams of aligned letters and phones",
    }


def of_yoyodyne(work: Path, words: list[str], train: Pairs, validation: Pairs, minutes: float) -> dict:
    program = installed(work, "yoyodyne") / "yoyodyne"
    folder = work / "yoyodyne"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()

    def write(name: str, lines: Iterable[str]) -> None:
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    for name, sides in {"train": train, "val": validation}.items():
        write(name, map("\t".join, zip(*sides, strict=True)))
    data = {"train": {name: str(folder / f"{name}.tsv") for name in ("train", "val")}}
    data["predict"] = {"predict": str(folder / "test.tsv"), "target_col": 0}  # none: it would limit the answer's length
    for name, own in data.items():
        text = json.dumps(yoyodyne_settings(folder, minutes, own))  # JSON is YAML
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    begin = time.monotonic()
    shown(program, "fit", "--config", folder / "train.yaml", cwd=folder)
    trained = time.monotonic() - begin
    checkpoint = max(folder.rglob("*.ckpt"), key=lambda path: path.stat().st_mtime)

    def answers(some: list[str]) -> tuple[list[str], float]:
        write("test", some)
        begin = time.monotonic()
        with one_core():
            called(program, "predict", "--config", folder / "predict.yaml", "--ckpt_path", checkpoint, cwd=folder)
        return (folder / "answers.txt").read_text(encoding="utf-8").splitlines(), time.monotonic() - begin

    _, loading = answers(words[:1])
    phones, seconds = answers(words)
    return {
        "phones": [re.sub(" +", " ", one).strip() for one in phones],
        "seconds": max(seconds - loading, 1e-9),
        "train_seconds": round(trained, 1),
        "about": "hard monotonic attention of first order, 400 units; greedy",
    }


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


SYSTEMS: dict[str, Callable[..., dict]] = {
    "g2p-en": of_g2p_en,
    "phonetisaurus": of_phonetisaurus,
    "yoyodyne": of_yoyodyne,
}


def of_report(report: dict) -> dict:
    """The scores in the report of a run."""
    return {name: report[name] for name in OF_REPORTS} | {"about": f"beam of {report['beam_size']}"}


def of_run(work: Path, words: list[str], run: Path) -> dict:
    """A run of this project."""
    found = timed(sys.executable, "keras_attn", listed(work, words), run.resolve(), BEAM)
    return of_report(read_report(run) | {"beam_size": BEAM}) | found


def listed(work: Path, words: Sequence[str]) -> Path:
    """A file of words, one a line."""
    path = work / "words.txt"
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return path


def spelled(word: str) -> str:
    """The word itself, whose letters have blanks between in the corpora."""
    return word.replace(" ", "")
