"""The papers' equations in NumPy, one word and one unit of thought at a time. They share no code with the package."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gru_step(x, h, kernel, recurrent, bias, reset_after):
    """One GRU step for one row; gates in Keras' order z, r, h; bias (3 H,) or (2, 3 H) with `reset_after`."""
    n = len(h)
    input_bias, inner_bias = bias if reset_after else (bias, np.zeros(3 * n))
    W = x @ kernel + input_bias
    Uz, Ur, Uh = recurrent[:, :n], recurrent[:, n : 2 * n], recurrent[:, 2 * n :]
    z = sigmoid(W[:n] + h @ Uz + inner_bias[:n])
    r = sigmoid(W[n : 2 * n] + h @ Ur + inner_bias[n : 2 * n])
    inner = r * (h @ Uh + inner_bias[2 * n :]) if reset_after else (r * h) @ Uh
    return z * h + (1 - z) * np.tanh(W[2 * n :] + inner)


def layer_norm(a, gain, groups, epsilon=1e-5):
    """Ba 2016, eq. 4, of each of so many equal parts of a vector."""
    parts = [(part - part.mean()) / np.sqrt(part.var() + epsilon) for part in np.split(a, groups)]
    return gain * np.concatenate(parts)


def normalized_gru_step(x, h, w, per_gate):
    """One step of a GRU with layer normalisation for one row; w: the weights of a `LayerNormGRUCell` by name."""
    groups = 3 if per_gate else 1
    inputs = layer_norm(x @ w["kernel"], w["inputs_gain"], groups) + w["bias"][0]
    inner = layer_norm(h @ w["recurrent_kernel"], w["state_gain"], groups) + w["bias"][1]
    z, r = (sigmoid(np.split(inputs, 3)[i] + np.split(inner, 3)[i]) for i in (0, 1))
    return z * h + (1 - z) * np.tanh(np.split(inputs, 3)[2] + r * np.split(inner, 3)[2])


def normalized_lstm_step(x, h, c, w, per_gate, normalize_cell, output_nonlinearity=True):
    """One step of an LSTM with layer normalisation for one row: h and c; w: as above."""
    groups = 4 if per_gate else 1
    gates = layer_norm(x @ w["kernel"], w["inputs_gain"], groups)
    gates = gates + layer_norm(h @ w["recurrent_kernel"], w["state_gain"], groups) + w["bias"]
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    shown = layer_norm(c, w["cell_gain"], 1) + w["cell_bias"] if normalize_cell else c
    return sigmoid(o) * (np.tanh(shown) if output_nonlinearity else shown), c


def score(name, s, h, j, w):
    """e_ij of a state s and the word h at place j: Luong 2015, eq. 8; Vaswani 2017, eq. 1; Graves 2014, eqs. 5, 6."""
    if name == "dot":
        return s @ h
    if name == "scaled_dot":
        return s @ h / np.sqrt(len(h))
    if name == "general":
        return w.get("scale", 1.0) * (h @ w["kernel"] @ s)
    if name == "concat":
        return w["score_vector"] @ np.tanh(w["kernel"].T @ np.concatenate([s, h]))
    if name == "cosine":
        key = w["kernel"].T @ s
        beta = np.log(1 + np.exp(w["sharpness_vector"] @ s + w["sharpness_bias"]))
        return beta * (key @ h) / np.sqrt((key @ key) * (h @ h))
    if name == "location":
        column = w["kernel"].T @ s
        return column[j] if j < len(column) else -np.inf
    raise KeyError(name)


def lstm_step(x, h, c, kernel, recurrent, bias):
    """One LSTM step for one row; gates in Keras' order i, f, c, o."""
    i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def multi_head(query, values, visible, heads):
    """Vaswani 2017, 3.2.2: query (T, E), values (S, M), visible (T, S) bool; a head is its W_q, W_k, W_v, W_o.

    Returns outputs (T, E) and alignments (N, T, S).
    """
    outputs, alignments = 0.0, []
    for W_q, W_k, W_v, W_o in heads:
        alignment = np.zeros(visible.shape)
        for i, row in enumerate(visible):
            js = np.flatnonzero(row)
            if len(js):
                q = query[i] @ W_q
                alignment[i, js] = softmax(np.array([q @ (values[j] @ W_k) for j in js]) / np.sqrt(len(q)))
        outputs = outputs + (alignment @ (values @ W_v)) @ W_o
        alignments.append(alignment)
    return outputs, np.array(alignments)


QKV = ("query", "key", "value")


def expected_monotonic(p, previous):
    """Raffel 2017, eq. 9: all ways to stop at j, from every k before it; p (S,), previous (S,)."""
    return np.array([p[j] * sum(previous[k] * np.prod(1 - p[k:j]) for k in range(j + 1)) for j in range(len(p))])


def hard_monotonic(scores, previous):
    """Raffel 2017, algorithm 1: from the last word on, the first whose score is above 0; or none."""
    alignment = np.zeros(len(scores))
    for j in range(int(previous.argmax()) if previous.any() else len(scores), len(scores)):
        if scores[j] > 0:
            alignment[j] = 1.0
            break
    return alignment


def chunkwise(alignment, energies, real, size):
    """Chiu & Raffel 2018: what stops at k goes to the real words among the `size` that end at k, by a softmax."""
    result = np.zeros(len(alignment))
    for k, share in enumerate(alignment):
        words = [j for j in range(max(0, k - size + 1), k + 1) if real[j]]
        if words:
            result[words] += share * softmax(energies[words])
    return result


def location_features(state, filters):
    """Chorowski 2015, eq. 8: state (S,), filters (K, 1, F), K odd -> (S, F), with zeros around the source."""
    half = len(filters) // 2
    padded = np.pad(state, half)
    return np.stack([padded[j : j + len(filters)] @ filters[:, 0] for j in range(len(state))])


def sparsemax(scores):
    """Martins & Astudillo 2016, eq. 3: tau by bisection."""
    low, high = scores.min() - 1, scores.max()
    for _ in range(200):
        tau = (low + high) / 2
        low, high = (tau, high) if np.maximum(scores - tau, 0).sum() > 1 else (low, tau)
    return np.maximum(scores - tau, 0)


def pointer_generator(logits, p_gen, alignment, token_ids, mask):
    """See 2017, eq. 9, one sentence: logits (T, V), p_gen (T,), alignment (T, S), ids and mask (S,) -> (T, V + S)."""
    steps, size = logits.shape
    probabilities = np.zeros((steps, size + len(token_ids)))
    for t in range(steps):
        probabilities[t, :size] = p_gen[t] * softmax(logits[t])
        for j, token_id in enumerate(token_ids):
            if mask[j]:
                probabilities[t, token_id] += (1 - p_gen[t]) * alignment[t, j]
    return probabilities


# Parts of layers, for one sentence: cells, encoders, mechanisms of attention, decoders.


class Cell(NamedTuple):
    """A recurrent cell: `step(x, states) -> output, states`, and its first states."""

    step: Callable
    states: list


def part(w, name):
    """The weights whose paths begin with a name, without it."""
    return {path.removeprefix(f"{name}/"): array for path, array in w.items() if path.startswith(f"{name}/")}


def cell(w, name, kind="gru", **options):
    """A cell by its name among the weights; `kind`: one of `steps`, whose equations are further above."""
    own = part(w, name)
    units, width = own["recurrent_kernel"].shape
    own = {"kernel": np.zeros((0, width)), "inputs_gain": np.ones(width)} | own
    bias = own.get("bias", np.zeros((2, width) if kind == "gru" else width))
    parts = own["kernel"], own["recurrent_kernel"], bias
    steps = {
        "gru": lambda x, h: [gru_step(x, h, *parts, True)],
        "paper's gru": lambda x, h: [gru_step(x, h, *parts, False)],
        "gated gru": lambda x, h: [gated_gru_step(x, h, *parts, **options)],
        "simple": lambda x, h: [np.tanh(x @ parts[0] + h @ parts[1] + bias)],
        "lstm": lambda x, h, c: lstm_step(x, h, c, *parts),
        "normalized gru": lambda x, h: [normalized_gru_step(x, h, own, **options)],
        "normalized lstm": lambda x, h, c: normalized_lstm_step(x, h, c, own, **options),
    }

    def step(x, states):
        states = list(steps[kind](x, *states))
        return states[0], states

    return Cell(step, [np.zeros(units)] * (2 if "lstm" in kind else 1))


def gated_gru_step(x, s, kernel, recurrent, bias, gate, context_width):
    """Tu 2017, section 3.2, for one row x = [y; c]: each of a GRU's three sums is weighed by the gate."""
    y, c = x[: len(x) - context_width], x[len(x) - context_width :]
    names = ("update", "reset", "candidate", "gate")
    W, C, U, b = (
        dict(zip(names, np.split(array, 4, axis=-1), strict=True))
        for array in (kernel[: len(y)], kernel[len(y) :], recurrent, bias)
    )
    g = sigmoid(y @ W["gate"] + s @ U["gate"] + c @ C["gate"] + b["gate"])
    target, source = {"source": (1, g), "target": (g, 1), "both": (1 - g, g)}[gate]

    def total(name, state):
        return target * (y @ W[name] + state @ U[name]) + source * (c @ C[name]) + b[name]

    z, r = sigmoid(total("update", s)), sigmoid(total("reset", s))
    return z * s + (1 - z) * np.tanh(total("candidate", r * s))


def deep(*cells):
    """Pascanu 2014: the first cell reads the input, the others the state alone."""

    def step(x, states):
        for one in cells:
            output, states = one.step(x, states)
            x = x[:0]
        return output, states

    return Cell(step, cells[0].states)


def stacked(*cells, first_skip=None):
    """Cells that read the outputs of the one below, to which these are added from `first_skip` on (Wu 2016)."""

    def step(x, states):
        new = []
        for i, (one, state) in enumerate(zip(cells, states, strict=True)):
            output, state = one.step(x, state)
            x = output + x if first_skip is not None and i >= first_skip else output
            new.append(state)
        return x, new

    return Cell(step, [one.states for one in cells])


def top(states):
    """h of the top layer."""
    return (states[-1] if isinstance(states[0], list) else states)[0]


def read(one, x, order):
    """Outputs (S, H) of a cell that reads words in some order, 0 at the others, and its last states."""
    outputs, states = np.zeros((len(x), len(top(one.states)))), one.states
    for j in order:
        outputs[j], states = one.step(x[j], states)
    return outputs, states


def read_layers(x, real, layers, first_skip=None):
    """Outputs and last states of layers, each of `(cell, backwards)` for its directions, which are put side by side.

    A layer's inputs are added to its outputs from the one with the number `first_skip` on.
    """
    words, finals = np.flatnonzero(real), []
    for i, directions in enumerate(layers):
        runs = [read(one, x, words[::-1] if backwards else words) for one, backwards in directions]
        outputs = np.concatenate([outputs for outputs, _ in runs], -1)
        x = outputs + x if first_skip is not None and i >= first_skip else outputs
        states = [states for _, states in runs]
        finals.append(states[0] if len(runs) == 1 else [np.concatenate(pair) for pair in zip(*states, strict=True)])
    return x, finals


def aligned(scores, real, normalizer=softmax):
    """The normalised scores of the real words, and 0 at the others."""
    alignment = np.zeros(len(scores))
    if real.any():
        alignment[real] = normalizer(np.asarray(scores)[real])
    return alignment


def hardmax(scores):
    return np.eye(len(scores))[scores.argmax()]


def additive_scores(w, s, h, seen=None):
    """e_i (S,) of Bahdanau 2015, A.1.2, which has no bias; with weight normalisation, or with `seen` (S, A), it has."""
    v = w["score_vector"]
    v = w["gain"] * v / np.linalg.norm(v) if "gain" in w else v
    added = w.get("bias", 0.0) if seen is None and "gain" not in w else w["bias"]
    return np.tanh(s @ w["query_kernel"] + h @ w["key_kernel"] + added + (0.0 if seen is None else seen)) @ v


def normalized_scores(w, s, h):
    """e_i (S,) of Ba 2016, eq. 4: state and words are normalised by themselves."""
    query = layer_norm(s @ w["query_kernel"], w["query_norm/gamma"], 1, 1e-9)
    keys = np.array([layer_norm(word @ w["key_kernel"], w["key_norm/gamma"], 1, 1e-9) for word in h])
    return np.tanh(query + keys + w["key_norm/beta"]) @ w["score_vector"]


def attends(scores, normalizer=softmax):
    """A mechanism without a state, of `scores(w, s, h) -> e_i (S,)`.

    A mechanism is `(w, s, h, real, state) -> context (M,), alignment (S,), state`; the state is at first None.
    """

    def mechanism(w, s, h, real, state=None):
        alignment = aligned(scores(w, s, h), real, normalizer)
        return alignment @ h, alignment, None

    return mechanism


def coverage(w, s, h, real, state=None, max_fertility=None):
    """See 2017, eqs. 10 and 11; with fertility Tu 2016, section 3.1."""
    state = np.zeros(len(h)) if state is None else state
    fertility = 1.0 if max_fertility is None else max_fertility * sigmoid(h @ w["fertility_vector"])
    alignment = aligned(additive_scores(w, s, h, np.outer(state / fertility, w["coverage_vector"])), real)
    return alignment @ h, alignment, state + alignment


def neural_coverage(w, s, h, real, state=None):
    """Tu 2016, section 3.1: each word has a GRU of its own, which reads h_j, s_{i-1} and alpha_ij."""
    state = np.zeros((len(h), len(w["coverage_kernel"]))) if state is None else state
    alignment = aligned(additive_scores(w, s, h, state @ w["coverage_kernel"]), real)
    step = cell(w, "coverage_cell", "paper's gru").step
    rows = zip(h, alignment, state, strict=True)
    return alignment @ h, alignment, np.array([step(np.array([*word, *s, a]), [c])[0] for word, a, c in rows])


def location_sensitive(w, s, h, real, state=None, cumulative=True, normalizer=softmax):
    """Chorowski 2015, eqs. 8 and 9; `cumulative`: Shen 2018."""
    state = np.zeros(len(h)) if state is None else state
    places = location_features(state, w["filter_kernel"]) @ w["location_kernel"]
    alignment = aligned(additive_scores(w, s, h, places), real, normalizer)
    return alignment @ h, alignment, state + alignment if cumulative else alignment


def monotonic(w, s, h, real, state=None, scores=additive_scores, hard=False, chunk_size=None):
    """Raffel 2017; with chunks Chiu & Raffel 2018."""
    state = np.eye(1, len(h))[0] if state is None else state
    e = scores(w, s, h) + w["score_bias"]
    state = hard_monotonic(np.where(real, e, -1), state) if hard else expected_monotonic(sigmoid(e) * real, state)
    alignment = state
    if chunk_size is not None:
        alignment = chunkwise(state, scores(part(w, "chunk_score"), s, h), real, chunk_size)
    return alignment @ h, alignment, state


def heads(number, mechanism):
    """Vaswani 2017, 3.2.2, with any mechanism in each head; alignments and states are (N, ...)."""

    def of_all(w, s, h, real, state=None):
        columns = [np.split(w[f"{name}_kernel"], number, axis=1) for name in QKV]
        context, alignments, states = 0.0, [], []
        for n, (W_q, W_k, W_v, W_o) in enumerate(zip(*columns, np.split(w["output_kernel"], number), strict=True)):
            before = None if state is None else state[n]
            _, alignment, after = mechanism(part(w, "attention"), s @ W_q, h @ W_k, real, before)
            context = context + (alignment @ (h @ W_v)) @ W_o
            alignments.append(alignment)
            states.append(after)
        return context, np.array(alignments), None if after is None else np.array(states)

    return of_all


def decode(
    inputs, h, real, cell, attend, order="before", second=None, vector=None, fed=None, put_out=True, behind=None
):
    """Outputs, contexts and alignments of a decoder's steps.

    Args:
        inputs: (T, E).
        h, real: (S, M), (S,).
        cell: A `Cell`.
        attend: `(s, h, real, state) -> context, alignment, state`.
        order: "before": the cell reads the context of its last state. "after", or "between" with a `second` cell that
            reads the context.
        vector: `(c, s) -> the attentional vector`, the output if it is `put_out`.
        fed: The vector before the first step, if the cell reads it.
        behind: A function of the cell's inputs.
    """
    states, memory, steps = cell.states, None, []
    behind = behind or (lambda x: x)
    for y in inputs:
        s = top(states)
        if order != "before":
            s, states = cell.step(behind(y if fed is None else np.concatenate([y, fed])), states)
        c, alignment, memory = attend(s, h, real, memory)
        if order == "before":
            s, states = cell.step(behind(np.concatenate([y, c])), states)
        if second is not None:
            s, states = second.step(c, states)
        f = s if vector is None else vector(c, s)
        fed = None if fed is None else f
        steps.append((f if put_out else s, c, alignment))
    return [np.stack(parts) for parts in zip(*steps, strict=True)]


# Models: logits (B, T, V) from weights by their Keras paths, sentence by sentence.


class Weights(dict):
    """Weights by their Keras paths, in float64."""

    def __init__(self, weights):
        super().__init__({path: np.asarray(array, "float64") for path, array in weights.items()})

    def words(self, side, row):
        return self[f"{side}_embedding/embeddings"][row]

    def logits(self, features):
        return features @ self["output/kernel"] + self["output/bias"]


def of_sentences(features):
    """A model of `features(w, x, y) -> (T, F)`, which the output layer reads, of embeddings x (S, E) and y (T, E)."""

    @functools.wraps(features)
    def model(weights, source, target, **options):
        w, rows = Weights(weights), zip(source, target, strict=True)
        pairs = [(w.words("source", words[words != 0]), w.words("target", outputs)) for words, outputs in rows]
        return np.array([w.logits(features(w, x, y, **options)) for x, y in pairs])

    return model


ADDITIVE = attends(additive_scores)


def encoded(w, x, layers, kind, first_skip=None, **options):
    """Outputs and last states of layers, each of the names of its one or two directions, of which one is backwards."""
    made = [[(cell(w, f"encoder/{name}", kind, **options), "backward" in name) for name in names] for names in layers]
    return read_layers(x, np.ones(len(x), bool), made, first_skip)


def decoded(w, y, h, state, kind="gru", mechanism=ADDITIVE, **options):
    """`decode` by the cell and the mechanism of a decoder, over a memory of real words; `state` is its first one."""
    attend = functools.partial(mechanism, part(w, "decoder/attention"))
    begun = cell(w, "decoder/cell", kind)._replace(states=[state])
    return decode(y, h, np.ones(len(h), bool), begun, attend, **options)


def read_out(w, s, y, c):
    """Bahdanau 2015, A.2.2, before maxout or tanh."""
    t = s @ w["readout/state_kernel"] + y @ w["readout/embedding_kernel"] + c @ w["readout/context_kernel"]
    return t + w["readout/bias"]


def maxout(t):
    return t.reshape(len(t), -1, 2).max(-1)


@of_sentences
def rnnsearch(w, x, y):
    """RNNsearch (Bahdanau 2015, appendix A), whose read-out has the state before each step."""
    h, (last, *_) = encoded(w, x, [["forward_0", "backward_0"]], "paper's gru")
    s = np.tanh(np.split(last[0], 2)[1] @ w["bridge/kernel"])
    after, contexts, _ = decoded(w, y, h, s, "paper's gru")
    return maxout(read_out(w, np.array([s, *after[:-1]]), y, contexts))


@of_sentences
def rnnencdec(w, x, y):
    """The RNN encoder-decoder (Cho 2014)."""
    _, ((h,),) = encoded(w, x, [["reader"]], "paper's gru")
    c = np.tanh(h @ w["decoder/context/kernel"])
    s = np.tanh(h @ w["bridge/kernel"])
    s, contexts, _ = decoded(w, y, x, s, "paper's gru", lambda *_: (c, np.zeros(1), None))
    return maxout(read_out(w, s, y, contexts))


@of_sentences
def nematus(w, x, y):
    """Sennrich 2017, section 2."""
    h, _ = encoded(w, x, [["forward", "backward"]], "gru")
    s = np.tanh(h.mean(0) @ w["bridge/kernel"] + w["bridge/bias"])
    s, contexts, _ = decoded(w, y, h, s, order="between", second=cell(w, "decoder/second_cell"))
    return np.tanh(read_out(w, s, y, contexts))


@of_sentences
def luong(w, x, y, layers, attend=True):
    """LuongSeq2Seq as it is by default: read from the end, general score, input feeding; else LSTMSeq2Seq."""
    names = ("encoder/reader/reader", "decoder/cell/cell")
    reader, begun = (stacked(*(cell(w, f"{name}_{i}", "lstm") for i in range(layers))) for name in names)
    h, states = read(reader, x, range(len(x))[::-1])
    begun, real = begun._replace(states=states), np.ones(len(x), bool)
    if not attend:
        return decode(y, h, real, begun, lambda *_: (np.zeros(0), np.zeros(1), None), order="after")[0]
    kernel, score = w["decoder/attentional/kernel"], attends(lambda w, s, h: h @ w["kernel"] @ s)
    return decode(
        *(y, h, real, begun, functools.partial(score, part(w, "decoder/attention"))),
        order="after",
        vector=lambda c, s: np.tanh(np.concatenate([c, s]) @ kernel),
        fed=np.zeros(kernel.shape[1]),
    )[0]


def decode_deep(w, y, attend, layers, kind, current, **options):
    """Outputs and contexts of layers that all read a context, with skips from the third on (Wu 2016, section 3).

    The query is the lowest layer's h: that of the step before, or if it is `current` of the same, so that this layer
    reads the context of the step before.
    """
    names = ["decoder_stack/decoder/cell_0", *(f"decoder_stack/cell_{n}" for n in range(1, layers))]
    cells, found = [cell(w, name, kind, **options) for name in names], []
    states = [one.states for one in cells]
    c = 0 * attend(states[0][0])
    for x in y:
        c = c if current else attend(states[0][0])
        for n, one in enumerate(cells):
            h, states[n] = one.step(np.concatenate([x, c]), states[n])
            x = h + (x if n >= 2 else 0)
            c = attend(h) if current and n == 0 else c
        found.append((x, c))
    return [np.array(parts) for parts in zip(*found, strict=True)]


@of_sentences
def gnmt(w, x, y, layers=3, current=False):
    """GNMT (Wu 2016, section 3)."""
    above = [[f"forward_{n}"] for n in range(1, layers)]
    h, _ = encoded(w, x, [["forward_0", "backward_0"], *above], "lstm", first_skip=2)
    own, real = part(w, "decoder_stack/decoder/attention"), np.ones(len(x), bool)
    return decode_deep(w, y, lambda s: ADDITIVE(own, s, h, real)[0], layers, "lstm", current)[0]


@of_sentences
def rnmt_plus(w, x, y, number, layers=3):
    """RNMT+ (Chen 2018, section 4), with so many heads."""
    kind = {"kind": "normalized lstm", "per_gate": True, "normalize_cell": True, "output_nonlinearity": False}
    both = [[f"forward_{n}", f"backward_{n}"] for n in range(layers)]
    memory = encoded(w, x, both, first_skip=2, **kind)[0] @ w["projection/kernel"]
    own, real = part(w, "decoder_stack/decoder/attention"), np.ones(len(x), bool)
    of_heads = heads(number, ADDITIVE)
    found = decode_deep(w, y, lambda s: of_heads(own, s, memory, real)[0], layers, current=True, **kind)
    return np.concatenate(found, -1)


@of_sentences
def transformer(w, x, y, layers, epsilon=1e-5):
    """The Transformer as in the paper (normalised after each sum)."""

    def placed(x):
        width, x = x.shape[1], x * np.sqrt(x.shape[1])
        for position, i in np.ndindex(x.shape):
            angle = position / 10000 ** (2 * (i // 2) / width)
            x[position, i] += np.sin(angle) if i % 2 == 0 else np.cos(angle)
        return x

    def norm(name, x):
        normed = [layer_norm(row, w[f"{name}/gamma"], 1, epsilon) for row in x]
        return normed + w[f"{name}/beta"]

    def attend(name, x, y, visible):
        parts = [np.concatenate([w[f"{name}/{part}/kernel"], w[f"{name}/{part}/bias"][None]]) for part in QKV]
        heads = zip(*(part.transpose(1, 0, 2) for part in parts), w[f"{name}/attention_output/kernel"], strict=True)
        x, y = (np.pad(rows, ((0, 0), (0, 1)), constant_values=1) for rows in (x, y))  # a one takes the biases in
        return multi_head(x, y, visible, heads)[0] + w[f"{name}/attention_output/bias"]

    def fed_forward(name, x):
        inner = np.maximum(x @ w[f"{name}_intermediate_dense/kernel"] + w[f"{name}_intermediate_dense/bias"], 0)
        return norm(f"{name}_layer_norm", x + inner @ w[f"{name}_output_dense/kernel"] + w[f"{name}_output_dense/bias"])

    h, y = placed(x), placed(y)
    for n in range(layers):
        name = f"encoder_{n}/self_attention_layer"
        h = norm(f"{name}_norm", h + attend(name, h, h, np.ones((len(h), len(h)), bool)))
        h = fed_forward(f"encoder_{n}/feedforward", h)
    for n in range(layers):
        for kind, other, visible in (("self", None, np.tri(len(y), dtype=bool)), ("cross", h, None)):
            name = f"decoder_{n}/{kind}_attention"
            visible = np.ones((len(y), len(h)), bool) if visible is None else visible
            y = norm(f"{name}_layer_norm", y + attend(name, y, y if other is None else other, visible))
        y = fed_forward(f"decoder_{n}/feedforward", y)
    return y


def attention_seq2seq(weights, inputs):
    """Logits (B, T, V) of the contract's two `AttentionSeq2Seq`: of frames, and of words and pairs of frames."""
    w, logits, kind = Weights(weights), [], "paper's gru"
    all_frames = inputs.get("frames", inputs.get("encoder_inputs"))
    for n, (frames, outputs) in enumerate(zip(all_frames, inputs["decoder_token_ids"], strict=True)):
        if (ids := inputs.get("encoder_token_ids", [None] * len(all_frames))[n]) is None:
            real = frames.any(-1)
            h, _ = read_layers(frames, real, [[(cell(w, "gru/gru_cell", kind), False)]])
            memories, entry = [(h, real, "attention")], np.zeros(0)
            begun = cell(w, "decoder/cell", kind)
        else:
            real, x = ids != 0, w["encoder/embedding/embeddings"][ids]
            ways = [(cell(w, f"encoder/words/{way}_0", kind), way == "backward") for way in ("forward", "backward")]
            words, (last, *_) = read_layers(x, real, [ways])
            even = np.pad(frames, [(0, len(frames) % 2), (0, 0)]).reshape(-1, 2 * frames.shape[1])
            pairs = np.tanh(even @ w["encoder/pairs/kernel"] + w["encoder/pairs/bias"])
            memories, entry = [(words, real, "first"), (pairs, real[::2], "second")], np.split(last[0], 2)[1]
            s = np.tanh(entry @ w["encoder/bridge/kernel"] + w["encoder/bridge/bias"])
            begun = cell(w, "decoder/cell", kind)._replace(states=[s])

        def attend(s, *_, memories=memories):
            found = [ADDITIVE(part(w, f"decoder/{name}"), s, h, real) for h, real, name in memories]
            return np.concatenate([context for context, *_ in found]), found[0][1], None

        y = np.concatenate([w.words("target", outputs), np.tile(entry, (len(outputs), 1))], -1)
        s, contexts, alignments = decode(y, None, None, begun, attend)
        step = np.concatenate([s, contexts, y], -1) @ w["head/kernel"] + w["head/bias"]
        # Half of the attention is on the words.
        logits.append(step if ids is None else step + alignments / 2 @ np.eye(step.shape[-1])[ids])
    return np.array(logits)
