"""Sources that are no text: rows stay with their targets, in buckets by length; and decoder inputs with labels."""

import numpy as np
import pytest

from keras_attn import ParallelDataset, SpecialIds, teacher_forcing

F, COUNT = 3, 97
RANDOM = np.random.default_rng(5)
FRAMES = [np.full((length, F), n + 1.0) for n, length in enumerate(RANDOM.integers(1, 23, COUNT))]
IMAGES = np.arange(COUNT, dtype="uint8")[:, None, None] * np.ones((1, 2, 5), "uint8")
TARGET = [[n + 4, *RANDOM.integers(4, 97, RANDOM.integers(0, 7))] for n in range(COUNT)]


def test_every_row_stays_with_its_target_in_few_static_shapes():
    source = {"frames": FRAMES, "more": (IMAGES, np.arange(COUNT))}
    data = ParallelDataset.from_arrays(source, TARGET, batch_size=8)
    text = ParallelDataset(
        [[5] * len(one) for one in FRAMES], TARGET, batch_size=8, source_special_ids=SpecialIds(end=None)
    )
    assert data.shapes == text.shapes
    assert 1 < len(data.shapes) <= 8
    seen, shapes = [], set()
    for inputs, labels, weights in data:
        assert [*inputs] == ["frames", "more", "decoder_token_ids"]
        frames, (images, numbers) = inputs["frames"], inputs["more"]
        assert [x.dtype for x in (frames, images, numbers)] == ["float32", "uint8", "int32"]
        shapes.add((*frames.shape[:2], labels.shape[1]))
        for frame, image, number, label, weight in zip(frames, images, numbers, labels, weights, strict=True):
            np.testing.assert_array_equal(frame[: len(FRAMES[number])], FRAMES[number])  # of a filler, too
            assert not frame[len(FRAMES[number]) :].any()
            np.testing.assert_array_equal(image, IMAGES[number])
            if weight.any():
                assert label[: int(weight.sum())].tolist() == [*TARGET[number], 3]
                seen.append(int(number))
    assert sorted(seen) == list(range(COUNT))
    assert shapes == set(data.shapes)


def test_a_source_without_lengths_goes_by_the_target_alone():
    data = ParallelDataset.from_arrays(IMAGES, TARGET, batch_size=16)
    assert {source for _, source, _ in data.shapes} == {1}
    assert data[0][0]["encoder_inputs"].shape == (16, 2, 5)
    data = ParallelDataset.from_arrays(FRAMES, TARGET, batch_size=8, max_length=7, on_too_long="truncate")
    assert max(inputs["encoder_inputs"].shape[1] for inputs, _, _ in data) == 7


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ((IMAGES, FRAMES[1:]), r"one number of rows\. Received: \[97, 96\]"),
        ([*FRAMES[1:], np.ones((3, 5))], r"differ in S alone\. Received: shapes such as \["),
        ({"x": IMAGES, "decoder_token_ids": IMAGES}, r"names of inputs of the source\. Received: decoder_token_ids"),
        (np.full((97, 2), 2**32 + 5), r"whole numbers of int32\. Received: 4294967301 to 4294967301"),
    ],
)
def test_what_does_not_fit_is_refused(source, message):
    with pytest.raises(ValueError, match=message):
        ParallelDataset.from_arrays(source, TARGET, batch_size=8)


@pytest.mark.parametrize("ids", [SpecialIds(), SpecialIds(pad=5, unknown=None, start=0, end=1), SpecialIds(end=None)])
def test_teacher_forcing_is_that_of_a_dataset(ids):
    rows = [[n for n in row if n not in ids.all] or [99] for row in TARGET]
    decoder, labels = teacher_forcing(rows, ids)
    one_batch = {"batch_size": COUNT, "bucket_boundaries": 1, "shuffle": False}
    inputs, expected, weights = ParallelDataset(rows, rows, target_special_ids=ids, **one_batch)[0]
    np.testing.assert_array_equal(decoder, inputs["decoder_token_ids"])
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(labels != ids.pad, weights == 1)


def test_teacher_forcing_takes_empty_rows_and_refuses_reserved_ids():
    assert teacher_forcing([[], []])[1].tolist() == [[3], [3]]
    with pytest.raises(ValueError, match=r"without pad, start and end .* Received: 3 in row 1"):
        teacher_forcing([[4], [4, 3]])
    with pytest.raises(ValueError, match="a target with a start id"):
        teacher_forcing([[4]], SpecialIds(start=None))
