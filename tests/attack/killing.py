"""Commands that are killed, in a process that imports everything once and forks for each of them.

    python -m tests.attack.killing

It reads a JSON object a line: `action`, the name of a function below; `folder`; to kill the command, `event`, the
number of the access to a file below the folder at which it kills itself, or `seconds`. It answers with the command's
`status` (negative: the signal), the number of `events` if it was not killed, and the `seconds` that it took.
"""

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
LINES = [f"w{n % 7} w{n % 11} w{n}" for n in range(40)]
CORPUS = "multi30k-tok"


def translator():
    """A tiny one with large random weights, so that no two translations are about as good."""
    import numpy as np

    from keras_attn import Tokenizer, Translator
    from keras_attn.models import RNNSearch

    random = np.random.default_rng(3)
    words, pieces = Tokenizer.train(LINES, level="word"), Tokenizer.train(LINES, vocabulary_size=290)
    sizes = {"units": 3, "embedding_size": 4, "readout_size": 4, "attention_units": 3, "decoder_units": 3}
    model = RNNSearch(words.vocabulary_size, pieces.vocabulary_size, **sizes)
    model.set_weights([random.normal(0, 0.8, weight.shape) for weight in model.get_weights()])
    return Translator(model, words, pieces)


def save(folder: Path) -> int:
    try:
        translator().save_to_preset(folder / "preset")
    except FileExistsError:
        return 2
    return 0


def save_beside(folder: Path) -> int:
    """Into a folder with other files."""
    (folder / "preset").mkdir(exist_ok=True)
    (folder / "preset" / "notes.txt").write_text("mine")
    return save(folder)


def encode(folder: Path) -> int:
    from keras_attn import ParallelDataset, Tokenizer
    from keras_attn.data import token_store

    token_store._BLOCK = 60
    tokenizer = Tokenizer.train(LINES, level="word")
    text = folder.parent / "text"
    if not text.exists():  # the first attempt makes it, and is not killed
        text.write_text("\n".join(LINES))
    ParallelDataset.from_files(text, text, tokenizer, tokenizer, folder / "cache", batch_size=8)
    return 0


def download(folder: Path) -> int:
    import hashlib

    from keras_attn.training import corpora
    from recipes import named_corpora

    os.environ["KERAS_HOME"] = str(folder / "home")
    os.environ.pop("KERAS_ATTN_DATA", None)
    upstream = folder.parent / "upstream"
    named_corpora.BASE = upstream.as_uri()
    root = upstream / "multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/tok"
    names = {"train": "train", "val": "val", "test": "test_2016_flickr"}
    is_new = not root.exists()  # the first attempt makes it, and is not killed
    root.mkdir(parents=True, exist_ok=True)
    for name in named_corpora.SHA256[CORPUS]:
        split, language = name.split(".")
        text = f"{split} {language}\n".encode()
        if is_new:
            (root / f"{names[split]}.lc.norm.tok.{language}").write_bytes(text)
        named_corpora.SHA256[CORPUS][name] = hashlib.sha256(text).hexdigest()
    return int(corpora.load(CORPUS).splits["val"] != (["val de"], ["val en"]))


def train(folder: Path) -> int:
    from keras_attn.cli import train

    corpus = folder.parent / "corpus"
    if not corpus.exists():  # the first attempt makes it, and is not killed
        corpus.mkdir()
        for split in ("train", "val", "test"):
            for language in ("de", "fr"):
                (corpus / f"{split}.{language}").write_text("\n".join(LINES[:16]) + "\n")
    sizes = ["units=3", "embedding_size=4", "readout_size=4", "attention_units=3", "decoder_units=3"]
    line = ["rnnsearch", "--corpus", str(corpus), "--source", "de", "--target", "fr", "--out", str(folder / "run")]
    line += ["--resume", "--no-export", "--beam", "1", "--epochs", "3"]
    return train.main([*line, "--set", "level=word", "batch_size=8", "learning_rate=0.01", *sizes])


def export(folder: Path) -> int:
    """A small graph in the place of the translator's, and without the check."""
    import tensorflow as tf

    from keras_attn.export import saved_model, signatures

    class Small(tf.Module):
        def __init__(self, *_):
            super().__init__()
            self.f = tf.function(lambda text: {"score": tf.strings.length(text) * 2})

        def save(self, directory):
            f = self.f.get_concrete_function(tf.TensorSpec((None,), tf.string, name="text"))
            tf.saved_model.save(self, directory, signatures={"serving_default": f})

    signatures.ServedTranslator = Small
    saved_model.check_signatures = lambda *_: None
    return export_whole(folder)


def export_whole(folder: Path) -> int:
    from keras_attn.export import export_translator

    export_translator(translator(), folder / "models", beam_size=2)
    return 0


MODULES = {
    save: ["keras_attn.translation.translator", "keras_attn.models"],
    save_beside: ["keras_attn.translation.translator", "keras_attn.models"],
    encode: ["keras_attn.data"],
    download: ["keras_attn.training.corpora"],
    train: ["keras_attn.translation.translator", "keras_attn.training.fitting", "keras_attn.training.report"],
    export: ["keras_attn.translation.translator", "keras_attn.export.saved_model"],
}


def count_events(folder: str, fatal: int | None) -> list[int]:
    """Counts accesses to files below the folder; at the one with the number `fatal` it kills this process."""
    counted = [0]

    def hook(event, arguments):
        if event not in EVENTS:
            return
        paths = [os.fspath(a) for a in arguments[:2] if isinstance(a, (str, os.PathLike))]
        # rmtree names files from the descriptor of their folder, the last argument.
        below = any(path.startswith(folder) for path in paths) or (
            event != "open" and isinstance(arguments[-1], int) and arguments[-1] >= 0 and not paths[0].startswith("/")
        )
        if below:
            counted[0] += 1
            if counted[0] == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return counted


def attempt(action: Callable, folder: Path, event: int | None = None, seconds: float | None = None) -> dict:
    """Forks a process for a command, and kills it at the moment given."""
    reading, writing = os.pipe()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            log = os.open(folder.parent / f"{folder.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            counted = count_events(str(folder), event)
            status = action(folder)
            os.write(writing, str(counted[0]).encode())
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if seconds is not None and time.monotonic() - started > seconds:
            os.kill(pid, signal.SIGKILL)
            seconds = None
        time.sleep(0.001)
    with os.fdopen(reading) as pipe:
        events = pipe.read()
    answer = {"status": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - started}
    return answer | {"events": int(events) if events else None}


def main() -> None:
    importlib.import_module("tensorflow")  # because Keras imports it to save a model
    actions = {one.__name__: one for one in MODULES}
    for line in sys.stdin:
        order = json.loads(line)
        action, folder = actions[order.pop("action")], Path(order.pop("folder"))
        for module in MODULES[action]:
            importlib.import_module(module)
        folder.mkdir(parents=True, exist_ok=True)
        print(json.dumps(attempt(action, folder, **order)), flush=True)


if __name__ == "__main__":
    main()
