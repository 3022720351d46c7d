"""`--stream`: files give the tokenizers and batches of memory; refusals. tests/training/test_runs.py trains."""

import gzip
import lzma

import pytest

from keras_attn.cli import train
from keras_attn.training import config, corpora, fitting
from recipes import rnnsearch
from tests.training.small_run import write_digits


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("corpora") / "digits", 96, 16, 5, lengths=(5,))


@pytest.fixture
def parts(corpus, tmp_path):
    """The same corpus with a training split in parts, compressed and not."""
    folder = tmp_path / "parts" / corpus.name
    folder.mkdir(parents=True)
    for path in corpus.iterdir():
        if not path.name.startswith("train"):
            (folder / path.name).write_bytes(path.read_bytes())
            continue
        lines = path.read_bytes().splitlines(keepends=True)
        language = path.suffix[1:]
        (folder / f"train.1.{language}.gz").write_bytes(gzip.compress(b"".join(lines[:50])))
        (folder / f"train.2.{language}.xz").write_bytes(lzma.compress(b"".join(lines[50:90])))
        (folder / f"train.3.{language}").write_bytes(b"".join(lines[90:]))
    return folder


@pytest.mark.parametrize("settings", [[], ["shared_vocabulary=true", "level=bpe", "source_vocabulary_size=290"]])
def test_files_give_the_tokenizers_and_the_batches_of_memory(corpus, parts, tmp_path, settings):
    chosen = config.override(
        rnnsearch.Config(), ["batch_size=16", "validate_every=4", "max_tokens=40", "level=word", *settings]
    )
    found = []
    for folder, stream in ((corpus, False), (parts, False), (parts, True)):
        loaded = corpora.load(folder, "de", "fr", stream=stream)
        assert loaded.is_streamed is stream
        tokenizers = fitting.train_tokenizers(chosen, *loaded.splits["train"])
        training, _ = fitting.datasets(chosen, loaded, tokenizers, 3, tmp_path / "cache")
        batches = []
        for epoch in range(4):
            training.set_epoch(epoch)
            batches += [[array.tolist() for array in (*inputs.values(), *rest)] for inputs, *rest in training]
        found.append(([one.fingerprint for one in tokenizers], batches))
    assert found[0] == found[1] == found[2]


def test_large_folders_are_streamed_alone_and_joined(corpus, parts, monkeypatch):
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
