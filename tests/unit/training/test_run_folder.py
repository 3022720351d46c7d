"""A run's folder: for one process at a time, and resumed or refused, however it was left."""

import contextlib
import json
import math
import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn import Translator, files
from keras_attn.cli import train
from keras_attn.training import callbacks, fitting, run
from tests.hostile import sentence_of
from tests.training.small_run import FINISHED, Stopped, command_line, interrupted

TINY = ["--epochs", "2", "--set", "batch_size=8", "learning_rate=0.1"]


def line(corpus, out, *more):
    return command_line(corpus, out, *TINY, *more)


@pytest.fixture(scope="module")
def begun(corpus, tmp_path_factory):
    """A run that was stopped in its second epoch."""
    out = tmp_path_factory.mktemp("runs") / "begun"
    with interrupted(1, Stopped), contextlib.suppress(Stopped):
        train.main(line(corpus, out))
    assert {path.name for path in out.iterdir()} == {"run.json", "checkpoint.npz", "history.csv"}
    return out


@pytest.fixture
def copy(begun, tmp_path):
    return Path(shutil.copytree(begun, tmp_path / "begun"))


def test_a_second_training_in_the_same_folder_is_refused_from_beginning_to_end(corpus, tmp_path, monkeypatch, capfd):
    out, codes = tmp_path / "runs" / "new", {}

    def with_a_second_one(owner, name):
        original = getattr(owner, name)

        def both(*arguments):
            if name not in codes:
                codes[name] = train.main(line(corpus, out, "--resume"))
            return original(*arguments)

        monkeypatch.setattr(owner, name, both)

    with_a_second_one(run, "refuse_taken")
    with_a_second_one(fitting, "fit")
    monkeypatch.setattr(run, "_finish", lambda *_: None)  # scores take time
    with_a_second_one(run, "_finish")
    assert train.main(line(corpus, out, "--epochs", "1")) == 0
    assert codes == {"refuse_taken": 2, "fit": 2, "_finish": 2}
    assert capfd.readouterr().err.count("no other process in") == 3
    assert {path.name for path in out.iterdir()} == {"history.csv"}, "the first went on as if alone"


def test_a_run_that_died_before_the_last_line_of_its_history_goes_on(corpus, copy):
    """Its lock and what it was writing are left."""
    (copy / files.LOCK).touch()
    (copy / f".tmp-{'a' * 32}").mkdir()
    whole = (copy / "history.csv").read_text()
    (copy / "history.csv").write_text(whole[:40])
    assert train.main(line(corpus, copy, "--resume")) == 0
    assert {path.name for path in copy.iterdir()} == FINISHED
    assert (copy / "history.csv").read_text().startswith(whole)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_other_text_of_the_same_name_is_refused(corpus, copy, tmp_path, split, capfd):
    """The same lines on each side, and so the same tokenizers, in other pairs."""
    other = Path(shutil.copytree(corpus, tmp_path / corpus.name))
    path = next(other.glob(f"{split}.*"))
    first, *lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, first, ""]))
    assert train.main(line(other, copy, "--resume")) == 2
    assert f"It was begun with another text of the split {split}." in capfd.readouterr().err


def test_another_setting_is_named_with_its_value(corpus, copy, capfd):
    epochs = json.loads((copy / "run.json").read_text())["config"]["epochs"]
    assert train.main(line(corpus, copy, "--resume", "--epochs", str(epochs + 1))) == 2
    assert f"It was begun with another epochs ({epochs})." in capfd.readouterr().err


def test_training_that_diverges_stops_at_once_and_keeps_the_last_good_state(corpus, copy, monkeypatch, capfd):
    """The weights become NaN when the second of two epochs begins."""
    on_epoch_begin, before = callbacks.TimeBudget.on_epoch_begin, (copy / "checkpoint.npz").read_bytes()

    def diverge(self, epoch, logs=None):
        for variable in self.model.trainable_variables:
            variable.assign(np.full(variable.shape, np.nan))
        on_epoch_begin(self, epoch, logs)

    monkeypatch.setattr(callbacks.TimeBudget, "on_epoch_begin", diverge)
    assert train.main(line(corpus, copy, "--resume")) == 1
    error = capfd.readouterr().err.splitlines()[-1]
    assert "Training diverged: the loss is nan in epoch 2, batch 1. " in error
    assert "checkpoint.npz' has the last state that was saved" in error
    assert not (copy / "report.json").exists()
    assert (copy / "checkpoint.npz").read_bytes() == before


def test_a_run_that_died_before_it_began_needs_no_resume(corpus, tmp_path, monkeypatch):
    out = tmp_path / "new"
    (out / f".tmp-{'a' * 32}").mkdir(parents=True)
    (out / files.LOCK).touch()
    monkeypatch.setattr(fitting, "fit", lambda *_: (_ for _ in ()).throw(ValueError("far enough")))
    assert train.main(line(corpus, out)) == 2
    assert [path.name for path in out.iterdir()] == ["run.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 99_999])
def test_a_damaged_run_json_is_named(corpus, copy, content, capfd):
    (copy / "run.json").write_bytes(content)
    before = sorted(path.name for path in copy.iterdir())
    error = sentence_of(train.main, line(corpus, copy, "--resume"), capfd)
    assert str(copy) in error
    assert "new folder" in error
    assert sorted(path.name for path in copy.iterdir()) == before


def arrays_of(path):
    with np.load(path) as file:
        return dict(file)


def state_of(arrays, **changes):
    state = json.loads(arrays["state"].tobytes()) | changes
    return {"state": np.frombuffer(json.dumps(state).encode(), "uint8")}


DAMAGES = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a bomb": lambda path: np.savez_compressed(path, **arrays_of(path) | {"model_0": np.zeros(10**6)}),
    "no state": lambda path: np.savez(path, **{k: v for k, v in arrays_of(path).items() if k != "state"}),
    "text": lambda path: np.savez(
        path, **{k: v.astype("U9") if k == "model_0" else v for k, v in arrays_of(path).items()}
    ),
    "no history": lambda path: np.savez(path, **arrays_of(path) | state_of(arrays_of(path), history=[])),
    "a wrong history": lambda path: np.savez(path, **arrays_of(path) | state_of(arrays_of(path), history=["x", 7])),
    "no score": lambda path: np.savez(path, **arrays_of(path) | state_of(arrays_of(path), best=None)),
    "a deep state": lambda path: np.savez(path, **arrays_of(path) | {"state": np.frombuffer(b"[" * 99_999, "uint8")}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_and_kept(corpus, copy, damage, capfd):
    path = copy / "checkpoint.npz"
    DAMAGES[damage](path)
    content = path.read_bytes()
    sentence = f"Expected {str(path)!r} to be a checkpoint of this run."
    assert sentence in sentence_of(train.main, line(corpus, copy, "--resume"), capfd)
    assert path.read_bytes() == content, "it may still be mended"


def test_a_perplexity_beyond_float32_is_read_again(corpus, copy):
    path = copy / "checkpoint.npz"
    arrays = arrays_of(path)
    history = json.loads(arrays["state"].tobytes())["history"]
    history[0]["val_perplexity"] = math.inf
    np.savez(path, **arrays | state_of(arrays, history=history))
    assert train.main(line(corpus, copy, "--resume")) == 0
    report = json.loads((copy / "report.json").read_text(), parse_constant=pytest.fail)
    assert report["history"]["val_perplexity"][0] is None


def test_a_dtype_that_numpy_does_not_have_is_stored_in_float32(tmp_path):
    weight = np.array([1.5, -2]).astype(keras.ops.convert_to_numpy(keras.ops.zeros(1, "bfloat16")).dtype)
    np.savez(tmp_path / "a.npz", callbacks._storable(weight), callbacks._storable(np.arange(3)))
    found = arrays_of(tmp_path / "a.npz")
    assert [(one.dtype.kind, one.tolist()) for one in found.values()] == [("f", [1.5, -2]), ("i", [0, 1, 2])]


@pytest.mark.parametrize("moment", ["finished", "exported"])
def test_a_run_that_died_in_its_export_is_exported_by_resume(corpus, copy, tmp_path, monkeypatch, moment, capfd):
    monkeypatch.chdir(tmp_path)
    exports, arguments = [], line(corpus, copy, "--resume")
    arguments.remove("--no-export")

    def export(translator, directory, **options):
        exports.append(translator)
        if len(exports) == 1:
            raise Stopped
        return Path(directory, "1")

    monkeypatch.setattr(Translator, "export", export)
    with contextlib.suppress(Stopped):
        train.main(arguments)
    assert (copy / "report.json").exists()
    report = (copy / "report.json").read_bytes()
    if moment == "finished":  # and had not yet removed the checkpoint
        (copy / "checkpoint.npz").write_bytes(b"half")
    assert train.main(arguments) == 0
    for one, other in zip(exports[0].model.get_weights(), exports[1].model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert {path.name for path in copy.iterdir()} == FINISHED
    assert (copy / "report.json").read_bytes() == report
    capfd.readouterr()
    assert train.main(arguments) == 2
    assert "nothing to resume" in capfd.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(corpus, tmp_path, monkeypatch, capfd):
    """Root writes into every folder, so the system's answer is given in its place."""

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(files, "_lock", refuse)
    assert train.main(line(corpus, tmp_path / "new")) == 1
    monkeypatch.undo()
    error = capfd.readouterr().err
    assert f"Expected a folder that can be written. Received: {str(tmp_path / 'new')!r}, Permission denied." in error
    assert list(tmp_path.iterdir()) == []
