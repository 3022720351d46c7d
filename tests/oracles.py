"""The papers' equations in NumPy, one word and one unit of thought at a time. They share no code with the package."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def additive_attention(query, values, mask, W, U, v, bias=0.0):
    """Bahdanau 2015, A.1.2, row by row and word by word: query (B, H), values (B, S, M) -> context, alignment."""
    contexts, alignments = [], []
    for s, h, real in zip(query, values, mask, strict=True):
        positions = np.flatnonzero(real)
        alignment = np.zeros(len(h))
        if len(positions):
            energies = np.array([v @ np.tanh(W.T @ s + U.T @ h[j] + bias) for j in positions])
            alignment[positions] = softmax(energies)
        alignments.append(alignment)
        contexts.append(sum(a * row for a, row in zip(alignment, h, strict=True)))
    return np.array(contexts), np.array(alignments)


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


def bidirectional_gru(inputs, mask, forward, backward, reset_after):
    """(B, S, E) -> values (B, S, 2 H), final states; each direction is (kernel, recurrent_kernel, bias)."""
    units = forward[1].shape[0]
    values = np.zeros((*inputs.shape[:2], 2 * units))
    finals = np.zeros((2, len(inputs), units))
    for b, (row, real) in enumerate(zip(inputs, mask, strict=True)):
        positions = np.flatnonzero(real)
        for side, (weights, order) in enumerate(((forward, positions), (backward, positions[::-1]))):
            h = np.zeros(units)
            for j in order:
                h = gru_step(row[j], h, *weights, reset_after)
                values[b, j, side * units : (side + 1) * units] = h
            finals[side, b] = h
    return values, finals[0], finals[1]


def rnnsearch(weights, source, target):
    """Logits (B, T, V) of RNNsearch, appendix A of the paper, from weights by their Keras paths."""
    w = {path: array.astype("float64") for path, array in weights.items()}

    def gru(name):
        return tuple(w[f"{name}/{part}"] for part in ("kernel", "recurrent_kernel", "bias"))

    mask = source != 0
    embedded = w["source_embedding/embeddings"][source]
    values, _, backward = bidirectional_gru(embedded, mask, gru("encoder/forward_0"), gru("encoder/backward_0"), False)
    s = np.tanh(backward @ w["bridge/kernel"])
    W, U, v = (w[f"decoder/attention/{part}"] for part in ("query_kernel", "key_kernel", "score_vector"))
    logits = []
    for y in w["target_embedding/embeddings"][target].transpose(1, 0, 2):
        context, _ = additive_attention(s, values, mask, W, U, v)
        t = s @ w["readout/state_kernel"] + y @ w["readout/embedding_kernel"] + context @ w["readout/context_kernel"]
        t = (t + w["readout/bias"]).reshape(len(s), -1, 2).max(-1)
        logits.append(t @ w["output/kernel"] + w["output/bias"])
        x = np.concatenate([y, context], -1)
        s = np.stack([gru_step(row, h, *gru("decoder/cell"), False) for row, h in zip(x, s, strict=True)])
    return np.stack(logits, 1)


def attention_seq2seq(weights, inputs):
    """Logits (B, T, V) of the contract's two `AttentionSeq2Seq`: of frames, and of words and pairs of frames."""
    w = Weights(weights)
    names = ("kernel", "recurrent_kernel", "bias")
    ids, frames = inputs.get("encoder_token_ids"), inputs.get("frames", inputs.get("encoder_inputs"))
    s = np.zeros((len(frames), w["decoder/cell/recurrent_kernel"].shape[0]))
    if ids is None:
        mask, gru = frames.any(-1), [w[f"gru/gru_cell/{name}"] for name in names]
        memories = [(bidirectional_gru(frames, mask, gru, gru, False)[0][..., : len(gru[1])], mask, "attention")]
        entry = np.zeros((len(frames), 0))
    else:
        mask, embedded = ids != 0, w["encoder/embedding/embeddings"][ids]
        directions = ([w[f"encoder/words/{side}/{name}"] for name in names] for side in ("forward_0", "backward_0"))
        words, _, entry = bidirectional_gru(embedded, mask, *directions, False)
        even = np.pad(frames, [(0, 0), (0, frames.shape[1] % 2), (0, 0)]).reshape(len(ids), -1, 2 * frames.shape[2])
        pairs = np.tanh(even @ w["encoder/pairs/kernel"] + w["encoder/pairs/bias"])
        memories = [(words, mask, "first"), (pairs, mask[:, ::2], "second")]
        s = np.tanh(entry @ w["encoder/bridge/kernel"] + w["encoder/bridge/bias"])
    logits = []
    for token_ids in inputs["decoder_token_ids"].T:
        y = np.concatenate([w["target_embedding/embeddings"][token_ids], entry], -1)
        found = []
        for h, real, name in memories:
            own = (w[f"decoder/{name}/{part}"] for part in ("query_kernel", "key_kernel", "score_vector"))
            found.append(additive_attention(s, h, real, *own))
        contexts = [context for context, _ in found]
        cell = [w[f"decoder/cell/{name}"] for name in names]
        x = np.concatenate([y, *contexts], -1)
        s = np.stack([gru_step(row, h, *cell, False) for row, h in zip(x, s, strict=True)])
        step = np.concatenate([s, *contexts, y], -1) @ w["head/kernel"] + w["head/bias"]
        if ids is not None:  # half of the attention is on the words
            step = step + np.einsum("bs,bsv->bv", found[0][1] / 2, np.eye(step.shape[-1])[ids])
        logits.append(step)
    return np.stack(logits, 1)


def nematus(weights, source, target):
    """Logits (B, T, V) of NematusSeq2Seq (Sennrich 2017, section 2), sentence by sentence and word by word."""
    w, logits = Weights(weights), []
    W, U, v, b = (w[f"decoder/attention/{part}"] for part in ("query_kernel", "key_kernel", "score_vector", "bias"))
    for words, outputs in zip(source, target, strict=True):
        mask = np.ones((1, int((words != 0).sum())), bool)
        embedded = w.words("source", words[words != 0])[None]
        h, *_ = bidirectional_gru(embedded, mask, w.cell("encoder/forward"), w.cell("encoder/backward"), True)
        s, row = np.tanh(h[0].mean(0) @ w["bridge/kernel"] + w["bridge/bias"]), []
        for y in w.words("target", outputs):
            s = gru_step(y, s, *w.cell("decoder/cell"), True)
            (c,), _ = additive_attention(s[None], h, mask, W, U, v, b)
            s = gru_step(c, s, *w.cell("decoder/second_cell"), True)
            t = s @ w["readout/state_kernel"] + y @ w["readout/embedding_kernel"] + c @ w["readout/context_kernel"]
            row.append(w.logits(np.tanh(t + w["readout/bias"])))
        logits.append(row)
    return np.array(logits)


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


class Weights(dict):
    """Weights by their Keras paths, in float64."""

    def __init__(self, weights):
        super().__init__({path: np.asarray(array, "float64") for path, array in weights.items()})

    def cell(self, name):
        return tuple(self[f"{name}/{part}"] for part in ("kernel", "recurrent_kernel", "bias"))

    def words(self, side, row):
        return self[f"{side}_embedding/embeddings"][row]

    def logits(self, features):
        return features @ self["output/kernel"] + self["output/bias"]


def rnnencdec(weights, source, target):
    """Logits (B, T, V) of the RNN encoder-decoder (Cho 2014), sentence by sentence and word by word."""
    w, logits = Weights(weights), []
    for words, outputs in zip(source, target, strict=True):
        h = np.zeros(w["encoder/reader/recurrent_kernel"].shape[0])
        for x in w.words("source", words[words != 0]):
            h = gru_step(x, h, *w.cell("encoder/reader"), False)
        c, s = np.tanh(h @ w["decoder/context/kernel"]), np.tanh(h @ w["bridge/kernel"])
        row = []
        for y in w.words("target", outputs):
            s = gru_step(np.concatenate([y, c]), s, *w.cell("decoder/cell"), False)
            t = s @ w["readout/state_kernel"] + y @ w["readout/embedding_kernel"] + c @ w["readout/context_kernel"]
            row.append(w.logits((t + w["readout/bias"]).reshape(-1, 2).max(-1)))
        logits.append(row)
    return np.array(logits)


def lstm_stack(x, states, cells):
    """One step of stacked LSTMs: the top's h, and all states [(h, c), ...]."""
    new = []
    for (h, c), weights in zip(states, cells, strict=True):
        x, c = lstm_step(x, h, c, *weights)
        new.append((x, c))
    return x, new


def luong(weights, source, target, layers, attend=True):
    """Logits (B, T, V) of LuongSeq2Seq as it is by default: read from the end, general score, input feeding.

    Without `attend` it is LSTMSeq2Seq: the top's h goes to the output.
    """
    w, logits = Weights(weights), []
    encoder = [w.cell(f"encoder/reader/reader_{i}") for i in range(layers)]
    decoder = [w.cell(f"decoder/cell/cell_{i}") for i in range(layers)]
    for words, outputs in zip(source, target, strict=True):
        units = encoder[0][1].shape[0]
        states, memory = [(np.zeros(units), np.zeros(units))] * layers, []
        for x in w.words("source", words[words != 0])[::-1]:
            h, states = lstm_stack(x, states, encoder)
            memory.insert(0, h)
        fed, row = np.zeros(0), []
        if attend:
            fed = np.zeros(w["decoder/attentional/kernel"].shape[1])
        for y in w.words("target", outputs):
            s, states = lstm_stack(np.concatenate([y, fed]), states, decoder)
            if attend:
                alignment = softmax(np.array([h @ w["decoder/attention/kernel"] @ s for h in memory]))
                context = sum(a * h for a, h in zip(alignment, memory, strict=True))
                fed = np.tanh(np.concatenate([context, s]) @ w["decoder/attentional/kernel"])
            row.append(w.logits(fed if attend else s))
        logits.append(row)
    return np.array(logits)


def read_layer(x, step, units, backwards=False):
    """One LSTM over the words x (S, E) of a sentence, `step(x, h, c) -> h, c`: outputs (S, H)."""
    h, c, outputs = np.zeros(units), np.zeros(units), np.zeros((len(x), units))
    for j in range(len(x))[:: -1 if backwards else 1]:
        h, c = step(x[j], h, c)
        outputs[j] = h
    return outputs


def contextual_stack(y, context, states, steps, read_last=None):
    """One step of a decoder whose layers all read a context, with skips from the third on: output and states.

    `context(h)` is the context after the lowest layer's h; the lowest layer itself reads `read_last`, or if that is
    None, too, the context of its own last h.
    """
    c = context(states[0][0]) if read_last is None else read_last
    new, x = [], y
    for n, ((h, cell), step) in enumerate(zip(states, steps, strict=True)):
        new.append(step(np.concatenate([x, c]), h, cell))
        x = new[-1][0] + (x if n >= 2 else 0)
        c = context(new[0][0]) if n == 0 and read_last is not None else c
    return x, c, new


def gnmt(weights, source, target, layers=3, current=False):
    """Logits (B, T, V) of GNMT (Wu 2016, section 3), sentence by sentence; `current`: the query is the new z^1."""
    w, logits = Weights(weights), []
    parts = ("query_kernel", "key_kernel", "score_vector", "bias")
    attention = [w[f"decoder_stack/decoder/attention/{part}"] for part in parts]
    units = w["encoder/forward_0/recurrent_kernel"].shape[0]

    def step(name):
        return lambda x, h, c: lstm_step(x, h, c, *w.cell(name))

    decoder = [step("decoder_stack/decoder/cell_0"), *(step(f"decoder_stack/cell_{n}") for n in range(1, layers))]
    for words, outputs in zip(source, target, strict=True):
        x = w.words("source", words[words != 0])
        ways = [read_layer(x, step(f"encoder/{way}_0"), units, way == "backward") for way in ("forward", "backward")]
        x = np.concatenate(ways, -1)
        for n in range(1, layers):
            x = read_layer(x, step(f"encoder/forward_{n}"), units) + (x if n >= 2 else 0)

        def attend(query, memory=x):
            return additive_attention(query[None], memory[None], np.ones((1, len(memory)), bool), *attention)[0][0]

        states, row, c = [(np.zeros(units), np.zeros(units))] * layers, [], np.zeros(units)
        for y in w.words("target", outputs):
            z, c, states = contextual_stack(y, attend, states, decoder, c if current else None)
            row.append(w.logits(z))
        logits.append(row)
    return np.array(logits)


def rnmt_plus(weights, source, target, heads, layers=3):
    """Logits (B, T, V) of RNMT+ (Chen 2018, section 4), sentence by sentence and word by word."""
    w, logits = Weights(weights), []
    units = w["encoder/forward_0/recurrent_kernel"].shape[0]

    def step(name):
        cell = {path.removeprefix(f"{name}/"): array for path, array in w.items() if path.startswith(f"{name}/")}
        return lambda x, h, c: normalized_lstm_step(x, h, c, cell, True, True, output_nonlinearity=False)

    name = "decoder_stack/decoder/attention"
    kernels = [np.split(w[f"{name}/{part}_kernel"], heads, axis=1) for part in ("query", "key", "value")]
    projections = list(zip(*kernels, np.split(w[f"{name}/output_kernel"], heads), strict=True))
    W, U, v, b = (w[f"{name}/attention/{part}"] for part in ("query_kernel", "key_kernel", "score_vector", "bias"))

    def score(query, key):
        return v @ np.tanh(query @ W + key @ U + b)

    decoder = [step("decoder_stack/decoder/cell_0"), *(step(f"decoder_stack/cell_{n}") for n in range(1, layers))]
    for words, outputs in zip(source, target, strict=True):
        x = w.words("source", words[words != 0])
        for n in range(layers):
            ways = [
                read_layer(x, step(f"encoder/{way}_{n}"), units, way == "backward") for way in ("forward", "backward")
            ]
            x = np.concatenate(ways, -1) + (x if n >= 2 else 0)
        memory = x @ w["projection/kernel"]
        states, row, c = [(np.zeros(units), np.zeros(units))] * layers, [], np.zeros(units)

        def attend(query, memory=memory):
            (context,), _ = multi_head(query[None], memory, np.ones((1, len(memory)), bool), projections, score)
            return context

        for y in w.words("target", outputs):
            z, c, states = contextual_stack(y, attend, states, decoder, c)
            row.append(w.logits(np.concatenate([z, c])))
        logits.append(row)
    return np.array(logits)


def scaled_dot(query, key):
    return query @ key / np.sqrt(len(query))


def multi_head(query, values, visible, heads, score=scaled_dot):
    """Vaswani 2017, 3.2.2: query (T, E), values (S, M), visible (T, S) bool; a head is its W_q, W_k, W_v, W_o.

    The score is of a head's query (D,) and key (D,). Returns outputs (T, E) and alignments (N, T, S).
    """
    outputs, alignments = 0.0, []
    for W_q, W_k, W_v, W_o in heads:
        alignment = np.zeros(visible.shape)
        for i, row in enumerate(visible):
            js = np.flatnonzero(row)
            if len(js):
                q = query[i] @ W_q
                alignment[i, js] = softmax(np.array([score(q, values[j] @ W_k) for j in js]))
        outputs = outputs + (alignment @ (values @ W_v)) @ W_o
        alignments.append(alignment)
    return outputs, np.array(alignments)


def transformer(weights, source, target, layers, epsilon=1e-5):
    """Logits (B, T, V) of the Transformer as in the paper (normalised after each sum), sentence by sentence."""
    w = Weights(weights)

    def embed(side, row):
        x = w.words(side, row)
        width = x.shape[1]
        x = x * np.sqrt(width)
        for position in range(len(x)):
            for i in range(width):
                angle = position / 10000 ** (2 * (i // 2) / width)
                x[position, i] += np.sin(angle) if i % 2 == 0 else np.cos(angle)
        return x

    def norm(name, x):
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
        return centred / deviation * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def attend(name, x, y, visible):
        parts = [np.concatenate([w[f"{name}/{part}/kernel"], w[f"{name}/{part}/bias"][None]]) for part in QKV]
        heads = zip(*(part.transpose(1, 0, 2) for part in parts), w[f"{name}/attention_output/kernel"], strict=True)
        x, y = (np.pad(rows, ((0, 0), (0, 1)), constant_values=1) for rows in (x, y))  # a one takes the biases in
        return multi_head(x, y, visible, heads)[0] + w[f"{name}/attention_output/bias"]

    def feed_forward(name, x):
        x = np.maximum(x @ w[f"{name}_intermediate_dense/kernel"] + w[f"{name}_intermediate_dense/bias"], 0)
        return x @ w[f"{name}_output_dense/kernel"] + w[f"{name}_output_dense/bias"]

    logits = []
    for words, outputs in zip(source, target, strict=True):
        h, y = embed("source", words[words != 0]), embed("target", outputs)
        for n in range(layers):
            name, everything = f"encoder_{n}", np.ones((len(h), len(h)), bool)
            h = norm(f"{name}/self_attention_layer_norm", h + attend(f"{name}/self_attention_layer", h, h, everything))
            h = norm(f"{name}/feedforward_layer_norm", h + feed_forward(f"{name}/feedforward", h))
        for n in range(layers):
            name, earlier, all_words = f"decoder_{n}", np.tri(len(y), dtype=bool), np.ones((len(y), len(h)), bool)
            y = norm(f"{name}/self_attention_layer_norm", y + attend(f"{name}/self_attention", y, y, earlier))
            y = norm(f"{name}/cross_attention_layer_norm", y + attend(f"{name}/cross_attention", y, h, all_words))
            y = norm(f"{name}/feedforward_layer_norm", y + feed_forward(f"{name}/feedforward", y))
        logits.append(w.logits(y))
    return np.array(logits)


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


def read_layers(x, real, layers, residual=False):
    """Outputs and last states of layers, each of `(cell, backwards)` for its directions, which are put side by side.

    With `residual` a layer's inputs are added to its outputs, from the second one on.
    """
    words, finals = np.flatnonzero(real), []
    for i, directions in enumerate(layers):
        runs = [read(one, x, words[::-1] if backwards else words) for one, backwards in directions]
        outputs = np.concatenate([outputs for outputs, _ in runs], -1)
        x = outputs + x if residual and i else outputs
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


def additive_scores(w, s, h, seen=0.0):
    """e_i (S,) of Bahdanau 2015, A.1.2, with weight normalisation where there is a gain; `seen` (S, A) is added."""
    v = w["score_vector"]
    v = w["gain"] * v / np.linalg.norm(v) if "gain" in w else v
    return np.tanh(s @ w["query_kernel"] + h @ w["key_kernel"] + w.get("bias", 0.0) + seen) @ v


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
