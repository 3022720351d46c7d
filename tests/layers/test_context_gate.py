"""The context gate: Tu 2017's equations in NumPy, the plain GRU at the gate's limits, and decoders."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.layers.recurrence import project, recurrence
from tests import oracles

pytestmark = pytest.mark.by_turns

B, T, S, E, M, H = 2, 3, 4, 5, 7, 11
GATES = ["source", "target", "both"]


def built(gate, width=E + M):
    cell = ka.ContextGateCell(H, gate=gate)
    cell.build((B, width))
    for i, weight in enumerate(cell.weights):
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i))
    return cell


def run(cell, y, context, state):
    """One step, as a decoder runs it."""
    y, context, state = (ops.convert_to_tensor(x) for x in (y, context, state))
    output, (state,) = recurrence(cell, M)(project(cell, y) if y.shape[1] else None, context, [state])
    assert output is state
    return ops.convert_to_numpy(output)


def gated_gru(gate, kernel, recurrent, bias, y, context, s):
    """Tu 2017, section 3.2, for one row: f is a GRU, each of whose three sums is weighed."""
    (W, C), names = (kernel[: len(y)], kernel[len(y) :]), ("update", "reset", "candidate", "gate")
    W, C, U, b = ({n: x[..., i * H : (i + 1) * H] for i, n in enumerate(names)} for x in (W, C, recurrent, bias))
    g = oracles.sigmoid(y @ W["gate"] + s @ U["gate"] + context @ C["gate"] + b["gate"])
    target, source = {"source": (1, g), "target": (g, 1), "both": (1 - g, g)}[gate]

    def total(name, state):
        return target * (y @ W[name] + state @ U[name]) + source * (context @ C[name]) + b[name]

    z, r = oracles.sigmoid(total("update", s)), oracles.sigmoid(total("reset", s))
    return z * s + (1 - z) * np.tanh(total("candidate", r * s))


@pytest.fixture
def arrays(rng):
    return [rng.normal(size=(B, width)).astype("float32") for width in (E, M, H)]


@pytest.mark.parametrize("embedding", [E, 0], ids=["before", "between"])
@pytest.mark.parametrize("gate", GATES)
def test_follows_the_equations(arrays, gate, embedding):
    y, context, state = arrays
    y = y[:, :embedding]
    cell = built(gate, embedding + M)
    weights = [ops.convert_to_numpy(w).astype("float64") for w in cell.weights]
    rows = zip(y, context, state, strict=True)
    expected = [gated_gru(gate, *weights, *row) for row in rows]
    np.testing.assert_allclose(run(cell, y, context, state), expected, atol=1e-5)


@pytest.mark.parametrize(("gate", "bias"), [("source", 50.0), ("target", 50.0)])
def test_an_open_gate_is_a_plain_gru(arrays, gate, bias):
    cell = built(gate)
    weights = [ops.convert_to_numpy(w) for w in cell.weights]
    cell.bias.assign(np.concatenate([weights[2][: 3 * H], np.full(H, bias)]))
    plain = [w[..., : 3 * H].astype("float64") for w in weights]
    rows = zip(np.concatenate(arrays[:2], axis=1), arrays[2], strict=True)
    expected = [oracles.gru_step(x, s, *plain, False) for x, s in rows]
    np.testing.assert_allclose(run(cell, *arrays), expected, atol=1e-5)


def test_at_its_limits_both_reads_one_side_alone(arrays):
    y, context, state = arrays
    cell = built("both")
    for limit, unread in ((50.0, (0 * y, context, state)), (-50.0, (y, 0 * context, state))):
        cell.bias.assign(np.concatenate([np.zeros(3 * H), np.full(H, limit)]))
        np.testing.assert_allclose(run(cell, *arrays), run(cell, *unread), atol=1e-6)


def test_config_and_mistakes():
    cell = ka.ContextGateCell(H, gate="target", recurrent_initializer="he_normal")
    assert ka.ContextGateCell.from_config(cell.get_config()).get_config() == cell.get_config()
    with pytest.raises(ValueError, match=r"one of source, target, both\. Received: gate='context'"):
        ka.ContextGateCell(H, gate="context")
    with pytest.raises(ValueError, match="`units` to be a positive whole number"):
        ka.ContextGateCell(0)
    with pytest.raises(ValueError, match=r"Expected arguments among: units, gate, .*Received: gates"):
        ka.ContextGateCell(H, gates="both")
    with pytest.raises(ValueError, match=r"Expected no `recurrent_dropout` with a `context_gate`"):
        ka.models.RNNSearch(31, 37, units=5, context_gate="both", recurrent_dropout=0.1)
    encoder = ka.RNNEncoder(ka.ContextGateCell(H))
    with pytest.raises(ValueError, match=r"AttentionDecoder` that gives it the context.*Received: inputs without"):
        encoder(np.ones((B, S, E), "float32"))
