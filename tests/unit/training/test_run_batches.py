"""The batches of a run, of which the first may be left out in an epoch that is resumed."""

import numpy as np

from keras_attn import ParallelDataset, Tokenizer
from keras_attn.training.callbacks import RunBatches


def test_each_fit_sees_first_the_two_batches_that_vary():
    """Those at the place where an epoch was resumed may agree in a length, which TensorFlow would take for static."""
    lines = [" ".join(["a"] * length) for length in range(1, 41)]
    tokenizer = Tokenizer.train(lines, level="word", vocabulary_size=5)
    dataset = ParallelDataset.from_text(lines, lines, tokenizer, tokenizer, batch_size=4, seed=3)
    batches = RunBatches(dataset)
    whole = [labels for _, labels, _ in (batches[index] for index in range(len(batches)))]
    for first in (3, 0):  # the rest of an epoch, and then whole ones
        batches.start(first)
        assert len(batches) == len(whole) - first
        for index in range(2):
            np.testing.assert_array_equal(batches[index][1], whole[index])
        batches.begin(0)
        for index, labels in enumerate(whole[first:]):
            np.testing.assert_array_equal(batches[index][1], labels)
