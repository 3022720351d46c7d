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
from keras import layers

import keras_attn
from recipes.tasks.corpora import POINT_IDS, PROBLEMS, chosen_points, point_sets
from recipes.tasks.pictures import polygons
from recipes.tasks.task import Task


def pointer_network(units: int = 96) -> keras.Model:
    """The model, from elements `(B, 3 + n, 3)`: those of the special ids, then the points."""
    elements = keras.Input((None, 3))
    cells = layers.LSTMCell(units), layers.LSTMCell(units)
    values, states, _ = keras_attn.RNNEncoder(cells[0], backward_cell=cells[1])(layers.Masking()(elements))
    encoder = keras.Model(elements, {"values": values, "cell_state": states, "elements": elements})
    cell, attention = layers.LSTMCell(2 * units), keras_attn.BahdanauAttention(units)
    decoder = keras_attn.AttentionDecoder(cell, attention, attend="after")
    return keras_attn.models.AttentionSeq2Seq(encoder, decoder, None, None, target_special_ids=POINT_IDS)


def main(argv=None) -> None:
    task = Task("pointer_network", __doc__, argv, epochs=6, items=48000)
    order, samples = {"bucket_boundaries": [8, 13], "target_special_ids": POINT_IDS, "seed": task.seed}, {}
    for problem, (solve, is_right) in PROBLEMS.items():
        elements, targets = point_sets(task.items, solve, task.seed, sizes=(5, 10))
        data = keras_attn.ParallelDataset.from_arrays(elements, targets, batch_size=128, **order)
        model = pointer_network()
        task.fit(model, data, learning_rate=3e-3, name=problem)
        for size in (5, 10):
            elements, targets = point_sets(task.tests(1000), solve, task.seed + 1, sizes=(size,))
            found = chosen_points(model.generate(elements, max_length=size + 1, beam_size=4))
            right = list(map(is_right, found, targets))
            task.count(f"{problem} of {size} points", right)
            samples[f"{problem} of {size} points"] = list(zip(targets, found, strict=True))
        if problem == "convex hull":
            polygons(elements, found, right, task.picture)
    measured = (
        f"{task.tests(1000):,} new sets of points each, beam 4; a polygon is right wherever its points begin. The "
        "paper's network has 92.0 % of the hulls of 5 points and 87.0 % of those of 10."
    )
    task.finish("random points", measured, samples)


if __name__ == "__main__":
    main()
