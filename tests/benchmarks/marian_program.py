"""Marian as a program: installed in an environment of its own, trained for some minutes, asked to score and search."""

import json
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from keras_attn import files

VERSION = "pymarian==1.12.42"
POLL = 0.5  # seconds
RATIO = 3.0  # of the longest translation to the source
PATIENCE = 300  # seconds in which Marian ends its updates and saves, when it is asked to end
# Options of training. "recommended": those of s2s in Marian's examples (training-basics-sentencepiece; the smoothed
# labels are wmt2017-uedin's), at a size, a mini-batch and a learning rate for 29,000 pairs and two cores, where
# `--mini-batch-fit` takes minutes to measure memory. "plain": none of them.
_COMMON = "--cost-type ce-mean-words --optimizer adam --learn-rate 0.001 --lr-warmup 200u --clip-norm 1 -w 1000"
PRESETS = {
    "plain": f"--type s2s --dim-emb 256 --dim-rnn 320 {_COMMON}",
    "recommended": (
        f"--type s2s --dim-emb 256 --dim-rnn 320 --layer-normalization --tied-embeddings {_COMMON} --max-length 100 "
        "--dropout-rnn 0.2 --dropout-src 0.1 --dropout-trg 0.1 --label-smoothing 0.1 --exponential-smoothing 0.001 "
        "--lr-decay-inv-sqrt 2000u"
    ),
}
_FIXED = "--overwrite --keep-best --early-stopping 20 --disp-freq 100u --save-freq 200u --mini-batch 64"
_VALIDATION = (
    "--valid-metrics bleu --valid-freq 450u --valid-mini-batch 64 --beam-size 5 --normalize 1 --quiet-translation"
)
_TIMED = f"-w 512 --max-length-factor {RATIO} --quiet-translation"
_SEARCH = f"-w 500 --mini-batch 64 --maxi-batch 100 --maxi-batch-sort src --max-length-factor {RATIO} --n-best"


class Hypothesis(NamedTuple):
    """A translation, and the score by which Marian's search ranks it: its log-probability, normalised."""

    text: str
    score: float


class Marian:
    """The program, with a model and its vocabularies in a folder.

    Args:
        work: The folder. Its `venv` gets pymarian from the package index on first use.
        python: The interpreter of that environment.
        threads: Threads of the CPU.
    """

    def __init__(self, work: Path, python: str, threads: int):
        self._program = work / "venv" / "bin" / "pymarian"
        if not self._program.exists():
            subprocess.run([python, "-m", "venv", work / "venv"], check=True)
            subprocess.run([self._program.with_name("pip"), "install", "-q", VERSION], check=True)
        self._work, self._threads = work, ["--cpu-threads", str(threads)]
        self.vocabularies = [work / f"{side}.spm" for side in ("source", "target")]
        self._trained = work / "model.npz"

    @property
    def model(self) -> Path:
        """The model with the best BLEU of the validation, or the last one if there was no validation."""
        best = self._trained.with_name("model.npz.best-bleu.npz")
        return best if best.exists() else self._trained

    def train(
        self, options: str, vocabulary_size: int, minutes: float, texts: list[Path], validation: list[Path]
    ) -> dict:
        """Trains until `minutes` are over; continues what was interrupted, from its last checkpoint.

        Seconds are those of Marian's process, with its vocabularies and validations, up to the last checkpoint.

        Args:
            options: Of Marian.
            vocabulary_size: The pieces of each language.
            minutes: The time for training, with that of earlier calls.
            texts: The files of source and target.
            validation: The same of the validation.

        Returns:
            The figures: updates, epochs, seconds and target tokens a second.

        Raises:
            ValueError: If the folder has a model with other options.
            RuntimeError: If Marian fails.
        """
        record = self._work / "training.json"
        state = {"options": options, "vocabulary_size": vocabulary_size, "seconds": 0.0, "ended": False}
        if record.exists():
            begun = json.loads(record.read_text(encoding="utf-8"))
            if any(begun[name] != state[name] for name in ("options", "vocabulary_size")):
                raise ValueError(f"Expected the options of the model in {str(self._work)!r}: {begun['options']}")
            state = begun
        if state["seconds"] < 60 * minutes and not state["ended"]:
            sizes = ["--dim-vocabs", *[str(vocabulary_size)] * 2, "--sentencepiece-options", "--hard_vocab_limit=false"]
            call = self._call("train", *sizes, *shlex.split(f"{options} {_FIXED} {_VALIDATION}"), model=self._trained)
            call += ["--train-sets", *map(str, texts), "--valid-sets", *map(str, validation)]
            if (
                self._checkpoint.exists()
            ):  # Marian restores its place in the corpus with an error at the end of an epoch
                call.append("--no-restore-corpus")
            self._run_for(60 * minutes, call, state, record)
        progress = self._progress()
        return {
            "updates": progress["batches"],
            "epochs": progress["epochs"],
            "train_seconds": round(state["seconds"], 1),
            "target_tokens_per_second": round(progress["labels-total"] / state["seconds"]),
        }

    def _run_for(self, seconds: float, call: list[str], state: dict, record: Path) -> None:
        """Runs a training until it has had so many seconds, or ends; `state` and its file follow the checkpoints."""
        log, before, began = self._work / "train.log", state["seconds"], time.time()

        def note(**changes):
            if self._checkpoint.exists() and (saved := self._checkpoint.stat().st_mtime) > began:
                state["seconds"] = before + saved - began
            state.update(changes)
            with files.replacing(record) as partial:
                partial.write_text(json.dumps(state), encoding="utf-8")

        note()
        with log.open("ab") as output:
            process = subprocess.Popen(call, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        asked, ended = 0.0, False
        try:
            while process.poll() is None:
                time.sleep(POLL)
                note()
                if before + time.time() - began > seconds and not asked:
                    process.terminate()  # it saves the model, then
                    asked = time.time()
                if asked and time.time() > asked + PATIENCE:
                    raise RuntimeError(f"Expected Marian to save its model within {PATIENCE} s; see {log}")
            ended = process.returncode == 0 and not asked
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
            note(ended=ended)
        saved = asked and self._checkpoint.exists() and self._checkpoint.stat().st_mtime > asked
        if not (ended or saved):
            raise RuntimeError(f"{shlex.join(call)} failed:\n{log.read_text('utf-8', 'replace')[-3000:]}")

    @property
    def _checkpoint(self) -> Path:
        """What is written last of a checkpoint's files."""
        return self._trained.with_name("model.npz.progress.yml")

    def _progress(self) -> dict[str, int]:
        if not self._checkpoint.exists():
            raise RuntimeError(f"Expected a checkpoint of Marian in {str(self._work)!r}: more minutes are needed")
        text = self._checkpoint.read_text(encoding="utf-8")
        names = "epochs", "batches", "labels-total"
        return {name: int(re.search(rf"^{name}: (\d+)$", text, re.MULTILINE)[1]) for name in names}

    def score(self, texts: list[Path]) -> list[float]:
        """log p(target | source) of each pair of lines."""
        done = self._ask(self._call("score", "--quiet", "-w", "500", "--train-sets", *map(str, texts)))
        return [float(line) for line in done.stdout.splitlines()]

    def translate(self, source: Path, count: int, beam_size: int, normalize: float) -> tuple[list[Hypothesis], float]:
        """The best translation of each of `count` lines, and the seconds that the search took, without loading."""
        search = ["-b", str(beam_size), "--normalize", str(normalize), *shlex.split(_SEARCH), "-i", str(source)]
        done = self._ask(self._call("decode", "--quiet-translation", *search))
        seconds = float(re.search(r"Total time: ([\d.]+)s", done.stderr)[1])
        return best_hypotheses(done.stdout.splitlines(), count), seconds

    def times(self, lines: list[str], *, singles: int, batch: int, rounds: int, beam_size: int, products: str) -> dict:
        """What `tests.benchmarks.marian_times` measures, in one process that loads the model once.

        Args:
            lines: To translate, in batches.
            singles: How many of them to translate one at a time, too.
            batch: Lines in a batch.
            rounds: How often to translate all lines.
            beam_size: Of the search.
            products: Marian's `--gemm-type`: "float32", or "packed8", of int8.
        """
        search = ["-b", str(beam_size), "--normalize", "1", "--quiet", *shlex.split(_TIMED), "-g", products]
        options = shlex.join(self._call("", *search)[2:])
        asked = {"options": options, "lines": lines, "singles": singles, "batch": batch, "rounds": rounds}
        program = [str(self._program.with_name("python")), str(Path(__file__).with_name("marian_times.py"))]
        return json.loads(self._ask(program, json.dumps(asked)).stdout.splitlines()[-1])

    def _call(self, command: str, *options: str, model: Path | None = None) -> list[str]:
        common = ["-m", str(model or self.model), "--vocabs", *map(str, self.vocabularies), *self._threads]
        return [str(self._program), command, *common, *options]

    def _ask(self, call: list[str], text: str | None = None) -> subprocess.CompletedProcess:
        done = subprocess.run(call, input=text, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(call)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done


def merged(*options: str) -> str:
    """Options of Marian, of which a later one replaces an earlier one of its name: Marian takes each once."""
    found: dict[str, list[str]] = {}
    for word in shlex.split(" ".join(options)):
        if re.match(r"--?[a-zA-Z]", word):
            name = word
            found[name] = []
        else:
            found[name].append(word)
    return shlex.join([word for name, values in found.items() for word in (name, *values)])


def best_hypotheses(lines: list[str], count: int) -> list[Hypothesis]:
    """The first hypothesis of each sentence in an n-best list: `number ||| text ||| features ||| score`."""
    found: dict[int, Hypothesis] = {}
    for line in lines:
        number, _, rest = line.partition(" ||| ")
        text, _, score = rest.rsplit(" ||| ", 2)
        found.setdefault(int(number), Hypothesis(text, float(score)))
    return [found[number] for number in range(count)]
