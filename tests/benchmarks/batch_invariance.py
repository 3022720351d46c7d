"""Whether a translation depends on its batch: every line by itself, in sevens, and 128 at once.

    KERAS_BACKEND=jax python -m tests.benchmarks.batch_invariance --data DIR --preset RUN [--corpus NAME --source de]

Translates the 1,000 sentences of the corpus' test split and 1,000 adversarial lines (`tests.adversarial`) with batches
of 1, 7 and 128. The last line is JSON: `different` strings, and how many of them are ties, that is, score within 1e-5
of each other (the rounding of a matrix product may depend on its shape); ties are printed. The exit status is 1 if any
difference is no tie.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import keras

from keras_attn import Translator, quantize
from keras_attn.text import corpus_paths, read_lines
from tests import adversarial
from tests.benchmarks import joeynmt_sizes  # noqa: F401, registers its model

SIZES = (1, 7, 128)
TIE = 1e-5


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("KERAS_ATTN_DATA"), help="folder with data/CORPUS")
    parser.add_argument("--preset", required=True, type=Path)
    parser.add_argument("--corpus", default="multi30k")
    parser.add_argument("--source", default="de")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--lines", type=int, default=1000, help="of each kind, at most (default: %(default)s)")
    parser.add_argument("--int8", action="store_true", help="with keras_attn.quantize")
    arguments = parser.parse_args(argv)
    folder = Path(arguments.data or ".", "data", arguments.corpus)
    sentences = read_lines(corpus_paths(folder, "test", arguments.source)[0])[: arguments.lines]
    strange = [line.decode(errors="replace") for line in adversarial.lines(arguments.lines)]
    translator = Translator.from_preset(arguments.preset)
    translator = quantize(translator) if arguments.int8 else translator
    options = {"beam_size": arguments.beam, "return_alignments": False}
    found = {}
    for size in SIZES:
        found[size] = translator.generate(sentences + strange, batch_size=size, **options)
        print(f"batches of {size}: done", flush=True)
    different = ties = 0
    for number, text in enumerate(sentences + strange):
        one, *others = (found[size][number] for size in SIZES)
        for size, other in zip(SIZES[1:], others, strict=True):
            if other.text == one.text:
                continue
            different += 1
            gap = abs(other.score - one.score)
            ties += gap <= TIE
            print(f"line {number + 1}, batch of {size}, scores {gap:.2e} apart: {text!r}")
            print(f"  {one.text!r}\n  {other.text!r}")
    result = {
        "benchmark": "batch_invariance",
        "run": arguments.preset.resolve().name,
        "backend": keras.backend.backend(),
        "products": "int8" if arguments.int8 else "float32",
        "beam": arguments.beam,
        "sentences": len(sentences),
        "adversarial": len(strange),
        "different": different,
        "ties": ties,
    }
    print(json.dumps(result))
    return int(different > ties)


if __name__ == "__main__":
    sys.exit(main())
