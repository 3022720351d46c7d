"""`--stream`: large folders are streamed; tests/training/test_runs.py trains."""

import pytest

from keras_attn.text import Tokenizer
from keras_attn.training import TrainingConfig, corpora, fitting


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
