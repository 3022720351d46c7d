"""Helpers of the search tests: two small models with a NumPy twin, brute force, and each mode of a backend.

Axes are distinct primes: B 3, S 13, V 7, L 5, H 17; K and N as given.
"""

import itertools

import keras
import numpy as np
from keras import ops, tree

from keras_attn.search import SearchResult

B, S, V, L = 3, 13, 7, 5
PAD, UNKNOWN, START, END = 0, 1, 2, 3
CONTENT = (1, 4, 5, 6)  # the tokens that a hypothesis may contain besides the end token
EVERYTHING = 347  # a beam that prunes nothing: at most 4^4 hypotheses and 4^4 endings at any step
MODES = {"tensorflow": ("eager", "graph", "xla"), "jax": ("jit",), "torch": ("eager",)}[keras.backend.backend()]


def compiled_tensors(function, mode=MODES[0]):
    """Runs `function` of arrays in one of the backend's modes; returns its tensors."""
    if mode == "jit":
        import jax

        # These tests spend nearly all their time on compilation.
        run = jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})
    elif mode in ("graph", "xla"):
        import tensorflow as tf

        run = tf.function(function, jit_compile=mode == "xla")
    else:
        run = function

    return lambda *arrays: run(*tree.map_structure(ops.convert_to_tensor, arrays))


def compiled(function, mode=MODES[0]):
    """Runs a search of arrays in one of the backend's modes; returns arrays."""
    run = compiled_tensors(function, mode)

    def call(*arrays):
        result = run(*arrays)
        return SearchResult(*(None if x is None else ops.convert_to_numpy(x) for x in result))

    return call


def run(search, model, mode=MODES[0], **options):
    """The result of a search with a model, of at most L tokens unless the options say otherwise."""
    options = {"max_length": L, **options}
    return compiled(lambda memory, state: search(model.step, memory, state, **options), mode)(model.memory, model.state)


# Two models. Search calls `step`; `logits_and_alignments` gives the oracle the same in NumPy.


class TableModel:
    """The next token depends on the previous one and its position; every row has its own tables."""

    def __init__(self, seed=0, batch=B, source=S, scale=2.0):
        random = np.random.default_rng(seed)
        lengths = random.integers(1, source + 1, batch)
        self.memory = {
            "mask": np.arange(source) < lengths[:, None],
            "logits": random.normal(0, scale, (batch, L, V, V)).astype("float32"),
            "attention": random.normal(0, 2, (batch, L, V, source)).astype("float32"),
        }
        self.state = {"position": np.zeros(batch, "int32")}

    @staticmethod
    def step(token_ids, memory, state):
        flat = state["position"] * V + token_ids  # (R,)
        logits = ops.reshape(memory["logits"], (-1, L * V, V))
        scores = ops.reshape(memory["attention"], (-1, L * V, ops.shape(memory["mask"])[1]))
        logits = ops.take_along_axis(logits, flat[:, None, None], axis=1)[:, 0]  # (R, V)
        scores = ops.take_along_axis(scores, flat[:, None, None], axis=1)[:, 0]  # (R, S)
        alignment = ops.softmax(ops.where(memory["mask"], scores, -1e9))
        return logits, {"position": ops.minimum(state["position"] + 1, L - 1)}, alignment

    def logits_and_alignments(self, row, tokens):
        """The logits and the alignment of each step of a sequence. (T, V), (T, S)."""
        previous = [START, *tokens[:-1]]
        where = range(len(tokens)), previous
        scores = np.where(self.memory["mask"][row], self.memory["attention"][row][where], -1e9)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return self.memory["logits"][row][where], weights / weights.sum(-1, keepdims=True)


class RecurrentModel:
    """h' = tanh(E y + h W + memory), logits = h' O: the result depends on the whole history, and so on parents."""

    def __init__(self, seed=0, units=17):
        random = np.random.default_rng(seed)
        self.embeddings = random.normal(size=(V, units)).astype("float32")
        self.recurrent = (random.normal(size=(units, units)) / 3).astype("float32")
        self.output = (random.normal(size=(units, V)) / 2).astype("float32")
        self.attention = random.normal(size=(units, S)).astype("float32")
        self.memory = {
            "mask": np.arange(S) < np.array([[13], [7], [2]]),
            "bias": random.normal(size=(B, units)).astype("float32"),
        }
        self.state = [{"h": random.normal(size=(B, units)).astype("float32")}, ()]

    def step(self, token_ids, memory, state):
        embedded = ops.take(ops.convert_to_tensor(self.embeddings), token_ids, axis=0)
        h = ops.tanh(embedded + ops.matmul(state[0]["h"], self.recurrent) + memory["bias"])
        scores = ops.where(memory["mask"], ops.matmul(h, self.attention), -1e9)
        return ops.matmul(h, self.output), [{"h": h}, ()], ops.softmax(scores)

    def logits_and_alignments(self, row, tokens):
        h, logits, alignments = self.state[0]["h"][row].astype("float64"), [], []
        for token in [START, *tokens[:-1]]:
            h = np.tanh(self.embeddings[token] + h @ self.recurrent + self.memory["bias"][row])
            weights = np.exp(h @ self.attention) * self.memory["mask"][row]
            logits.append(h @ self.output)
            alignments.append(weights / weights.sum())
        return np.array(logits), np.array(alignments)


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    highest = logits.max(-1, keepdims=True)
    return logits - highest - np.log(np.exp(logits - highest).sum(-1, keepdims=True))


def score(log_prob, alignment, mask, normalization, length_penalty, coverage_penalty):
    length = len(alignment)
    norm = {"gnmt": ((5 + length) / 6) ** length_penalty, "average": length**length_penalty, "none": 1}
    covered = np.minimum(alignment.sum(0)[mask], 1)
    return log_prob / norm[normalization] + coverage_penalty * np.log(covered).sum()


def allowed(tokens, longest, shortest, prefix, banned, ngram):
    """Whether a whole sequence (end token last) is one that search may return."""
    if len(tokens) > longest or len(tokens) < min(shortest, longest):
        return False
    if list(tokens[: len(prefix)]) != list(prefix) or set(tokens[len(prefix) :]) & set(banned):
        return False
    if not ngram:
        return True
    grams = [tuple(tokens[i : i + ngram]) for i in range(len(tokens) - ngram + 1)]
    return len(set(grams)) == len(grams)


def brute_force(
    model, row, options, longest=L, shortest=1, prefix=(), banned=(), ngram=0, content=CONTENT, has_end=True
):
    """All V^T sequences, scored and sorted: [(score, tokens, token log-probabilities, alignment)].

    Without an end token each has the longest length.
    """
    found = []
    for length in range(L) if has_end else [longest]:
        for body in itertools.product(content, repeat=length):
            tokens = [*body, END] if has_end else list(body)
            if not allowed(tokens, longest, shortest, prefix, banned, ngram):
                continue
            logits, alignment = model.logits_and_alignments(row, tokens)
            log_probs = log_softmax(logits)[range(len(tokens)), tokens]
            mask = model.memory["mask"][row]
            found.append((score(log_probs.sum(), alignment, mask, **options), tokens, log_probs, alignment))
    return sorted(found, key=lambda x: -x[0])


def check_against(result, row, expected, atol=1e-4):
    """The n-best of `row` are the first of the `expected` ones, field by field, and there are no others."""
    assert not result.lengths[row, len(expected) :].any()
    assert np.all(result.scores[row, len(expected) :] == -np.inf)
    for n, (best, tokens, log_probs, alignment) in enumerate(expected[: result.scores.shape[1]]):
        length = len(tokens)
        assert result.token_ids[row, n].tolist() == tokens + [0] * (L - length), (row, n)
        assert result.lengths[row, n] == length
        np.testing.assert_allclose(result.scores[row, n], best, atol=atol)
        np.testing.assert_allclose(result.log_probs[row, n], log_probs.sum(), atol=atol)
        np.testing.assert_allclose(result.token_log_probs[row, n, :length], log_probs, atol=atol)
        assert not result.token_log_probs[row, n, length:].any()
        if result.alignments is not None:
            np.testing.assert_allclose(result.alignments[row, n, :length], alignment, atol=atol)
            assert not result.alignments[row, n, length:].any()


def options_of(normalization="gnmt", length_penalty=1.0, coverage_penalty=0.0):
    return {
        "normalization": normalization,
        "length_penalty": length_penalty,
        "coverage_penalty": coverage_penalty,
    }
