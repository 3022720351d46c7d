"""The variables in TensorFlow 2's files: checkpoints of objects, and SavedModels. Any backend may run beside."""

from collections import deque
from pathlib import Path
from typing import Any

_END = "/.ATTRIBUTES/VARIABLE_VALUE"
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# Lists that Keras adds to a SavedModel, through which each variable can be reached, too.
_LISTS = {"variables", "trainable_variables", "non_trainable_variables", "keras_api", "layers"}

_BOOKKEEPING = {"optimizer", "keras_api", "save_counter"}


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Reads a TensorFlow 2 checkpoint, or that of a SavedModel, without the optimizer's variables.

    Args:
        path: A checkpoint, such as "training/ckpt-3"; a folder of checkpoints, of which the last is read; or a
            SavedModel.

    Returns:
        The variables as NumPy arrays, by their paths through the objects that were saved, such as
        "decoder/rnn_cell/_cell/kernel", or by their names where those end in a list.

    Raises:
        FileNotFoundError: if there is no checkpoint.
        ValueError: if it is damaged, or of TensorFlow 1.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    prefix = _prefix(Path(path), tf)
    found = {}
    try:
        reader = tf.train.load_checkpoint(prefix)
        is_of_objects = reader.has_tensor(_GRAPH)
        if is_of_objects:
            graph = TrackableObjectGraph.FromString(reader.get_tensor(_GRAPH))
            found = {place: reader.get_tensor(key) for key, place in _places(graph).items() if reader.has_tensor(key)}
    except Exception as error:  # damaged files fail in many ways
        raise ValueError(
            f"Expected {str(path)!r} to be a checkpoint. Received: {type(error).__name__}: {error}"
        ) from error
    if not is_of_objects:
        raise ValueError(
            f"Expected a checkpoint of TensorFlow 2's objects. Received: {str(path)!r}, of a graph of TensorFlow 1"
        )
    return found


def _prefix(path: Path, tf) -> str:
    prefix = str(path)
    if (path / "saved_model.pb").is_file():
        prefix = str(path / "variables" / "variables")
    elif path.is_dir():
        prefix = tf.train.latest_checkpoint(prefix) or prefix
    prefix = prefix.removesuffix(".index")
    if not Path(f"{prefix}.index").is_file():
        raise FileNotFoundError(
            f"Expected a checkpoint, such as 'training/ckpt-3' with a file ckpt-3.index; a folder of checkpoints with "
            f"a file `checkpoint`; or a SavedModel. Received: {str(path)!r}"
        )
    return prefix


def _places(graph) -> dict[str, str]:
    """A variable's path through the objects by its key in the file; not the optimizer's."""
    paths, waiting = {0: ""}, deque([0])
    while waiting:  # the shortest path to each object
        node = waiting.popleft()
        for child in graph.nodes[node].children:
            if child.node_id not in paths and child.local_name not in _LISTS:
                paths[child.node_id] = f"{paths[node]}/{child.local_name}".strip("/")
                waiting.append(child.node_id)
    slots = {slot.slot_variable_node_id for node in graph.nodes for slot in node.slot_variables}
    places, named = {}, set()
    for i, node in enumerate(graph.nodes):
        for attribute in node.attributes:
            path = paths.get(i, attribute.checkpoint_key.removesuffix(_END))
            name = attribute.full_name.partition(":")[0]
            if attribute.name != "VARIABLE_VALUE" or i in slots or _BOOKKEEPING & set(path.split("/")):
                continue
            if path.rpartition("/")[2].isdecimal() and name not in named:  # in a list, such as "weights/3"
                path = name
            named.add(name)
            places[attribute.checkpoint_key] = path
    return places
