"""A corpus of a few digits, tiny settings, and the commands of a study in this process."""

import gzip
import importlib
from pathlib import Path

import numpy as np

from tests.training.small_run import NAMES

TEST = (2, 4, 5, 9, 12, 13, 16)  # words
# Of one vocabulary and few shapes, each of which is compiled.
TINY = ["level=word", "batch_size=16", "validation_sentences=7", "embedding_size=8", "readout_size=8"]
TINY += ["rnnsearch.units=7", "rnnsearch.decoder_units=8", "rnnsearch.attention_units=5", "rnnencdec.units=10"]


def write_digits(folder: Path) -> Path:
    """Digits, spelled; few lengths in training, because each is compiled."""
    folder.mkdir()
    random = np.random.default_rng(5)
    for split, lengths in (("train", [3, 8] * 12 + [9] * 8), ("val", TEST), ("test", TEST)):
        rows = [random.integers(0, 6, length) for length in lengths]
        (folder / f"{split}.en").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
        (folder / f"{split}.fr").write_text("".join(" ".join(NAMES[i] for i in row) + "\n" for row in rows))
    return folder


def command_line(corpus: Path, out: Path, *more: str, steps: int = 5) -> list[str]:
    """The options of a study; further settings come last."""
    where = ["--corpus", str(corpus), "--source", "en", "--target", "fr", "--out", str(out)]
    return [*where, "--max-steps", str(steps), "--beam", "1", "--set", *more]


def write_gold(folder: Path, text: list[str], gold: list[str]) -> Path:
    """Gold links in the form of the Hansards'."""
    folder.mkdir(exist_ok=True)
    for name, lines in (("enfr.src-tgt.gz", text), ("enfr.gold.gz", gold)):
        (folder / name).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return folder


class InProcess:
    """Replaces `Study.work`: the same commands in this process, because a backend takes seconds to start."""

    def __init__(self, most=10**9):
        self.most, self.done = most, []

    def __call__(self, chains):
        for steps in chains.values():
            for step in steps:
                if step.output.exists():
                    continue
                if len(self.done) == self.most:
                    raise KeyboardInterrupt
                is_training = step.output.name == "report.json"
                self.done.append(step.output.parent.name if is_training else step.output.stem)
                assert importlib.import_module(step.module).main([*map(str, step.options)]) == 0
                assert step.output.exists()
