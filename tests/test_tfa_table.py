"""Each right-hand side of docs/migrating-from-tfa.md runs, and each public name of tensorflow_addons.seq2seq has one.

That `AttentionalLayer` with swapped rows is tfa's attention layer is tested on tfa's own figures in
tests/converters/test_from_tfa.py.
"""

import ast
import inspect
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from tests.converters import test_from_tfa

PAGE = (Path(__file__).parents[1] / "docs" / "migrating-from-tfa.md").read_text("utf-8")
B, S, T, E, H, M, V = 3, 5, 7, 11, 13, 17, 19
NAMES = """
    AttentionMechanism AttentionWrapper AttentionWrapperState BahdanauAttention BahdanauMonotonicAttention
    LuongAttention LuongMonotonicAttention hardmax monotonic_attention safe_cumprod BasicDecoder
    BasicDecoderOutput BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState
    FinalBeamSearchDecoderOutput gather_tree gather_tree_from_array
    tile_batch BaseDecoder Decoder dynamic_decode SequenceLoss sequence_loss CustomSampler GreedyEmbeddingSampler
    InferenceSampler SampleEmbeddingSampler Sampler ScheduledEmbeddingTrainingSampler ScheduledOutputTrainingSampler
    TrainingSampler TrainingHelper GreedyEmbeddingHelper SampleEmbeddingHelper
"""  # of 0.23.0, and the common ones of tf.contrib.seq2seq


def rows():
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("|")]
    return [(there, here) for there, here in lines if here.strip() not in ("here", "---")]


def right_hand_sides():
    return [code for _, here in rows() for code in re.findall(r"`([^`]*\(.*?\))`", here)]


def table_step(token_ids, memory, state):
    """A model that looks its logits up by position."""
    rows = ops.shape(token_ids)[0]
    logits = ops.sum(memory["logits"] * ops.one_hot(state, T)[:, :, None], axis=1)  # (R, V)
    return logits, state + 1, ops.ones((rows, S)) / S


def frame_step(frame, memory, state):
    """A decoder whose outputs are no tokens."""
    return frame + 1, state


@pytest.fixture
def names(rng):
    values, inputs = (rng.normal(size=(B, n, w)).astype("float32") for n, w in ((S, M), (T, E)))
    logits = rng.normal(size=(B, T, V)).astype("float32")
    decoder = keras_attn.AttentionDecoder(
        keras.layers.GRUCell(H), keras_attn.DotAttention(), attend="after", input_feeding=True
    )
    decoder(inputs, values[..., :H])
    return {
        **{name: getattr(keras_attn, name) for name in (*keras_attn.__all__, "layers")},
        "keras": keras,
        "ops": ops,
        "converters": keras_attn.converters,
        "units": H,
        "n": 23,
        "K": 4,
        "L": T,
        "cell": keras.layers.GRUCell(H),
        "attention": keras_attn.BahdanauAttention(5),
        "decoder": decoder,
        "scores": rng.normal(size=(B, S)).astype("float32"),
        "probabilities": rng.random((B, S)).astype("float32"),
        "previous": np.eye(S, dtype="float32")[:B],
        "c0": np.ones((B, H), "float32"),
        "s0": np.ones((B, H), "float32"),
        "mask": np.arange(S) < np.array([[2], [3], [5]]),
        "inputs": inputs,
        "values": values[..., :H],
        "step": table_step,
        "memory": {"mask": ops.ones((B, S), "bool"), "logits": ops.convert_to_tensor(logits)},
        "state": ops.zeros((B,), "int32"),
        "targets": rng.integers(0, V, (B, T)),
        "logits": logits,
        "weights": rng.random((B, T)).astype("float32"),
        "p": 0.25,
        "f": lambda output: output / 2,
        "frame_step": frame_step,
        "frames": inputs,
        "silence": np.zeros((B, E), "float32"),
    }


@pytest.mark.parametrize("code", right_hand_sides())
def test_the_right_hand_side_runs(names, code, tmp_path, monkeypatch):
    if "from_tfa" in code:
        names["model"] = test_from_tfa.MODELS["luong_lstm"]()
        (tmp_path / "training").symlink_to(test_from_tfa.PATHS["luong_lstm"])
        monkeypatch.chdir(tmp_path)
    statement = ast.parse(code).body[0]
    exec(code if isinstance(statement, ast.Assign) else f"result = {code}", names)
    result = names.get("result")
    if isinstance(result, keras_attn.AttentionDecoder):
        outputs, contexts, alignments = result(names["inputs"], names["values"])
        layers = result.attentional if isinstance(result.attentional, list) else [result.attentional]
        width = sum(23 if isinstance(layer, keras.layers.Layer) else H for layer in layers)
        assert tuple(outputs.shape) == (B, T, width)
        assert tuple(contexts.shape) == (B, T, H * len(result.attentions))
        assert tuple(alignments.shape) == (B, T, S)
    elif isinstance(result, keras.layers.Layer):
        context, alignment, _ = result(names["inputs"][..., :1].repeat(H, -1), names["values"])
        assert (tuple(context.shape), tuple(alignment.shape)) == ((B, T, H), (B, T, S))
    elif isinstance(statement, ast.Assign):
        assert tuple(names["alignments"].shape) == (B, T, S)
    else:
        assert result is not None


def test_every_name_is_there():
    left = " ".join(there for there, _ in rows())
    assert not [name for name in NAMES.split() if not re.search(rf"`{name}\b", left)]


def test_the_defaults_are_those_that_the_table_names(names):
    """With a penalty of 0 the scores are log-probabilities, as tfa's are."""
    options = inspect.signature(keras_attn.search.beam_search).parameters
    assert options["length_penalty"].default == 1
    assert options["max_length"].default is inspect.Parameter.empty
    arguments = table_step, names["memory"], names["state"]
    found = keras_attn.search.beam_search(*arguments, beam_size=4, max_length=T, length_penalty=0.0)
    np.testing.assert_allclose(ops.convert_to_numpy(found.scores), ops.convert_to_numpy(found.log_probs), rtol=1e-6)
    assert inspect.signature(keras_attn.losses.SmoothedCrossentropy).parameters["label_smoothing"].default == 0.1
