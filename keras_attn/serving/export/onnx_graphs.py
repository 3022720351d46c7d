"""Encoding and one step of the decoder as two graphs in ONNX, by way of TensorFlow's graphs.

    encode.onnx  encoder_token_ids (B, S) int32[, max_length () int32] -> memory_..., state_...
    step.onnx    token_ids (B,) int32, memory_..., state_... -> logits (B, V), alignment (B, S), next_state_...

B and S are free. `memory_mask` `(B, S)` bool is among the outputs; the other names are those of the model's nested
structures, joined by "_". An input that a model does not use is not there.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from keras import tree

from keras_attn.backend import copy_weights, without_initial_weights
from keras_attn.models import Seq2Seq
from keras_attn.runtime import manifest

if TYPE_CHECKING:
    from keras_attn.translation import Translator

OPSET = 18
_SOURCE = tf.TensorSpec((None, None), tf.int32, name="encoder_token_ids")
_ROOM = tf.TensorSpec((), tf.int32, name="max_length")


def write_onnx(engine: "Translator", directory: Path) -> Path:
    """Writes the files of `onnx_publish.export_onnx` into a new folder, and returns it."""
    directory.mkdir()
    model, tokenizers = engine.model, (engine.source_tokenizer, engine.target_tokenizer)
    write_graphs(in_float32(model), directory)
    for name, tokenizer in zip(manifest.TOKENIZERS, tokenizers, strict=True):
        tokenizer.save(directory / name)
    limits = engine.max_length_ratio, engine.max_length_constant
    recorded = type(model).__name__, model.count_params(), model.pointer, model.source_length, *limits
    manifest.write(directory, manifest.Properties(*recorded))
    return directory


def write_graphs(model: Seq2Seq, directory: Path) -> None:
    """Writes both graphs of a model, whose layers must compute in float32, into a folder."""

    def encode(encoder_token_ids, max_length):
        return model.encode(encoder_token_ids, max_length)

    traced = tf.function(encode, autograph=False).get_concrete_function(_SOURCE, _ROOM)
    structures = traced.structured_outputs  # memory, state
    specs = [tf.TensorSpec(x.shape, x.dtype, name=name) for name, x in _both_named(structures).items()]

    def encoded(encoder_token_ids, max_length):
        return _both_named(encode(encoder_token_ids, max_length))

    def step(token_ids, *arrays):
        memory, state = tree.pack_sequence_as(structures, arrays)
        logits, state, alignment = model.step(token_ids, memory, state)
        states = {f"next_{name}": x for name, x in _named("state", state).items()}
        return {"logits": tf.cast(logits, tf.float32), "alignment": tf.cast(alignment, tf.float32), **states}

    _convert(encoded, [_SOURCE, _ROOM], directory / manifest.ENCODE)
    _convert(step, [tf.TensorSpec((None,), tf.int32, name="token_ids"), *specs], directory / manifest.STEP)


def in_float32(model: Seq2Seq) -> Seq2Seq:
    """The model with layers that compute in float32; itself if they do."""
    if model.compute_dtype == "float32":
        return model
    copy = without_initial_weights(lambda: type(model).from_config(_with_float32(model.get_config())))
    copy_weights(model, copy)
    return copy


def _with_float32(config: Any) -> Any:
    if isinstance(config, dict):
        if config.get("class_name") == "DTypePolicy":
            return keras.saving.serialize_keras_object(keras.dtype_policies.get("float32"))
        return {name: _with_float32(value) for name, value in config.items()}
    return [_with_float32(value) for value in config] if isinstance(config, (list, tuple)) else config


def _both_named(structures: tuple[Any, Any]) -> dict[str, Any]:
    memory, state = structures
    return _named("memory", memory) | _named("state", state)


def _named(kind: str, structure: Any) -> dict[str, Any]:
    """The tensors of a nested structure by name, in the order of `tree.flatten`."""
    return {"_".join(map(str, (kind, *path))): x for path, x in tree.flatten_with_path(structure)}


def _convert(function: Callable, specs: list[tf.TensorSpec], path: Path) -> None:
    import tf2onnx

    def outputs(*inputs):  # an input that is an output, too, has two names
        return {name: tf.identity(x) for name, x in function(*inputs).items()}

    tf2onnx.convert.from_function(
        tf.function(outputs, autograph=False), input_signature=specs, opset=OPSET, output_path=str(path)
    )
