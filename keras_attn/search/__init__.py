"""Search: from `(step, memory, state)` to token ids, scores and alignments. Knows nothing else about a model.

`greedy_search` takes the best token of every step, `beam_search` the best sequence it can prove or find,
`sample` draws. The three are pure functions, `keras.ops` only, one loop each with static
inner shapes, so that the same code runs eagerly, under `jax.jit`, under `tf.function` with and without XLA,
and in an exported graph. `score_tokens` says of given sequences what search would, without a loop.

    step(token_ids (R,), memory, state) -> logits (R, V), state, alignment (R, S)

R is B for `greedy_search`, B * K for `beam_search` and B * samples for `sample`: the hypotheses of a sentence
stand side by side on the batch axis. `memory` is repeated once, before the loop; only `state` follows the
parents.

**A row's result never depends on its batch mates or on padding**: limits, stopping and random draws are per
row.

Axes besides the package's: R rows of `step`, L longest output, C candidate tokens of a hypothesis, N
hypotheses returned. All lengths count the end token. All scores are float32.

Options do not need Keras: a command derives its flags from them, and its `--help` does not wait for Keras. The functions
are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from keras_attn.search.options import Limits, SampleOptions, SearchOptions, check_sizes

if TYPE_CHECKING:
    from keras_attn.search.beam import beam_search
    from keras_attn.search.greedy import greedy_search, sample
    from keras_attn.search.hypotheses import SearchResult, length_norm
    from keras_attn.search.scoring import score_tokens

__all__ = [
    "Limits",
    "SampleOptions",
    "SearchOptions",
    "SearchResult",
    "beam_search",
    "check_sizes",
    "greedy_search",
    "length_norm",
    "sample",
    "score_tokens",
]

_MODULES = {
    "SearchResult": "hypotheses",
    "beam_search": "beam",
    "greedy_search": "greedy",
    "length_norm": "hypotheses",
    "sample": "greedy",
    "score_tokens": "scoring",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
