"""Self-check: reference translations that an export must reproduce before it appears."""

from collections.abc import Callable, Iterable, Mapping
from copy import copy

from keras_attn.export.options import ExportOptions
from keras_attn.saving import rounded_model
from keras_attn.translation import Translator

Reference = tuple[str, list[tuple[str, float]]]  # a text, and its translations with their scores, best first


def reference_translations(translator: Translator, options: ExportOptions) -> list[Reference]:
    """Texts of the source vocabulary, empty to sentence-long, with all hypotheses of `generate` for each.

    They are computed with the weights that the export stores, and each is short enough to be read whole.
    """
    translator = copy(translator)
    translator.model = rounded_model(translator.model, options.quantize)
    if not options.jit_compile:  # such a graph multiplies in float32
        translator.int8_weights = None
    tokenizer = translator.source_tokenizer
    ids = tokenizer.special_ids.ordinary(tokenizer.vocabulary_size)
    texts = [tokenizer.decode([ids[(29 * length + 7 * i) % len(ids)] for i in range(length)]) for length in (1, 3, 11)]
    texts += ["", " \t\u3000"]
    if tokenizer.special_ids.unknown is not None:
        texts += ["\u00e9\ufffd\U0001f600"]
    texts = [text for text in texts if len(tokenizer.encode(text)) < options.max_source_length]
    arguments = {**options.generate_arguments(), "n_best": options.beam_size, "return_alignments": False}
    hypotheses = [t.n_best or (t,) for t in translator.generate(texts, **arguments)]
    return [(text, [(t.text, t.score) for t in several]) for text, several in zip(texts, hypotheses, strict=True)]


def check_signatures(
    functions: Mapping[str, Callable], references: list[Reference], requests: Iterable, dtype: str
) -> None:
    """Runs the warm-up requests, and translates the references together and the first alone.

    Args:
        functions: The signatures of a version, as `tf.saved_model.load` gives them.
        references, dtype: See `check_answers`.
        requests: From `warm_up_requests`.

    Raises:
        ValueError: if a translation or its score differs from the reference.
    """
    import tensorflow as tf

    for name, inputs in requests:
        functions[name](**inputs)
    for some in (references, references[:1]):
        found = functions["serving_default"](text=tf.constant([text for text, _ in some]))
        texts = [text.decode(errors="replace") for text in found["translation"].numpy()]
        check_answers(some, list(zip(texts, found["score"].numpy().tolist(), strict=True)), dtype)


def check_answers(references: list[Reference], answers: list[tuple[str, float]], dtype: str) -> None:
    """Compares references with answers, each a translation and its score.

    Args:
        references: From `reference_translations`.
        answers: As many.
        dtype: The precision in which the model computes; "int8" for that of its products.

    Raises:
        ValueError: if a translation or its score differs from the reference.
    """
    # Another compiler adds in another order, so hypotheses of nearly the same score may change places.
    tolerance = 1e-4 if dtype == "float32" else 3e-2
    for (text, expected), (received, score) in zip(references, answers, strict=True):
        first, best = expected[0]
        near = tolerance * (1 + abs(best))
        is_tie = any(other == received and abs(its - best) <= near for other, its in expected)
        if not (is_tie and abs(score - best) <= near):
            raise ValueError(
                f"Expected the exported graph to translate {text!r} to {first!r} with score {best:.6f}. "
                f"Received: {received!r} with score {score:.6f}"
            )
