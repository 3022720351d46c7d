"""Checks a SavedModel before publication: a stock server must be able to serve it, and it must not be too large."""

from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

PYTHON_OPS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
# The ops beside TensorFlow's own that a translator needs, all of them linked into the stock server.
TEXT_OPS = ("SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp")
OPTIONS = "translate_with_options"  # the only signature that may take scalars, which hold for a whole request
GRAPH_ALLOWANCE = 2**21  # bytes of the graph and the checkpoint's index, beside weights and tokenizers


def validate(directory: Path, weights_size: int, tokenizers_size: int, *, jit_compile: bool = False) -> None:
    """Checks a written SavedModel.

    Args:
        directory: The folder with `saved_model.pb`.
        weights_size, tokenizers_size: Bytes that the model's weights and the tokenizers should take.
        jit_compile: Whether the server is asked to allow XLA.

    Raises:
        ValueError: with a sentence for each fault.
    """
    saved_model = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())
    faults = [*graph_faults(saved_model, jit_compile), *size_faults(directory, weights_size, tokenizers_size)]
    if faults:
        raise ValueError(" ".join(["Expected a SavedModel that a stock server can serve.", *faults]))


def graph_faults(saved_model: saved_model_pb2.SavedModel, jit_compile: bool = False) -> list[str]:
    """A sentence for each kind of node or signature that a stock server cannot serve."""
    graphs = saved_model.meta_graphs
    functions = [function for graph in graphs for function in graph.graph_def.library.function]
    nodes = [node for graph in graphs for node in graph.graph_def.node]
    nodes += [node for function in functions for node in function.node_def]
    ops = {node.op for node in nodes}
    compiled = [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    compiled += [n.name for n in nodes if n.attr["_XlaMustCompile"].b or n.op.startswith("Xla")]
    python = sorted(ops.intersection(PYTHON_OPS))
    mutable = sorted(op for op in ops if op.startswith(("MutableHash", "MutableDense", "AnonymousMutable")))
    names = {function.signature.name for function in functions}
    foreign = sorted(op for op in ops - names - set(TEXT_OPS) - set(python) if not _is_core(op))
    placed = sorted({node.device for node in nodes if "GPU" in node.device or "TPU" in node.device})
    faults = [
        (() if jit_compile else compiled, "XLA-compiled code, which a stock server does not run"),
        (python, "calls to Python, which a server does not have"),
        (mutable, "tables that change while serving"),
        (foreign, "ops that a stock server does not link"),
        (placed, "nodes bound to an accelerator"),
    ]
    sentences = [f"It has {what}: {', '.join(names[:3])}." for names, what in faults if names]
    return sentences + [sentence for graph in graphs for sentence in _signature_faults(graph)]


def size_faults(directory: Path, weights_size: int, tokenizers_size: int) -> list[str]:
    """A sentence each if weights are stored more than once and if the folder is too large."""
    sizes = {path: path.stat().st_size for path in directory.rglob("*") if path.is_file()}
    weights = sum(size for path, size in sizes.items() if path.parent.name == "variables")
    faults = []
    # With room for the checkpoint's index and object graph, which take some bytes for each weight.
    if weights > 1.2 * weights_size + GRAPH_ALLOWANCE // 16:
        faults.append(f"Its variables take {weights:,} bytes for {weights_size:,} of weights: stored more than once.")
    whole, most = sum(sizes.values()), int(1.2 * (weights_size + tokenizers_size)) + GRAPH_ALLOWANCE
    if whole > most:
        faults.append(
            f"It takes {whole:,} bytes, more than {most:,}, the size of weights and tokenizers with some room."
        )
    return faults


def _signature_faults(graph) -> list[str]:
    if "serving_default" not in graph.signature_def:
        return ["It has no signature serving_default."]
    faults = []
    for name, signature in graph.signature_def.items():
        if name.startswith("__"):  # the loader's own, for initialization
            continue
        for tensor, info in [*signature.inputs.items(), *signature.outputs.items()]:
            shape = info.tensor_shape
            if name == OPTIONS and tensor in signature.defaults and not shape.unknown_rank and not shape.dim:
                continue
            if shape.unknown_rank or not shape.dim or shape.dim[0].size != -1:
                faults.append(f"{tensor} of its signature {name} has no free batch axis.")
    return faults


def _is_core(op: str) -> bool:
    return op.startswith("_") or hasattr(tf.raw_ops, op)
