"""Bad options of the studies and pages are refused in one sentence, before anything is begun."""

import json
import shutil

import pytest

from recipes import sweep
from recipes.pages import results
from recipes.studies import (
    alignment,
    attention,
    ensembles,
    g2p,
    head_roles,
    heads,
    ingredients,
    length,
    low_resource,
    showcase,
)
from tests.hostile import sentence_of
from tests.unit.recipes.small_study import TINY, write_gold

FOLDERS = "--corpus {corpus} --out {out}"
TRAINED = f"{FOLDERS} --source en --target fr"
BEGIN = {length: f"{TRAINED} --set {' '.join(TINY)}", sweep: "", results: ""}
BEGIN |= dict.fromkeys((g2p, alignment, heads, head_roles, showcase), FOLDERS)
CASES = [
    (length, "--max-steps 0", "--max-steps of at least 1"),
    (length, "--set luong.units=3", "recipe among: rnnsearch, rnnencdec"),
    (length, "--set rnnsearch.units=30", "equal size, within 5%"),
    (length, "--size-tolerance -1", "a number from 0 to 100"),
    (length, "--set rnnsearch.min_frequency=2", "Expected the same level"),
    (length, "--out {corpus}", "or a study's"),
    (attention, "--scores dot,tanh", "Received: 'tanh'"),
    (ingredients, "--ingredients salt", "--ingredients among: base,"),
    (ingredients, "--seeds 0", "from 1 to 100. Received: '0'"),
    (ingredients, "--set metric=wer", "scored by BLEU. Received: wer"),
    (ensembles, "--seeds 1", "--seeds of at least 2, for an ensemble"),
    (low_resource, "--sizes 8,33", "--sizes from 1 to 32"),
    (low_resource, "--sizes 8 --adapted word_dropout=2", "from 0 to 1. Received: 2"),
    (low_resource, "--sizes 8 --set target_vocabulary_size=6000", "Expected vocabulary_size of at most"),
    (g2p, "--languages fre,french", "--languages among: all,high,medium,low,eng_us"),
    (g2p, "--languages fre", "fre"),
    (g2p, "--from nematus=runs/low", "SYSTEM=RUN with a system of: hard_monotonic,rnnsearch. Received: 'nematus="),
    (g2p, "--from rnnsearch=a rnnsearch=b", "one run for each system. Received: rnnsearch=a rnnsearch=b"),
    (g2p, "--minutes 0", "--minutes above 0"),
    (g2p, "--set metric=bleu", "scored by WER. Received: bleu"),
    (alignment, "--gold {tmp}/none", "enfr.src-tgt.gz"),
    (alignment, "--data {tmp}", "Expected --gold"),
    (alignment, "--gold {gold} --development 13", "from 1 to 12. Received: 13"),
    (alignment, "--gold {gold} --source fr --target en", "English to French"),
    (alignment, "--gold {gold} --systems nematus,giza", "Expected --systems among: rnnsearch,"),
    (alignment, "--gold {gold} --systems luong-general --both-ways nematus", "--both-ways among: luong"),
    (alignment, "--gold {gold} --development 3 --systems none --earlier {tmp}/none", "none"),
    (alignment, "--gold {gold} --development 3 --earlier {corpus}/val.en", "to be a report.json"),
    (alignment, "--gold {gold} --development 3 --earlier {begun}/study.json", "It has another study, corpus"),
    (alignment, "--gold {gold} --development 3 --systems nematus-aligner", "Expected eflomal to be installed"),
    (heads, "{0} {tmp} --lines 1", "different runs"),
    (heads, "{0} --lines 1 8", "--lines of test, from 1 to 7, that are not blank. Received: 8"),
    (heads, "{0} --lines 1 2 1", "--lines that differ. Received: 1 2 1"),
    (heads, "{0} --lines 1 --split dev", "among: train, val, test"),
    (heads, "{0} --lines 1 --max-words 1", "at most 1 words"),
    (heads, "{0} {tagged} --lines 1", "the same --tags"),
    (heads, "{tagged} --lines 1", "a source vocabulary with the tag <2fr>"),
    (head_roles, "{0}", "Expected a run of a Transformer. Received: RNNSearch"),
    (showcase, "{0} {0}", "different runs"),
    (showcase, "{0} {1} --min-words 99", "at least 99 words"),
    (showcase, "{0} {1} --min-words 5 --out {corpus}", "new or empty"),
    (sweep, "{0} --beams 0", "--beams from 1 to 1,000"),
    (results, "{tmp}", "RUN and --report together"),
    (results, "--report digits/run", "RUN and --report together"),
    (results, "{tmp} --report ../run/run", "CORPUS/NAME"),
    (results, "{tmp}/none --report digits/run", "no"),
    (results, "{begun} --report digits/run", "Received: 'nosuch'"),
]


@pytest.fixture(scope="module")
def places(corpus, runs, tmp_path_factory):
    """The folders that the cases name."""
    found = {name: tmp_path_factory.mktemp("places") / name for name in ("tmp", "begun", "gold", "tagged")}
    found["tmp"].mkdir()
    found["begun"].mkdir()
    for name in ("study.json", "report.json"):
        (found["begun"] / name).write_text('{"study": "nosuch"}')
    write_gold(found["gold"], ["a ||| b"] * 13, ["1-1"] * 13)
    shutil.copytree(runs[0], found["tagged"])
    report = json.loads((runs[0] / "report.json").read_text())
    (found["tagged"] / "report.json").write_text(json.dumps(report | {"tags": "target"}))
    return found | {"corpus": corpus}


@pytest.mark.parametrize(("study", "options", "message"), CASES)
def test_refused(study, options, message, places, runs, tmp_path, monkeypatch, in_process, capfd):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr("recipes.studies.aligners.is_installed", lambda name: "nematus-aligner" not in options)
    monkeypatch.delenv("KERAS_ATTN_DATA", raising=False)
    work, out = in_process(), tmp_path / "out"
    line = f"{BEGIN.get(study, TRAINED)} {options}".format(*runs, **places, out=out).split()
    assert message in sentence_of(study.main, line, capfd)
    assert work.done == []
    assert study in (length, low_resource) or not out.exists()  # these count words and pairs before
