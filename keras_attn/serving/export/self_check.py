"""Self-check: reference translations that an export must reproduce before publication."""

import json
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

from keras_attn.serving.export.options import ExportOptions
from keras_attn.serving.export.python_process import PythonProcess

if TYPE_CHECKING:
    from keras_attn.translation import Translator

Reference = tuple[str, list[tuple[str, float]]]  # a text, and its translations with their scores, best first
REPLAY = Path(__file__).with_name("replay.py")


def reference_translations(engine: "Translator", options: ExportOptions) -> list[Reference]:
    """Texts of the source vocabulary, empty to sentence-long, with all hypotheses of `generate` for each.

    The export reads each of them whole.
    """
    if engine.int8_weights is not None and not options.jit_compile:  # such an export computes in float32
        engine = copy(engine)
        engine.int8_weights = None
    tokenizer = engine.source_tokenizer
    ids = tokenizer.special_ids.ordinary(tokenizer.vocabulary_size)
    texts = [tokenizer.decode([ids[(29 * length + 7 * i) % len(ids)] for i in range(length)]) for length in (1, 3, 11)]
    texts += ["", " \t\u3000"]
    if tokenizer.special_ids.unknown is not None:
        texts += ["\u00e9\ufffd\U0001f600"]
    texts = [text for text in texts if len(tokenizer.encode(text)) < options.max_source_length]  # none is cut
    arguments = {**options.generate_arguments(), "n_best": options.beam_size, "return_alignments": False}
    hypotheses = [t.n_best or (t,) for t in engine.generate(texts, **arguments)]
    return [(text, [(t.text, t.score) for t in several]) for text, several in zip(texts, hypotheses, strict=True)]


def replaying(directory: Path, options: ExportOptions) -> PythonProcess:
    """Starts the process for `check_translations`; the version may still be written."""
    xla = ["--xla-cpu-compilation-enabled"] if options.jit_compile else []
    return PythonProcess(["-P", str(REPLAY), str(directory), *xla])


def check_translations(process: PythonProcess, references: list[Reference], dtype: str) -> None:
    """Translates the reference texts with a version, all in one batch and the first alone, in another process.

    Args:
        process: From `replaying`.
        references: From `reference_translations`.
        dtype: The precision in which the model computes; "int8" for that of its products.

    Raises:
        ValueError: if a translation or its score differs from the reference.
        RuntimeError: if the process fails.
    """
    texts = [text.encode().hex() for text, _ in references]
    answer = json.loads(process.answer([texts, texts[:1]]))
    for batch in answer["batches"]:
        received = (bytes.fromhex(text).decode(errors="replace") for text in batch["translation"])
        check_answers(references, list(zip(received, batch["score"], strict=True)), dtype)


def check_answers(references: list[Reference], answers: list[tuple[str, float]], dtype: str) -> None:
    """Compares the first references with answers, each a translation and its score.

    Args:
        references: From `reference_translations`.
        answers: As many, or fewer.
        dtype: The precision in which the model computes.

    Raises:
        ValueError: if a translation or its score differs from the reference.
    """
    # Another compiler adds in another order, so hypotheses of nearly the same score may change places.
    tolerance = 1e-4 if dtype == "float32" else 3e-2
    for (text, expected), (received, score) in zip(references, answers, strict=False):
        first, best = expected[0]
        near = tolerance * (1 + abs(best))
        is_tie = any(other == received and abs(its - best) <= near for other, its in expected)
        if not (is_tie and abs(score - best) <= near):
            raise ValueError(
                f"Expected the exported graph to translate {text!r} to {first!r} with score {best:.6f}. "
                f"Received: {received!r} with score {score:.6f}"
            )
