"""`--stream`: large folders are streamed; tests/training/test_runs.py trains."""

import shutil

from keras_attn.training import corpora


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


def test_streamed_parts_are_paired_by_name(corpus, tmp_path):
    corpus = shutil.copytree(corpus, tmp_path / "parts")
    for name in ("a.de", "a.fr", "b.de", "b.fr"):
        (corpus / f"train.{name}").write_text(f"{name}\n")
    for language in ("de", "fr"):
        (corpus / f"train.{language}").rename(corpus / f"train.0.{language}")
    streamed = corpora.load(corpus, "de", "fr", stream=True).splits["train"]
    assert tuple(map(list, streamed)) == corpora.load(corpus, "de", "fr").splits["train"]
    names = [[path.name for path in side.paths] for side in streamed]
    assert names == [[f"train.{part}{language}" for part in ("0.", "a.", "b.")] for language in ("de", "fr")]
