"""Measures `ParallelDataset.from_files` on a synthetic corpus: encoding by one thread and by several, and reopening.

    python -m tests.benchmarks.data_at_size FOLDER [--pairs 5000000] [--compared 400000] [--workers 2] [--keep]

Writes text of made-up words with Zipf's frequencies into FOLDER, learns BPE from the first 50,000 lines of each side,
and encodes the first `--compared` pairs by 1 thread and by `--workers` threads in turn, twice each; the faster times
count, and the token files must be equal. `processor_seconds` are those of the faster runs, of all threads together and
of the one that reads: on a loaded machine they say what `ratio` would be on a quiet one. Then it encodes all pairs,
opens the second of two shards in a process of its own, twice, and takes 20 batches from it. The last line is JSON with
seconds, pairs per second, the resident memory above the imports in MB, the size of the token files in MB, and the load
of the machine when it began. FOLDER is removed at the end unless `--keep` is given.
"""

import argparse
import json
import os
import shutil
import time
from functools import partial
from pathlib import Path

import numpy as np

from keras_attn import ParallelDataset, Tokenizer, files
from tests.benchmarks.measuring import run_process, timed

REOPEN = """
import json, sys, time
import numpy as np
from keras_attn import ParallelDataset, Tokenizer
from keras_attn.training.report import memory_mb

texts, tokenizers, cache, shard = json.loads(sys.argv[1])
tokenizers = [Tokenizer.load(folder) for folder in tokenizers]
before = memory_mb("VmRSS")
started, processor = time.perf_counter(), time.process_time()
data = ParallelDataset.from_files(*texts, *tokenizers, cache, batch_size=80, shard=shard)
seconds, processor = time.perf_counter() - started, time.process_time() - processor
most, after = memory_mb("VmHWM"), memory_mb("VmRSS")
started = time.perf_counter()
for index in range(20):
    data[index]
batch = (time.perf_counter() - started) / 20
started = time.perf_counter()
data.set_epoch(1)
epoch = time.perf_counter() - started
values = {"seconds": seconds, "processor_seconds": processor}
values |= {"megabytes": after - before, "most_megabytes": most - before}
values |= {"epoch_seconds": epoch, "batch_milliseconds": 1000 * batch, "batches": len(data)}
print(json.dumps({name: round(value, 3) for name, value in values.items()}))
"""
SYLLABLES = [c + v for c in "bcdfghjklmnprstvwz" for v in ("a", "e", "i", "o", "u", "an", "er", "ist")]


def write_text(path: Path, pairs: int, seed: int) -> None:
    """Writes lines of 3 to 40 words of a vocabulary of 50,000."""
    random = np.random.default_rng(seed)
    counts = random.integers(1, 5, 50_000)
    words = ["".join(SYLLABLES[i] for i in random.integers(0, len(SYLLABLES), count)) for count in counts]
    shares = np.cumsum(1 / np.arange(1, len(words) + 1))
    lengths = np.random.default_rng(0)  # the same on both sides
    with files.replacing(path) as new, new.open("w") as file:
        for start in range(0, pairs, 50_000):
            sizes = np.clip(lengths.gamma(3.0, 4.0, min(50_000, pairs - start)).astype(int), 3, 40)
            drawn = np.searchsorted(shares, random.uniform(0, shares[-1], sizes.sum())).tolist()
            ends = np.cumsum(sizes).tolist()
            rows = zip([0, *ends], ends, strict=False)
            file.writelines(" ".join([words[i] for i in drawn[a:b]]) + "\n" for a, b in rows)


def first_lines(path: Path, count: int, target: Path) -> Path:
    """Writes the first lines of a file to another one."""
    with path.open() as file, target.open("w") as new:
        new.writelines(line for _, line in zip(range(count), file, strict=False))
    return target


def encode(texts, tokenizers, cache: Path, workers: int) -> tuple[float, float, float]:
    """Returns the seconds that encoding takes, and the processor's: of all threads, and of this one."""
    from keras_attn.data.token_store import encode_files

    before = time.perf_counter(), time.process_time(), time.thread_time()
    encode_files(tuple([path] for path in texts), tokenizers, cache, workers)
    after = time.perf_counter(), time.process_time(), time.thread_time()
    return tuple(end - start for start, end in zip(before, after, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument("--compared", type=int, default=400_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    folder, load = options.folder, os.getloadavg()
    folder.mkdir(parents=True, exist_ok=True)
    texts = [folder / f"{options.pairs}.{side}" for side in ("source", "target")]
    for seed, path in enumerate(texts):
        if not path.exists():
            write_text(path, options.pairs, seed + 1)
    tokenizers = []
    for path in texts:
        with path.open() as file:
            lines = [line.rstrip("\n") for _, line in zip(range(50_000), file, strict=False)]
        tokenizers.append(Tokenizer.train(lines, vocabulary_size=8000))
        tokenizers[-1].save(path.with_suffix(f"{path.suffix}.tokenizer"))
    found = {"pairs": options.pairs, "load": [round(one, 2) for one in load], "processors": os.cpu_count()}

    some = [first_lines(path, options.compared, folder / f"some.{n}") for n, path in enumerate(texts)]
    seconds, digests = {1: [], options.workers: []}, []
    for _ in range(2):
        for workers, times in seconds.items():
            times.append(encode(some, tokenizers, folder / "some", workers))
            digests += [files.sha256(path) for path in (folder / "some").rglob("files.json")]
            shutil.rmtree(folder / "some")
    assert len(set(digests)) == 1, "the token files differ"
    found["pairs_per_second"] = {str(n): round(options.compared / min(times)[0]) for n, times in seconds.items()}
    found["ratio"] = round(min(seconds[1])[0] / min(seconds[options.workers])[0], 3)
    found["processor_seconds"] = {str(n): [round(one, 2) for one in min(times)[1:]] for n, times in seconds.items()}
    print(json.dumps(found), flush=True)

    cache = folder / "cache"
    first = partial(ParallelDataset.from_files, *texts, *tokenizers, cache, batch_size=80, workers=options.workers)
    found["first_call_seconds"] = round(timed(first)[0], 1)
    found["token_files_megabytes"] = round(sum(p.stat().st_size for p in cache.rglob("*") if p.is_file()) / 1e6)
    arguments = [*map(str, texts)], [f"{path}.tokenizer" for path in texts], str(cache), [1, 2]
    for name in ("reopening", "reopening_again"):
        found[name] = run_process("-W", "ignore", "-c", REOPEN, json.dumps(arguments))
    print(json.dumps(found))
    if not options.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
