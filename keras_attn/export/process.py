"""Runs an export in a TensorFlow process of its own, for the JAX and torch backends and for ONNX.

The parent process publishes the files, so nothing is published after it was killed.
"""

import builtins
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from keras_attn.backend import all_layers
from keras_attn.translation import Shortlist, Translator, quantize, with_shortlist

if TYPE_CHECKING:
    from keras_attn.models import Seq2Seq

_MODEL, _PRESET, _SHORTLIST, _CALL, _ERROR = "model.keras", "preset", "shortlist.npz", "call.json", "error.json"
_IMPORTED = ("builtins", "keras", "keras_attn")  # by the process anyway


def on_tensorflow(function: Callable, subject: "Translator | Seq2Seq", *arguments: Any, int8: bool = False) -> None:
    """Calls `function(subject, *arguments)` on the TensorFlow backend in another process, without accelerators.

    Args:
        function: A function of a module that can be imported without TensorFlow.
        subject: A `keras_attn.Translator`, or a model.
        *arguments: Values that JSON has.
        int8: bool, whether the translator there multiplies in int8; see `keras_attn.quantize`.

    Raises:
        ValueError, OSError: as raised by the function, with the message and `errno`; ValueError also if a custom layer
            is defined in `__main__` or in a module that cannot be imported.
        RuntimeError: if the process fails otherwise.
    """
    is_model = isinstance(subject, keras.Model)
    call = {"modules": custom_modules(subject if is_model else subject.model), "int8": int8}
    call |= {"function": [function.__module__, function.__name__], "arguments": arguments}
    environment = {
        "KERAS_BACKEND": "tensorflow",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    with tempfile.TemporaryDirectory() as folder:
        if is_model:
            subject.save(Path(folder, _MODEL))
        else:
            subject.save_to_preset(Path(folder, _PRESET))
            if subject.shortlist is not None:
                subject.shortlist.save(Path(folder, _SHORTLIST))
        Path(folder, _CALL).write_text(json.dumps(call))
        command = [sys.executable, "-P", "-m", __name__, folder]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=os.environ | environment)
        if (error := Path(folder, _ERROR)).exists():
            kind, message, code = json.loads(error.read_text())
            raised = getattr(builtins, kind)(message)
            if isinstance(raised, OSError):
                raised.errno = code
            raise raised
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"Expected the export on TensorFlow to succeed. It ended with {done.returncode}: {last}")


def custom_modules(model: "Seq2Seq") -> list[str]:
    """The modules, other than Keras' and this package's, that define the classes in a model's config.

    Keras loads such a class only after its module was imported and has registered it.

    Raises:
        ValueError: for a class that is defined in `__main__`, which no other process can import.
    """
    classes = {(type(one).__module__, type(one).__name__) for one in all_layers(model)}  # also layers given by name

    def note(config):  # of each object in the config
        if "class_name" in config and "module" in config:
            classes.add((config["module"] or "__main__", config["class_name"]))  # Keras writes None for __main__

    json.loads(json.dumps(model.get_config()), object_hook=note)
    for module, name in sorted(classes):
        if module == "__main__":
            raise ValueError(
                "Expected custom layers to be defined in a module that can be imported, because the export runs in "
                f"another process. Received: {name}, defined in __main__. Move it into a file of its own and import it "
                "from there."
            )
    return sorted({module for module, _ in classes if module.partition(".")[0] not in _IMPORTED})


def _main(folder: str) -> None:
    call = json.loads(Path(folder, _CALL).read_text())
    try:
        for name in call["modules"]:
            importlib.import_module(name)
        if (model := Path(folder, _MODEL)).exists():
            subject = keras.saving.load_model(model, compile=False)
        else:
            subject = Translator.from_preset(Path(folder, _PRESET))
            subject = quantize(subject) if call["int8"] else subject
        if (shortlist := Path(folder, _SHORTLIST)).exists():
            subject = with_shortlist(subject, Shortlist.load(shortlist))
        module, name = call["function"]
        getattr(importlib.import_module(module), name)(subject, *call["arguments"])
    except (ValueError, OSError) as error:
        kinds = (ValueError,) if isinstance(error, ValueError) else type(error).__mro__
        kind = next(kind.__name__ for kind in kinds if kind.__module__ == "builtins")
        Path(folder, _ERROR).write_text(json.dumps([kind, str(error), getattr(error, "errno", None)]))


if __name__ == "__main__":
    _main(sys.argv[1])
