"""Speed of an exported model in the stock server's loader: no Python in the process.

    python -m tests.benchmarks.serving_latency --data DIR --preset RUN [--beam 5] [--shortlist] [--intra-op 1]

Exports RUN (a preset of `tests.benchmarks.joeynmt_sizes`, whose docstring has the command that trains one), builds the
C program of `tests/serving` and runs `serving_default` on the sentences of the corpus' test split: a hundred one at a
time, and all of them 32 at a time; all of this three times. Each request runs once before it is timed, as in a server
with warm-up records. The last line is JSON: milliseconds for one sentence, sentences a second in batches, seconds for
the export and for loading, the peak of resident memory in batches, all of them medians, with the 10th and 90th
percentile as `..._spread`; the sizes of the graph and of the weights; and BLEU of the translations in batches.
`--shortlist`: the search is in a `keras_attn.Shortlist` of the training text. `--intra-op`: how many threads an
operation has, as the server's `--tensorflow_intra_op_parallelism`; by default as many as there are cores.
`--jit-compile`: XLA compiles the search, and `--int8` with it multiplies in int8; without it XLA is disabled.
`--quantize`: the stored weights. Needs gcc.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import keras

from keras_attn.evaluation.scores import bleu
from keras_attn.training import export_arguments
from tests.benchmarks import joeynmt_sizes  # noqa: F401, registers its model
from tests.benchmarks.measuring import search_parser, sentences, translator_of, with_spread
from tests.serving import loader

SIGNATURE = ("--signature", "serving_default", "--repeat", "2")
DATA = "variables.data-00000-of-00001"
SINGLES, ROUNDS = 100, 3


def timed(
    program, folder: Path, texts: list[bytes], *options: str, xla: bool
) -> tuple[list[float], float, float, list[str]]:
    """Returns seconds of each batch (its second run), seconds for loading, resident MB, and the translations."""
    done, found = loader.run_batches(program, folder, texts, *SIGNATURE, *options, xla=xla)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    times = loader.times(done)
    translations = [text.decode() for _, outputs in found for text in outputs["translation"]]
    return times["run serving_default"][1::2], times["load"][0], times["memory"][0], translations


def main(argv=None) -> int:
    parser = search_parser(__doc__, batch_size=32)
    parser.add_argument("--quantize", choices=("int8", "float16"))
    parser.add_argument("--jit-compile", action="store_true", help="the search compiled by XLA")
    parser.add_argument("--intra-op", type=int, metavar="N", help="threads of an operation (default: all cores)")
    arguments = parser.parse_args(argv)
    sources, references = sentences(arguments.data, "test")
    texts = [sentence.encode() for sentence in sources]
    threads = ["--intra-op", str(arguments.intra_op)] if arguments.intra_op else []
    single, rates, export_seconds, load_seconds, memory = [], [], [], [], []
    with tempfile.TemporaryDirectory() as temporary:
        program = loader.build(Path(temporary))
        translator = translator_of(arguments)
        options = {name: getattr(arguments, name) for name in ("quantize", "jit_compile")}
        options |= {"beam_size": arguments.beam} | export_arguments(arguments.preset)
        for number in range(ROUNDS):
            begin = time.perf_counter()
            folder = translator.export(Path(temporary, f"served-{number}"), **options)
            export_seconds.append(time.perf_counter() - begin)
            print(f"exported in {export_seconds[-1]:.1f} s", flush=True)
            run = partial(timed, program, folder, xla=arguments.jit_compile)
            alone, loaded, *_ = run(texts[:SINGLES], "--batch", "1", *threads)
            size = str(arguments.batch_size)
            batches, loaded_again, peak, translations = run(texts, "--batch", size, *threads)
            single += alone
            rates.append(len(texts) / sum(batches))
            load_seconds += [loaded, loaded_again]
            memory.append(peak)
        sizes = {name: (folder / name).stat().st_size for name in ("saved_model.pb", "variables/" + DATA)}
    result = {
        "benchmark": "serve",
        "backend": keras.backend.backend(),
        "beam": arguments.beam,
        "quantize": arguments.quantize,
        "jit_compile": arguments.jit_compile,
        "int8": arguments.int8,
        "shortlist": arguments.shortlist,
        "intra_op": arguments.intra_op,
        **with_spread("single_sentence_ms", [1000 * one for one in single]),
        "single_sentence_99th_ms": round(1000 * statistics.quantiles(single, n=100)[98], 1),
        "batch_size": arguments.batch_size,
        **with_spread("sentences_per_second", rates),
        **with_spread("export_seconds", export_seconds),
        **with_spread("load_seconds", load_seconds, 2),
        **with_spread("resident_mb", memory, 0),
        "graph_bytes": sizes["saved_model.pb"],
        "weights_mb": round(sizes["variables/" + DATA] / 1e6, 1),
        "bleu": round(bleu(translations, references, tokenize="none").score, 2),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
