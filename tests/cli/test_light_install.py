"""Everything but the Transformer, export and serving works where neither TensorFlow nor KerasHub is installed."""

import contextlib
import io
from pathlib import Path

import keras
import pytest

import keras_attn
from keras_attn.cli.main import main
from tests.unit.absent import run_without

ABSENT = ("tensorflow", "tensorflow_text", "keras_nlp", "keras_hub", "aiohttp")
SOURCES = ["ein hund läuft", "zwei hunde", "ein hund", "zwei hunde laufen"]
TARGETS = ["a dog runs", "two dogs", "a dog", "two dogs run"]
PROGRAM = """
from pathlib import Path
from tests.cli.test_light_install import run_commands, train_and_use
train_and_use(Path({0!r}))
run_commands(Path({0!r}))
"""


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="needs a backend other than TensorFlow")
def test_all_but_the_transformer_export_and_serving_works_without_tensorflow(tmp_path):
    run_without(ABSENT, PROGRAM.format(str(tmp_path)))


def train_and_use(folder: Path) -> None:
    """Trains two steps, saves, loads, translates, samples, scores, evaluates and draws, from Python."""
    tokenizers = [keras_attn.Tokenizer.train(lines, level="word") for lines in (SOURCES, TARGETS)]
    data = keras_attn.ParallelDataset.from_text(SOURCES, TARGETS, *tokenizers, batch_size=2)
    sizes = {"units": 5, "embedding_size": 7, "readout_size": 6, "attention_units": 3}
    model = keras_attn.models.RNNSearch(*(t.vocabulary_size for t in tokenizers), **sizes)
    model.compile(keras.optimizers.Adam(1e-2), keras_attn.losses.SmoothedCrossentropy(0.1))
    model.fit(data, epochs=1, verbose=0)
    assert int(model.optimizer.iterations) == 2
    keras_attn.Translator(model, *tokenizers).save_to_preset(folder / "preset")

    translator = keras_attn.Translator.from_preset(folder / "preset")
    (one, *_) = translator.generate(SOURCES, beam_size=2)
    assert len(translator.sample(SOURCES, num_samples=2)[0].n_best) == 2
    assert translator.score(SOURCES, TARGETS)[0].score < 0
    assert keras_attn.evaluation.chrf(TARGETS, TARGETS).score > 99.9
    keras_attn.plots.alignment(one.alignment, one.source_tokens, one.tokens, path=folder / "alignment.png")
    with pytest.raises(ImportError, match=r'pip install "keras_attn\[tensorflow\]"'):
        keras_attn.models.TransformerSeq2Seq(9, 9)


def run_commands(folder: Path) -> None:
    """Runs the commands on the preset that `train_and_use` saved."""

    def command(*arguments) -> tuple[int, str]:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            return main(list(map(str, arguments))), errors.getvalue()

    source, target, preset = folder / "source", folder / "target", folder / "preset"
    for path, lines in ((source, SOURCES), (target, TARGETS)):
        path.write_text("".join(f"{line}\n" for line in lines))
    pictures = ["--png", folder / "pictures", "--html", folder / "page.html"]
    for line in (
        ("translate", preset, source, "--output", folder / "out", "--beam", 2, *pictures),
        ("score", preset, "--source", source, "--target", target, "--output", folder / "scores"),
        ("evaluate", preset, "--input", source, "--references", target, "--output", folder / "report.json"),
    ):
        assert command(*line) == (0, "")
    for arguments, needed, extra in (
        (("export", preset, folder / "export"), "tensorflow to be installed for export", "tensorflow"),
        (("serve", folder / "export"), "tensorflow and aiohttp", "serving"),
    ):
        status, error = command(*arguments)
        assert status == 2, (status, error)
        assert f"keras-attn {arguments[0]}: Expected {needed}" in error, error
        assert f'pip install "keras_attn[{extra}]"' in error, error
        assert error.count("\n") == 1, error
