"""Translation speed of a trained preset on the 1,000 sentences of Multi30k test 2016.

    KERAS_BACKEND=jax python -m tests.benchmarks.decode_throughput --data DIR --preset RUN [--beam 5]

RUN is a preset of `tests.benchmarks.joeynmt_sizes` (its docstring has the command that trains one); quality matters,
since it decides the lengths. DIR holds `data/multi30k-tok/` (default: $KERAS_ATTN_DATA). The first pass over all
sentences compiles; then come `--repeats` timed passes with the beam, as many greedy ones, and 100 single sentences with
the beam, one a call. The last line is JSON. `share_of_gemm` counts the matrix products of the tokens found, times the
beam: padding, hypotheses after a sentence's end, and steps that prove that the best is found are all loss.
`--peer FILE`: the last line of `tests.benchmarks.joeynmt_peer`, which becomes part of it.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import keras

from keras_attn import Translator
from keras_attn.backend import prefer_fast_matmul
from keras_attn.evaluation.scores import bleu
from keras_attn.text import read_parallel
from tests.benchmarks.joeynmt_sizes import EMBEDDING, UNITS
from tests.benchmarks.train_throughput import gemm_gflops

SINGLES = 100


def flops(source_length: int, target_length: int, beams: int, vocabulary_size: int) -> float:
    """Floating-point operations of one sentence's matrix products: the source once, each target token K times."""
    encoder = 2 * 3 * UNITS * (EMBEDDING + UNITS) + 2 * UNITS * UNITS  # a source position, both directions; keys
    cell = 3 * UNITS * (EMBEDDING + UNITS + UNITS)
    attention = UNITS * UNITS + 3 * source_length * UNITS
    step = cell + attention + 3 * UNITS * UNITS + UNITS * vocabulary_size
    return 2.0 * (source_length * encoder + beams * target_length * step)


def timed(call) -> tuple[float, list]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("KERAS_ATTN_DATA"), help="folder with data/multi30k-tok")
    parser.add_argument("--preset", required=True, type=Path)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--early-stopping", action="store_true", help="end as soon as K hypotheses have")
    parser.add_argument("--peer", type=Path, metavar="FILE", help="what the peer measured")
    arguments = parser.parse_args(argv)
    prefer_fast_matmul()
    folder = Path(arguments.data or ".", "data", "multi30k-tok")
    if not folder.is_dir():
        print(f"Expected --data with data/multi30k-tok in it. There is no {folder}.", file=sys.stderr)
        return 2
    sources, references = read_parallel(folder, "test", "de", "en")
    translator = Translator.from_preset(arguments.preset)
    options = {"batch_size": arguments.batch_size, "return_alignments": False}
    beam = options | {"beam_size": arguments.beam}
    if arguments.early_stopping:
        beam |= {"early_stopping": True}

    def passes(**chosen):
        first, found = timed(lambda: translator.generate(sources, **chosen))
        return (
            first,
            statistics.median(
                timed(lambda: translator.generate(sources, **chosen))[0] for _ in range(arguments.repeats)
            ),
            found,
        )

    gemm = [gemm_gflops()]
    first_call, seconds, found = passes(**beam)
    gemm.append(gemm_gflops())
    print(f"beam {arguments.beam}: {len(sources) / seconds:.1f} sentences a second", flush=True)
    _, greedy_seconds, greedy = passes(**options | {"beam_size": 1})
    gemm.append(gemm_gflops())
    singles = sources[:SINGLES]
    for text in singles:
        translator.generate([text], **beam)
    single = statistics.median(timed(lambda text=text: translator.generate([text], **beam))[0] for text in singles)
    rate = statistics.median(gemm)
    vocabulary_size = translator.target_tokenizer.vocabulary_size
    work = sum(flops(len(t.source_token_ids), len(t.token_ids), arguments.beam, vocabulary_size) for t in found)
    tokens = sum(len(t.token_ids) for t in found)
    result = {
        "benchmark": "decode",
        "backend": keras.backend.backend(),
        "beam": arguments.beam,
        "early_stopping": arguments.early_stopping,
        "sentences_per_second": round(len(sources) / seconds, 1),
        "target_tokens_per_second": round(tokens / seconds),
        "greedy_sentences_per_second": round(len(sources) / greedy_seconds, 1),
        "single_sentence_ms": round(1000 * single, 1),
        "gemm_gflops": round(rate, 1),
        "share_of_gemm": round(work / seconds / 1e9 / rate, 3),
        "seconds_first_call": round(first_call, 1),
        "tokens_per_sentence": round(tokens / len(sources), 1),
        "bleu": round(bleu([t.text for t in found], references, tokenize="none").score, 2),
        "greedy_bleu": round(bleu([t.text for t in greedy], references, tokenize="none").score, 2),
    }
    if arguments.peer:
        result["peer"] = json.loads(arguments.peer.read_text().splitlines()[-1])
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
