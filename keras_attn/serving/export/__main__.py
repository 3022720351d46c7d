"""Exports a preset on TensorFlow: a process of its own, for ONNX and, on the other backends, for `export_translator`.

    python -m keras_attn.serving.export PRESET DIRECTORY < request.json

The request is a JSON object: `options` (of `ExportOptions`), `references`, `sentences` and `report` are arguments of
`publish.write_version`; `modules` and `path` those of `custom_modules.import_modules`; `shortlist`, where there is one,
a file of `Shortlist.save`. A request without `options` asks for ONNX (`onnx_graphs.write_onnx`). The last line of
stdout is the folder that was written. An error of the user's is one line on stderr, with the error's name, and exit
status 2. The command for people is `keras-attn export`.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from keras_attn.saving import load_preset
from keras_attn.serving.export.custom_modules import import_modules
from keras_attn.serving.export.onnx_graphs import write_onnx
from keras_attn.serving.export.options import ExportOptions
from keras_attn.serving.export.publish import write_version
from keras_attn.serving.export.python_process import REFUSALS, REFUSED
from keras_attn.translation import Shortlist, Translator


def main(folder: str, directory: str) -> int:
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    request = json.load(sys.stdin)
    try:
        import_modules(request.pop("modules"), request.pop("path"))
        options = request.pop("options", None)  # of a SavedModel
        *parts, limits = load_preset(folder)
        engine = Translator(*parts, **limits)
        if request.pop("int8", False):
            from keras_attn.translation import quantize

            engine = quantize(engine)
        if path := request.pop("shortlist", None):
            engine.shortlist = Shortlist.load(path)
        if options is None:
            print(write_onnx(engine, Path(directory)))
        else:
            print(write_version(engine, directory, ExportOptions(**options), **request))
    except tuple(REFUSALS.values()) as error:
        name = next(name for name, kind in REFUSALS.items() if isinstance(error, kind))
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        return REFUSED
    return 0


def _end_with(parent: int) -> None:
    """Ends this process when the one that started it was killed, so that nothing is published after that."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
