"""The figure of the guide to attention."""

import numpy as np
import pytest

from recipes.pages import figures

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.once


def test_draws_the_figure_of_the_guide(tmp_path, capsys):
    path = tmp_path / "attention.svg"
    assert figures.main(["--output", str(path)]) == 0
    assert path.stat().st_size > 1000
    assert str(path) in capsys.readouterr().out
    guide = (figures.ROOT / "docs" / "guides" / "attention.md").read_text("utf-8")
    assert "](attention.svg)" in guide
    assert figures.SENTENCE in guide
    assert f"![{figures.ALT}](" in guide


def test_refuses_another_ending(tmp_path, capsys):
    assert figures.main(["--output", str(tmp_path / "attention.txt")]) != 0
    assert "attention.txt" in capsys.readouterr().err


def test_the_scores_of_a_word_give_its_alignment():
    from keras_attn import Translator

    translator = Translator.from_preset("phrases_en_fr")
    translation, step, scores = figures.explained(translator, figures.SENTENCE, figures.WORD)
    exponentials = np.exp(scores - scores.max())
    assert translation.tokens[step] == figures.WORD
    source = dict(zip(translation.source_tokens, translation.alignment[step], strict=True))
    told = {weight: word for word, weight in source.items() if weight > 0.1}
    assert {(f"{weight:.2f}", word.strip("▁")) for weight, word in told.items()} == {
        ("0.81", "orange"),
        ("0.18", "black"),
    }
    assert all(f"{weight:.2f} for “{word.strip('▁')}”" in figures.ALT for weight, word in told.items())
    np.testing.assert_allclose(exponentials / exponentials.sum(), translation.alignment[step], atol=1e-4)
