"""Export to ONNX: a translator or a model as a folder that `keras_attn.runtime` reads, checked before it appears.

    encode.onnx  encoder_token_ids (B, S) int32, or another source[, max_length () int32] -> memory_..., state_...
    step.onnx    token_ids (B,) int32, memory_..., state_... -> logits (B, V), alignment (B, S), next_state_...

B and S are free. `memory_mask` `(B, S)` bool is among the outputs; the other names are those of the model's nested
structures, joined by "_". An input that a model does not use is not there. TensorFlow makes the graphs, by tf2onnx.
"""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import tree

from keras_attn import files
from keras_attn.backend import copy_weights, without_initial_weights
from keras_attn.export.array_search import check_ids, zero_padded
from keras_attn.export.options import ExportOptions
from keras_attn.export.process import on_tensorflow
from keras_attn.export.saved_model import (
    by_name,
    check_answers,
    reference_translations,
    without_warnings_of_letters,
)
from keras_attn.models import Seq2Seq
from keras_attn.requirements import require
from keras_attn.runtime import OnnxSearch, OnnxTranslator
from keras_attn.runtime import onnx as graphs
from keras_attn.saving import QuantizedMatrix, is_quantized, manifest, quantize_matrix, rounded_model
from keras_attn.translation import Translator

OPSET = 18
_STAGED = "onnx"


def export_onnx(
    subject: Translator | Seq2Seq, directory: str | os.PathLike, samples: Any = None, *, quantize: str | None = None
) -> Path:
    """Writes `encode.onnx`, `step.onnx`, `manifest.json` and, of a translator, both tokenizers into a new folder.

    `keras_attn.runtime.OnnxTranslator` translates with them, `keras_attn.runtime.OnnxSearch` searches with those of a
    model of any source; they need neither Keras nor TensorFlow. The graphs compute in float32, whatever precision the
    model was trained in. They are made by TensorFlow, on every backend in a process of its own, which imports the
    modules that define custom layers. Before the folder appears, the runtime must find what `generate` finds, for a few
    sentences or for the samples.

    Args:
        subject: A `keras_attn.Translator`, or a `keras_attn.models.Seq2Seq`, on any backend.
        directory: The new folder.
        samples: Of a model, a few rows of its source as `generate` takes it.
        quantize: How matrices are stored: None (unchanged), "int8" or "float16". onnxruntime widens them once, when it
            loads the graphs, and computes in float32 as before.

    Returns:
        The folder.

    Raises:
        FileExistsError: if the folder exists and is not empty, or is a file.
        ImportError: if TensorFlow, tf2onnx or onnxruntime is not installed.
        ValueError: if custom layers are defined in `__main__`, the translator has a shortlist, or the runtime
            translates otherwise than `generate`.
        RuntimeError: if the model cannot be converted.
    """
    require("onnx", "tensorflow", "tf2onnx", "onnxruntime", purpose="export to ONNX")
    is_model = isinstance(subject, keras.Model)
    if is_model and samples is None:
        raise ValueError("Expected `samples` of the source of a model. Received: samples=None")
    if not is_model and subject.shortlist is not None:
        raise ValueError("Expected a translator without a shortlist for ONNX. Received: one with a shortlist")
    directory = Path(directory).absolute()
    if directory.is_file() or (directory.is_dir() and any(directory.iterdir())):
        raise _taken(directory)
    options = ExportOptions(quantize=quantize)
    check = _check_search(subject, samples, quantize) if is_model else _check_translator(subject, options)
    with files.staging(directory.parent) as temporary:
        folder = temporary / _STAGED
        on_tensorflow(write_onnx, subject, str(folder), quantize)
        check(folder)
        with contextlib.suppress(FileNotFoundError):
            directory.rmdir()  # an empty one, on which Windows moves nothing
        if not files.publish(folder, directory):
            raise _taken(directory)
    return directory


def _check_translator(translator: Translator, options: ExportOptions) -> Callable[[Path], None]:
    references = reference_translations(translator, options)

    def check(folder):
        texts = [text for text, _ in references]
        with without_warnings_of_letters():
            found = OnnxTranslator(folder).generate(texts, **options.generate_arguments())
        answers = [(translation.text, translation.score) for translation in found]
        check_answers(references, answers, translator.model.compute_dtype)

    return check


def _check_search(model: Seq2Seq, samples: Any, quantize: str | None) -> Callable[[Path], None]:
    model = rounded_model(model, quantize)
    options = {"max_length": 16, "beam_size": 4, "return_alignments": False}
    expected = model.generate(samples, n_best=4, **options)
    arrays = by_name(model.source_arrays(samples))

    def check(folder):
        found = OnnxSearch(folder).generate(arrays, **options)
        answers = zero_padded(found)[:, 0], found.scores[:, 0]
        check_ids(*answers, zero_padded(expected), expected.scores, model.compute_dtype)

    return check


def _taken(directory: Path) -> FileExistsError:
    return FileExistsError(f"Expected a new or empty folder. Received: {str(directory)!r}")


def write_onnx(subject: Translator | Seq2Seq, directory: str, quantize: str | None = None) -> None:
    """Writes all files into a new folder, on the TensorFlow backend."""
    folder = Path(directory)
    folder.mkdir()
    is_model = isinstance(subject, keras.Model)
    model = subject if is_model else subject.model
    write_graphs(in_float32(model), folder, quantize)
    properties = {"model": type(model).__name__, "parameters": model.count_params()}
    if is_model:
        properties |= {"target_special_ids": model.target_special_ids.get_config()}
    else:
        for name in manifest.TOKENIZERS:
            getattr(subject, name).save(folder / name)
        properties |= {"pointer": model.pointer, "source_length": model.source_length, **subject.length_arguments}
    manifest.write(folder / graphs.MANIFEST, graphs.SEARCH_FORMAT if is_model else graphs.FORMAT, properties)


def write_graphs(model: Seq2Seq, folder: Path, quantize: str | None = None) -> None:
    """Writes both graphs of a model, whose layers must compute in float32, into a folder."""
    import tensorflow as tf

    model = rounded_model(model, quantize)
    source = {name: model.input[name] for name in model.source_names}
    inputs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype, name) for name, x in by_name(source).items()]
    inputs += [tf.TensorSpec((), tf.int32, "max_length")]

    def encoded(*inputs):
        *arrays, max_length = inputs
        return model.encode(model.source_of(tree.pack_sequence_as(source, arrays)), max_length)

    traced = tf.function(encoded, autograph=False).get_concrete_function(*inputs)
    memory, state = traced.structured_outputs
    specs = [tf.TensorSpec(x.shape, x.dtype, name) for name, x in by_name({"memory": memory, "state": state}).items()]

    def encode(*inputs):
        memory, state = encoded(*inputs)
        return by_name({"memory": memory, "state": state})

    def step(token_ids, *arrays):
        memory, state = tree.pack_sequence_as(traced.structured_outputs, arrays)
        logits, state, alignment = model.step(token_ids, memory, state)
        outputs = {"logits": tf.cast(logits, tf.float32), "alignment": tf.cast(alignment, tf.float32)}
        return outputs | by_name({"next_state": state})

    _convert(encode, inputs, folder / graphs.ENCODE)
    _convert(step, [tf.TensorSpec((None,), tf.int32, "token_ids"), *specs], folder / graphs.STEP)
    if quantize:
        for name in (graphs.ENCODE, graphs.STEP):
            _store_quantized(folder / name, quantize)


def in_float32(model: Seq2Seq) -> Seq2Seq:
    """The model with layers that compute in float32; itself if they do."""
    if model.compute_dtype == "float32":
        return model
    float32 = keras.saving.serialize_keras_object(keras.dtype_policies.get("float32"))

    def in_float32(config):  # of each object in the config
        return float32 if config.get("class_name") == "DTypePolicy" else config

    config = json.loads(json.dumps(model.get_config()), object_hook=in_float32)
    copy = without_initial_weights(lambda: type(model).from_config(config))
    copy_weights(model, copy)
    return copy


def _convert(function: Callable, specs: list, path: Path) -> None:
    import tensorflow as tf
    import tf2onnx

    def outputs(*inputs):  # an input that is an output, too, has two names
        return {name: tf.identity(x) for name, x in function(*inputs).items()}

    tf2onnx.convert.from_function(
        tf.function(outputs, autograph=False), input_signature=specs, opset=OPSET, output_path=str(path)
    )


def _store_quantized(path: Path, quantize: str) -> None:
    """Stores the matrices of a graph, whose weights are rounded, in fewer bits.

    Each is written as the product of values and scale, which onnxruntime computes when it loads the graph, as all that
    depends on constants alone. It leaves ONNX' own DequantizeLinear in place, to be computed at each step.
    """
    import onnx
    from onnx.numpy_helper import from_array, to_array

    model = onnx.load(path)
    graph, nodes = model.graph, []
    for weight in [weight for weight in graph.initializer if is_quantized(to_array(weight))]:
        names = [f"{weight.name}/{part}" for part in ("values", "scale", "wide")]
        matrix = _quantized_again(to_array(weight), quantize)
        if np.abs(matrix.values * matrix.scale - to_array(weight)).max() > 1e-5 * np.abs(to_array(weight)).max():
            continue  # parts of several weights, of which no scale fits all
        graph.initializer.extend(map(from_array, matrix, names))
        nodes.append(onnx.helper.make_node("Cast", names[:1], names[2:], to=onnx.TensorProto.FLOAT))
        nodes.append(onnx.helper.make_node("Mul", names[1:], [weight.name]))
        graph.initializer.remove(weight)
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, path)


def _quantized_again(matrix: np.ndarray, quantize: str) -> QuantizedMatrix:
    """The numbers that a rounded matrix was rounded to; it may be a part of a weight, or transposed.

    A row of a part may lack its largest number, +-127. Its scale is the one with which all numbers are whole.
    """
    found = [quantize_matrix(matrix, quantize)]
    for axis in range(matrix.ndim) if quantize == "int8" else ():
        others = tuple(i for i in range(matrix.ndim) if i != axis)
        largest = np.abs(matrix).max(axis=others, keepdims=True)
        scale, least = np.ones_like(largest), np.inf
        for level in range(127, 0, -1):
            one = np.where(largest > 0, largest / level, 1)
            error = np.abs(matrix / one - np.rint(matrix / one)).max(axis=others, keepdims=True)
            scale, least = np.where(error < least, one, scale), np.minimum(error, least)
        found.append(QuantizedMatrix(np.rint(matrix / scale).astype("int8"), scale))
    return min(found, key=lambda one: float(np.square(one.values * one.scale - matrix).sum()))
