"""Marian's recurrent models in NumPy, one sentence and one step at a time, from its source (`models/s2s.h`, `rnn/`).

It shares no code with the package. `tests/converters/test_from_marian.py` compares it with what Marian recorded, and
the package with both.
"""

import re

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normalized(x, gain, shift=0.0, epsilon=1e-9):
    """Layer normalisation with the population's variance (`LayerNormalizationImpl`)."""
    return gain * (x - x.mean()) / np.sqrt(((x - x.mean()) ** 2).mean() + epsilon) + shift


class Marian:
    """A model as Marian computes it.

    Args:
        path: The `.npz` file.
    """

    def __init__(self, path):
        with np.load(path, allow_pickle=False) as file:
            stored = {name: file[name] for name in file.files}
        text = stored.pop("special:model.yml").tobytes().decode().rstrip("\0")
        self.options = dict(re.findall(r"^([\w-]+): *(.*)$", text, re.M))
        self.w = {self._name(name): array.astype("float64") for name, array in stored.items()}
        self.norm = self.options["layer-normalization"] == "true"
        self.nematus = self.options["type"] == "nematus"
        self.skip = self.options["skip"] == "true"

    def _name(self, name):
        """The name in a model of type s2s."""
        if self.options["type"] == "s2s":
            return name
        name = re.sub(r"^decoder_(W|Wx)c(x?)(?=_ln|$)", r"decoder_cell2_\1\2", name)
        for pattern, other in (
            (r"^decoder_(Ux?|bx?)_nl(?=_ln|$)", r"decoder_cell2_\1"),
            (r"^decoder_(Ux?|bx?)_nl_drt_(\d+)", lambda m: f"decoder_cell{int(m[2]) + 2}_{m[1]}"),
            (r"^decoder_(Ux?|Wx?|bx?)(?=_ln|$)", r"decoder_cell1_\1"),
            (r"^encoder_(r_)?(Ux?|bx?)_drt_(\d+)", lambda m: f"encoder_bi_{m[1] or ''}cell{int(m[3]) + 1}_{m[2]}"),
            (r"^encoder_(r_)?(Ux?|Wx?|bx?|gamma\d)(?=_ln|$)", r"encoder_bi_\1\2"),
            (r"^ff_logit_(prev|lstm|ctx)_(W|b|ln_s|ln_b)$", self._readout),
            (r"^ff_logit_l1_", "decoder_ff_logit_l1_"),
            (r"^ff_logit_", "decoder_ff_logit_l2_"),
            (r"^ff_state_", "decoder_ff_state_"),
            (r"^Wemb_dec$", "decoder_Wemb"),
        ):
            renamed = re.sub(pattern, other, name)
            if renamed != name:
                return renamed
        return "encoder_Wemb" if name == "Wemb" and self.options["tied-embeddings-all"] == "false" else name

    @staticmethod
    def _readout(match):
        return f"decoder_ff_logit_l1_{match[2]}{['prev', 'lstm', 'ctx'].index(match[1])}"

    def number(self, option):
        return int(self.options[option])

    def cell(self, prefix, x, state, final=False):
        """One step of GRU or LSTM; `x` is None in a transition; `state` is (h, c)."""
        w, (h, c) = {k.removeprefix(f"{prefix}_"): v for k, v in self.w.items() if k.startswith(f"{prefix}_")}, state
        kind = self.options[f"{prefix[:3]}-cell"]
        n = len(h)
        if kind == "lstm":
            xW = 0 if x is None else x @ w["W"]
            sU = h @ w["U"]
            if self.norm:
                xW = 0 if x is None else normalized(xW, w["gamma1"][0])
                sU = normalized(sU, w["gamma2"][0])
            f, i, g, o = np.split(xW + sU + w["b"][0], 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            return sigmoid(o) * np.tanh(c), c
        bias = np.concatenate([w["b"][0], w["bx"][0]])
        U = np.concatenate([w["U"], w["Ux"]], 1)
        W = None if x is None else np.concatenate([w["W"], w["Wx"]], 1)
        inside_x, inside_s = np.zeros(3 * n), np.zeros(3 * n)
        if kind == "gru-nematus" and self.norm:
            if prefix.startswith("encoder") and x is None:
                pass  # outside
            elif final or x is None:
                inside_s, bias = bias, np.zeros(3 * n)
            else:
                inside_x, bias = bias, np.zeros(3 * n)
        xW = np.zeros(3 * n) if x is None else x @ W + inside_x
        sU = h @ U + inside_s
        if kind == "gru-nematus" and self.norm:
            parts = (slice(0, 2 * n), ""), (slice(2 * n, None), "x")
            if x is not None:
                xW = [normalized(xW[s], w[f"W{p}_lns"][0], w[f"W{p}_lnb"][0], 1e-5) for s, p in parts]
                xW = np.concatenate(xW)
            sU = np.concatenate([normalized(sU[s], w[f"U{p}_lns"][0], w[f"U{p}_lnb"][0], 1e-5) for s, p in parts])
        elif self.norm:
            xW = xW if x is None else normalized(xW, w["gamma1"][0])
            sU = normalized(sU, w["gamma2"][0])
        r, z = np.split(sigmoid(xW[: 2 * n] + sU[: 2 * n] + bias[: 2 * n]), 2)
        a, b, last = xW[2 * n :], sU[2 * n :], bias[2 * n :]
        candidate = np.tanh(a + r * (b + last)) if final else np.tanh(a + r * b + last)
        return (1 - z) * candidate + z * h, c

    def dense(self, prefix, inputs):
        """tanh of the sum of affine maps, each normalised."""
        total = 0
        for i, x in enumerate(inputs):
            number = str(i) if len(inputs) > 1 else ""
            W, b = self.w[f"{prefix}_W{number}"], self.w[f"{prefix}_b{number}"][0]
            if self.norm and self.nematus:
                gain, shift = (self.w[f"{prefix}_ln_{part}{number}"][0] for part in "sb")
                total = total + normalized(x @ W + b, gain, shift, 1e-5)
            elif self.norm:
                total = total + normalized(x @ W, self.w[f"{prefix}_gamma{number}"][0], b)
            else:
                total = total + x @ W + b
        return np.tanh(total)

    def stack(self, x, layers, backward):
        """A stack of layers, each a list of the names of its cells, over the words x (S, E)."""
        for i, cells in enumerate(layers):
            state, outputs = (np.zeros(self.number("dim-rnn")),) * 2, [None] * len(x)
            for j in reversed(range(len(x))) if backward[i] else range(len(x)):
                state = self.cell(cells[0], x[j], state)
                for cell in cells[1:]:
                    state = self.cell(cell, None, state)
                outputs[j] = state[0]
            outputs = np.array(outputs)
            x = outputs + x if self.skip and i > 0 else outputs
        return x

    def encode(self, ids):
        kind, depth, cells = (self.options["enc-type"], self.number("enc-depth"), self.number("enc-cell-depth"))
        x = self.w["Wemb" if "Wemb" in self.w else "encoder_Wemb"][ids]
        both = 1 if kind == "bi-unidirectional" else depth

        def names(direction):
            layers = []
            for i in range(1, both + 1):
                prefix = f"encoder_bi{direction}" + (f"_l{i}" if i > 1 else "")
                layers.append([prefix + (f"_cell{j}" if i > 1 or j > 1 else "") for j in range(1, cells + 1)])
            return layers

        turns = [kind == "alternating" and i % 2 == 1 for i in range(both)]
        memory = np.concatenate(
            [self.stack(x, names(""), turns), self.stack(x, names("_r"), [not turn for turn in turns])], -1
        )
        if depth > both:
            layers = [[f"encoder_l{i}_cell{j}" for j in range(1, cells + 1)] for i in range(both + 1, depth + 1)]
            memory = self.stack(memory, layers, [False] * len(layers))
        return memory

    def attention(self, memory, s):
        w, part = self.w, "decoder"
        keys, query, bias = memory @ w[f"{part}_Wc_att"], s @ w[f"{part}_W_comb_att"], w[f"{part}_b_att"][0]
        if self.norm and self.nematus:
            gains = [[w[f"{part}_{name}_{p}"][0] for p in ("lns", "lnb")] for name in ("Wc_att", "W_comb_att")]
            keys = np.array([normalized(key + bias, *gains[0], 1e-5) for key in keys])
            query = normalized(query, *gains[1], 1e-5)
        elif self.norm:
            keys = np.array([normalized(key, w[f"{part}_att_gamma1"][0], bias) for key in keys])
            query = normalized(query, w[f"{part}_att_gamma2"][0])
        else:
            keys = keys + bias
        scores = np.tanh(keys + query) @ w[f"{part}_U_att"][:, 0]
        alignment = np.exp(scores - scores.max())
        alignment /= alignment.sum()
        return alignment @ memory, alignment

    def logits(self, source, target):
        """Logits (T, V) and alignments (T, S) of ids, both with the end's."""
        memory = self.encode(source)
        start = self.dense("decoder_ff_state", [memory.mean(0)])
        base, high = self.number("dec-cell-base-depth"), self.number("dec-cell-high-depth")
        states = [(start, start)] * self.number("dec-depth")
        table = self.w["Wemb" if "Wemb" in self.w else "decoder_Wemb"]
        tied = "true" in (self.options["tied-embeddings"], self.options["tied-embeddings-all"])
        projection = table.T if tied else self.w.get("decoder_ff_logit_l2_W")
        if projection is None:
            projection = self.w["decoder_ff_logit_l2_Wt"].T
        bias = self.w.get("decoder_ff_logit_l2_b", np.zeros((1, len(table))))[0]
        logits, alignments = [], []
        for y in [np.zeros(table.shape[1]), *table[target[:-1]]]:
            state = self.cell("decoder_cell1", y, states[0])
            context, alignment = self.attention(memory, state[0])
            for i in range(2, base + 1):
                state = self.cell(f"decoder_cell{i}", context if i == 2 else None, state, final=True)
            states[0], output = state, state[0]
            for layer in range(1, len(states)):
                below, state = output, states[layer]
                for j in range(1, high + 1):
                    state = self.cell(f"decoder_l{layer + 1}_cell{j}", below if j == 1 else None, state)
                states[layer] = state
                output = state[0] + below if self.skip else state[0]
            hidden = self.dense("decoder_ff_logit_l1", [y, output, context])
            logits.append(hidden @ projection + bias)
            alignments.append(alignment)
        return np.array(logits), np.array(alignments)

    def log_prob(self, source, target):
        logits, _ = self.logits(source, target)
        normalizers = np.log(np.exp(logits).sum(-1))
        return float((logits[np.arange(len(target)), target] - normalizers).sum())
