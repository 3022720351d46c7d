"""Callbacks and schedules of a run: rates, the best and averaged weights, the end of training."""

import io
import os
import signal
import types

import keras
import numpy as np
import pytest

from keras_attn.training import Terminated, callbacks, config
from keras_attn.training.callbacks import Stopping, TimeBudget, Validation
from keras_attn.training.progress import Progress
from keras_attn.training.schedules import ConstantThenLinear, InverseSquareRoot, schedule
from keras_attn.training.termination import Termination
from keras_attn.translation import Translation
from recipes import rnnsearch
from tests import tiny


def test_inverse_square_root_is_the_papers():
    """Vaswani 2017, eq. 3, with H = 512 and 4,000 steps of warm-up."""
    result = InverseSquareRoot(512**-0.5 * 4000**-0.5, 4000)
    steps = np.array([1, 100, 4000, 16000, 100000])
    expected = 512**-0.5 * np.minimum(steps**-0.5, steps * 4000**-1.5)
    np.testing.assert_allclose([float(result(step - 1)) for step in steps], expected, rtol=1e-5)
    again = InverseSquareRoot.from_config(result.get_config())
    assert float(again(7)) == float(result(7))
    chosen = rnnsearch.Config(warmup_steps=5, schedule="inverse_sqrt")
    assert isinstance(schedule(chosen, 100), InverseSquareRoot)
    with pytest.raises(ValueError, match="Expected `schedule`"):
        config.override(chosen, ["schedule=cosine"])


@pytest.mark.filterwarnings("ignore:No installed font")
def test_tensorboard_has_scores_texts_and_alignments(tmp_path):
    pytest.importorskip("tensorboard")
    pytest.importorskip("tensorflow")
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
    from tensorboard.util.tensor_util import make_ndarray

    from keras_attn.training.progress import SampleBoard

    translator = tiny.make()
    found = translator.generate(tiny.LINES[:1], beam_size=1)
    own = types.SimpleNamespace(translator=translator, sources=tiny.LINES, references=tiny.LINES)
    own.sample_translations = [*found, Translation("")]
    board = SampleBoard(tmp_path, own)
    assert own.samples == 3
    translator.model.compile("sgd", "mse")
    board.set_model(translator.model)
    board.on_train_begin()
    board.on_epoch_end(4, {"loss": 2.5, "val_bleu": 7.5})
    board.on_train_end()
    events = EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    runs = {run: events.GetAccumulator(run) for run in events.Runs()}
    scalars = runs["validation"].Tensors("epoch_bleu")
    assert [(one.step, make_ndarray(one.tensor_proto).item()) for one in scalars] == [(4, 7.5)]
    assert set(runs["samples"].Tags()["tensors"]) == {"sample 1", "sample 2", "alignment 1"}
    (text,) = runs["samples"].Tensors("sample 1")
    assert f"translation {found[0].text}" in make_ndarray(text.tensor_proto).item().decode()
    (picture,) = runs["samples"].Tensors("alignment 1")
    assert make_ndarray(picture.tensor_proto)[2].startswith(b"\x89PNG")


def test_schedule_warms_up_stays_and_falls():
    schedule = ConstantThenLinear(0.5, total_steps=100, hold_fraction=0.6, warmup_steps=10)
    rates = [float(schedule(step)) for step in (0, 4, 9, 10, 60, 80, 99, 100, 120)]
    np.testing.assert_allclose(rates, [0.05, 0.25, 0.5, 0.5, 0.5, 0.25, 0.0125, 0, 0], atol=1e-6)
    again = ConstantThenLinear.from_config(schedule.get_config() | {"accumulation_steps": 3})
    assert [float(again(3 * step + batch)) for step in (4, 80) for batch in range(3)] == [
        float(schedule(step)) for step in (4, 80) for _ in range(3)
    ]


class FakeTranslator:
    """Translates correctly in the epochs whose entry in `scores` is true; records the weights that it sees."""

    def __init__(self, model, scores):
        self.model, self.scores, self.seen = model, list(scores), []

    def generate(self, sources, **options):
        self.seen.append(self.model.get_weights()[0].copy())
        text = "a b c d e" if self.scores.pop(0) else "z"
        return [types.SimpleNamespace(text=text) for _ in sources]


def fit_line(scores, patience=9, epochs=4, average_checkpoints=0, wrapper=lambda optimizer: optimizer, **optimizer):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=wrapper(keras.optimizers.SGD(0.1, **optimizer)), loss="mse")
    translator = FakeTranslator(model, scores)
    options = {"tokenize": "13a", "patience": patience, "average_checkpoints": average_checkpoints}
    callback = Validation(translator, ["x"], ["a b c d e"], metric="bleu", **options)
    after = []
    keep = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: after.append(model.get_weights()[0]))
    x = np.ones((5, 3), "float32")
    history = model.fit(x, x[:, :2] * 3, epochs=epochs, callbacks=[callback, keep], verbose=0, batch_size=5)
    if average_checkpoints:
        history.averaged = callback.choose_average()
    return model, translator.seen, after, history


@pytest.mark.parametrize("is_good", [True, False])
def test_the_mean_of_the_last_weights_is_kept_if_it_scores_no_worse(is_good):
    model, seen, _, history = fit_line([False, True, False, False, is_good], average_checkpoints=3)
    mean = np.mean(seen[1:4], axis=0)
    np.testing.assert_allclose(seen[4], mean, rtol=1e-6)
    np.testing.assert_allclose(model.get_weights()[0], mean if is_good else seen[1], rtol=1e-6)
    assert history.averaged["averaged_checkpoints"] == {
        "number": 3,
        "val_bleu": 100.0 if is_good else 0.0,
        "is_kept": is_good,
    }


def test_the_best_weights_come_back_when_patience_ends_training():
    model, seen, _, history = fit_line([False, True] + [False] * 9, patience=2, epochs=10)
    assert len(seen) == 4
    np.testing.assert_array_equal(model.get_weights()[0], seen[1])
    assert history.history["val_bleu"][1] > history.history["val_bleu"][0]


@pytest.mark.parametrize("wrapper", [lambda optimizer: optimizer, keras.optimizers.LossScaleOptimizer])
def test_averaged_weights_are_validated_and_kept_but_not_trained(wrapper):
    plain = fit_line([False, False, True, False])[1]
    model, seen, after, _ = fit_line([False, False, True, False], wrapper=wrapper, use_ema=True, ema_momentum=0.5)
    np.testing.assert_allclose(after, plain, rtol=1e-5)  # training itself is not changed
    average = plain[0]
    for epoch in range(1, 3):  # one step an epoch
        average = 0.5 * average + 0.5 * plain[epoch]
    np.testing.assert_allclose(seen[2], average, rtol=1e-5)
    np.testing.assert_allclose(model.get_weights()[0], average, rtol=1e-5)


def test_a_run_is_not_stopped_one_batch_before_the_end_of_an_epoch():
    class Batches:
        first = 1

        def __len__(self):
            return 3

        def number(self, batch):
            return batch

    saved = []
    job = types.SimpleNamespace(count=1, rank=0, stop_together=lambda wish: wish)
    checkpoint = types.SimpleNamespace(job=job, history=[], path="x", save_within_epoch=saved.append)
    termination = Termination()
    termination.requested = True
    callback = Stopping(99, termination, types.SimpleNamespace(is_over=False), checkpoint, Batches())
    callback.set_model(types.SimpleNamespace(stop_training=False))
    callback.on_train_batch_end(1)
    assert saved == []
    with pytest.raises(Terminated, match="after batch 2 of epoch 1"):
        callback.on_train_batch_end(0)
    assert saved == [2]


def test_the_second_interrupt_is_an_error_at_once():
    def interrupted_twice(termination):
        with termination.deferred():
            os.kill(os.getpid(), signal.SIGINT)
            assert termination.requested
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("the second was deferred, too")

    with Termination() as termination, pytest.raises(KeyboardInterrupt, match=r"interrupted\. Continue with --resume"):
        interrupted_twice(termination)


@pytest.mark.parametrize("moves", [False, True])
def test_progress_in_a_log_and_in_a_terminal(moves, monkeypatch):
    """Two epochs of 3 batches of 10 tokens, 2 s each, and 3 s of validation; in a terminal a line after each batch."""
    now = 0.0
    monkeypatch.setattr("keras_attn.training.progress.time.monotonic", lambda: now)

    class Data(list):  # three batches an epoch, of the ten that one pass over the data has
        report = staticmethod(lambda: {"target_tokens": 100, "batches": 10})

    data = Data(range(3))
    file = io.StringIO()
    file.isatty = lambda: moves
    callback = Progress(data, max_batches=5, seconds_left=lambda: 11 - now, stream=file)
    callback.set_params({"steps": 3, "epochs": 2})
    callback.set_model(types.SimpleNamespace(optimizer=keras.optimizers.SGD(0.5)))
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    for batch in range(3):
        now += 2
        callback.on_train_batch_end(batch, {"loss": 1.5})
    now += 3
    callback.on_epoch_end(0, {"loss": 1.25, "val_bleu": 7.5})
    lines = file.getvalue().split("\r" if moves else "\n")
    end = "epoch 1/2  batch 3/3  loss 1.2500  rate 5.00e-01  5 tokens/s  0:02 left  val_bleu 7.5"
    assert lines[-1 if moves else 0].strip() == end
    if moves:
        assert lines[1] == "epoch 1/2  batch 1/3  loss 1.5000  rate 5.00e-01  5 tokens/s  0:08 left\033[K"
    assert len(lines) == (5 if moves else 2)


def test_a_budget_of_time_ends_training_and_lowers_the_rate(monkeypatch):
    now = 0.0  # seconds; a batch takes 10 of them, an epoch 40

    def pass_time(batch, logs):
        nonlocal now
        now += 10

    monkeypatch.setattr(callbacks, "time", types.SimpleNamespace(monotonic=lambda: now))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    clock, rates = TimeBudget(500, 0.1, hold_fraction=0.5), []

    def stop(batch, logs):
        model.stop_training |= clock.is_over

    rate = keras.callbacks.LambdaCallback(
        on_train_batch_end=pass_time,
        on_epoch_end=lambda epoch, logs: rates.append(float(model.optimizer.learning_rate)),
    )
    # Keras calls them in this order: time passes before the clock reads it.
    watches = [rate, clock, keras.callbacks.LambdaCallback(on_train_batch_end=stop)]
    model.fit(np.ones((8, 3)), np.ones((8, 2)), batch_size=2, epochs=999, callbacks=watches, verbose=0)
    assert clock.seconds == 510  # the first batch after the budget is the last
    middles = 40 * np.arange(13) + 20  # of the epochs
    middles[0] = 0  # when no epoch has been measured
    np.testing.assert_allclose(rates, 0.1 * np.clip((500 - middles) / 250, 0.02, 1), rtol=1e-6)
