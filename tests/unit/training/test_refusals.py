"""Settings, text and starts that do not fit are refused by `keras-attn train` in one sentence, before a run begins."""

import shutil

import pytest

from keras_attn.cli import train
from tests.hostile import sentence_of

IN_CORPUS = "rnnsearch --source de --target fr --corpus {corpus}"
WORDS = "rnnsearch --source de --target fr --set level=word"
STREAM = f"{WORDS} --stream --cache {{cache}}"
ON = f"{IN_CORPUS} --from {{run}}"
CASES = [
    ("rnnsearch", "--epochs 0", "epochs"),
    ("rnnsearch", "--epochs 2 --set max_steps=7", "--set max_steps=N in place of --epochs"),
    ("rnnsearch", "--config {cache}/none.toml", "Expected a TOML file, run.json or report.json with --config"),
    ("rnnsearch", "--minutes -1", "--minutes"),
    ("rnnsearch", "--beam 0", "from 1 to 1,000"),
    ("rnnsearch", "--set learning_rate=nan", "learning_rate to be a finite number"),
    ("rnnsearch", "--set learning_rate=-1", "`learning_rate` above 0"),
    ("rnnsearch", "--set bpe_dropout=0.1 level=word", "`level` to be"),
    ("rnnsearch", "--set level=letter shared_vocabulary=true", "another `level` with `shared_vocabulary`"),
    ("rnnsearch", "--set max_steps=0", "`max_steps` of at least 1"),
    ("rnnsearch", "--set output_dropout=1.5", "`output_dropout` from 0 to 1"),
    ("rnnsearch", "--set average_checkpoints=1", "`average_checkpoints` of 0, or at least 2. Received: 1"),
    ("rnnsearch", "--set ema_decay=1", "`ema_decay` below 1"),
    ("rnnsearch", "--set length_penalty=50", "`length_penalty` from 0 to 10"),
    (IN_CORPUS, "--set tokenize=moses", "moses"),
    ("rnnsearch", "--out {run}", "already holds"),
    ("rnnsearch", "--out {corpus} --resume", "no run.json"),
    ("rnnsearch", "--epoch-s 2", "unrecognized arguments: --epoch-s 2 (did you mean '--epochs'?)"),
    ("rnnserch", "", "Received: 'rnnserch' (did you mean 'rnnsearch'?)"),
    ("rnnsearch", "--tags targets", "(did you mean 'target'?)"),
    (IN_CORPUS, "--set pointer=true level=word", "the same tokenizer for source and target"),
    (
        IN_CORPUS,
        "--set source_vocabulary_size=none target_vocabulary_size=9000",
        "the largest possible for this text. Received: 9000. Set it by --set target_vocabulary_size=N; "
        "target_vocabulary_size=none takes as many as a small text allows",
    ),
    (WORDS, "--corpus {blank_val}", "the split val of the corpus to have a pair with text"),
    (WORDS, "--corpus {blank_test}", "the split test of the corpus to have a pair with text"),
    (
        WORDS,
        "--corpus {blank_answer} --set metric=wer",
        "no blank answer in the split val with metric=wer. Received: one in line 2",
    ),
    (STREAM, "--corpus {corpus}+phrases", "of text to stream, for other corpora are small. Received: 'phrases'"),
    (STREAM, "--corpus {corpus} --set max_words=9", "Received: max_words=9"),
    (STREAM, "--corpus {unequal}", "Expected as many lines in"),
    (STREAM, "--corpus {blank_train}", "In the split train of the corpus: Expected at least one pair"),
    (STREAM, "--corpus {corpus} --set tokens_per_batch=3", "tokens_per_batch of at least 4"),
    (STREAM.replace("rnnsearch", "recipes.studies.guided_nematus"), "--corpus {corpus}", "a recipe's data_options"),
    (ON, "--from nosuch", "Expected a preset: one of"),
    (IN_CORPUS, "--set extend_vocabulary=true", "Expected --from PRESET"),
    (ON.replace("rnnsearch", "luong"), "", "the recipe of 'digits', a RNNSearch, with --from. Received: 'luong'."),
    (ON, "--set units=5", "which are kept. Received: units=5 instead of 7"),
    (ON, "--set level=symbol", "what its tokenizers decide. Received: level"),
    (ON, "--set source_vocabulary_size=9", "Received: source_vocabulary_size"),
    (ON, "--tags corpus", "the tag <2digits>; --set extend_vocabulary=true adds it"),
]
# Of a split of 16, 4 or 19 lines of text in French, what stands in their place.
CHANGES = {
    "blank_train": ("train", lambda text: "un\n" + "\n" * 15),
    "blank_val": ("val", lambda text: "\n" * 4),
    "blank_test": ("test", lambda text: "\n" * 19),
    "blank_answer": ("val", lambda text: "un\n\nun\nun\n"),
    "unequal": ("train", lambda text: f"{text}trop\n"),
}


@pytest.fixture(scope="module")
def places(corpus, run, tmp_path_factory):
    """The folders that the cases name: a corpus, changed copies of it, and a run."""
    found = {name: tmp_path_factory.mktemp("places") / "digits" for name in ("cache", *CHANGES)}
    for name, (split, change) in CHANGES.items():
        path = shutil.copytree(corpus, found[name]) / f"{split}.fr"
        path.write_text(change(path.read_text()))
    lines = (found["blank_train"] / "train.de").read_text().splitlines()
    (found["blank_train"] / "train.de").write_text("\n".join(["", *lines[1:], ""]))
    return found | {"corpus": corpus, "run": run}


@pytest.mark.parametrize(("start", "more", "sentence"), CASES)
def test_what_does_not_fit_is_refused(start, more, sentence, places, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    before = sorted(places["run"].iterdir())
    line = f"{start} {more}".format(**places).split()
    assert sentence in sentence_of(train.main, line, capfd)
    assert list(tmp_path.iterdir()) == [], "nothing may be begun"
    assert sorted(places["run"].iterdir()) == before
