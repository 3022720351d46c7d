"""HardMonotonicSeq2Seq in NumPy, by enumeration: every alignment of every prefix, one after the other."""

import itertools

import numpy as np

from tests import oracles
from tests.oracles import Weights, softmax


def encoded(w, words, layers):
    """h_j (S, 2 H): both directions of each layer read both of the one below."""
    names = [[f"encoder/{name}_{layer}" for name in ("reader", "backward_reader")] for layer in range(layers)]
    ways = [[(oracles.cell(w, name, "lstm"), "backward" in name) for name in pair] for pair in names]
    return oracles.read_layers(w.words("source", words), words != 0, ways)[0]


def transition(w, state, values, k, order, monotonic, window, real=None):
    """p(a_i = j | a_{i-1} = k) of all j (S,); `real`: the words there are, or None for all."""
    places = range(len(values)) if real is None else np.flatnonzero(real)
    if order == 0:
        allowed = [j for j in places if j >= k or not monotonic]
        scores = [values[j] @ w["alignment/score/kernel"] @ state for j in allowed]
    else:
        allowed = [j for j in places if (0 if monotonic else -window) <= j - k <= window]
        logits = state @ w["alignment/state_kernel"] + values[k] @ w["alignment/memory_kernel"] + w["alignment/bias"]
        scores = [logits[j - k + (0 if monotonic else window)] for j in allowed]
    result = np.zeros(len(values))
    result[allowed] = softmax(np.array(scores))
    return result


def lattice(w, words, outputs, layers, order, monotonic, window):
    """p(y_i = v | a_i = j) (T, S, V) and p(a_i = j | a_{i-1} = k) (T, S, S)."""
    values, cell = encoded(w, words, layers), oracles.cell(w, "decoder/cell/cell_0", "lstm")
    states = cell.states
    emissions, transitions = [], []
    for y in w.words("target", outputs):
        s, states = cell.step(y, states)
        kernels = w["readout/state_kernel"], w["readout/memory_kernel"]
        features = [np.tanh(s @ kernels[0] + h @ kernels[1] + w["readout/bias"]) for h in values]
        emissions.append([softmax(w.logits(f)) for f in features])
        transitions.append([transition(w, s, values, k, order, monotonic, window) for k in range(len(values))])
    return np.array(emissions), np.array(transitions)


def paths(emissions, transitions, outputs, steps, first=0):
    """Every alignment of the first `steps` steps, and its joint probability with the symbols that are read later.

    Before the first step it is at the word `first`.
    """
    for path in itertools.product(range(emissions.shape[1]), repeat=steps):
        probability, previous = 1.0, first
        for i, j in enumerate(path):
            probability *= transitions[i, previous, j]
            if i + 1 < len(outputs) and i + 1 < steps:
                probability *= emissions[i, j, outputs[i + 1]]
            previous = j
        yield path, probability


def prefixes(emissions, transitions, outputs, first=0):
    """p(a_i = j | y_<i, x) (T, S)."""
    totals = np.zeros(transitions.shape[:2])
    for i, total in enumerate(totals):
        for path, p in paths(emissions, transitions, outputs, i + 1, first):
            total[path[-1]] += p
    return totals / totals.sum(-1, keepdims=True)


def transducer(weights, source, target, layers, order=0, monotonic=True, window=4):
    """log p(y_i | y_<i, x) (B, T, V), and p(a_i = j | y_1 .. y_{T-1}, x) (B, T, S), both summed over all alignments."""
    w, steps = Weights(weights), target.shape[1]
    log_probs, posteriors = [], np.zeros((*target.shape, source.shape[1]))
    for b, (words, outputs) in enumerate(zip(source, target, strict=True)):
        emissions, transitions = lattice(w, words[words != 0], outputs, layers, order, monotonic, window)
        log_probs.append(np.log(np.einsum("ts,tsv->tv", prefixes(emissions, transitions, outputs), emissions)))
        for path, p in paths(emissions, transitions, outputs, steps):
            posteriors[b, range(steps), path] += p
        posteriors[b] /= posteriors[b].sum(-1, keepdims=True)
    return np.array(log_probs), posteriors
