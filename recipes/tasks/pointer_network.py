"""Pointers: Vinyals, Fortunato, Jaitly. Pointer Networks. NIPS 2015, arXiv:1506.03134.

    python -m recipes.tasks.pointer_network

The decoder's attention is the output: p(C_i) = softmax(v^T tanh(W_1 e_j + W_2 d_i)) (eq. 3), and the next input is the
point that was chosen. Two problems, random points in the unit square each: the convex hull (section 3.1), and the
order of the first coordinates. One model is trained for each, with 5 and 10 points. The paper's are trained with 1
million examples of 5 to 50 points, read them in one direction with 512 units, and begin a hull at the point that comes
first; here both directions are read, and a hull begins at its leftmost point.

Expected: convex hull of 5 points right in percent 87.2; convex hull of 10 points right in percent 64.8; sorting of 5
points right in percent 92.0; sorting of 10 points right in percent 49.9. 0.26 M parameters, 6.2 minutes of one core
(jax; report, picture: `recipes/reports/points/pointer_network.json`, `.png`).
"""

import keras
import matplotlib
import numpy as np
from keras import layers, ops

import keras_attn
from keras_attn.plots.plot_style import BLUE, GREY, ORANGE, STYLE, new_figure, save
from recipes.tasks.corpora import ascending, hull
from recipes.tasks.task import Task, optimizer, search

UNITS = 96
IDS = keras_attn.SpecialIds(pad=0, unknown=None, start=1, end=2)  # the elements of a source; points follow


@keras.saving.register_keras_serializable(package="pointer_network")
class ChosenElement(layers.Layer):
    """The source element `(B, T, 3)` that each id is the number of."""

    def call(self, token_ids, memory):
        return ops.take_along_axis(memory["elements"], ops.cast(token_ids, "int32")[..., None], axis=1)


@keras.saving.register_keras_serializable(package="pointer_network")
class Pointer(layers.Layer):
    """Log-probabilities of the source's elements: the attention itself."""

    def call(self, outputs, alignments):
        return ops.log(ops.maximum(ops.cast(alignments, "float32"), 1e-9))


def pointer_network() -> keras.Model:
    """The model, from elements `(B, 3 + n, 3)`: those of the special ids, then the points."""
    elements = keras.Input((None, 3))
    cells = layers.LSTMCell(UNITS), layers.LSTMCell(UNITS)
    values, states, _ = keras_attn.RNNEncoder(cells[0], backward_cell=cells[1])(layers.Masking()(elements))
    encoder = keras.Model(elements, {"values": values, "cell_state": states, "elements": elements})
    decoder = keras_attn.AttentionDecoder(
        layers.LSTMCell(2 * UNITS), keras_attn.BahdanauAttention(UNITS), attend="after"
    )
    return keras_attn.models.AttentionSeq2Seq(
        encoder, decoder, ChosenElement(), Pointer(), target_special_ids=IDS, source_special_ids=IDS
    )


def main(argv=None) -> None:
    task = Task("pointer_network", __doc__, argv, epochs=6, items=48000)
    scores, samples = {}, {}
    for name, solve in (("convex hull", hull), ("sorting", ascending)):
        elements, targets = problems(task.items, solve, task.seed, sizes=(5, 10))
        data = keras_attn.ParallelDataset.from_arrays(
            elements, targets, batch_size=128, bucket_boundaries=[8, 13], target_special_ids=IDS, seed=task.seed
        )
        model = pointer_network()
        model.compile(optimizer(task, len(data), 3e-3), keras_attn.losses.SmoothedCrossentropy(0.0))
        task.fit(model, data, name=name)
        for size in (5, 10):
            elements, targets = problems(task.tests(1000), solve, task.seed + 1, sizes=(size,))
            found, _ = search(model, np.stack(elements), max_length=size + 1)
            same = [
                same_polygon(*pair) if solve is hull else pair[0] == pair[1]
                for pair in zip(found, targets, strict=True)
            ]
            scores[f"{name} of {size} points right in percent"] = 100 * np.mean(same)
            samples[f"{name} of {size} points"] = [[one, two] for one, two in zip(targets[:10], found, strict=False)]
            if solve is hull and size == 10:
                draw(task, elements, targets, found)
    measured = (
        f"{task.tests(1000):,} new sets of points each, beam 4; a polygon is right wherever its points begin. The "
        "paper's network has 92.0 % of the hulls of 5 points and 87.0 % of those of 10."
    )
    alt = "Four sets of ten points with the polygon that the network drew; one that is wrong is orange"
    task.finish("random points", scores, measured, alt, samples=samples)


def problems(count: int, solve, seed: int, sizes) -> tuple[list[np.ndarray], list[list[int]]]:
    """Elements `(3 + n, 3)`, of which the third number marks the end's, and the ids of the points to choose."""
    random = np.random.default_rng(seed)
    points = [random.random((sizes[i % len(sizes)], 2)).astype("float32") for i in range(count)]
    special = np.float32([[0, 0, 0], [0, 0, 0], [0, 0, 1]])
    elements = [np.concatenate([special, np.pad(one, [(0, 0), (0, 1)])]) for one in points]
    return elements, [[3 + i for i in solve(one)] for one in points]


def same_polygon(one: list[int], other: list[int]) -> bool:
    """Returns True if two rings of points are the same, wherever they begin."""
    if not one or one[0] not in other:
        return False
    start = other.index(one[0])
    return one == other[start:] + other[:start]


def draw(task: Task, elements, targets, found) -> None:
    """The first sets of points with the polygons found."""
    with matplotlib.rc_context(STYLE):
        figure = new_figure(figsize=(6.4, 1.7), layout="constrained")
        for axes, points, ring, right in zip(figure.subplots(1, 4), elements, found, targets, strict=False):
            colour = BLUE if same_polygon(ring, right) else ORANGE
            axes.plot(*points[[*ring, *ring[:1]], :2].T, color=colour, linewidth=1.2)
            axes.plot(*points[3:, :2].T, "o", color=GREY, markersize=3)
            axes.set(xticks=[], yticks=[], aspect="equal")
    save(figure, task.out / "picture.png")


if __name__ == "__main__":
    main()
