"""Compares the strings of an exported model with those of `generate`, in a TensorFlow process and in the C loader.

    python -m tests.benchmarks.serving_strings --data DIR --preset RUN [--corpus NAME --source de] [--lines 1000]

Translates the sentences of the corpus' test split and as many adversarial lines (`tests.adversarial`) with `generate`
on this backend; with the SavedModel, reloaded in a process that imports only tensorflow and tensorflow_text and has XLA
disabled; and with the C program of `tests/serving`. The last line is JSON: how many strings are `different`; how many
of these are ties (scores within 1e-5 of each other); how many have `equal_scores` (forced decoding in Python gives the
served string its served score, within 1e-5: the model is the same, but its beam kept another hypothesis at some step);
how many scores are NaN; and the seconds of the slowest line alone. Differences are printed. The exit status is 1 if one
is neither a tie nor of equal scores, or if a score is NaN. Needs gcc.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

from keras_attn import Translator
from keras_attn.text import BLANKS, END_ID, PAD_ID, corpus_paths, read_lines
from keras_attn.training import export_arguments
from tests import adversarial
from tests.benchmarks import joeynmt_sizes  # noqa: F401, registers its model
from tests.serving import fresh, loader

TIE = 1e-5


def served(program, folder: Path, lines: list[bytes]) -> dict[str, list[tuple[str, float]]]:
    """Returns text and score of each line, from TensorFlow and from the C loader."""
    ((alone,),) = fresh.run([(folder, [("serving_default", {"text": lines})])])
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
    ((found,),) = fresh.run([(folder, [call])])
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("KERAS_ATTN_DATA"), help="folder with data/CORPUS")
    parser.add_argument("--preset", required=True, type=Path)
    parser.add_argument("--corpus", default="multi30k")
    parser.add_argument("--source", default="de")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--lines", type=int, default=1000, help="of each kind, at most (default: %(default)s)")
    arguments = parser.parse_args(argv)
    corpus = Path(arguments.data or ".", "data", arguments.corpus)
    sentences = read_lines(corpus_paths(corpus, "test", arguments.source)[0])[: arguments.lines]
    lines = [sentence.encode() for sentence in sentences] + adversarial.lines(arguments.lines)
    texts = [line.decode(errors="replace") for line in lines]
    translator = Translator.from_preset(arguments.preset)
    with tempfile.TemporaryDirectory() as temporary:
        program = loader.build(Path(temporary))
        folder = translator.export(
            Path(temporary, "served"), beam_size=arguments.beam, **export_arguments(arguments.preset)
        )
        found = served(program, folder, lines)
        seconds = slowest(program, folder, lines)
        expected = translator.generate(texts, beam_size=arguments.beam, return_alignments=False)
        counts = compare(translator, folder, texts, expected, found)
    gaps = [abs(s - one.score) for answers in found.values() for one, (_, s) in zip(expected, answers, strict=True)]
    result = {
        "benchmark": "strings",
        "run": arguments.preset.resolve().name,
        "backend": keras.backend.backend(),
        "model": type(translator.model).__name__,
        "beam": arguments.beam,
        "sentences": len(sentences),
        "adversarial": len(lines) - len(sentences),
        **counts,
        "nan": int(np.isnan(gaps).sum()),
        "largest_score_difference": float(f"{np.nanmax(gaps):.2g}"),
        "slowest_line_seconds": round(seconds, 2),
    }
    print(json.dumps(result))
    return int(counts["different"] > counts["ties"] + counts["equal_scores"] or bool(result["nan"]))


if __name__ == "__main__":
    sys.exit(main())
