"""The peer: Marian trains a model, which is read here, and both translate and score the same sentences.

    python -m tests.benchmarks.marian_peer WORK --minutes 60 [--corpus multi30k] [--lines 1000]

WORK/venv gets pymarian from the package index, once (604 MB, Python 3.11 or earlier: `--python`). Marian makes its own
SentencePiece vocabularies and trains for `--minutes` with the options below; those of `--marian`, such as
"--enc-cell lstm --dec-cell lstm --dim-rnn 512", are added or replace some. A model in WORK is not trained again.

The first `--lines` sentences of the test split are then scored with their references, and translated greedily and
with a beam, by Marian and by this library on `$KERAS_BACKEND`. A translation that is not Marian's is a tie (the scores
differ by less than 1e-4), better (ours has the higher score: Marian's beam is narrower by each hypothesis that has
ended), cut (it reaches the limit of three times the source's length; Marian's is that of the longest source of the
batch) or worse. Rates are the better of two passes, without loading and compilation.

WORK/report.json is for the results page: `python -m recipes.pages.results WORK --report multi30k-de-en/marian`.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from keras_attn.cli import command
from tests.benchmarks.measuring import installed

VERSION = "pymarian==1.12.42"
TIE = 1e-4
KINDS = ("equal", "ties", "better", "cut", "worse")
SHOWN = 20  # differences in the report
RATIO = 3.0  # of the longest translation to the source
PATIENCE = 300  # seconds in which Marian ends its updates and saves, when it is asked to end
# The options of s2s in Marian's examples (training-basics-sentencepiece; the smoothed labels are wmt2017-uedin's), at a
# size, a mini-batch and a learning rate for 29,000 pairs and two cores, where `--mini-batch-fit` takes minutes to
# measure memory.
OPTIONS = (
    "--type s2s --dim-emb 256 --dim-rnn 320 --layer-normalization --tied-embeddings --cost-type ce-mean-words "
    "--optimizer adam --learn-rate 0.001 --lr-warmup 200u --lr-decay-inv-sqrt 2000u --clip-norm 1 -w 1000 "
    "--max-length 100 --dropout-rnn 0.2 --dropout-src 0.1 --dropout-trg 0.1 --label-smoothing 0.1 "
    "--exponential-smoothing 0.001"
)
_TRAINING = (
    "--overwrite --keep-best --early-stopping 20 --disp-freq 100u --save-freq 200u --mini-batch 64 "
    "--valid-metrics bleu --valid-freq 450u --valid-mini-batch 64 --beam-size 5 --normalize 1 --quiet-translation "
    "--sentencepiece-options --hard_vocab_limit=false"
)
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
        self._program = installed(work / "venv", VERSION, python=python) / "pymarian"
        self._work, self._threads = work, ["--cpu-threads", str(threads)]
        self.vocabularies = [work / f"{side}.spm" for side in ("source", "target")]
        self._trained = work / "model.npz"

    @property
    def model(self) -> Path:
        """The model with the best BLEU of the validation, or the last one if there was no validation."""
        best = self._trained.with_name("model.npz.best-bleu.npz")
        return best if best.exists() else self._trained

    def train(self, options: str, vocabulary_size: int, minutes: float, texts: list, validation: list) -> dict:
        """Trains for so many minutes, unless the folder has a model, and returns the figures of the training.

        Raises:
            ValueError: if the folder has a model with other options.
            RuntimeError: if Marian fails, or does not save its model when it is asked to end.
        """
        record = self._work / "training.json"
        asked = {"options": options, "vocabulary_size": vocabulary_size}
        if record.exists():
            found = json.loads(record.read_text(encoding="utf-8"))
            if any(found.pop(name) != asked[name] for name in asked):
                raise ValueError(f"Expected another WORK: {str(self._work)!r} has a model with other options.")
            return found
        sizes = ["--dim-vocabs", *[str(vocabulary_size)] * 2]
        call = self._call("train", *sizes, *shlex.split(f"{options} {_TRAINING}"), model=self._trained)
        call += ["--train-sets", *map(str, texts), "--valid-sets", *map(str, validation)]
        log, began = self._work / "train.log", time.monotonic()
        with log.open("wb") as output, subprocess.Popen(call, stdout=output, stderr=output) as process:
            try:
                process.wait(60 * minutes)
            except subprocess.TimeoutExpired:
                process.terminate()  # it saves the model, then
                process.wait(PATIENCE)
        progress = self._trained.with_name("model.npz.progress.yml")
        if not progress.exists():
            raise RuntimeError(f"{shlex.join(call)} left no model:\n{log.read_text('utf-8', 'replace')[-3000:]}")
        names = {"batches": "updates", "epochs": "epochs", "labels-total": "tokens"}
        text = progress.read_text(encoding="utf-8")
        found = {new: int(re.search(rf"^{name}: (\d+)$", text, re.MULTILINE)[1]) for name, new in names.items()}
        seconds = time.monotonic() - began
        figures = {"updates": found["updates"], "epochs": found["epochs"], "train_seconds": round(seconds, 1)}
        figures["target_tokens_per_second"] = round(found["tokens"] / seconds)
        record.write_text(json.dumps(asked | figures), encoding="utf-8")
        return figures

    def score(self, texts: list[Path]) -> list[float]:
        """log p(target | source) of each pair of lines."""
        done = self._ask(self._call("score", "--quiet", "-w", "500", "--train-sets", *map(str, texts)))
        return [float(line) for line in done.stdout.splitlines()]

    def translate(self, source: Path, beam_size: int, normalize: float) -> tuple[list[Hypothesis], float]:
        """The best translation of each line, and the seconds that the search took, without loading."""
        search = ["-b", str(beam_size), "--normalize", str(normalize), *shlex.split(_SEARCH), "-i", str(source)]
        done = self._ask(self._call("decode", "--quiet-translation", *search))
        seconds = float(re.search(r"Total time: ([\d.]+)s", done.stderr)[1])
        found: dict[int, Hypothesis] = {}
        for line in done.stdout.splitlines():  # number ||| text ||| features ||| score, the best first
            number, _, rest = line.partition(" ||| ")
            text, _, score = rest.rsplit(" ||| ", 2)
            found.setdefault(int(number), Hypothesis(text, float(score)))
        return [found[number] for number in range(len(found))], seconds

    def _call(self, name: str, *options: str, model: Path | None = None) -> list[str]:
        common = ["-m", str(model or self.model), "--vocabs", *map(str, self.vocabularies), *self._threads]
        return [str(self._program), name, *common, *options]

    def _ask(self, call: list[str]) -> subprocess.CompletedProcess:
        done = subprocess.run(call, capture_output=True, text=True)
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


def compare(sources: Sequence[str], found, recorded: Sequence[Hypothesis]) -> dict:
    """How many translations are Marian's; the differences of the scores of those that are, and the others."""
    counts, largest, others = dict.fromkeys(KINDS, 0), 0.0, []
    for source, one, other in zip(sources, found, recorded, strict=True):
        gain = float(one.score) - other.score
        if one.text == other.text:
            kind, largest = "equal", max(largest, abs(gain))
        else:
            cut = len(one.tokens) >= int(RATIO * len(one.source_tokens))
            kind = "ties" if abs(gain) < TIE else "cut" if cut else "better" if gain > 0 else "worse"
            others.append({"kind": kind, "source": source, "marian": other.text, "here": one.text, "gain": gain})
        counts[kind] += 1
    others.sort(key=lambda other: ("worse", "ties", "better", "cut").index(other["kind"]))  # the first ones are shown
    return counts | {"largest_difference": largest, "others": others[:SHOWN]}


def write_texts(work: Path, splits: dict, lines: int) -> dict[str, list[Path]]:
    """The files of each split; the first `lines` of the test."""
    paths = {}
    for split, sides in splits.items():
        paths[split] = [work / f"{split}.{side}" for side in ("source", "target")]
        for path, side in zip(paths[split], sides, strict=True):
            kept = side[:lines] if split == "test" else side
            path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8", newline="\n")
    return paths


def searched(marian: Marian, translator, sources: list[str], path: Path, beam: int, normalize: float) -> dict:
    """Both systems' translations, with their times; the second pass here has nothing to compile."""
    recorded, seconds = marian.translate(path, beam, normalize)
    seconds = min(seconds, marian.translate(path, beam, normalize)[1])
    # Marian writes no <unk>, and divides by length^normalize.
    options = {"beam_size": beam, "normalization": "average", "length_penalty": normalize, "batch_size": 64}
    options |= {"max_length_ratio": RATIO, "banned_tokens": ["<unk>"], "return_alignments": False}
    times = []
    for _ in range(3):
        began = time.monotonic()
        found = translator.generate(sources, **options)
        times.append(time.monotonic() - began)
    rates = {"marian": round(len(sources) / seconds, 1), "here": round(len(sources) / min(times[1:]), 1)}
    texts = {"marian": [one.text for one in recorded], "here": [one.text for one in found]}
    return {"texts": texts, **compare(sources, found, recorded), "sentences_per_second": rates}


def parser() -> argparse.ArgumentParser:
    made = command.Parser("tests.benchmarks.marian_peer", description=__doc__)
    made.add_argument("work", metavar="WORK", type=Path, help="folder of the program, the model and the report")
    made.add_argument("--python", default="python3.11", help="interpreter of Marian's environment")
    made.add_argument("--corpus", default="multi30k", help="a name or a folder")
    made.add_argument("--source", help="source language")
    made.add_argument("--target", help="target language")
    made.add_argument("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    made.add_argument("--minutes", type=command.between(float, 0.001, 10_000), default=5.0, help="of training")
    made.add_argument("--marian", default="", metavar="OPTIONS", help="more of its options, or others in their place")
    made.add_argument("--vocabulary-size", type=command.between(int, 10, 10**6), default=6000, help="of each language")
    made.add_argument("--lines", type=command.between(int, 1, 10**6), default=1000, help="of the test split")
    made.add_argument("--beam", type=command.between(int, 2, 100), default=5)
    made.add_argument("--normalize", type=command.between(float, 0, 10), default=1.0, help="as Marian's, of searches")
    made.add_argument("--threads", type=command.between(int, 1, 1000), default=os.cpu_count())
    made.add_argument("--seed", type=command.between(int, 1, 2**31), default=1, help="of the training")
    return made


def command_line(arguments: argparse.Namespace, corpus: str) -> str:
    """The command without the folders of this machine."""
    parts = ["python -m tests.benchmarks.marian_peer WORK"]
    defaults = vars(parser().parse_args(["WORK"]))
    for name, value in (vars(arguments) | {"corpus": corpus}).items():
        if value != defaults[name] and name not in ("work", "python", "data", "threads"):
            text = f"{value:g}" if type(value) is float else str(value)
            parts.append(f"--{name.replace('_', '-')} {shlex.quote(text)}")
    return " ".join(parts)


def measure(arguments: argparse.Namespace) -> None:
    """Trains, compares and writes the report."""
    from keras_attn import Translator
    from keras_attn.training import corpora, report, surroundings

    work = arguments.work.resolve()
    corpus = corpora.load(arguments.corpus, arguments.source, arguments.target, data=arguments.data)
    options = merged(OPTIONS, arguments.marian, f"--seed {arguments.seed}")
    work.mkdir(parents=True, exist_ok=True)
    marian = Marian(work, arguments.python, arguments.threads)
    paths = write_texts(work, corpus.splits, arguments.lines)
    texts = paths["train"], paths["val"]
    training = marian.train(options, arguments.vocabulary_size, arguments.minutes, *texts)
    print(f"trained for {training['train_seconds']:.0f} s", flush=True)
    translator = Translator.from_marian(marian.model, marian.vocabularies)
    settings = {
        "study": "marian",
        "corpus": corpus.name,
        "source": corpus.source,
        "target": corpus.target,
        "command": command_line(arguments, corpus.name),
        "system": f"Marian {VERSION.rpartition('=')[2]}",
        "options": options,
        "parameters": translator.model.count_params(),
        "training_pairs": len(corpus.splits["train"][0]),
    }
    settings |= {name: getattr(arguments, name) for name in ("seed", "minutes", "threads", "normalize")}
    test = [side[: arguments.lines] for side in corpus.splits["test"]]
    figures = compared(marian, translator, *test, paths["test"], arguments.beam, arguments.normalize)
    report.write(work / "report.json", settings | training | figures | surroundings())
    for name, search in figures["searches"].items():
        print(f"{name}: " + ", ".join(f"{search[kind]} {kind}" for kind in KINDS), search["sentences_per_second"])
    print(f"BLEU {figures['bleu']['score']:.2f}  {figures['bleu']['signature']}")


def compared(marian: Marian, translator, sources, references, paths: list[Path], beam: int, normalize: float) -> dict:
    """The figures of one model in both systems: scores of the references, translations, their quality and rates."""
    from keras_attn.evaluation import bleu, chrf

    ours = [float(one.token_log_probs.sum()) for one in translator.score(sources, references)]
    differences = [abs(a - b) for a, b in zip(ours, marian.score(paths), strict=True)]
    searches = {
        name: searched(marian, translator, sources, paths[0], size, normalize)
        for name, size in (("greedy", 1), ("beam", beam))
    }
    texts = {name: search.pop("texts") for name, search in searches.items()}
    scores = {
        name: {"score": round(score.score, 2), "signature": score.signature}
        for name, score in (
            ("bleu", bleu(texts["beam"]["marian"], references)),
            ("chrf", chrf(texts["beam"]["marian"], references)),
            ("greedy_bleu", bleu(texts["greedy"]["marian"], references)),
            ("bleu_here", bleu(texts["beam"]["here"], references)),
        )
    }
    samples = zip(sources[:SHOWN], references, texts["beam"]["marian"], strict=False)
    names = "source", "reference", "translation"
    return {
        "test_sentences": len(sources),
        "beam_size": beam,
        **scores,
        "largest_difference": max(differences),
        "searches": searches,
        "samples": [dict(zip(names, sample, strict=True)) for sample in samples],
    }


def main(argv=None) -> int:
    return command.run(measure, parser(), argv)


if __name__ == "__main__":
    sys.exit(main())
