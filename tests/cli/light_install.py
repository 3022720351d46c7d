"""Everything but the Transformer, export and serving, where neither TensorFlow nor KerasHub is installed.

    KERAS_BACKEND=torch python -m tests.cli.light_install FOLDER

`BLOCKED` packages are made to look absent, so that the program also tells something where they are installed.
"""

import contextlib
import io
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

BLOCKED = ("tensorflow", "tensorflow_text", "keras_nlp", "keras_hub", "aiohttp")
SOURCES = ["ein hund läuft", "zwei hunde", "ein hund", "zwei hunde laufen"]
TARGETS = ["a dog runs", "two dogs", "a dog", "two dogs run"]


class Without(MetaPathFinder):
    """Finds what another finder does but for modules of `packages`."""

    def __init__(self, finder, packages):
        self.finder, self.packages = finder, packages

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in self.packages else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


def block(packages=BLOCKED) -> None:
    """Makes packages look as if they were not installed."""
    sys.meta_path[:] = [Without(finder, packages) for finder in sys.meta_path]


def train_and_use(folder: Path) -> None:
    """Trains two steps, saves, loads, translates, samples, scores, evaluates and draws, from Python."""
    import keras

    import keras_attn

    tokenizers = [keras_attn.Tokenizer.train(lines, level="word") for lines in (SOURCES, TARGETS)]
    data = keras_attn.ParallelDataset.from_text(SOURCES, TARGETS, *tokenizers, batch_size=2)
    sizes = {"units": 5, "embedding_size": 7, "readout_size": 6, "attention_units": 3}
    model = keras_attn.models.RNNSearch(*(t.vocabulary_size for t in tokenizers), **sizes)
    model.compile(keras.optimizers.Adam(1e-2), keras_attn.losses.SmoothedCrossentropy(0.1))
    model.fit(data, epochs=1, verbose=0)
    assert int(model.optimizer.iterations) == 2
    keras_attn.Translator(model, *tokenizers).save_to_preset(folder / "preset")

    translator = keras_attn.Translator.from_preset(folder / "preset")
    translations = translator.generate(SOURCES, beam_size=2)
    assert len(translator.sample(SOURCES, num_samples=2)[0].n_best) == 2
    assert translator.score(SOURCES, TARGETS)[0].score < 0
    assert keras_attn.evaluation.chrf(TARGETS, TARGETS).score > 99.9
    one = translations[0]
    keras_attn.plots.alignment(one.alignment, one.source_tokens, one.tokens, path=folder / "alignment.png")
    for call in (keras_attn.models.TransformerSeq2Seq, lambda *sizes: translator.export(folder / "export")):
        assert 'pip install "keras_attn[tensorflow]"' in refusal(call, 9, 9)


def refusal(call, *arguments) -> str:
    """Returns the sentence by which a call is refused."""
    try:
        call(*arguments)
    except ImportError as error:
        return str(error)
    raise AssertionError("something that needs TensorFlow ran without it")


def run_commands(folder: Path) -> None:
    """Runs the commands on the preset that `train_and_use` saved."""
    from keras_attn.cli.main import main

    def command(*arguments) -> tuple[int, str]:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            return main(list(map(str, arguments))), errors.getvalue()

    source, target, preset = folder / "source", folder / "target", folder / "preset"
    source.write_text("".join(f"{line}\n" for line in SOURCES))
    target.write_text("".join(f"{line}\n" for line in TARGETS))
    pictures = ["--png", folder / "pictures", "--html", folder / "page.html"]
    translate = "translate", preset, source, "--output", folder / "out", "--beam", 2, *pictures
    assert command(*translate) == (0, "")
    assert command("score", preset, "--source", source, "--target", target, "--output", folder / "scores") == (0, "")
    evaluated = "evaluate", preset, "--input", source, "--references", target, "--beam", 2
    assert command(*evaluated, "--output", folder / "report.json") == (0, "")
    for arguments, needed, extra in (
        (("export", preset, folder / "export"), "tensorflow to be installed for export", "tensorflow"),
        (("serve", folder / "export"), "tensorflow and aiohttp", "serving"),
    ):
        status, error = command(*arguments)
        assert status == 2, (status, error)
        assert f"keras-attn {arguments[0]}: Expected {needed}" in error, error
        assert f'pip install "keras_attn[{extra}]"' in error, error
        assert error.count("\n") == 1, error


if __name__ == "__main__":
    block()
    run = Path(sys.argv[1])
    train_and_use(run)
    run_commands(run)
    print("all but the Transformer, export and serving works")
