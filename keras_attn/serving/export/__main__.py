"""The command that a process on another backend runs, on TensorFlow, to export its translator.

    python -m keras_attn.serving.export PRESET DIRECTORY < request.json

The request is `{"options": {...}, "version": int or null, "examples": [...], "sentences": [...], "report":
{...}}`, the arguments of `publish.write_version`. The version folder is printed on the last line of stdout. What
was refused is one line on stderr, with status 2 and the error's name. People use `keras_attn.cli.export` or
`Translator.export`.
"""

import json
import sys

from keras_attn.serving.export.options import Options
from keras_attn.serving.export.publish import write_version
from keras_attn.serving.export.self_check import REFUSALS, REFUSED
from keras_attn.translator import Translator


def main(preset: str, directory: str) -> int:
    request = json.load(sys.stdin)
    try:
        request["options"] = Options(**request["options"])
        print(write_version(Translator.from_preset(preset), directory, **request))
    except tuple(REFUSALS.values()) as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
