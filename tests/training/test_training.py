"""The commands on a tiny corpus: training, resuming, evaluation; errors are one sentence; kill -9 loses nothing."""

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn.cli import evaluate, train, translate
from keras_attn.training import Terminated, config, plan, report
from keras_attn.training import run as training_run
from keras_attn.training.callbacks import Stopping, TimeBudget
from recipes import rnnsearch
from tests.training.small_run import FINISHED, command_line, interrupted, write_digits

ROOT = Path(__file__).parents[2]
IN_CORPUS = ["--corpus", "{corpus}", "--source", "de", "--target", "fr"]
TINY = ["batch_size=16", "validation_sentences=13", "learning_rate=0.02"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = write_digits(tmp_path_factory.mktemp("corpora") / "digits", 97, 17, 19, lengths=(3, 7))
    for language in ("de", "fr"):
        lines = (folder / f"train.{language}").read_text().splitlines()
        (folder / f"train.{language}").write_text("\n".join(["", *lines[1:], ""]))
    return folder


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """A run that was interrupted in its second epoch, and resumed."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    line = command_line(corpus, out, *TINY, "ema_decay=0.5", "average_checkpoints=2", "--epochs", "2", "--beam", "5")
    with interrupted(1):
        assert train.main(line) == 130
    assert train.main([*line, "--seed", "3", "--resume"]) == 2, "another seed"
    assert train.main([*line, "--resume"]) == 0
    return out


def test_a_run_leaves_everything_behind(run):
    assert {path.name for path in run.iterdir()} == FINISHED
    assert json.loads((run / "translator.json").read_text())["options"]["trained_length"] == 100
    assert "| BLEU | " in (run / "README.md").read_text()
    report = json.loads((run / "report.json").read_text())
    asked = "recipe corpus source target backend versions command seed parameters epochs train_seconds beam_size config"
    for name in [*asked.split(), "target_tokens_per_second", "padding", "training_pairs", "hardware"]:
        assert report[name] is not None, name
    for name in ("bleu", "chrf", "ter", "greedy_bleu"):
        assert set(report[name]) == {"score", "signature"}
    assert report["backend"] == keras.backend.backend()
    assert report["training_pairs"] == 96
    assert report["data"]["dropped_blank"] == 1
    assert report["config"]["units"] == 7
    assert len(report["history"]["val_bleu"]) == report["epochs"] == 2
    assert report["averaged_checkpoints"]["number"] == 2, "one of them before the interruption"
    assert str(run) not in (run / "report.json").read_text(), "no path of this machine"
    lines = (run / "history.csv").read_text().splitlines()
    assert len(lines) == 3
    assert {"epoch", "loss", "val_loss", "val_bleu", "val_perplexity"} <= set(lines[0].split(","))
    blocks = (run / "translations.txt").read_text().split("\n\n")
    assert len(blocks) == 20  # 19 and the last line break
    assert blocks[0].startswith("source:      ")
    assert (run / "alignment.png").read_bytes().startswith(b"\x89PNG")


def test_the_finished_run_scores_as_it_reported(run, corpus, tmp_path, capsys):
    path = tmp_path / "scores.json"
    where = ["--corpus", str(corpus), "--source", "de", "--target", "fr"]
    assert evaluate.main([str(run), *where, "--output", str(path)]) == 0
    printed = capsys.readouterr().out
    report, scored = (json.loads(p.read_text()) for p in (run / "report.json", path))
    for name in ("bleu", "chrf", "ter"):
        assert f"{name} {report[name]['score']:.2f}  {report[name]['signature']}" in printed
        assert scored["systems"][0][name] == report[name]
    assert scored["sentences"] == 19
    assert scored["systems"][0]["search"]["beam_size"] == 5
    assert "paired_bootstrap" not in scored


def degraded(lines, share, seed):
    random = np.random.default_rng(seed)
    return [" ".join("x" if random.random() < share else word for word in line.split()) for line in lines]


@pytest.mark.once
def test_files_are_compared_as_sacrebleu_compares_them(run, corpus, tmp_path, capsys):
    references = (corpus / "test.fr").read_text().splitlines()
    files = [tmp_path / "first.txt", tmp_path / "second.txt"]
    for seed, (path, share) in enumerate(zip(files, (0.3, 0.2), strict=True)):
        path.write_text("".join(line + "\n" for line in degraded(references, share, seed)))
    options = ["--corpus", str(corpus), "--source", "de", "--target", "fr", "--output", str(tmp_path / "scores.json")]
    assert evaluate.main([str(run), "--hypotheses", str(files[0]), "--against", str(files[1]), *options]) == 0
    printed = capsys.readouterr().out

    line = [sys.executable, "-m", "sacrebleu", str(corpus / "test.fr"), "-i", *map(str, files), "-m", "bleu", "chrf"]
    line += ["--paired-bs", "--format", "latex", "--width", "2", "--tokenize", "none", "--force"]
    table = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    theirs = re.findall(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)(?: \(p = ([\d.]+)\))?", table)
    result = json.loads((tmp_path / "scores.json").read_text())
    ours = result["paired_bootstrap"]
    assert [one["system"] for one in ours] == [*map(str, files)] * 2
    ours = [ours[0], ours[2], ours[1], ours[3]]  # sacreBLEU's rows are systems
    assert [
        (
            f"{one['score']['score']:.2f}",
            f"{one['mean']:.2f}",
            f"{one['half_width']:.2f}",
            "" if one["p_value"] is None else f"{one['p_value']:.4f}",
        )
        for one in ours
    ] == theirs
    assert f"second.txt, p = {theirs[2][3]}" in printed
    assert ours[2]["score"]["signature"] in printed


@pytest.mark.once
def test_a_corpus_that_is_elsewhere_has_to_be_given(run, corpus, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert evaluate.main([str(run)]) == 2
    assert f"give that of {corpus.name!r} by --corpus" in capfd.readouterr().err


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "{run}"], "another system"),
        (["--against", "{few}"], "to have 19 lines"),
        (["--hypotheses", "{tmp}/none"], "Expected a text file"),
        (["--hypotheses", "{bytes}"], "0xff in line 2"),
        (["--split", "dev"], "Expected dev.de or dev.de.gz in"),
        (["--tokenize", "moses"], "13a"),
        (["--beam", "0"], "from 1 to 1,000"),
        (["--output", "{few}"], "to be a new file"),
    ],
)
def test_evaluate_refuses_with_a_sentence(arguments, message, run, corpus, tmp_path, capfd):
    (tmp_path / "few").write_text("un\ndeux\n")
    (tmp_path / "bytes").write_bytes(b"un\n\xff\n")
    names = {"run": run, "tmp": tmp_path, "few": tmp_path / "few", "bytes": tmp_path / "bytes"}
    where = ["--corpus", str(corpus), "--source", "de", "--target", "fr"]
    try:
        code = evaluate.main([str(run), *where, *(argument.format(**names) for argument in arguments)])
    except SystemExit as ended:  # argparse's own
        code = ended.code
    err = capfd.readouterr().err
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["bytes", "few"], "nothing may be begun"


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "among: gnmt, hard_monotonic, lstm_seq2seq, luong, nematus, rnmt_plus, rnnencdec, rnnsearch, "),
        (["rnnsearch", "--set", "unit=3"], "name of a setting, such as units. Received: 'unit'. All "),
        (["rnnsearch", "--set", "units=many"], "type int"),
        (["rnnsearch", "--epochs", "0"], "epochs"),
        (["rnnsearch", "--epochs", "2", "--set", "max_steps=7"], "--set max_steps=N in place of --epochs"),
        (["rnnsearch", "--config", "{tmp}/none.toml"], "Expected a TOML file with --config"),
        (["rnnsearch", "--minutes", "-1"], "--minutes"),
        (["rnnsearch", "--beam", "0"], "from 1 to 1,000"),
        (["rnnsearch", "--set", "learning_rate=nan"], "learning_rate to be a finite number"),
        (["rnnsearch", "--set", "learning_rate=-1"], "`learning_rate` above 0"),
        (["rnnsearch", "--set", "bpe_dropout=0.1", "level=word"], "`level` to be"),
        (["rnnsearch", "--set", "max_steps=0"], "`max_steps` of at least 1"),
        (["rnnsearch", "--corpus", "{corpus}", "--source", "xx", "--target", "fr"], "xx"),
        (["rnnsearch", "--out", "{run}"], "already holds"),
        (["rnnsearch", "--out", "{run}", "--resume"], "finished"),
        (["rnnsearch", "--out", "{corpus}", "--resume"], "no run.json"),
        (["rnnsearch", "--frobnicate"], "unrecognized"),
        (
            ["rnnsearch", *IN_CORPUS, "--set", "source_vocabulary_size=none", "target_vocabulary_size=9000"],
            "the largest possible for this text. Received: 9000. Set it by --set target_vocabulary_size=N; "
            "target_vocabulary_size=none takes as many as a small text allows",
        ),
    ],
)
def test_train_refuses_with_a_sentence(arguments, message, corpus, run, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    before = sorted(p.name for p in run.iterdir())
    arguments = [argument.format(corpus=corpus, run=run, tmp=tmp_path) for argument in arguments]
    try:
        code = train.main(arguments)
    except SystemExit as ended:  # argparse's own
        code = ended.code
    err = capfd.readouterr().err
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "nothing may be begun"
    assert sorted(p.name for p in run.iterdir()) == before


@pytest.mark.slow
@pytest.mark.once
def test_training_that_diverges_stops_at_once_and_keeps_the_last_good_state(corpus, tmp_path, monkeypatch, capfd):
    """The weights become NaN when the second of two epochs begins; with `--resume` the run goes on from the first."""
    out = tmp_path / "run"
    line = command_line(corpus, out, *TINY, "--epochs", "2")
    on_epoch_begin = TimeBudget.on_epoch_begin

    def diverge(self, epoch, logs=None):
        if epoch == 1:
            for variable in self.model.trainable_variables:
                variable.assign(np.full(variable.shape, np.nan))
        on_epoch_begin(self, epoch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(TimeBudget, "on_epoch_begin", diverge)
        assert train.main(line) == 1
    error = capfd.readouterr().err.splitlines()[-1]
    assert "Training diverged: the loss is nan in epoch 2, batch 1. " in error
    assert "checkpoint.npz' has the last state that was saved" in error
    assert not (out / "report.json").exists()
    with np.load(out / "checkpoint.npz") as file:
        assert all(np.isfinite(file[name]).all() for name in file)
    assert train.main([*line, "--resume"]) == 0
    assert json.loads((out / "report.json").read_text())["epochs"] == 2


@pytest.mark.once
@pytest.mark.parametrize("split", ["val", "test"])
def test_a_split_without_text_is_named(split, corpus, tmp_path, capfd):
    shutil.copytree(corpus, tmp_path / "corpus")
    path = tmp_path / "corpus" / f"{split}.fr"
    path.write_text("\n" * path.read_text().count("\n"))
    assert train.main(command_line(tmp_path / "corpus", tmp_path / "run", *TINY)) == 2
    assert f"Expected the split {split} of the corpus to have a pair with text" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.once
def test_unequal_files_are_refused(corpus, tmp_path, capfd):
    shutil.copytree(corpus, tmp_path / "corpus")
    with (tmp_path / "corpus" / "train.fr").open("a") as file:
        file.write("trop\n")
    assert train.main(command_line(tmp_path / "corpus", tmp_path / "run", *TINY)) == 2
    assert "98" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.once
def test_translations_are_read_as_they_were_written(tmp_path):
    sides = ["a\rb", "c\u2028d"], ["e", ""], ["f\r", "g"]
    translations = [types.SimpleNamespace(text=text) for text in sides[2]]
    report.write_translations(tmp_path / "translations.txt", *sides[:2], translations)
    assert report.read_translations(tmp_path / "translations.txt") == list(zip(*sides, strict=True))


@pytest.mark.once
def test_the_command_of_a_report_can_be_repeated():
    for options in (
        "--minutes 57 --seed 1234567 --beam 1",
        "--minutes 0.25 --seed 0 --set units=8 epochs=7",
    ):
        line = f"rnnsearch --corpus phrases {options}"
        arguments = vars(train.parser().parse_args(line.split()))
        assert plan.command_line(plan.make_plan(**arguments)) == f"keras-attn train {line}"
    assert plan.command_line(plan.make_plan("rnnsearch", epochs=3)).endswith(" --seed 0 --set epochs=3")


@pytest.mark.parametrize("command", [evaluate, translate])
def test_folders_without_a_run_are_refused(command, corpus, tmp_path, capfd):
    where = ["--corpus", str(corpus), "--source", "de", "--target", "fr"] if command is evaluate else []
    assert command.main([str(tmp_path), *where]) == 2
    assert "translator.json" in capfd.readouterr().err


@pytest.mark.once
def test_an_unknown_setting_is_answered_with_the_most_similar_names():
    """Not with all of them, of which the two modules have lists with comments."""
    names = [field.name for field in dataclasses.fields(rnnsearch.Config)]
    listed = re.escape(f"All {len(names)} are listed in recipes.rnnsearch and keras_attn.training.config.")
    for wrong, expected in (
        ("smoothing", "such as label_smoothing"),
        ("dropout", "such as bpe_dropout, word_dropout, "),
        ("lerning_rate", "such as learning_rate"),
        ("xyz", re.escape("a setting. ")),
    ):
        with pytest.raises(ValueError, match=f"{expected}.*Received: '{wrong}'. {listed}$") as raised:
            config.override(rnnsearch.Config(), [f"{wrong}=1"])
        assert sum(name in str(raised.value).replace(",", "").split() for name in names) <= 5


def test_override_reads_the_type_of_the_field():
    changes = ["units=3", "learning_rate=1", "shared_vocabulary=true", "tie_embeddings=None", "level=word"]
    changed = config.override(rnnsearch.Config(), [*changes, "source_vocabulary_size=none"])
    found = changed.units, changed.learning_rate, changed.shared_vocabulary, changed.tie_embeddings, changed.level
    assert found == (3, 1.0, True, None, "word")
    assert changed.source_vocabulary_size is None
    with pytest.raises(ValueError, match="type int or none"):
        config.override(rnnsearch.Config(), ["source_vocabulary_size=8k"])
    with pytest.raises(ValueError, match="name=value"):
        config.override(rnnsearch.Config(), ["units"])


@pytest.mark.once
def test_settings_come_from_a_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'patience = 3\n[text]\nlevel = "word"\nsource_vocabulary_size = "none"\n'
        "[model]\nunits = 5\nread_previous_state = true\n"
        "[optimisation]\nlearning_rate = 1\nepochs = 9\n[scoring]\nlength_penalty = 0.5\n"
    )
    chosen = plan.make_plan("rnnsearch", config_file=path, epochs=2, changes=["units=7"])
    wanted = {"level": "word", "source_vocabulary_size": None, "units": 7, "read_previous_state": True}
    wanted |= {"patience": 3, "learning_rate": 1.0, "epochs": 2, "length_penalty": 0.5}
    assert {name: getattr(chosen.config, name) for name in wanted} == wanted
    assert plan.make_plan("rnnsearch", changes=chosen.changes).config == chosen.config, "the report's command"


@pytest.mark.once
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model]\nunit = 5", "such as units"),
        ("[model]\nunits = [5]", "Expected --set units to be a value of type int"),
        ("[model]\nunits = 5.5", "Expected --set units to be a value of type int"),
        ("[model", "to be TOML"),
        ("[text]\nlevel = '\xff'", "to be TOML"),
    ],
)
def test_a_file_of_settings_is_refused(text, message, tmp_path):
    (tmp_path / "run.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        plan.make_plan("rnnsearch", config_file=tmp_path / "run.toml")


@pytest.mark.once
def test_a_recipe_is_a_name_a_file_or_a_module(tmp_path, monkeypatch):
    assert plan.load_recipe("rnnsearch") is plan.load_recipe("recipes.rnnsearch") is rnnsearch
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    text = Path(rnnsearch.__file__).read_text("utf-8")
    (tmp_path / "my_search.py").write_text(text.replace("units: int = 256", "units: int = 3"), "utf-8")
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "other.py").write_text(text, "utf-8")
    mine = plan.make_plan("my_search.py", corpus="other.tsv")
    assert (mine.config.units, mine.out, mine.recipe_name) == (3, Path("runs/my_search"), "my_search.py")
    assert plan.make_plan("my.other", corpus="other.tsv").config.units == 256
    for wrong in ("nosuch.py", "my.nosuch", "nosuch.module", "my", "config", ""):
        with pytest.raises(ValueError, match=r"Expected a recipe among: gnmt, .*, transformer; or a module or file"):
            plan.load_recipe(wrong)


@pytest.mark.once
def test_a_configuration_is_found_by_name_or_by_pattern():
    configs = {"b/c": 1, "b/*": 2, "b/d": 3, "*/c": 4}
    found = [config.config_for(configs, name) for name in ("b/c", "b/d", "b/x", "b/x+b/y", "a/c", "b", "B/x")]
    assert found == [1, 3, 2, 2, 4, None, None]
    weighted = [config.config_for(configs, name) for name in ("b/c:2", "b/x:3+b/y:1", "a:1+b:2")]
    assert weighted == [1, 2, None], "weights do not count"
    chosen = plan.make_plan("nematus", corpus="g2p/ice", changes=["units=8"]).config
    assert (chosen.level, chosen.metric, chosen.units) == ("symbol", "wer", 8)


def test_inverse_square_root_is_the_papers():
    """Vaswani 2017, eq. 3, with H = 512 and 4,000 steps of warm-up."""
    from keras_attn.training.schedules import InverseSquareRoot, schedule

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


def test_schedule_warms_up_stays_and_falls():
    from keras_attn.training.schedules import ConstantThenLinear

    schedule = ConstantThenLinear(0.5, total_steps=100, hold_fraction=0.6, warmup_steps=10)
    rates = [float(schedule(step)) for step in (0, 4, 9, 10, 60, 80, 99, 100, 120)]
    np.testing.assert_allclose(rates, [0.05, 0.25, 0.5, 0.5, 0.5, 0.25, 0.0125, 0, 0], atol=1e-6)
    again = ConstantThenLinear.from_config(schedule.get_config() | {"accumulation_steps": 3})
    assert [float(again(3 * step + batch)) for step in (4, 80) for batch in range(3)] == [
        float(schedule(step)) for step in (4, 80) for _ in range(3)
    ]


def test_an_average_over_more_than_a_fifth_of_a_run_is_pointed_out():
    from keras_attn.training.fitting import note_on_average

    assert note_on_average(0.998, updates=2500) is None, "the last fifth"
    assert note_on_average(0.9, updates=50) is None
    assert note_on_average(0.998, updates=1500) == (
        "Note: ema_decay=0.998 averages the weights of about the last 500 updates, and the run has 1,500. For so few "
        "set it to 0.9933."
    )
    assert note_on_average(0.9999, updates=30000).endswith("set it to 0.9997.")
    with pytest.raises(ValueError, match="`ema_decay` below 1"):
        config.override(rnnsearch.Config(), ["ema_decay=1"])


class FakeTranslator:
    """Translates correctly in the epochs whose entry in `scores` is true; records the weights that it sees."""

    def __init__(self, model, scores):
        self.model, self.scores, self.seen = model, list(scores), []

    def generate(self, sources, **options):
        self.seen.append(self.model.get_weights()[0].copy())
        text = "a b c d e" if self.scores.pop(0) else "z"
        return [types.SimpleNamespace(text=text) for _ in sources]


def fit_line(scores, patience=9, epochs=4, average_checkpoints=0, wrapper=lambda optimizer: optimizer, **optimizer):
    from keras_attn.training.callbacks import Validation

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


def test_the_best_weights_come_back_at_the_end():
    model, seen, _, history = fit_line([False, True, False, False])
    np.testing.assert_array_equal(model.get_weights()[0], seen[1])
    assert history.history["val_bleu"][1] > history.history["val_bleu"][0]


@pytest.mark.once
def test_patience_ends_training():
    assert len(fit_line([True] + [False] * 9, patience=2, epochs=10)[1]) == 3


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
    callback = Stopping(
        99, types.SimpleNamespace(requested=True), types.SimpleNamespace(is_over=False), checkpoint, Batches()
    )
    callback.set_model(types.SimpleNamespace(stop_training=False))
    callback.on_train_batch_end(1)
    assert saved == []
    with pytest.raises(Terminated, match="after batch 2 of epoch 1"):
        callback.on_train_batch_end(0)
    assert saved == [2]


@pytest.mark.once
def test_a_blank_answer_is_named_before_training():
    sides = ["a", "b"], ["x", " "]
    corpus = types.SimpleNamespace(splits={"train": sides, "val": sides, "test": sides})
    training_run._check_splits(corpus, "bleu")
    with pytest.raises(ValueError, match=r"no blank answer in the split val with metric=wer\. Received: one in line 2"):
        training_run._check_splits(corpus, "wer")


@pytest.mark.once
def test_systems_with_other_tags_are_not_compared(run, tmp_path, capfd):
    tagged = shutil.copytree(run, tmp_path / "tagged")
    report = json.loads((tagged / "report.json").read_text())
    (tagged / "report.json").write_text(json.dumps(report | {"tags": "target"}))
    assert evaluate.main([str(run), "--against", str(tagged)]) == 2
    assert "Expected systems with the same --tags" in capfd.readouterr().err


def test_a_budget_of_time_ends_training_and_lowers_the_rate(monkeypatch):
    from keras_attn.training import callbacks

    now = 0.0  # seconds; a batch takes 10 of them, an epoch 40

    def pass_time(batch, logs):
        nonlocal now
        now += 10

    monkeypatch.setattr(callbacks, "time", types.SimpleNamespace(monotonic=lambda: now))
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    clock, rates = callbacks.TimeBudget(500, 0.1, hold_fraction=0.5), []

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


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="bit-equal on TensorFlow and a CPU only")
def test_kill_and_resume_ends_with_the_same_weights(corpus, tmp_path):
    def start(out, *more):
        line = [sys.executable, "-m", "keras_attn.cli.train", *command_line(corpus, out, *TINY, *more)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "cwd": ROOT}
        return subprocess.Popen(line, env=os.environ | {"KERAS_BACKEND": "tensorflow"}, **quiet)

    def end(process):
        error = process.communicate(timeout=120)[1]
        assert process.returncode == 0, error.decode()

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    settings = (
        "epochs=4",
        "ema_decay=0.9",
        "average_checkpoints=3",
        "level=bpe",
        "bpe_dropout=0.2",
        "word_dropout=0.1",
    )
    settings += ("source_vocabulary_size=none", "target_vocabulary_size=none", "guided_alignment=0.5")
    uninterrupted, victim = start(whole, *settings), start(killed, *settings)
    while not (killed / "checkpoint.npz").exists():
        assert victim.poll() is None, victim.communicate()[1].decode()
        time.sleep(0.002)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert not (killed / "report.json").exists(), "killed too late to prove anything"
    epochs_before = (
        len((killed / "history.csv").read_text().splitlines()) - 1 if (killed / "history.csv").exists() else 1
    )
    assert epochs_before < 4
    end(uninterrupted)
    end(start(killed, *settings, "--resume"))

    models = [keras.saving.load_model(folder / "model.keras") for folder in (whole, killed)]
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(one, other)
    histories = [json.loads((folder / "report.json").read_text())["history"] for folder in (whole, killed)]
    for name in ("loss", "val_loss", "val_bleu"):
        assert histories[0][name] == histories[1][name]
    assert (whole / "translations.txt").read_bytes() == (killed / "translations.txt").read_bytes()


@pytest.mark.once
@pytest.mark.slow
def test_a_recipe_with_a_pointer_learns_and_translates(corpus, tmp_path, capsys):
    settings = ["pointer=true", "shared_vocabulary=true", "source_vocabulary_size=9", "epochs=1", "ema_decay=0.9"]
    assert not train.main(command_line(corpus, tmp_path / "run", *TINY, *settings))
    assert "Note: ema_decay=0.9 averages" in capsys.readouterr().out, "of ten updates, and there are seven"
    assert not translate.main([str(tmp_path / "run"), "--input", str(corpus / "test.de")])
    assert len(capsys.readouterr().out.splitlines()) >= 19
    assert train.main(command_line(corpus, tmp_path / "apart", *TINY, "pointer=true")) == 2
    assert "Expected the same tokenizer for source and target" in capsys.readouterr().err
