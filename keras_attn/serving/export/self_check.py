"""What a version must be found to say before it is published, and the processes in which it says it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from keras_attn.serving.export.options import Options
from keras_attn.text import SPECIAL_TOKENS
from keras_attn.translator import Translator

Example = tuple[str, list[tuple[str, float]]]  # text, and its translations with their scores, best first
REPLAY = Path(__file__).with_name("replay.py")
REFUSED = 2  # exit status of `keras_attn.serving.export`, whose last line is then "NameOfTheError: sentence"
REFUSALS = {error.__name__: error for error in (ValueError, FileExistsError, FileNotFoundError)}


def examples_of(translator: Translator, options: Options) -> list[Example]:
    """Text of the source's own tokens, from nothing to a sentence, with all that `generate` makes of it."""
    tokenizer = translator.source_tokenizer
    first, size = len(SPECIAL_TOKENS), tokenizer.vocabulary_size
    lengths = [length for length in (1, 3, 11) if length < options.max_source_length]
    texts = [
        tokenizer.decode([first + (29 * length + 7 * i) % (size - first) for i in range(length)]) for length in lengths
    ]
    texts += ["", " \t\u3000", "\u00e9\ufffd\U0001f600"]
    arguments = {"n_best": options.beam_size, "return_alignments": False, **options.generate_arguments()}
    best = [t.n_best or (t,) for t in translator.generate(texts, **arguments)]
    return [(text, [(t.text, t.score) for t in several]) for text, several in zip(texts, best, strict=True)]


def check(directory: Path, examples, dtype: str) -> None:
    """Refuses a version that says something else than `generate`, in one batch or sentence by sentence."""
    texts = [text.encode().hex() for text, _ in examples]
    answer = json.loads(run_python(["-P", str(REPLAY), str(directory)], [texts, texts[:1]]))
    # Another compiler adds in another order: hypotheses of nearly the same score may change places.
    tolerance = 1e-4 if dtype == "float32" else 3e-2
    for batch in answer["batches"]:
        for (text, expected), found, score in zip(examples, batch["translation"], batch["score"], strict=False):
            found, (first, best) = bytes.fromhex(found).decode(errors="replace"), expected[0]
            near = tolerance * (1 + abs(best))
            same = [other for other, its in expected if other == found and abs(its - best) <= near]
            if not (same and abs(score - best) <= near):
                raise ValueError(
                    f"Expected the exported graph to translate {text!r} to {first!r} with score {best:.6f}. "
                    f"It gives {found!r} with score {score:.6f}."
                )


def run_python(arguments: list[str], request) -> str:
    """The last line printed by a Python process, on TensorFlow without accelerators, given JSON on stdin."""
    here = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    own = {
        "KERAS_BACKEND": "tensorflow",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": path,
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=os.environ | own,
    )
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    last = lines[-1] if lines else "no output"
    name, _, sentence = last.partition(": ")
    if done.returncode == REFUSED and name in REFUSALS:
        raise REFUSALS[name](sentence)
    if done.returncode:
        raise RuntimeError(f"Expected {' '.join(arguments[:2])} to succeed. It ended with {done.returncode}: {last}")
    return last
