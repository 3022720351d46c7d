"""Every pair once an epoch, in batches of few static shapes, the same for a seed."""

import itertools

import numpy as np
import pytest

from keras_attn.data.batch_plan import choose_buckets
from keras_attn.data.dataset import ParallelDataset
from keras_attn.text import END_ID, PAD_ID, START_ID


def random_pairs(pairs, longest=23, seed=3):
    """Rows of ids whose first, unique id is the pair's number + 4 on both sides."""
    random = np.random.default_rng(seed)
    source = [[i + 4, *random.integers(4, 97, random.integers(0, longest))] for i in range(pairs)]
    target = [[i + 4, *random.integers(4, 97, random.integers(0, longest))] for i in range(pairs)]
    return source, target


def pairs_of(dataset):
    """(number, source row, target row) of every pair of an epoch, read back from the batches."""
    for inputs, labels, weights in dataset:
        for source, decoder, label, weight in zip(*inputs.values(), labels, weights, strict=True):
            real = int(weight.sum())
            assert weight.tolist() == [1] * real + [0] * (len(weight) - real)
            assert decoder[0] == START_ID
            if not real:
                assert source.tolist() == [END_ID] + [PAD_ID] * (len(source) - 1)
                assert not label.any()
                assert not decoder[1:].any()
                continue
            source, target = source[: source.tolist().index(END_ID)], label[: real - 1]
            assert label[real - 1] == END_ID
            assert not label[real:].any()
            assert decoder.tolist() == [START_ID, *target, *[PAD_ID] * (len(label) - real)]
            yield int(target[0]) - 4, source.tolist(), target.tolist()


def shapes_of(dataset):
    return [(*inputs["encoder_token_ids"].shape, labels.shape[1]) for inputs, labels, _ in dataset]


def order_of(dataset):
    return [number for number, _, _ in pairs_of(dataset)]


def test_a_batch_by_hand():
    options = {"batch_size": 3, "bucket_boundaries": 1, "shuffle": False}
    dataset = ParallelDataset([[4, 5], [6]], [[7], [8, 9, 5]], **options)
    inputs, labels, weights = dataset[0]
    assert inputs["encoder_token_ids"].tolist() == [[4, 5, 3], [6, 3, 0], [3, 0, 0]]
    assert inputs["decoder_token_ids"].tolist() == [[2, 7, 0, 0], [2, 8, 9, 5], [2, 0, 0, 0]]
    assert labels.tolist() == [[7, 3, 0, 0], [8, 9, 5, 3], [0, 0, 0, 0]]
    assert weights.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
    assert [array.dtype for array in (*inputs.values(), labels, weights)] == ["int32"] * 3 + ["float32"]
    assert len(dataset) == 1
    assert dataset.shapes == [(3, 3, 4)]
    assert dataset.report() == {
        "pairs": 2,
        "dropped_blank": 0,
        "dropped_too_long": 0,
        "truncated": 0,
        "source_tokens": 5,
        "target_tokens": 6,
        "padding": 1 - 11 / 21,
        "batches": 1,
    }


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("size", [{"batch_size": 17}, {"tokens_per_batch": 211}])
def test_every_pair_once_in_few_static_shapes(size, shuffle):
    source, target = random_pairs(499)
    dataset = ParallelDataset(source, target, shuffle=shuffle, **size)
    for _ in range(3):
        seen = sorted(pairs_of(dataset))
        assert seen == [(i, source[i], target[i]) for i in range(499)]
        assert set(shapes_of(dataset)) == set(dataset.shapes)
        dataset.on_epoch_end()
    assert 1 < len(dataset.shapes) <= 8
    positions = sum(batch * (s + t) for batch, s, t in shapes_of(dataset))
    real = sum(len(row) + 1 for row in source + target)
    assert dataset.report()["padding"] == pytest.approx(1 - real / positions)
    assert dataset.report()["batches"] == len(dataset)


def test_a_token_budget_holds():
    dataset = ParallelDataset(*random_pairs(997), tokens_per_batch=211)
    for batch, s, t in dataset.shapes:
        assert batch * max(s, t) <= 211
        assert batch < 8 or batch % 8 == 0
    assert max(batch for batch, _, _ in dataset.shapes) > min(batch for batch, _, _ in dataset.shapes)
    few = ParallelDataset(*random_pairs(97), batch_size=64)
    assert (len(dataset.shapes), len(few.shapes)) == (8, 2)


def test_given_boundaries_are_kept():
    source, target = random_pairs(211, longest=12)
    dataset = ParallelDataset(source, target, batch_size=7, bucket_boundaries=[np.int64(5), (5, np.int64(13)), 13])
    assert {(s, t) for _, s, t in dataset.shapes} == {(5, 5), (5, 13), (13, 13)}
    assert len(order_of(dataset)) == 211
    many = ParallelDataset(source, target, batch_size=7, bucket_boundaries=[*range(2, 15), *range(100, 300)])
    assert len(order_of(many)) == 211
    dropped = ParallelDataset(source, target, batch_size=7, bucket_boundaries=[5, 11])
    short = sum(len(s) < 11 and len(t) < 11 for s, t in zip(source, target, strict=True))
    assert dropped.report()["pairs"] == short == 211 - dropped.report()["dropped_too_long"]


def test_blank_and_too_long_pairs_are_counted():
    def counts(dataset):
        return [dataset.report()[key] for key in ("pairs", "dropped_blank", "dropped_too_long", "truncated")]

    source, target = [[4] * 6, [], [5], [6]], [[4], [5], [5] * 7, []]
    dropped = ParallelDataset(source, [[4], [5], [5], []], batch_size=2, max_length=6)
    assert counts(dropped) == [1, 2, 1, 0]
    cut = ParallelDataset(source, target, batch_size=2, max_length=6, on_too_long="truncate", shuffle=False)
    assert counts(cut) == [2, 2, 0, 2]
    assert [(s, t) for _, s, t in pairs_of(cut)] == [([4] * 5, [4]), ([5], [5] * 5)]
    assert cut.report()["source_tokens"] == 8


def test_the_order_is_a_function_of_seed_and_epoch():
    pairs = random_pairs(211)
    first, again, other = (ParallelDataset(*pairs, batch_size=13, seed=seed) for seed in (5, 5, 7))
    orders = []
    for epoch in range(3):
        assert first.epoch == epoch
        orders.append(order_of(first))
        again.set_epoch(epoch)
        assert order_of(again) == orders[-1] != order_of(other)
        first.on_epoch_end()
    assert len({tuple(order) for order in orders}) == 3
    again.set_epoch(0)
    assert order_of(again) == orders[0]


@pytest.mark.parametrize("size", [5, 40])
def test_epochs_of_some_batches_go_on_from_pass_to_pass(size):
    options = {"batch_size": 13, "seed": 5, "curriculum_epochs": 1}
    whole = ParallelDataset(*random_pairs(211), **options)
    parts, again = (ParallelDataset(*random_pairs(211), **options, batches_per_epoch=size) for _ in range(2))
    expected, found = [], []
    for _ in range(5):
        expected += [list(batch.rows) for batch in whole._order]
        whole.on_epoch_end()
    for epoch in range(len(expected) // size):
        assert len(parts) == len(list(parts)) == size
        again.set_epoch(epoch)
        assert order_of(again) == order_of(parts)
        found += sorted(list(batch.rows) for batch in parts._order)
        assert found[-size:] == sorted(expected[epoch * size : (epoch + 1) * size])
        parts.on_epoch_end()
    assert len(found) > 2 * parts.report()["batches"]
    assert parts.report() == whole.report()


def test_buckets_come_mixed_and_unshuffled_ones_in_order():
    pairs = random_pairs(997)
    shapes = shapes_of(ParallelDataset(*pairs, batch_size=13))
    assert sum(a != b for a, b in itertools.pairwise(shapes)) > len(shapes) / 2
    dataset = ParallelDataset(*pairs, batch_size=13, shuffle=False)
    order = order_of(dataset)
    dataset.on_epoch_end()
    assert order_of(dataset) == order


def test_a_curriculum_goes_from_short_to_long():
    dataset = ParallelDataset(*random_pairs(997), batch_size=13, curriculum_epochs=1)
    plain = ParallelDataset(*random_pairs(997), batch_size=13)
    sizes = [s + t for _, s, t in shapes_of(dataset)]
    # The first batch of the next bucket stands second, to show Keras what varies.
    assert sizes[:1] + sizes[2:] == sorted(sizes[:1] + sizes[2:])
    assert sizes[0] < sizes[-1]
    assert sorted(order_of(dataset)) == sorted(order_of(plain)) == list(range(997))
    for other in (dataset, plain):
        other.on_epoch_end()
    assert order_of(dataset) == order_of(plain)


@pytest.mark.parametrize("boundaries", [None, [(5, 7), (7, 5), (24, 24)], [(5, 24), (24, 24)], [(9, 24), 24], [24]])
def test_the_first_two_batches_differ_in_each_axis_that_varies(boundaries):
    pairs = random_pairs(211)
    for seed in range(11):
        options = {"bucket_boundaries": boundaries, "seed": seed, "shuffle": seed > 0}
        dataset = ParallelDataset(*pairs, batch_size=19, **options)
        for _ in range(2):
            shapes = shapes_of(dataset)
            for axis in (1, 2):
                varies = len({shape[axis] for shape in shapes}) > 1
                assert (shapes[0][axis] != shapes[1][axis]) == varies
            dataset.on_epoch_end()


@pytest.mark.parametrize("size", [{"batch_size": 11}, {"tokens_per_batch": 101}])
def test_shards_are_disjoint_and_in_step(size):
    source, target = random_pairs(307)
    shards = [ParallelDataset(source, target, shard=(index, 3), **size) for index in range(3)]
    for _ in range(2):
        orders = [order_of(shard) for shard in shards]
        assert sorted(itertools.chain(*orders)) == list(range(307))
        assert shapes_of(shards[0]) == shapes_of(shards[1]) == shapes_of(shards[2])
        assert max(map(len, orders)) - min(map(len, orders)) <= len(shards[0].shapes)
        for shard in shards:
            shard.on_epoch_end()


def test_two_buckets_are_the_best_two():
    random = np.random.default_rng(11)
    for _ in range(7):
        lengths = random.integers(2, 13, (53, 2))
        longest = lengths.max(axis=0)

        def positions(buckets, lengths=lengths):
            return sum(min(sum(b) for b in buckets if (pair <= b).all()) for pair in lengths)

        grid = itertools.product(range(2, longest[0] + 1), range(2, longest[1] + 1))
        best = min(positions([bucket, tuple(longest)]) for bucket in grid)
        chosen = choose_buckets(lengths, 2)
        assert chosen[-1] == tuple(longest)
        assert positions(chosen) == best


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (([[4]], [[4], [5]]), {}, "Received: 1 and 2"),
        (([[4], []], [[], [5]]), {}, "Received: 2 pairs, of which 2 are blank and 0 longer"),
        (([[4], [1, 3]], [[4], [5]]), {}, "Received: 3 in row 1"),
        (([[4]], [[-1]]), {}, "Received: -1 in row 0"),
        (([[4]], [[2**40]]), {}, "whole numbers below"),
        (([[4.5]], [[4]]), {}, "whole numbers below.* Received: 'float'"),
        (([4], [4]), {}, "whole numbers below.* Received: object of type 'int'"),
        (None, {"batch_size": 2.5}, "batch_size to be a whole number. Received: 2.5"),
        (None, {"seed": None}, "seed to be a whole number. Received: None"),
        (None, {"batch_size": None}, "Received: batch_size=None and tokens_per_batch=None"),
        (None, {"tokens_per_batch": 3}, "Received: batch_size=2 and"),
        (None, {"batch_size": 0}, "Received: batch_size=0"),
        (([[4] * 6], [[4]]), {"batch_size": None, "tokens_per_batch": 5}, "at least 7, .*: tokens_per_batch=5"),
        (None, {"max_length": 1}, "Received: 1"),
        (None, {"on_too_long": "keep"}, "'drop' or 'truncate'. Received: 'keep'"),
        (None, {"seed": -1}, "Received: -1"),
        (None, {"batches_per_epoch": 0}, "batches_per_epoch of 1 or more. Received: 0"),
        (None, {"shard": (2, 2)}, r"Received: \(2, 2\)"),
        *((None, {"shard": shard}, "shard 'auto', or ") for shard in (3, (0,), (0.0, 2.0), None, (0, 1, 2))),
        (None, {"bucket_boundaries": [(3, 5), (5, 3)]}, r"Received: \[\(3, 5\)"),
        (None, {"bucket_boundaries": []}, r"Received: \[\]"),
        (None, {"bucket_boundaries": 0}, "bucket_boundaries=0"),
    ],
)
def test_the_dataset_refuses(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        ParallelDataset(*(arguments or ([[4]], [[4]])), **{"batch_size": 2} | options)


@pytest.mark.parametrize("size", [{"batch_size": 10**9}, {"tokens_per_batch": 10**12}])
@pytest.mark.parametrize("count", [1, 2])
def test_a_batch_is_no_larger_than_the_data(size, count):
    """A batch of 10**9 rows would not fit into memory."""
    shards = [
        ParallelDataset(*random_pairs(60), **size, bucket_boundaries=1, shard=(index, count)) for index in range(count)
    ]
    assert {shapes_of(shard)[0][0] for shard in shards} == {64 // count}
    assert sorted(number for shard in shards for number in order_of(shard)) == list(range(60))
