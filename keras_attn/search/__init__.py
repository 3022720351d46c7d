"""Search: from `(step, memory, state)` to token ids, scores and alignments. It knows nothing else about a model.

`greedy_search` takes the best token at each step, `beam_search` the best sequence that it can find, and `sample` draws
tokens at random. The three are pure functions with `keras.ops` only, one loop each with static inner shapes, so that
the same code runs eagerly, under `jax.jit`, under `tf.function` with and without XLA, and in an exported graph.
`score_tokens` gives the scores of given sequences, without a loop.

    step(token_ids (R,), memory, state) -> logits (R, V), state, alignment (R, S)

R is B for `greedy_search`, B * K for `beam_search` and B * samples for `sample`: the hypotheses of a sentence
are side by side on the batch axis. `memory` is repeated once, before the loop; only `state` is reordered by parent.

**A row's result never depends on its batch mates or on padding**: limits, stopping and random draws are per
row.

Axes besides the package's: R rows of `step`, L longest output, C candidate tokens of a hypothesis, N
hypotheses returned, n tokens of a shortlist. All lengths count the end token. All scores are float32.

The options do not need Keras, so that a command can derive its flags from them and print its `--help` without waiting
for Keras. The functions are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from keras_attn.search.options import (
    Limits,
    SampleOptions,
    SearchOptions,
    check_numbers,
    check_sizes,
    length_norm,
    option,
)

if TYPE_CHECKING:
    from keras_attn.search.beam import beam_search, run_beam_search, start_beam_search
    from keras_attn.search.greedy import greedy_search
    from keras_attn.search.records import SearchResult
    from keras_attn.search.sampling import sample
    from keras_attn.search.scoring import score_tokens

__all__ = [
    "Limits",
    "SampleOptions",
    "SearchOptions",
    "SearchResult",
    "beam_search",
    "check_numbers",
    "check_sizes",
    "greedy_search",
    "length_norm",
    "option",
    "run_beam_search",
    "sample",
    "score_tokens",
    "start_beam_search",
]

_MODULES = {
    "SearchResult": "records",
    "beam_search": "beam",
    "greedy_search": "greedy",
    "run_beam_search": "beam",
    "sample": "sampling",
    "score_tokens": "scoring",
    "start_beam_search": "beam",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
