"""Alignments over images and spectrograms, looked at as a reader would."""

import numpy as np
import pytest

from keras_attn import plots
from tests.unit.plots.test_heatmaps import cut_off

IMAGE = np.full((6, 9), 1.0)
WEIGHTS = np.array([[0, 0, 0, 0, 1, 0], [0.5, 0, 0.25, 0, 0, 0.25]])  # two rows of three places


def pixels(figure, axes, x, y):
    picture = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    column, row = axes.transData.transform((x, y))
    return picture[round(picture.shape[0] - row), round(column)] / 255


@pytest.mark.parametrize("image", [IMAGE, np.stack([IMAGE] * 3, -1).astype("float32"), (255 * IMAGE).astype("uint8")])
def test_the_places_of_a_token_are_light(image):
    figure = plots.image_alignment(WEIGHTS, image, ["one", "$5_{"], grid=(2, 3))
    assert cut_off(figure) == []
    assert [axes.get_title() for axes in figure.axes] == ["", "one", "$5_{"]
    assert max(axes.images[0].get_array().max() for axes in figure.axes) <= 1, "of which matplotlib would warn"
    for axes, weights in zip(figure.axes, [np.ones(6), *WEIGHTS], strict=True):
        for place, weight in enumerate(weights / weights.max()):
            y, x = divmod(place, 3)
            np.testing.assert_allclose(pixels(figure, axes, 3 * x + 1, 3 * y + 1), 0.4 + 0.6 * weight, atol=0.01)


def test_the_grid_of_an_alignment_is_its_own_or_a_square_and_pictures_stand_in_rows(tmp_path):
    path = tmp_path / "image.svg"
    figure = plots.image_alignment(np.ones((7, 2, 2)), IMAGE, ["a"] * 7, columns=3, path=path)
    assert len(figure.axes) == 8
    assert path.read_bytes().startswith(b"<?xml")
    assert len(plots.image_alignment(np.ones((1, 4)), IMAGE, ["a"]).axes) == 2
    for weights in (np.ones((1, 5)), np.ones(4), np.ones((2, 4))):
        with pytest.raises(ValueError, match=r"T tokens over a grid of S places\. Received"):
            plots.image_alignment(weights, IMAGE, ["a"])
    with pytest.raises(ValueError, match=r"an image \(H, W\) or \(H, W, 3\)"):
        plots.image_alignment(WEIGHTS, np.ones((2, 3, 4)), ["a", "b"], grid=(2, 3))


@pytest.mark.parametrize("seconds", [None, 0.5])
def test_an_alignment_and_its_spectrogram_have_one_axis_of_time(seconds):
    frames = np.zeros((12, 8))
    frames[:, 2] = 1
    figure = plots.spectrogram_alignment(WEIGHTS / 4, frames, ["one", "$5_{"], seconds=seconds)
    assert cut_off(figure) == []
    upper, lower = figure.axes
    end = 12 if seconds is None else seconds
    assert upper.get_xlim() == lower.get_xlim() == (0, end)
    assert lower.get_xlabel() == ("frames" if seconds is None else "seconds")
    for row, weights in enumerate(WEIGHTS):
        for place, weight in enumerate(weights):
            shown = pixels(figure, lower, (place + 0.5) * end / 6, row + 0.5)
            np.testing.assert_allclose(shown, weight, atol=0.01)
    for feature in range(8):
        assert pixels(figure, upper, end / 3, feature + 0.5).max() == (0 if feature == 2 else 1)
    boxes = upper.get_window_extent(), lower.get_window_extent()
    assert boxes[0].x0 == pytest.approx(boxes[1].x0)
    assert boxes[0].y0 > boxes[1].y1
    with pytest.raises(ValueError, match=r"Received: shapes \(2, 6\) and \(12, 8\), 1 tokens"):
        plots.spectrogram_alignment(WEIGHTS, frames, ["one"])
