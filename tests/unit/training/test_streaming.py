"""`--stream`: files give the tokenizers and batches of memory; refusals. tests/training/test_runs.py trains."""

import pytest

from keras_attn.cli import train
from keras_attn.text import Tokenizer
from keras_attn.training import TrainingConfig, corpora, fitting
from tests.training.small_run import write_digits


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("corpora") / "digits", 96, 16, 5, lengths=(5,))


def test_large_folders_are_streamed_alone_and_joined(corpus, monkeypatch):
    def load(*folders, **options):
        return corpora.load("+".join(map(str, folders)), "de", "fr", **options)

    assert not load(corpus, stream=None).is_streamed
    size = sum((corpus / f"train.{language}").stat().st_size for language in ("de", "fr"))
    monkeypatch.setattr(corpora, "LARGE", size)
    assert not load(corpus, stream=None).is_streamed
    joined = load(corpus, corpus, stream=None)
    assert [len(side.paths) for side in joined.splits["train"]] == [2, 2]
    assert list(joined.splits["train"][1]) == 2 * load(corpus).splits["train"][1]
    monkeypatch.setattr(corpora, "LARGE", size - 1)
    assert load(corpus, stream=None).is_streamed
    assert not load(corpus).is_streamed
    assert not corpora.load("phrases", stream=None).is_streamed


def test_arguments_of_a_recipe_for_pairs_are_refused(corpus, tmp_path):
    streamed = corpora.load(corpus, "de", "fr", stream=True)
    tokenizers = [Tokenizer.train(side, level="word") for side in streamed.splits["train"]]
    with pytest.raises(ValueError, match="Expected --no-stream with a recipe's data_options"):
        fitting.datasets(TrainingConfig(), streamed, tokenizers, 0, tmp_path, lambda *given: {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus", "phrases"], "Expected folders of text to stream, for other corpora are small."),
        (["--corpus", "{corpus}+phrases"], "Received: 'phrases'"),
        (["--corpus", "{corpus}", "--set", "max_words=9"], "Received: max_words=9"),
        (["--corpus", "{unequal}"], "Expected as many lines in"),
        (["--corpus", "{empty}"], "In the split train of the corpus: Expected at least one pair"),
        (["--corpus", "{corpus}", "--set", "tokens_per_batch=5"], "tokens_per_batch of at least 6"),
    ],
)
def test_other_corpora_and_settings_are_refused_with_stream(corpus, tmp_path, capfd, arguments, message):
    folders = {"corpus": corpus}
    for name in ("unequal", "empty"):
        folders[name] = tmp_path / name
        folders[name].mkdir()
        for path in corpus.iterdir():
            (folders[name] / path.name).write_bytes(path.read_bytes())
    with (folders["unequal"] / "train.de").open("a") as file:
        file.write("1\n")
    (folders["empty"] / "train.de").write_text("1\n\n")
    (folders["empty"] / "train.fr").write_text("\nn1\n")
    arguments = [argument.format(**folders) for argument in arguments]
    options = ["--source", "de", "--target", "fr", "--out", str(tmp_path / "run"), "--cache", str(tmp_path / "cache")]
    assert train.main(["rnnsearch", "--stream", *options, "--set", "level=word", *arguments]) == 2
    error = capfd.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
