"""What a file of a user of tensorflow_addons or Keras 2 contains, and parts that its variables make up, as ours do."""

import re
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_attn.backend import StoredVariable, read_checkpoint
from keras_attn.requirements import require

Stored = dict[str, StoredVariable]
# Words that tell parts of one kind apart, by what they say.
_WORDS = {
    "encoder": r"encoder|source|src",
    "decoder": r"decoder|target|tgt|output_projection|readout",
    "forward": r"forward",
    "backward": r"backward",
    "attention layer": r"attention_layer|attentional",
}
_MECHANISM = {"attention_v", "attention_g", "attention_b", "attention_score_bias", "scale_weight"}


class StoredPart(NamedTuple):
    """The weights of a layer in a file.

    Attributes:
        name: Where it is, such as "decoder/rnn_cell/_cell".
        words: What its names say, of the keys of `_WORDS`.
        arrays: By the weights' names in the layer, such as "kernel", or "memory_layer/kernel" in a mechanism.
        sources: The names of its variables in the file.
    """

    name: str
    words: frozenset[str]
    arrays: dict[str, Any]
    sources: list[str]


class Part(NamedTuple):
    """A layer of ours.

    Attributes:
        name: Such as "decoder/cell/0".
        words: As in `StoredPart`.
        weights: Its variables, by the names of the file.
        query_width: H, of the decoder whose attention layer it is, else 0.
    """

    name: str
    words: frozenset[str]
    weights: dict[str, Any]
    query_width: int = 0

    def convert(self, role: str, array):
        """An array of the file as our weight: an attention layer's rows are [s ; c] there and [c ; s] here."""
        if self.query_width and role == "kernel":
            return np.concatenate([array[self.query_width :], array[: self.query_width]])  # (M + H, O)
        return array


def words_of(text: str) -> frozenset[str]:
    """What names say. Where they say both of two opposites, they say nothing of it."""
    found = {word for word, pattern in _WORDS.items() if re.search(pattern, text.lower())}
    for pair in ({"encoder", "decoder"}, {"forward", "backward"}):
        if pair <= found:
            found -= pair
    return frozenset(found)


def read_stored(path: Path) -> Stored:
    """Reads a checkpoint, a SavedModel or an ".h5" file of weights; see `from_tfa`."""
    if path.suffix in (".h5", ".hdf5"):
        return _read_h5(path)
    if path.suffix == ".keras":
        raise ValueError(
            f"Expected a checkpoint, a SavedModel or Keras 2's '.h5'. Received: {str(path)!r}. Where it can be loaded, "
            f"`model.save_weights('weights.h5')` of Keras 2 writes one."
        )
    require("tensorflow", "tensorflow", purpose="reading its checkpoints")
    return read_checkpoint(path)


def stored_parts(stored: Stored) -> list[StoredPart]:
    """The parts of a file, by the folders of its variables; a mechanism with the layers within is one part."""
    groups: dict[str, dict[str, str]] = {}
    for path in stored:
        folder, role = _place(path)
        groups.setdefault(folder, {})[role] = path
    common = _common_folder(stored)
    return [_part(folder, roles, stored, common) for folder, roles in _merged(groups).items()]


def _place(path: str) -> tuple[str, str]:
    """The folder of a variable's part, and its name there."""
    *folders, leaf = path.split("/")
    for i, folder in enumerate(folders):
        if folder in ("memory_layer", "query_layer"):
            return "/".join(folders[:i]), "/".join([*folders[i:], leaf])
    # Luong's factor has this name in the object, and the other one in the graph.
    return "/".join(folders), "attention_g" if leaf == "scale_weight" else leaf


def _merged(groups: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Unites what ".h5" keeps of a mechanism in two folders: each layer is named after the one that first called it."""
    whole: dict[str, dict[str, str]] = {}
    for folder, roles in groups.items():
        is_mechanism = any(role in _MECHANISM or role.startswith(("memory_layer", "query_layer")) for role in roles)
        other = next(
            (f for f, r in whole.items() if is_mechanism and _last(f) == _last(folder) and not r.keys() & roles.keys()),
            folder,
        )
        whole[other] = whole.get(other, {}) | roles
    for roles in whole.values():
        if "memory_layer/kernel" in roles and "kernel" in roles:  # the query layer's, built without its name
            roles["query_layer/kernel"] = roles.pop("kernel")
    return whole


def _last(folder: str) -> str:
    return folder.rpartition("/")[2]


def _part(folder: str, roles: dict[str, str], stored: Stored, common: int) -> StoredPart:
    text = " ".join(f"{path.split('/', common)[-1]} {stored[path].name}" for path in roles.values())
    arrays = {role: stored[path].value for role, path in roles.items()}
    words = words_of(text) - (set() if roles.keys() <= {"kernel", "bias"} else {"attention layer"})
    return StoredPart(folder, words, arrays, list(roles.values()))


def _common_folder(stored: Stored) -> int:
    """How many folders all variables share, whose names tell nothing apart."""
    levels = zip(*[path.split("/")[:-1] for path in stored], strict=False)
    return len(list(takewhile(lambda folders: len(set(folders)) == 1, levels)))


def _read_h5(path: Path) -> Stored:
    """The weights that Keras 2 wrote, by the layers' names and their own."""
    import h5py

    if not path.is_file():
        raise FileNotFoundError(f"Expected a file of weights. Received: {str(path)!r}, which does not exist")
    try:
        with h5py.File(path, "r") as file:
            root = file.get("model_weights", file)
            found, left = {}, path.stat().st_size
            for layer in _names(root, "layer_names"):
                for weight in _names(root[layer], "weight_names"):
                    array = root[layer][weight]
                    left -= array.nbytes
                    if left < 0 or array.external or array.is_virtual or array.file != file:
                        raise KeyError(f"{layer}/{weight} is not in the file as it is: compressed, or a link")
                    name, value = weight.partition(":")[0], np.asarray(array)
                    # A layer within another one is written twice, if it is an attribute of the model, too.
                    if name in found and not np.array_equal(found[name].value, value):
                        name = f"{layer}/{name}"
                    found[name] = StoredVariable(weight, value)
            return found
    except (OSError, KeyError, AttributeError) as error:
        raise ValueError(
            f"Expected weights as Keras 2 wrote them to '.h5'. Received: {str(path)!r}: {error}"
        ) from error


def _names(group, attribute: str) -> list[str]:
    """A list among the attributes of a group, which Keras divided where it was long."""
    if attribute in group.attrs:
        parts = [group.attrs[attribute]]
    else:
        numbered = [name for name in group.attrs if re.fullmatch(rf"{attribute}\d+", name)]
        if not numbered:
            raise KeyError(f"{group.name} has no {attribute}")
        parts = [group.attrs[f"{attribute}{i}"] for i in range(len(numbered))]
    return [name.decode() if isinstance(name, bytes) else str(name) for part in parts for name in part]
