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

from keras_attn.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__)
