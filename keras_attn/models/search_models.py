"""Search and scoring as Keras models, so that each backend compiles them in `predict_on_batch`."""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from types import MethodType
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from keras_attn.backend import Int8Weights, inference_function, preferred_jit_compile
from keras_attn.search import SearchResult, score_tokens


class DecodingModel(keras.Model):
    """A compiled model over a `Seq2Seq`, whose `predict_on_batch` several threads may call at once.

    Args:
        seq2seq: A `Seq2Seq`.
        name: Name of the model.
        int8_weights: Its matrices in int8, to multiply with; None: none.
        options: Keyword arguments of the function that `call` applies.
    """

    def __init__(self, seq2seq: keras.Model, name: str, *, int8_weights: Int8Weights | None = None, **options):
        # The layers have policies of their own; a global one that is mixed would round what methods read of weights.
        super().__init__(name=name, dtype="float32")
        self.seq2seq = seq2seq
        self.options = options
        self.built = True
        self.compile(jit_compile=preferred_jit_compile())
        self._infer = inference_function(self, int8_weights, seq2seq.input)

    def predict_on_batch(self, x):
        return self._infer(x)


class SearchModel(DecodingModel):
    """Encoding and search in one model.

    `{encoder_token_ids (B, S), row_max_length (B,), ...}` -> the dict of a `SearchResult`. L is static: each
    longest output needs a model of its own, which compiles once for each (B, S). Of several memories there is also
    "memory_lengths" `(B, n)`.

    Args:
        seq2seq: A `Seq2Seq`.
        search: `beam_search`, `greedy_search` or `sample`.
        max_length: L.
        options: Keyword arguments of `search` that all sentences share. Those of a single sentence
            (`row_max_length`, `forced_prefix`, ...) are further inputs, and so are "shortlist" `(n,)` and "allowed"
            `(B, n)`: see `beam_search`. And `int8_weights`, as in `DecodingModel`.
    """

    def __init__(self, seq2seq: keras.Model, search: Callable, max_length: int, **options):
        super().__init__(seq2seq, "search", **options)
        self.search = search
        self.max_length = max_length

    def call(self, inputs):
        inputs = dict(inputs)
        source = {name: inputs.pop(name) for name in self.seq2seq.source_names}
        memory, state = self.seq2seq.encode(self.seq2seq.source_of(source), self.max_length)
        options = {"max_length": self.max_length, "special_ids": self.seq2seq.target_special_ids, **self.options}
        if "shortlist" in inputs:
            token_ids = inputs.pop("shortlist")  # (n,)
            options["shortlist"] = {"token_ids": token_ids, "allowed": inputs.pop("allowed")}
            options["shortlist"]["output"] = self.seq2seq.output_part(token_ids)
        result = self.search(self.seq2seq.step, memory, state, **inputs, **options)
        found = {name: value for name, value in result._asdict().items() if value is not None}
        if "masks" in memory:
            lengths = [ops.sum(ops.ones_like(mask, dtype="int32"), axis=1) for mask in memory["masks"]]  # (B,) each
            found["memory_lengths"] = ops.stack(lengths, axis=1)
        return found


class ScoreModel(DecodingModel):
    """Forced decoding in one teacher-forced pass.

    `{encoder_token_ids (B, S), target_token_ids (B, T)}` -> the dict of a `SearchResult` with N = 1.

    Args:
        seq2seq: A `Seq2Seq`.
        each_head: Adds "head_alignments" `(B, 1, T, heads, S)` to the result.
        options: Keyword arguments of `score_tokens`, and `int8_weights`, as in `DecodingModel`.
    """

    def __init__(self, seq2seq: keras.Model, each_head: bool = False, **options):
        super().__init__(seq2seq, "score", **options)
        self.each_head = each_head

    def call(self, inputs):
        source, target = self.seq2seq.source_of(inputs), inputs["target_token_ids"]  # (B, T)
        ids = self.seq2seq.target_special_ids
        start = ops.full_like(target[:, :1], ids.start)  # (B, 1)
        previous = ops.concatenate([start, target[:, :-1]], axis=1)  # (B, T)
        mask = self.seq2seq.memory_mask(source)  # (B, S)
        each_head = {}
        if self.each_head:
            logits, heads = self.seq2seq.align(source, previous, each_head=True)  # (B, T, V), (B, T, heads, S)
            alignments, each_head = ops.mean(heads, axis=2), {"head_alignments": heads[:, None]}
        else:
            logits, alignments = self.seq2seq.align(source, previous)  # (B, T, V), (B, T, S)
        result = score_tokens(logits, target, alignments, mask, special_ids=ids, **self.options)
        return {name: value for name, value in result._asdict().items() if value is not None} | each_head


def check_scores(scores: np.ndarray, model: keras.Model) -> None:
    """Raises ValueError for the scores (B, N) of a model whose logits are NaN.

    Args:
        scores: Of a search.
        model: The model that searched.

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


def _check_memory(inputs: dict[str, Any], model: keras.Model) -> None:
    """Raises ValueError for a source that is encoded as NaN, as JAX embeds ids that are outside of a vocabulary."""
    memory, _ = model.encode(model.source_of({name: inputs[name] for name in model.source_names}), 1)
    if any(np.isnan(ops.convert_to_numpy(x)).any() for x in tree.flatten(memory)):
        raise ValueError("Expected a source with a finite encoding. Received: one that is encoded as NaN")


_MOST_SEARCHES = 64  # of a model, the least recently used goes first: a processor may be new in each search


class CompiledSearches:
    """The compiled searches of a model. No container, in which Keras would look for layers to save."""

    def __init__(self):
        self._models: OrderedDict[tuple, DecodingModel] = OrderedDict()

    def get(self, kind: type, *arguments: Any, **options: Any) -> DecodingModel:
        """The model `kind(*arguments, **options)`, made once."""
        keys = {name: _identity(value) if callable(value) else repr(value) for name, value in options.items()}
        key = kind, *map(repr, arguments[1:]), *sorted(keys.items())
        if (found := self._models.get(key)) is None:
            found = self._models.setdefault(key, kind(*arguments, **options))  # another thread may be first
            while len(self._models) > _MOST_SEARCHES:
                self._models.popitem(last=False)
        else:
            with suppress(KeyError):  # which another thread has just let go
                self._models.move_to_end(key)
        return found


def search_in_batches(
    model: keras.Model, search: Callable, arrays: dict[str, Any], max_length: int, batch_size: int, **options
) -> SearchResult:
    """A search for arrays of any number of rows, compiled for batches of few sizes.

    Args:
        model: A `Seq2Seq`.
        search, max_length, options: As of a `SearchModel`.
        arrays: The inputs of a `SearchModel`.
        batch_size: The largest number of rows searched at once.

    Returns:
        A `SearchResult` of NumPy arrays; its alignments are a list of those of each memory where there are several.
    """
    rows = len(tree.flatten(arrays)[0])
    compiled = model.searches.get(SearchModel, model, search, max_length, **options)
    found = []
    for start in range(0, rows, batch_size):
        count = min(batch_size, rows - start)
        size = min(batch_size, 1 << (count - 1).bit_length())
        places = np.minimum(np.arange(start, start + size), rows - 1)  # the last row fills the batch
        batch = tree.map_structure(lambda x, places=places: x[places], arrays)
        outputs = compiled.predict_on_batch(batch)
        check_scores(outputs["scores"][:count], model)
        if not np.isfinite(outputs["scores"][:count, 0]).all():
            _check_memory(batch, model)
        found.append({name: value[:count] for name, value in outputs.items()})
    joined = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
    lengths = joined.pop("memory_lengths", None)
    if lengths is not None and "alignments" in joined:
        parts = model.split_alignments(ops.convert_to_tensor(joined["alignments"]), lengths[0].tolist())
        joined["alignments"] = [ops.convert_to_numpy(part) for part in parts]
    return SearchResult(**{name: joined.get(name) for name in SearchResult._fields})


def _identity(function: Callable) -> tuple[int, ...]:
    """The identity of a function, whose repr another may have; of a method, which is a new object at each access."""
    if isinstance(function, MethodType):
        return id(function.__self__), id(function.__func__)
    return (id(function),)
