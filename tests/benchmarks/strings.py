"""Compares the strings of batches of 1, 7 and 128, or those of an exported model, with the strings of `generate`.

    KERAS_BACKEND=jax python -m tests.benchmarks.strings --data DIR --preset RUN [--corpus NAME --source de] [--int8]
    python -m tests.benchmarks.strings --exported --data DIR --preset RUN [--corpus NAME --source de]

Translates the sentences of the corpus' test split and as many adversarial lines (`tests.adversarial`). With
`--exported` it compares those of the reloaded SavedModel and of the C program of `tests/serving`, which needs gcc. The
last line is JSON: how many strings are `different`, and how many of these are ties (scores within 1e-5 of each other:
the rounding of a matrix product may depend on its shape). Exported models have three more figures: `equal_scores`
(forced decoding in Python gives the served string its served score, within 1e-5: the model is the same, but its beam
kept another hypothesis at some step); how many scores are NaN; and the seconds of the slowest line alone. Differences
are printed. The exit status is 1 if one is neither a tie nor of equal scores, or if a score is NaN.
"""

import json
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

from keras_attn import Translator, quantize
from keras_attn.text import BLANKS, END_ID, PAD_ID, corpus_paths, read_lines
from keras_attn.training import export_arguments
from tests import adversarial
from tests.benchmarks import joeynmt_sizes  # noqa: F401, registers its model
from tests.benchmarks.measuring import parser_of
from tests.export.small import run
from tests.serving import loader

SIZES = (1, 7, 128)
TIE = 1e-5


def in_batches(translator: Translator, texts: list[str], beam: int) -> dict:
    """Compares batches of several sizes with single lines."""
    found = {}
    for size in SIZES:
        found[size] = translator.generate(texts, batch_size=size, beam_size=beam, return_alignments=False)
        print(f"batches of {size}: done", flush=True)
    different = ties = 0
    for n, text in enumerate(texts):
        one, *others = (found[size][n] for size in SIZES)
        for size, other in zip(SIZES[1:], others, strict=True):
            if other.text != one.text:
                different += 1
                gap = abs(other.score - one.score)
                ties += gap <= TIE
                print(f"line {n + 1}, batch of {size}, scores {gap:.2e} apart: {text!r}")
                print(f"  {one.text!r}\n  {other.text!r}")
    return {"benchmark": "batch_invariance", "different": different, "ties": ties}


def exported(translator: Translator, texts: list[str], lines: list[bytes], beam: int, arguments: dict) -> dict:
    """Compares an exported model with `generate`."""
    with tempfile.TemporaryDirectory() as temporary:
        program = loader.build(Path(temporary))
        folder = translator.export(Path(temporary, "served"), beam_size=beam, **arguments)
        found = served(program, folder, lines)
        seconds = slowest(program, folder, lines)
        expected = translator.generate(texts, beam_size=beam, return_alignments=False)
        counts = compare(translator, folder, texts, expected, found)
    gaps = [abs(s - one.score) for answers in found.values() for one, (_, s) in zip(expected, answers, strict=True)]
    return {
        "benchmark": "strings",
        "model": type(translator.model).__name__,
        **counts,
        "nan": int(np.isnan(gaps).sum()),
        "largest_score_difference": float(f"{np.nanmax(gaps):.2g}"),
        "slowest_line_seconds": round(seconds, 2),
    }


def served(program, folder: Path, lines: list[bytes]) -> dict[str, list[tuple[str, float]]]:
    """Returns text and score of each line, from TensorFlow and from the C loader."""
    (alone,) = run(folder, [("serving_default", {"text": lines})])
    done, results = loader.run(program, folder, lines, "--signature", "serving_default")
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    found = {"tensorflow": alone, "c": results["serving_default"]}
    return {
        name: [(text.decode(), float(score)) for text, score in zip(f["translation"], f["score"], strict=True)]
        for name, f in found.items()
    }


def slowest(program, folder: Path, lines: list[bytes]) -> float:
    """Returns the seconds of the slowest of the longest few lines, each alone."""
    longest = sorted(lines, key=len)[-5:]
    options = ("--signature", "serving_default", "--repeat", "2", "--batch", "1")
    done, _ = loader.run_batches(program, folder, longest, *options)
    return max(loader.times(done)["run serving_default"][1::2])


def ids_of(translator: Translator, folder: Path, texts: list[str]) -> list[list[int]]:
    """Returns the ids that are served for each text, all in one request: another one might break a tie otherwise.

    The tokenizer's ids of the served text could be other ones.
    """
    encoded = [[*translator.source_tokenizer.encode(text), END_ID] if text.strip(BLANKS) else [] for text in texts]
    longest = max(map(len, encoded))
    padded = [row + [PAD_ID] * (longest - len(row)) for row in encoded]
    call = ("translate_token_ids", {"token_ids": padded, "lengths": [len(row) for row in encoded]})
    (found,) = run(folder, [call])
    rows = zip(found["token_ids"].tolist(), found["lengths"].tolist(), strict=True)
    return [tokens[:length] for tokens, length in rows]


def compare(translator: Translator, folder: Path, texts: list[str], expected: list, found: dict) -> dict[str, int]:
    """Counts and prints the strings that differ from the `expected` ones, by reason."""
    unequal = [
        (name, n, *answer)
        for name, answers in found.items()
        for n, (one, answer) in enumerate(zip(expected, answers, strict=True))
        if answer[0] != one.text
    ]
    token_ids = ids_of(translator, folder, texts) if unequal else []
    ties = equal_scores = 0
    for name, n, other, score in unequal:
        gap = abs(score - expected[n].score)
        ties += gap <= TIE
        forced = translator.score([texts[n]], [token_ids[n]], return_alignments=False)[0]
        equal_scores += gap > TIE and forced.text == other and abs(forced.score - score) <= TIE * abs(score)
        print(f"{name}, scores {gap:.2e} apart: {texts[n]!r}\n  {expected[n].text!r}\n  {other!r}")
        print(f"  served with {score}, forced decoding gives {forced.score}")
    return {"different": len(unequal), "ties": ties, "equal_scores": equal_scores}


def main(argv=None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--preset", required=True, type=Path)
    parser.add_argument("--exported", action="store_true", help="compare a SavedModel instead of batches")
    parser.add_argument("--corpus", default="multi30k")
    parser.add_argument("--source", default="de")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--lines", type=int, default=1000, help="of each kind, at most (default: %(default)s)")
    parser.add_argument("--int8", action="store_true", help="with keras_attn.quantize; not exported")
    arguments = parser.parse_args(argv)
    corpus = arguments.data / "data" / arguments.corpus
    sentences = read_lines(corpus_paths(corpus, "test", arguments.source)[0])[: arguments.lines]
    lines = [sentence.encode() for sentence in sentences] + adversarial.lines(arguments.lines)
    texts = [line.decode(errors="replace") for line in lines]
    translator = Translator.from_preset(arguments.preset)
    translator = quantize(translator) if arguments.int8 else translator
    if arguments.exported:
        found = exported(translator, texts, lines, arguments.beam, export_arguments(arguments.preset))
    else:
        found = in_batches(translator, texts, arguments.beam)
    result = found | {
        "run": arguments.preset.resolve().name,
        "backend": keras.backend.backend(),
        "products": "int8" if arguments.int8 else "float32",
        "beam": arguments.beam,
        "sentences": len(sentences),
        "adversarial": len(lines) - len(sentences),
    }
    print(json.dumps(result))
    excused = result["ties"] + result.get("equal_scores", 0)
    return int(result["different"] > excused or bool(result.get("nan")))


if __name__ == "__main__":
    sys.exit(main())
