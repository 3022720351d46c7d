"""Measures when training from files takes less than training from memory: seconds and memory up to the first batch.

    python -m tests.benchmarks.streaming FOLDER [--pairs 50000 200000]

Writes a corpus of made-up words into FOLDER for each size, and does what `recipes.train` does before training, in a
process of its own each: reads the corpus, learns BPE of 8,000 entries, encodes, and makes the first batch; from memory,
from files for the first time, and from files again. Each is a line of JSON with the size of the text of both sides in
MB, the seconds, the greatest resident memory above that of the imports in MB, and the machine's load before.
"""

import argparse
import json
import os
from pathlib import Path

from tests.benchmarks.data_at_size import write_text
from tests.benchmarks.measuring import run_process

PREPARE = """
import json, sys, time
from pathlib import Path
from keras_attn.training import corpora
from recipes import rnnsearch
from keras_attn.training import fitting
from keras_attn.training.report import memory_mb

folder, stream = Path(sys.argv[1]), sys.argv[2] == "files"
before, started, steps = memory_mb("VmRSS"), time.perf_counter(), {}

def done(name):
    steps[name] = round(time.perf_counter() - started, 1)

corpus = corpora.load(folder, "source", "target", stream=stream)
done("read")
tokenizers = fitting.train_tokenizers(rnnsearch.Config(), *corpus.splits["train"])
done("tokenizers")
training, _ = fitting.datasets(rnnsearch.Config(), corpus, tokenizers, 0, folder / "cache")
training[0]
done("first_batch")
print(json.dumps({"seconds_until": steps, "megabytes": round(memory_mb("VmHWM") - before)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, nargs="+", default=[50_000, 200_000])
    options = parser.parse_args()
    for pairs in options.pairs:
        folder = options.folder / str(pairs)
        folder.mkdir(parents=True, exist_ok=True)
        for seed, side in enumerate(("source", "target")):
            write_text(folder / f"train.{side}", pairs, seed + 1)
            for split in ("val", "test"):
                write_text(folder / f"{split}.{side}", 100, seed + 1)
        size = sum((folder / f"train.{side}").stat().st_size for side in ("source", "target"))
        for name in ("memory", "files", "files again"):
            load = os.getloadavg()[0]
            found = {"pairs": pairs, "megabytes_of_text": round(size / 1e6, 1), "from": name, "load": round(load, 1)}
            found |= run_process("-W", "ignore", "-c", PREPARE, str(folder), name.split()[0])
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
