"""Speed of an exported model in the stock server's loader: no Python in the process, no XLA.

    python -m tests.benchmarks.serving_latency --data DIR --preset RUN [--beam 5] [--quantize int8]

Exports RUN (a preset of `tests.benchmarks.joeynmt_sizes`, whose docstring has the command that trains one), builds the
C program of `tests/serving` and runs `serving_default` on the first sentences of the corpus' test split: one at a
time, and 32 at a time. Each request runs once before it is timed, as in a server with warm-up records. The last line is
JSON: milliseconds for one sentence (median and 99th percentile), sentences a second in batches, seconds for the export
and for loading, the peak of resident memory, the sizes of the graph and of the weights, and BLEU of the translations
in batches. With `--peer FILE`, the last line of `tests.benchmarks.joeynmt_peer --batch-size 32` is added to it.
Needs gcc.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import keras

from keras_attn import Translator
from keras_attn.cli.run_report import export_arguments, read_report
from keras_attn.evaluation.scores import bleu
from keras_attn.text import read_parallel
from tests.benchmarks import joeynmt_sizes  # noqa: F401, registers its model
from tests.serving import loader

SIGNATURE = ("--signature", "serving_default", "--repeat", "2")


def timed(program, folder: Path, texts: list[bytes], batch: int) -> tuple[list[float], float, float, list[str]]:
    """Returns seconds of each batch (its second run), seconds for loading, resident MB, and the translations."""
    done, found = loader.run_batches(program, folder, texts, *SIGNATURE, "--batch", str(batch))
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    times = loader.times(done)
    translations = [text.decode() for _, outputs in found for text in outputs["translation"]]
    return times["run serving_default"][1::2], times["load"][0], times["memory"][0], translations


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("KERAS_ATTN_DATA"), help="folder with data/CORPUS")
    parser.add_argument("--preset", required=True, type=Path)
    parser.add_argument("--corpus", default="multi30k-tok")
    parser.add_argument("--source", default="de")
    parser.add_argument("--target", default="en")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--singles", type=int, default=200, help="sentences one at a time (default: %(default)s)")
    parser.add_argument("--sentences", type=int, default=960, help="in batches (default: %(default)s)")
    parser.add_argument("--quantize", choices=("int8", "float16"))
    parser.add_argument("--peer", type=Path, metavar="FILE", help="the peer's figures")
    arguments = parser.parse_args(argv)
    corpus = Path(arguments.data or ".", "data", arguments.corpus)
    sources, references = read_parallel(corpus, "test", arguments.source, arguments.target)
    texts = [sentence.encode() for sentence in sources[: arguments.sentences]]
    peer = {"peer": json.loads(arguments.peer.read_text().splitlines()[-1])} if arguments.peer else {}
    with tempfile.TemporaryDirectory() as temporary:
        program = loader.build(Path(temporary))
        translator = Translator.from_preset(arguments.preset)
        begin = time.perf_counter()
        options = {"beam_size": arguments.beam, "quantize": arguments.quantize}
        folder = translator.export(Path(temporary, "served"), **options, **export_arguments(arguments.preset))
        export_seconds = time.perf_counter() - begin
        print(f"exported in {export_seconds:.1f} s", flush=True)
        single, *loaded, _ = timed(program, folder, texts[: arguments.singles], 1)
        batches, load_seconds, memory, translations = timed(program, folder, texts, arguments.batch_size)
        sizes = {name: (folder / name).stat().st_size for name in ("saved_model.pb", "variables/" + DATA)}
    tokenize = read_report(arguments.preset)["config"].get("tokenize", "13a")
    result = {
        "benchmark": "serve",
        "backend": keras.backend.backend(),
        "beam": arguments.beam,
        "quantize": arguments.quantize,
        "single_sentence_ms": round(1000 * statistics.median(single), 1),
        "single_sentence_99th_ms": round(1000 * statistics.quantiles(single, n=100)[98], 1),
        "batch_size": arguments.batch_size,
        "sentences_per_second": round(len(texts) / sum(batches), 1),
        "export_seconds": round(export_seconds, 1),
        "load_seconds": round(min(load_seconds, loaded[0]), 2),
        "resident_mb": round(max(memory, loaded[1])),
        "graph_bytes": sizes["saved_model.pb"],
        "weights_mb": round(sizes["variables/" + DATA] / 1e6, 1),
        "bleu": round(bleu(translations, references[: len(texts)], tokenize=tokenize).score, 2),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 1),
        **peer,
    }
    print(json.dumps(result))
    return 0


DATA = "variables.data-00000-of-00001"

if __name__ == "__main__":
    sys.exit(main())
