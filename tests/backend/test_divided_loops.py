"""Loops where two devices divide a batch on JAX: devices exchange gradients after a loop, not at each of its steps."""

import json

import keras
import pytest

from tests.data_parallel import finish, start

SCRIPT = """
import json, re
import jax
import keras
import numpy as np
from keras_attn.backend import data_parallel, jax_loops, training_devices
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import LuongSeq2Seq, RNNSearch

B, S, T, VS, VT = 4, 3, 5, 11, 13

def in_loops(text):
    '''All-reduces of the computations that the bodies of the loops reach, and of the whole program.'''
    parts, name = {}, None
    for line in text.splitlines():
        if opening := re.match(r"(?:ENTRY )?%?([\\w.-]+) .*{$", line):
            name = opening[1]
            parts[name] = []
        elif name:
            parts[name].append(line)
    found, waiting = set(), re.findall(r" while\\(.*body=%?([\\w.-]+)", text)
    assert waiting
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            called = re.findall(r"%([\\w.-]+)", " ".join(parts[name]))
            waiting += [one for one in called if one in parts]
    count = lambda lines: sum(" all-reduce(" in line or " all-reduce-start(" in line for line in lines)
    return count([line for name in found for line in parts[name]]), count(text.splitlines())

def program(model):
    model.compile(keras.optimizers.SGD(0.1), SmoothedCrossentropy(0.1))
    model.optimizer.build(model.trainable_variables)
    weights = model.trainable_variables, model.non_trainable_variables
    groups = *weights, model.optimizer.variables, model.metrics_variables
    state = tuple([variable.value for variable in group] for group in groups)
    inputs = {"encoder_token_ids": np.ones((B, S), "int32"), "decoder_token_ids": np.ones((B, T), "int32")}
    batch = inputs, np.ones((B, T), "int32"), np.ones((B, T), "float32")
    layout = keras.distribution.distribution().get_data_layout((B, T))
    batch = jax.tree.map(lambda x: keras.distribution.distribute_tensor(x, layout), batch)
    return in_loops(jax.jit(model.train_step).lower(state, batch).compile().as_text())

def models():
    yield RNNSearch(VS, VT, units=5, embedding_size=7, readout_size=6, attention_units=3)
    yield LuongSeq2Seq(VS, VT, units=6, embedding_size=7, output_dropout=0.1, input_feeding=True)

with data_parallel(training_devices()):
    print(json.dumps([program(model) for model in models()]))
    jax_loops._mesh = lambda *_: None  # as XLA divides the loops by itself
    print(json.dumps([program(next(models()))]))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="on other backends nothing compiles loops for several devices"
)
def test_no_loop_waits_for_another_device():
    ((status, output, errors),) = finish(start("-c", SCRIPT))
    assert status == 0, errors
    divided, plain = (json.loads(line) for line in output.splitlines() if line.startswith("["))
    for inside, whole in divided:
        assert inside == 0
        assert whole
    assert plain[0][0], "the check sees no all-reduce where there is one"
