"""Fewer nodes in a written graph. A server reads, copies and checks every node several times before it answers, and
runs those of a loop at every step.

Equal constants of a function become one: half of what TensorFlow traces is constants, most of them the -1s, 0s and 1s
of shapes. Indices are gathered as they are: `keras.ops.take` counts negative ones from the end, which is five nodes
each time, and none of ours is negative.
"""

from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

# Of no effect but their outputs, and all that is left over of a count from the end.
_SPARE = {"SelectV2", "Less", "AddV2", "Cast", "StridedSlice", "Shape", "Const"}


def slim(directory: Path) -> None:
    """Rewrites `saved_model.pb` with fewer nodes that do the same."""
    path = directory / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in saved_model.meta_graphs:
        for function in graph.graph_def.library.function:
            _merge_constants(function)
            _gather_as_is(function)
    path.write_bytes(saved_model.SerializeToString(deterministic=True))
    (directory / "fingerprint.pb").unlink(missing_ok=True)  # of the graph as it was


def _merge_constants(function) -> None:
    """Of the constants that are alike, all but the first are left out."""
    first, same = {}, {}  # by content; and the name that stands for each that goes
    for node in function.node_def:
        if node.op == "Const" and not node.input:
            content = node.attr["value"].SerializeToString(deterministic=True), node.device
            kept = first.setdefault(content, node.name)
            if kept != node.name:
                same[node.name] = kept
    nodes = [node for node in function.node_def if node.name not in same]
    for node in nodes:
        inputs = [_renamed(name, same) for name in node.input]
        data = [name for name in inputs if not name.startswith("^")]
        del node.input[:]  # data inputs first, and a control input once
        node.input.extend([*data, *dict.fromkeys(name for name in inputs if name.startswith("^"))])
    for outputs in (function.ret, function.control_ret):
        for key, name in outputs.items():
            outputs[key] = _renamed(name, same)
    _keep(function, nodes)


def _gather_as_is(function) -> None:
    """`gather(x, where(i < 0, i + n, i))` becomes `gather(x, i)`."""
    by_name = {node.name: node for node in function.node_def}

    def made_by(name: str, op: str):
        node = by_name.get(name.partition(":")[0])
        return node if node is not None and node.op == op else None

    def index(name: str) -> str:
        if (choice := made_by(name, "SelectV2")) and (less := made_by(choice.input[0], "Less")):
            zero, plain = made_by(less.input[1], "Const"), choice.input[2]
            if zero and less.input[0] == plain and not tf.make_ndarray(zero.attr["value"].tensor).any():
                return plain
        return name

    for node in function.node_def:
        if node.op == "GatherV2":
            node.input[1] = index(node.input[1])
    while spare := _unused(function):
        _keep(function, [node for node in function.node_def if node.name not in spare])


def _unused(function) -> set[str]:
    """The spare nodes whose outputs nobody reads and nobody waits for."""
    read = [name for node in function.node_def for name in node.input]
    read += [*function.ret.values(), *function.control_ret.values()]
    used = {_node(name) for name in read}
    return {node.name for node in function.node_def if node.op in _SPARE and node.name not in used}


def _keep(function, nodes) -> None:
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del function.node_def[:]
    function.node_def.extend(kept)


def _node(name: str) -> str:
    """Of an input as functions write it: `node:output:number`, or `^node` for its end alone."""
    return name.removeprefix("^").partition(":")[0]


def _renamed(name: str, same: dict[str, str]) -> str:
    node = _node(name)
    return name.replace(node, same.get(node, node), 1)
