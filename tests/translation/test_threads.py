"""One translator for many threads: the results are those of a single thread."""

from concurrent.futures import ThreadPoolExecutor
from copy import copy

import numpy as np

from tests.translation.test_options import LINES, texts

THREADS = 8


def calls(translator):
    """Calls of several lengths and of every kind, each without arguments."""
    lines = [line for line in LINES if line]
    options = {"beam_size": 2, "batch_size": 2, "return_alignments": False}
    return [
        *(lambda n=n: translator.generate([" ".join(["s3 s5"] * n)], **options) for n in (1, 5, 9)),
        lambda: translator.generate(lines, beam_size=1),
        lambda: translator.sample(lines, seed=5, max_length=5),
        lambda: translator.score(lines, ["t1 t2"] * len(lines)),
    ]


def test_threads_get_what_one_thread_gets(translator):
    """Every call compiles or traces in one thread while the others are at work."""
    expected = [call() for call in calls(copy(translator))]
    shared = calls(copy(translator))  # nothing of which is compiled yet
    order = [number for start in range(THREADS) for number in np.roll(range(len(shared)), start)]
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda number: shared[number](), order))
    for number, result in zip(order, found, strict=True):
        assert texts(result) == texts(expected[number])
        np.testing.assert_allclose([t.score for t in result], [t.score for t in expected[number]], rtol=1e-5)
