"""Search and scoring as Keras models, so that each backend compiles them in `predict_on_batch`."""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_attn.backend import Int8Weights, inference_function, preferred_jit_compile
from keras_attn.models import Seq2Seq
from keras_attn.search import score_tokens


class DecodingModel(keras.Model):
    """A compiled model over a `Seq2Seq`, whose `predict_on_batch` several threads may call at once.

    Args:
        seq2seq: A `Seq2Seq`.
        name: Name of the model.
        int8_weights: Its matrices in int8, to multiply with; None: none.
        options: Keyword arguments of the function that `call` applies.
    """

    def __init__(self, seq2seq: Seq2Seq, name: str, *, int8_weights: Int8Weights | None = None, **options):
        # The layers have policies of their own; a global one that is mixed would round what methods read of weights.
        super().__init__(name=name, dtype="float32")
        self.seq2seq = seq2seq
        self.options = options
        self.built = True
        self.compile(jit_compile=preferred_jit_compile())
        self._infer = inference_function(self, int8_weights)

    def predict_on_batch(self, x):
        return self._infer(x)


class SearchModel(DecodingModel):
    """Encoding and search in one model.

    `{encoder_token_ids (B, S), row_max_length (B,), ...}` -> the dict of a `SearchResult`. L is static: each
    longest output needs a model of its own, which compiles once for each (B, S).

    Args:
        seq2seq: A `Seq2Seq`.
        search: `beam_search`, `greedy_search` or `sample`.
        max_length: L.
        options: Keyword arguments of `search` that all sentences share. Those of a single sentence
            (`row_max_length`, `forced_prefix`, ...) are further inputs, and so are "shortlist" `(n,)` and "allowed"
            `(B, n)`: see `beam_search`. And `int8_weights`, as in `DecodingModel`.
    """

    def __init__(self, seq2seq: Seq2Seq, search: Callable, max_length: int, **options):
        super().__init__(seq2seq, "search", **options)
        self.search = search
        self.max_length = max_length

    def call(self, inputs):
        inputs = dict(inputs)
        memory, state = self.seq2seq.encode(inputs.pop("encoder_token_ids"), self.max_length)
        options = {"max_length": self.max_length, "special_ids": self.seq2seq.target_special_ids, **self.options}
        if "shortlist" in inputs:
            token_ids = inputs.pop("shortlist")  # (n,)
            options["shortlist"] = {"token_ids": token_ids, "allowed": inputs.pop("allowed")}
            options["shortlist"]["output"] = self.seq2seq.output_part(token_ids)
        result = self.search(self.seq2seq.step, memory, state, **inputs, **options)
        return {name: value for name, value in result._asdict().items() if value is not None}


class ScoreModel(DecodingModel):
    """Forced decoding in one teacher-forced pass.

    `{encoder_token_ids (B, S), target_token_ids (B, T)}` -> the dict of a `SearchResult` with N = 1.

    Args:
        seq2seq: A `Seq2Seq`.
        each_head: Adds "head_alignments" `(B, 1, T, heads, S)` to the result.
        options: Keyword arguments of `score_tokens`, and `int8_weights`, as in `DecodingModel`.
    """

    def __init__(self, seq2seq: Seq2Seq, each_head: bool = False, **options):
        super().__init__(seq2seq, "score", **options)
        self.each_head = each_head

    def call(self, inputs):
        source, target = inputs["encoder_token_ids"], inputs["target_token_ids"]  # (B, S), (B, T)
        ids = self.seq2seq.target_special_ids
        start = ops.full_like(target[:, :1], ids.start)  # (B, 1)
        previous = ops.concatenate([start, target[:, :-1]], axis=1)  # (B, T)
        _, mask = self.seq2seq.source_and_mask(source)  # (B, S)
        each_head = {}
        if self.each_head:
            logits, heads = self.seq2seq.align(source, previous, each_head=True)  # (B, T, V), (B, T, heads, S)
            alignments, each_head = ops.mean(heads, axis=2), {"head_alignments": heads[:, None]}
        else:
            logits, alignments = self.seq2seq.align(source, previous)  # (B, T, V), (B, T, S)
        result = score_tokens(logits, target, alignments, mask, special_ids=ids, **self.options)
        return {name: value for name, value in result._asdict().items() if value is not None} | each_head


def check_scores(scores: np.ndarray, model: Seq2Seq) -> None:
    """Raises ValueError for the scores (B, N) of a model whose logits are NaN.

    Where a NaN reaches a search, the best score of the sentence is NaN or, by the order of a backend's `top_k`, -inf.
    Only a sentence whose every translation has probability 0 has such a score too, so that the weights are seldom read.

    Raises:
        ValueError: if a score is NaN, or a sentence has none and a weight is not finite; the sentence names weights
            that are not finite.
    """
    if np.isfinite(scores[:, 0]).all():
        return
    wrong = [weight.path for weight in model.weights if not np.isfinite(ops.convert_to_numpy(weight)).all()]
    if wrong or np.isnan(scores).any():
        cause = f"Weights that are not finite: {', '.join(wrong[:3])}" if wrong else "Its weights are finite"
        more = f" and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
        raise ValueError(f"Expected a model with finite logits. Received: logits that are NaN. {cause}{more}.")
