"""Bad options and files are refused by each command in one sentence, before anything is begun."""

import gzip
import shutil
from pathlib import Path

import pytest

from keras_attn.cli.main import main
from tests.hostile import called

PAIR = "{f}/preset --source {f}/source --target {f}/target"
FILES = "{f}/preset --input {f}/source --references {f}/target"
VOTE = f"{FILES} --ensemble {{f}}/preset --combine vote"
SCORE, SHORTLIST, EVALUATE = f"score {PAIR}", f"shortlist {PAIR}", f"evaluate {FILES}"
OF_FOLDER = "evaluate {f}/preset --corpus {f}/corpus"
TRANSLATE = "translate {f}/bare {f}/source"
FOLDERS = "translate-corpus {f}/preset --window 4 --beam 1 --output {f}/out --input"
CASES = [
    ("score {f}/preset", "--source {f}/source", "--target"),
    (SCORE, "--target {f}/none", "No such file"),
    (SCORE, "--target {f}/short", "Received: 5 and 2"),
    ("score {f}/corpus", "--source {f}/source --target {f}/target", "There is no translator.json"),
    (SCORE, "--fields text", "--format jsonl with --fields"),
    (SCORE, "--normalization wu", "gnmt"),
    (SCORE, "--output {f}/source", "to be a new file"),
    ("evaluate {f}/preset", "", "Expected --corpus, or --input FILE"),
    ("evaluate {f}/preset", "--input {f}/source", "--input together with --references"),
    (EVALUATE, "--references {f}/short", "Received: 5 and 2"),
    (EVALUATE, "--combine vote", "--combine vote together with --ensemble"),
    (f"evaluate {VOTE}", "--average weights", "without --average"),
    (EVALUATE, "--average weights", "--average together with --ensemble"),
    (f"evaluate {VOTE}", "--hypotheses {f}/other", "without --ensemble"),
    (EVALUATE, "--hypotheses {f}/other --beam 2", "where a run translates"),
    (EVALUATE, "--hypotheses {f}/other --average weights", "where a run translates"),
    (EVALUATE, "--split val --data none", "without the options of a corpus. Received: --split, --data"),
    (OF_FOLDER, "--against {f}/preset", "another system"),
    (OF_FOLDER, "--against {f}/short", "to have 5 lines"),
    (OF_FOLDER, "--hypotheses {f}/none", "Expected a text file"),
    (OF_FOLDER, "--hypotheses {f}/bytes", "0xff in line 2"),
    (OF_FOLDER, "--split dev", "Expected dev.de or dev.de.gz in"),
    (OF_FOLDER, "--tokenize moses", "13a"),
    (OF_FOLDER, "--output {f}/short", "to be a new file"),
    (SHORTLIST, "", "--output"),
    (SHORTLIST, "--output {f}/source", "to be a new file"),
    (SHORTLIST, "--output {f}/new --candidates 0", "from 1 to"),
    (SHORTLIST, "--target {f}/short --output {f}/new", "for each of 5 sentences"),
    ("export {f}/preset {f}/new", "--shortlist {f}/source", "`Shortlist.save`"),
    ("export {f}/preset {f}/new", "--int8", "--int8 with --jit-compile, of a SavedModel. Received: no --jit-compile"),
    ("export {f}/preset {f}/new", "--int8 --format onnx", "of a SavedModel. Received: --format onnx"),
    (TRANSLATE, "--shortlist {f}/none", "{f}/none"),
    (TRANSLATE, "--shortlist {f}/source", "`Shortlist.save`"),
    (TRANSLATE, "--beam 0", "--beam: expected a whole number from 1 to 1,000. Received: '0'"),
    (TRANSLATE, "--beam 3 --n-best 7", "n_best to be at most beam_size=3"),
    (TRANSLATE, "--n-best 2 --format text", "--format tsv or jsonl"),
    (TRANSLATE, "--format jsonl --fields text,tone", "Received: tone"),
    (TRANSLATE, "--length-penalty nan", "--length-penalty: expected a number from 0 to 10. Received: 'nan'"),
    ("translate {f}/bare", "{f}/none", "No such file"),
    (TRANSLATE, "--output {f}/other", "to be a new file"),
    (TRANSLATE, "--html {f}/new --pharaoh {f}/new", "There is already"),
    (TRANSLATE, "--png {f}", "new or empty"),
    (TRANSLATE, "--samples 2 --early-stopping --beam 3", "Expected no --samples with --beam, --early-stopping"),
    (TRANSLATE, "--samples 2 --shortlist a", "Expected no --samples with --shortlist"),
    (TRANSLATE, "--temperature 0.5 --seed 0", "Expected --samples with --seed, --temperature"),
    (TRANSLATE, "--threshold 0.5", "Expected --pharaoh with --threshold"),
    (TRANSLATE, "--replace-unknown {f}/source", "lines of a word, a tab and a word. Received: ['eins zwei']"),
    (TRANSLATE, "--replace-unknown {f}/none", "Received: a path that does not exist"),
    (TRANSLATE, "--split-sentences english", "uk. Received: 'english'"),
    (TRANSLATE, "--split-sentences", "uk. Received: None"),
    (TRANSLATE, "--split-sentences en --n-best 2", "Received: n_best=2"),
    (TRANSLATE, "--split-sentences en --pharaoh {f}/new", "alignments: True"),
    ("align {f}/preset", "{f}/one-side", "or a tab between, in line 2. Received: 'eins zwei'"),
    ("align {f}/preset", "{f}/three-sides", "in line 2. Received: 'a ||| b ||| c'"),
    ("align {f}/preset", "{f}/two-bad", "in line 1. Received: 'a'"),
    ("align {f}/preset", "{f}/one-side --symmetrize union", "Expected --reverse RUN with --symmetrize"),
    (FOLDERS, "{f}/none*", "which matches none"),
    (FOLDERS, "{f}/in/* {f}/more/*", "names of their own"),
    (FOLDERS, "{f}/.translate-corpus", "names of their own"),
    (FOLDERS, "{f}/bad.gz", "to be a whole gzip file"),
    (FOLDERS, "{f}/in/* --output {f}/in", "an output folder without 'b.txt'"),
    (FOLDERS, "{f}/in/* --output {f}/in/b.txt", "Expected a folder"),
    (FOLDERS, "{f}/in/* --format tsv --fields text", "--format jsonl"),
    (FOLDERS, "{f}/in/* --workers 0", "--workers: expected a whole number"),
]


@pytest.fixture(scope="module")
def work(folder, tmp_path_factory):
    """The preset and the files of all commands, and files that a command refuses."""
    work = Path(shutil.copytree(folder, tmp_path_factory.mktemp("refusals") / "work"))
    shutil.copytree(work / "preset", work / "bare", ignore=shutil.ignore_patterns("report.json"))
    files = {"bytes": b"a\n\xff\n", "one-side": b"eins ||| a\neins zwei\n", "three-sides": b"eins\ta\na ||| b ||| c\n"}
    files |= {"two-bad": b"a\nb longer one\n"}
    files |= {"in/a.txt.gz": gzip.compress(b"eins\n"), "in/b.txt": b"zwei\n", "more/a.txt": b"eins\n"}
    files |= {".translate-corpus": b"eins\n", "bad.gz": gzip.compress(b"eins\n" * 1000)[:-9]}
    for name, content in files.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_bytes(content)
    return work


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize(("start", "more", "sentence"), CASES)
def test_bad_options_and_files_are_refused(work, start, more, sentence, monkeypatch, capfd):
    monkeypatch.setattr("keras_attn.cli.translate_corpus.require", lambda *names, purpose: None)
    before, line = contents(work), [word.format(f=work) for word in f"{start} {more}".split()]
    status, out, error = called(main, line, capfd)
    assert (status, out, error.count("\n")) == (2, "", 1), error
    assert error.startswith(f"keras-attn {line[0]}: ")
    assert sentence.format(f=work) in error
    assert contents(work) == before
