"""Pictures, looked at as a reader would: what stands where, is it square, is anything cut off."""

import matplotlib
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf

from keras_attn import plots

S, T = 5, 3
SOURCE = ["Das", "Äußerste", "kostet", "$5_{", "</s>"]
TARGET = ["l'extrême", "coûte", "5$"]
WEIGHTS = np.array([[0.5, 0.5, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0.25, 0.5, 0.25]])


def cut_off(figure):
    """Labels that reach beyond the edge of the figure."""
    figure.canvas.draw()
    width, height = figure.bbox.width, figure.bbox.height
    texts = [t for axes in figure.axes for t in axes.get_xticklabels() + axes.get_yticklabels()] + figure.texts
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts if t.get_text()]
    return [text for text, b in boxes if b.x0 < 0 or b.y0 < 0 or b.x1 > width or b.y1 > height]


def test_alignment_shows_each_weight_in_its_cell_and_each_label_beside_it():
    figure = plots.alignment(WEIGHTS, SOURCE, TARGET)
    assert cut_off(figure) == []
    picture, (axes,) = np.asarray(figure.canvas.buffer_rgba())[..., :3], figure.axes
    for row in range(T):
        for column in range(S):
            x, y = axes.transData.transform((column + 0.5, row + 0.5))
            cell = picture[round(picture.shape[0] - y), round(x)]
            np.testing.assert_allclose(cell / 255, WEIGHTS[row, column], atol=0.01)
    # As in the paper, the first target word is at the top.
    assert axes.transData.transform((0.5, 0.5))[1] > axes.transData.transform((0.5, 2.5))[1]
    top, left = axes.get_xticklabels(), axes.get_yticklabels()
    assert [t.get_text() for t in top] == SOURCE
    assert [t.get_text() for t in left] == TARGET
    box = axes.get_window_extent()
    assert all(t.get_window_extent().y0 >= box.y1 and t.get_rotation() == 90 for t in top)
    assert all(t.get_window_extent().x1 <= box.x0 for t in left)
    assert box.width / S == pytest.approx(box.height / T)  # square cells


def test_labels_may_be_numbers():
    """Such as those of the places that a pointer network chose."""
    (axes,) = plots.alignment(np.eye(2), [0.5, 0.25], np.array([4, 3])).axes
    assert [[t.get_text() for t in texts] for texts in (axes.get_xticklabels(), axes.get_yticklabels())] == [
        ["0.5", "0.25"],
        ["4", "3"],
    ]


def test_figure_grows_with_the_sentence_up_to_a_bound():
    sizes = []
    for length in (7, 31, 149):
        words = ["Donaudampfschiff"] * length
        sizes.append(max(plots.alignment(np.eye(length), words, words).get_size_inches()))
    assert sizes[0] < sizes[1] < sizes[2] < 20


def test_several_alignments_in_one_figure():
    panels = [(WEIGHTS, SOURCE, TARGET), (WEIGHTS.T, TARGET, SOURCE), (np.ones((1, 1)), ["a"], ["b"])]
    figure = plots.alignments(panels)
    assert [t.get_text() for t in figure.texts] == ["(a)", "(b)", "(c)"]
    assert cut_off(figure) == []
    boxes = [axes.get_window_extent() for axes in figure.axes]
    cells = [box.width / len(panel[1]) for box, panel in zip(boxes, panels, strict=True)]
    np.testing.assert_allclose(cells, cells[0])
    assert boxes[0].y1 == pytest.approx(boxes[1].y1)  # one row
    assert boxes[0].x0 == pytest.approx(boxes[2].x0)  # one column
    assert len(plots.alignments(panels, columns=1).axes) == 3
    assert len(plots.alignment(np.stack([WEIGHTS] * 3), SOURCE, TARGET).axes) == 3  # a panel for each head


def test_titles_instead_of_letters_and_smaller_squares():
    blank = [""] * S, [""] * T
    panels = [(WEIGHTS, SOURCE, TARGET), (WEIGHTS, SOURCE, blank[1]), (WEIGHTS, blank[0], TARGET), (WEIGHTS, *blank)]
    titles = ["layer 1", "$5_{", "layer 2", ""]
    figure = plots.alignments(panels, titles=titles, cell=0.16)
    assert [t.get_text() for t in figure.texts] == titles[:3]
    assert cut_off(figure) == []
    sizes = [axes.get_window_extent() for axes in figure.axes]
    np.testing.assert_allclose([box.width / figure.dpi for box in sizes], 0.16 * S)
    np.testing.assert_allclose([box.height / figure.dpi for box in sizes], 0.16 * T)
    labels = max(label.get_window_extent().width for label in figure.axes[0].get_yticklabels()) / figure.dpi
    inner = sizes[1].x0 - sizes[0].x1
    assert inner / figure.dpi < 0.4 < labels + 0.16  # the second column has no room for labels
    assert [t.get_text() for t in plots.alignments(panels[:1], titles=["one"]).texts] == ["one"]


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")])
def test_files_by_ending_are_repeatable(tmp_path, ending, start):
    contents = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.{ending}"
        plots.alignment(WEIGHTS, SOURCE, TARGET, path=path)
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].startswith(start)


def test_accents_greek_and_cyrillic_have_glyphs():
    words = ["Ærøskøbing", "œuvre", "Łódź", "Ελληνικά", "Русский", "naïve…", "»Größe«", "ñandú", "▁le", "№5", "…—"]
    plots.alignment(np.eye(len(words)), words, words).canvas.draw()  # a missing glyph would warn, an error here
    with pytest.warns(UserWarning, match="No installed font has the characters") as caught:
        plots.alignment(np.eye(2), ["a", "\U000e0fff"], ["b", "\U000e0fff"])
    assert len(caught) == 1


def test_relations_are_the_rows_of_one_word():
    weights = np.random.default_rng(0).dirichlet(np.ones(S), (2, 3, T))  # (layers, N, T, S)
    figure = plots.relations(weights, SOURCE, row=1)
    assert cut_off(figure) == []
    (axes,) = figure.axes
    assert [t.get_text() for t in axes.get_xticklabels()] == SOURCE
    names = [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2, 3)]
    assert [t.get_text() for t in axes.get_yticklabels()] == names
    np.testing.assert_array_equal(axes.collections[0].get_array(), [weights[n // 3, n % 3, 1] for n in range(6)])
    for own, row in ((weights[0], 1), (weights, T), (weights, -1), (weights, "it")):
        with pytest.raises(ValueError, match=rf"a row from 0 to T - 1\. Received: shape \(.*\), row {row!r}"):
            plots.relations(own, SOURCE, row)
    with pytest.raises(ValueError, match=r"Received: shape \(6, 5\) with 6 target and 4 source tokens"):
        plots.relations(weights, SOURCE[1:], 1)


def test_alignment_errors(tmp_path):
    with pytest.raises(ValueError, match=r"Received: shape \(3, 5\) with 5 target and 3 source tokens"):
        plots.alignment(WEIGHTS, TARGET, SOURCE)
    with pytest.raises(ValueError, match=r"shape \(T, S\)\. Received: shape \(5,\)"):
        plots.alignment(WEIGHTS[0], SOURCE, TARGET)
    with pytest.raises(ValueError, match=r"ends in \.png, \.svg, \.pdf\. Received: .*alignment\.jpg"):
        plots.alignment(WEIGHTS, SOURCE, TARGET, path=tmp_path / "alignment.jpg")
    with pytest.raises(ValueError, match="Received: 0 panels"):
        plots.alignments([])
    with pytest.raises(ValueError, match=r"a title for each of 1 panels\. Received: 2"):
        plots.alignments([(WEIGHTS, SOURCE, TARGET)], titles=["a", "b"])
    for cell in (0, float("nan")):
        with pytest.raises(ValueError, match=f"above 0 inches. Received: {cell}"):
            plots.alignments([(WEIGHTS, SOURCE, TARGET)], cell=cell)


HISTORY = {
    "epoch": [0, 1, 2, 3],
    "loss": [4.0, 3.0, 2.5, 2.25],
    "val_loss": [4.1, 3.2, 2.9, 3.0],
    "val_perplexity": [60.0, 25.0, 18.0, 5.0],
    "val_bleu": [None, 12.0, None, 21.5],
    "learning_rate": [1e-3] * 4,
}


def lines(axes):
    return [line.get_xydata() for line in axes.lines]


def test_training_curves_draw_what_is_there():
    figure = plots.training_curves(HISTORY)
    figure.canvas.draw()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Loss", "Perplexity, validation", "BLEU, validation"]
    loss, perplexity, bleu = figure.axes
    np.testing.assert_allclose(lines(loss)[0], np.c_[[1, 2, 3, 4], HISTORY["loss"]])
    np.testing.assert_allclose(lines(loss)[1], np.c_[[1, 2, 3, 4], HISTORY["val_loss"]])
    assert [t.get_text() for t in loss.texts] == ["training", "validation"]
    assert perplexity.get_yscale() == "log"
    np.testing.assert_allclose(lines(bleu)[0], [[2, 12.0], [4, 21.5]])
    assert [t.get_text() for t in bleu.texts] == ["21.5"]


def test_labels_of_lines_that_meet_are_moved_apart_in_their_order():
    for offset in (0.001, -0.001):
        history = {"loss": [4.0, 2.0], "val_loss": [4.0, 2.0 + offset]}
        texts = plots.training_curves(history).axes[0].texts
        heights = {text.get_text(): text.xy[1] for text in texts}
        assert abs(heights["training"] - heights["validation"]) == pytest.approx(0.1)
        assert (heights["validation"] > heights["training"]) == (offset > 0)


def test_training_curves_from_csv(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("epoch,updates,loss,val_bleu\n7,227,4.0,\n8,454,3.0,12.5\n", encoding="utf-8")
    loss, bleu = plots.training_curves(path, tmp_path / "curves.svg").axes
    np.testing.assert_allclose(lines(loss)[0], [[7, 4.0], [8, 3.0]])
    np.testing.assert_allclose(lines(bleu)[0], [[8, 12.5]])
    assert loss.get_xlabel() == "epoch"
    assert (tmp_path / "curves.svg").stat().st_size > 1000
    plots.training_curves({"loss": [2.0], "val_loss": [2.0, 1.0], "bleu": [1.0], "val_bleu": [float("nan")]})
    one_epoch = plots.training_curves({"loss": [2.0], "val_bleu": [3.0]})
    assert one_epoch.axes[0].lines[0].get_marker() == "o"  # a line of one point would not be seen
    with pytest.raises(FileNotFoundError, match=r"Received: '.*none\.csv', which does not exist"):
        plots.training_curves(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"one of loss, .* Received: epoch, seconds"):
        plots.training_curves({"epoch": [0], "seconds": [1.0]})


def test_no_global_state_is_touched():
    before = (dict(matplotlib.rcParams), matplotlib.get_backend(auto_select=False))
    plots.alignment(np.eye(2), ["a", "b"], ["c", "d"]).canvas.draw()
    plots.training_curves(HISTORY).canvas.draw()
    assert (dict(matplotlib.rcParams), matplotlib.get_backend(auto_select=False)) == before
    assert Gcf.get_all_fig_managers() == []  # pyplot's list of figures
