"""The figures of the guides."""

import numpy as np
import pytest

from recipes.pages import figures

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.once


def test_draws_every_figure_that_the_guides_show(tmp_path, capsys):
    assert figures.main(["--output", str(tmp_path)]) == 0
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    guides = figures.ROOT / "docs" / "guides"
    assert drawn == {path.name for path in guides.glob("*.svg")}
    pages = "".join(path.read_text("utf-8") for path in guides.glob("*.md"))
    assert not [name for name in drawn if f"]({name})" not in pages]
    assert str(tmp_path) in capsys.readouterr().out


def test_the_scores_of_a_word_give_its_alignment():
    from keras_attn import Translator

    translator = Translator.from_preset("phrases_en_fr")
    translation, step, scores = figures.explained(translator, figures.SENTENCE, figures.WORD)
    exponentials = np.exp(scores - scores.max())
    assert translation.tokens[step] == figures.WORD
    np.testing.assert_allclose(exponentials / exponentials.sum(), translation.alignment[step], atol=1e-4)
