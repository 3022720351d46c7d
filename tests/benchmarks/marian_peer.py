"""The peer: Marian trains a model, which is read here, and both translate and score the same sentences.

    python -m tests.benchmarks.marian_peer WORK [--corpus phrases] [--lines 1000] [--after 2000u] [--marian OPTIONS]

WORK/venv gets pymarian from the package index, once (604 MB, Python 3.11 or earlier: `--python`). Marian makes its own
SentencePiece vocabularies and the model, unless WORK has them already. The first `--lines` sentences of the
corpus' test split are scored with their references, translated greedily and with beam 5, by Marian and by this library.

The last line is JSON. A translation that is not Marian's is one of three things, counted apart: a tie (the
log-probabilities differ by less than 1e-4), better (ours is the more probable one: Marian's beam is narrower by each
hypothesis that has ended), or worse, which must not be. `--marian` says which model is trained, in its options, such as
"--type s2s --enc-cell lstm --dec-cell lstm".
"""

import argparse
import json
import shlex
import subprocess
import time
from pathlib import Path

import numpy as np

from keras_attn import Translator
from recipes import corpora

VERSION = "pymarian==1.12.42"
TIE = 1e-4
SIZES = "--type s2s --dim-emb 256 --dim-rnn 512"
TRAINING = (
    "--dim-vocabs 4000 4000 --sentencepiece-options --hard_vocab_limit=false --mini-batch-fit -w 1000 "
    "--optimizer adam --learn-rate 0.001 --lr-warmup 200 --clip-norm 1 --cost-type ce-mean-words "
    "--dropout-rnn 0.2 --label-smoothing 0.1 --exponential-smoothing --overwrite --save-freq 100000u"
)


def install(work: Path, python: str) -> Path:
    """The program, made on first use."""
    program = work / "venv" / "bin" / "pymarian"
    if not program.exists():
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run([python, "-m", "venv", work / "venv"], check=True)
        subprocess.run([program.with_name("pip"), "install", "-q", VERSION], check=True)
    return program


def run(program: Path, *options) -> list[str]:
    call = [str(program), *shlex.split(" ".join(map(str, options)))]
    done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(call)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout.splitlines()


def best_of(lines: list[str], count: int) -> list[tuple[str, float]]:
    """The best hypothesis of each sentence, and its log-probability, from an n-best list."""
    found: dict[int, tuple[str, float]] = {}
    for line in lines:
        number, text, *_, score = (part.strip() for part in line.split("|||"))
        found.setdefault(int(number), (text, float(score)))
    return [found[i] for i in range(count)]


def compare(found, recorded: list[tuple[str, float]]) -> dict[str, float]:
    """How many translations are Marian's; and the largest difference of the log-probabilities of those that are."""
    counts, largest = dict.fromkeys(("equal", "ties", "better", "worse"), 0), 0.0
    for one, (text, log_prob) in zip(found, recorded, strict=True):
        gain = float(one.token_log_probs.sum()) - log_prob
        if one.text == text:
            largest = max(largest, abs(gain))
        kind = "equal" if one.text == text else "ties" if abs(gain) < TIE else "better" if gain > 0 else "worse"
        counts[kind] += 1
    return counts | {"largest_difference": largest}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--python", default="python3.11")
    parser.add_argument("--corpus", default="phrases")
    parser.add_argument("--data")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--after", default="2000u", help="Marian's --after")
    parser.add_argument("--marian", default=SIZES, help="the model, as options of its training")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    program = install(options.work, options.python)
    splits = corpora.load(options.corpus, data=options.data).splits
    train, test = splits["train"], [side[: options.lines] for side in splits["test"]]
    for name, sides in (("train", train), ("test", test)):
        for side, lines in zip(("source", "target"), sides, strict=True):
            (options.work / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def texts(name):
        return f"{options.work / name}.source {options.work / name}.target"

    model, vocabularies = options.work / "model.npz", [options.work / f"{side}.spm" for side in ("source", "target")]
    common = f"-m {model} --vocabs {vocabularies[0]} {vocabularies[1]} --cpu-threads {options.threads} --quiet"
    if not model.exists():
        begin = time.time()
        run(program, "train", common, "-t", texts("train"), options.marian, TRAINING, "--after", options.after)
        print(f"trained in {time.time() - begin:.0f} s", flush=True)
    scores = [float(line) for line in run(program, "score", common, "-t", texts("test"))]
    decode = f"decode {common} -w 500 --n-best --max-length-factor 3 -i {options.work / 'test.source'}"
    recorded = {beam: best_of(run(program, decode, "-b", beam), len(test[0])) for beam in (1, 5)}

    translator = Translator.from_marian(model, vocabularies)
    ours = [one.token_log_probs.sum() for one in translator.score(*test)]
    report = {"sentences": len(test[0]), "scores": float(np.abs(np.array(ours) - scores).max())}
    for beam, name in ((1, "greedy"), (5, "beam_5")):
        limits = {"max_length_ratio": 3.0, "normalization": "none", "banned_tokens": ["<unk>"]}
        report[name] = compare(translator.generate(test[0], beam_size=beam, **limits), recorded[beam])
    print(json.dumps(report))


if __name__ == "__main__":
    main()
