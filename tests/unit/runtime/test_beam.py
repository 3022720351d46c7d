"""The beam search in NumPy against the one that every backend shares, on random models."""

import numpy as np
import pytest
from keras import ops, tree

from keras_attn.runtime.beam import beam_search, highest
from keras_attn.search import beam_search as beam_search_of_keras
from keras_attn.text import SpecialIds
from tests.search.searching import B, L, RecurrentModel, TableModel, compiled


def in_numpy(step):
    """A step on arrays."""

    def run(token_ids, memory, state):
        found = step(*tree.map_structure(ops.convert_to_tensor, (token_ids, memory, state)))
        return tree.map_structure(ops.convert_to_numpy, found)

    return run


class RecurrentModelByName(RecurrentModel):
    """Its state is a dict, as all states are in the runtime."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.state = self.state[0]

    def step(self, token_ids, memory, state):
        logits, (state, _), alignment = super().step(token_ids, memory, [state, ()])
        return logits, state, alignment


def padded(result):
    """The result with room for L tokens, as the other search has it."""
    room = L - result.token_ids.shape[2]
    arrays = result._asdict()
    for name in ("token_ids", "token_log_probs", "alignments"):
        if arrays[name] is not None:
            arrays[name] = np.pad(arrays[name], [(0, room if axis == 2 else 0) for axis in range(arrays[name].ndim)])
    return type(result)(**arrays)


def check_equal(model, options):
    """Both searches find the same, in all fields."""
    search = compiled(lambda memory, state: beam_search_of_keras(model.step, memory, state, max_length=L, **options))
    expected = search(model.memory, model.state)
    received = padded(beam_search(in_numpy(model.step), model.memory, model.state, max_length=L, **options))
    np.testing.assert_array_equal(received.token_ids, expected.token_ids)
    np.testing.assert_array_equal(received.lengths, np.maximum(expected.lengths, 0))
    for name in ("scores", "log_probs", "token_log_probs"):
        np.testing.assert_allclose(getattr(received, name), getattr(expected, name), rtol=1e-5, atol=1e-5)
    assert (received.alignments is None) == (expected.alignments is None)
    if expected.alignments is not None:
        np.testing.assert_allclose(received.alignments, expected.alignments, atol=1e-5)


def drawn_options(seed: int) -> dict:
    """Options of a beam search, any of them with a chance."""
    draw = np.random.default_rng(seed)
    beam_size = int(draw.choice([1, 2, 3, 5, 11]))

    def some(value, otherwise):
        return value if draw.random() < 0.4 else otherwise

    prefixes = draw.choice([0, 1, 4, 5, 6], (B, int(draw.integers(1, L))))
    prefixes = np.where(np.cumprod(prefixes, axis=1) > 0, prefixes, 0).astype("int32")  # free after the first free one
    return {
        "beam_size": beam_size,
        "n_best": int(draw.integers(1, beam_size + 1)),
        "normalization": str(draw.choice(["gnmt", "average", "none"])),
        "length_penalty": float(draw.choice([0.0, 0.6, 1.0, 2.0])),
        "coverage_penalty": some(0.3, 0.0),
        "row_max_length": some(draw.integers(0, L + 2, B).astype("int32"), None),
        "row_min_length": some(draw.integers(0, L + 2, B).astype("int32"), None),
        "forced_prefix": some(prefixes, None),
        "banned_token_ids": some([1, 5], ()),
        "no_repeat_ngram_size": int(some(draw.integers(1, 4), 0)),
        "early_stopping": some(True, False),
        "return_alignments": some(False, True),
    }


@pytest.mark.parametrize("end", [3, None])
@pytest.mark.parametrize("seed", range(60))
def test_both_searches_find_the_same(seed, end):
    model = RecurrentModelByName(seed) if seed % 2 else TableModel(seed)
    check_equal(model, drawn_options(seed) | {"special_ids": SpecialIds(end=end)})


@pytest.mark.parametrize(
    "wrong", [{"banned_token_ids": [3]}, {"forced_prefix": np.ones((B, L + 1), "int32")}, {"n_best": None}]
)
def test_both_searches_refuse_the_same(wrong):
    model, sentences = TableModel(0), set()
    for search, step in ((beam_search, in_numpy(model.step)), (beam_search_of_keras, model.step)):
        with pytest.raises(ValueError, match=f"Expected `?{next(iter(wrong))}") as caught:
            search(step, model.memory, model.state, max_length=L, **wrong)
        sentences.add(str(caught.value))
    assert len(sentences) == 1


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_finish_leave_the_batch_and_change_nothing_for_the_others(seed):
    model = TableModel(seed, batch=67, scale=4.0)
    sizes, step = [], in_numpy(model.step)

    def counted(token_ids, memory, state):
        sizes.append(len(token_ids))
        return step(token_ids, memory, state)

    options = {"beam_size": 3, "max_length": L}
    whole = padded(beam_search(counted, model.memory, model.state, **options))
    assert min(sizes) <= 3 * 67 // 2 < sizes[0] == 3 * 67
    for row in range(0, 67, 13):
        part = {name: array[row : row + 1] for name, array in model.memory.items()}
        alone = padded(beam_search(step, part, {"position": np.zeros(1, "int32")}, **options))
        np.testing.assert_array_equal(alone.token_ids[0], whole.token_ids[row])
        np.testing.assert_allclose(alone.alignments[0], whole.alignments[row], atol=1e-6)


def test_the_best_tokens_of_a_large_vocabulary(rng):
    values = rng.normal(size=(7, 5921)).astype("float32")
    values[2, 100:200] = 9.0  # equal ones
    best, places = highest(values, 13)
    np.testing.assert_array_equal(best, -np.sort(-values, axis=1)[:, :13])
    np.testing.assert_array_equal(np.take_along_axis(values, places, axis=1), best)
    assert (np.diff(places[2]) > 0).all()
