"""Runs an export in a TensorFlow process of its own, for the JAX and torch backends and for ONNX.

The parent process publishes the files, so nothing is published after it was killed.
"""

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_attn.saving import load_preset, save_preset
from keras_attn.translation import Translator, quantize

if TYPE_CHECKING:
    from keras_attn.models import Seq2Seq

_PRESET, _ERROR = "preset", "error.pickle"
_IMPORTED = ("builtins", "keras", "keras_attn")  # by the process anyway


def on_tensorflow(function: Callable, translator: Translator, *arguments: Any, int8: bool = False) -> None:
    """Calls `function(translator, *arguments)` on the TensorFlow backend in another process, without accelerators.

    Args:
        function: A function of a module that can be imported without TensorFlow.
        translator: A `keras_attn.Translator`.
        *arguments: Can be pickled.
        int8: bool, whether the translator there multiplies in int8; see `keras_attn.quantize`.

    Raises:
        ValueError, OSError: as raised by the function; ValueError also if a custom layer is defined in `__main__` or in
            a module that cannot be imported.
        RuntimeError: if the process fails otherwise.
    """
    modules = custom_modules(translator.model)
    limits = {"max_length_ratio": translator.max_length_ratio, "max_length_constant": translator.max_length_constant}
    environment = {
        "KERAS_BACKEND": "tensorflow",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    with tempfile.TemporaryDirectory() as folder:
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        save_preset(Path(folder, _PRESET), translator.model, *tokenizers, limits)
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, folder],
            input=pickle.dumps(modules) + pickle.dumps((function, translator.shortlist, int8, arguments)),
            capture_output=True,
            env=os.environ | environment,
        )
        if (error := Path(folder, _ERROR)).exists():
            raise pickle.loads(error.read_bytes())
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"Expected the export on TensorFlow to succeed. It ended with {done.returncode}: {last}")


def custom_modules(model: "Seq2Seq") -> list[str]:
    """The modules, other than Keras' and this package's, that define the classes in a model's config.

    Keras loads such a class only after its module was imported and has registered it.

    Raises:
        ValueError: for a class that is defined in `__main__`, which no other process can import.
    """
    classes = {(type(model).__module__, type(model).__name__), *_classes(model.get_config())}
    for module, name in sorted(classes):
        if module == "__main__":
            raise ValueError(
                "Expected custom layers to be defined in a module that can be imported, because the export runs in "
                f"another process. Received: {name}, defined in __main__. Move it into a file of its own and import it "
                "from there."
            )
    return sorted({module for module, _ in classes if module.partition(".")[0] not in _IMPORTED})


def _classes(config: Any) -> Iterator[tuple[str, str]]:
    """Yields module and name of each class in a config."""
    if isinstance(config, dict):
        if "class_name" in config and "module" in config:
            yield config["module"] or "__main__", config["class_name"]  # Keras writes None for __main__
        config = list(config.values())
    if isinstance(config, (list, tuple)):
        for value in config:
            yield from _classes(value)


def _main(folder: str) -> None:
    try:
        for name in pickle.load(sys.stdin.buffer):
            importlib.import_module(name)
        function, shortlist, int8, arguments = pickle.load(sys.stdin.buffer)
        *parts, limits = load_preset(Path(folder, _PRESET))
        translator = Translator(*parts, **limits)
        translator = quantize(translator) if int8 else translator
        translator.shortlist = shortlist
        function(translator, *arguments)
    except (ValueError, OSError) as error:
        Path(folder, _ERROR).write_bytes(pickle.dumps(error))


if __name__ == "__main__":
    _main(sys.argv[1])
