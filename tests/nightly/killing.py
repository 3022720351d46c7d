"""Commands that are killed or fail, in a process that imports everything once and forks for each of them.

    python -m tests.nightly.killing

It reads a JSON object a line: `action`, the name of a function below; `folder`; and, to disturb the command, `event`,
the number of the access to a file below the folder at which it is killed, or at which an `error` of `ERRORS` is raised.
It answers with the command's `status` (negative: the signal), the number of `events` if it was not killed, and the name
of the `raised` error.
"""

import errno
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.tiny import LINES, make

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
ERRORS = {
    **{name: OSError(getattr(errno, name), os.strerror(getattr(errno, name))) for name in ("ENOSPC", "EMFILE")},
    "MemoryError": MemoryError(),
}
MODULES = ("tensorflow", "keras_attn.data", "keras_attn.models", "keras_attn.translation.translator")
MODULES += ("keras_attn.training.run", "keras_attn.export.saved_model")  # TensorFlow: Keras imports it to save a model


def save(folder: Path) -> int:
    try:
        make().save_to_preset(folder / "preset")
    except FileExistsError:
        return 2
    return 0


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


def train(folder: Path) -> int:
    from keras_attn.cli import train
    from tests.training.small_run import command_line, write_digits

    corpus = folder.parent / "corpus"
    if not corpus.exists():  # the first attempt makes it, and is not killed
        write_digits(corpus, 16, 4, 4)
    settings = ["batch_size=8", "learning_rate=0.01"]
    return train.main([*command_line(corpus, folder / "run", *settings), "--resume", "--epochs", "3"])


def export(folder: Path) -> int:
    """A small graph in the place of the translator's, and without the check."""
    import tensorflow as tf

    from keras_attn.export import export_translator, saved_model, signatures

    class Small(tf.Module):
        def __init__(self, *_):
            super().__init__()
            self.f = tf.function(lambda text: {"score": tf.strings.length(text) * 2})

        def save(self, directory):
            f = self.f.get_concrete_function(tf.TensorSpec((None,), tf.string, name="text"))
            tf.saved_model.save(self, directory, signatures={"serving_default": f})

    signatures.ServedTranslator = Small
    saved_model.check_signatures = lambda *_: None
    export_translator(make(), folder / "models", beam_size=2)
    return 0


ACTIONS = {one.__name__: one for one in (save, encode, train, export)}


def count_events(folder: str, fatal: int | None, error: str | None) -> list[int]:
    """Counts accesses to files below the folder; at number `fatal` raises the error or kills this process."""
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
                if error:
                    raise ERRORS[error]
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return counted


def attempt(action: Callable, folder: Path, event=None, error=None) -> dict:
    """Forks a process for a command, and disturbs it at the moment given."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status, raised = 70, None
        try:
            log = os.open(folder.parent / f"{folder.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            counted = count_events(str(folder), event, error)
            try:
                status = action(folder)
            except BaseException as one:
                traceback.print_exc()
                raised = type(one).__name__
            os.write(writing, json.dumps({"events": counted[0], "raised": raised}).encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = json.loads(pipe.read() or '{"events": null, "raised": null}')
    return answer | {"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}


def main() -> None:
    for module in MODULES:
        importlib.import_module(module)
    for line in sys.stdin:
        order = json.loads(line)
        action, folder = ACTIONS[order.pop("action")], Path(order.pop("folder"))
        folder.mkdir(parents=True, exist_ok=True)
        print(json.dumps(attempt(action, folder, **order)), flush=True)


if __name__ == "__main__":
    main()
