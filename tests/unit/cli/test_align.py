"""`keras-attn align`: links of given translations, of one direction and of two."""

import io
import sys

import pytest

from keras_attn import plots
from keras_attn.cli.main import main
from keras_attn.evaluation import grow_diag_final_and, parse_links
from keras_attn.translation import Translator
from tests.unit.cli.conftest import SOURCES, TARGETS, tiny_translator

PAIRS = [f"{source} ||| {target}" for source, target in zip(SOURCES, TARGETS, strict=True)]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A preset of the other direction."""
    folder = tmp_path_factory.mktemp("other") / "preset"
    tiny_translator(8, TARGETS, SOURCES).save_to_preset(folder)
    return folder


def links_of(folder, sources, targets):
    translator = Translator.from_preset(folder)
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    found = []
    for source, target in zip(sources, targets, strict=True):
        scored = translator.score([source], [target])[0]
        found.append(parse_links(plots.to_pharaoh(plots.align_words(scored, *tokenizers))).sure)
    return found


def printed(capsys, *arguments):
    assert main(["align", *map(str, arguments)]) == 0
    return [parse_links(line).sure for line in capsys.readouterr().out.splitlines()]


def test_links_are_those_of_the_attention(preset, tmp_path, capsys, monkeypatch):
    """From a file in small windows, in the order of the target words; from stdin, with tabs and more blanks."""
    (tmp_path / "pairs").write_text("".join(f"{pair}\n" for pair in PAIRS))
    expected = links_of(preset, SOURCES, TARGETS)
    assert [len(links) for links in expected] != [0] * len(PAIRS)
    assert (
        main(["align", str(preset), str(tmp_path / "pairs"), "--window", "2", "--output", str(tmp_path / "new")]) == 0
    )
    rows = [line.split() for line in (tmp_path / "new").read_text().splitlines()]
    assert [{tuple(map(int, link.split("-"))) for link in row} for row in rows] == expected
    assert rows[3] == sorted(rows[3], key=lambda link: int(link.split("-")[1]))
    text = "".join(f" {pair.replace(' ||| ', chr(9)).replace(' ', '  ')}\n" for pair in PAIRS).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text))))
    assert printed(capsys, preset) == expected
    everything = printed(capsys, preset, tmp_path / "pairs", "--threshold", 0)
    assert everything[0] == {(i, j) for i in range(2) for j in range(3)}


def test_both_directions_are_joined(preset, other, tmp_path, capsys):
    (tmp_path / "pairs").write_text("".join(f"{pair}\n" for pair in PAIRS))
    forward = links_of(preset, SOURCES, TARGETS)
    backward = [{(i, j) for j, i in links} for links in links_of(other, TARGETS, SOURCES)]
    assert forward != backward
    joined = {
        "grow-diag-final-and": [grow_diag_final_and(*both) for both in zip(forward, backward, strict=True)],
        "intersection": [one & two for one, two in zip(forward, backward, strict=True)],
        "union": [one | two for one, two in zip(forward, backward, strict=True)],
    }
    given = preset, tmp_path / "pairs", "--reverse", other
    assert printed(capsys, *given) == joined["grow-diag-final-and"]
    for method, expected in joined.items():
        assert printed(capsys, *given, "--symmetrize", method) == expected
