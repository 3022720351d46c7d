"""Sampling: the same draws on every backend, from the right distribution."""

import functools
import itertools

import numpy as np
import pytest

from keras_attn.search import greedy_search, sample
from tests.search.searching import CONTENT, END, MODES, PAD, START, B, L, RecurrentModel, V, log_softmax, run


def mix(x):
    x = np.uint32(x)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def plain_sample(model, row, number, seed):
    """One plain sample in NumPy from the same hash, which every backend must give."""
    with np.errstate(over="ignore"):
        key = mix(mix(np.uint32(row) ^ mix(seed)) + np.uint32(40503 * number))
        tokens = []
        while tokens[-1:] != [END]:
            logits = model.logits_and_alignments(row, [*tokens, END])[0][-1]
            order = [*range(V), END]
            weights = np.array([np.exp(logits[t]) if t in CONTENT else 0.0 for t in range(V)] + [np.exp(logits[END])])
            if len(tokens) == L - 1:
                weights[:-1] = 0
            uniform = (mix(key ^ mix(len(tokens) + 1)) >> np.uint32(9)) / 2**23
            tokens.append(order[int(np.argmax(np.cumsum(weights) > uniform * weights.sum()))])
    return tokens + [0] * (L - len(tokens))


@pytest.mark.parametrize("mode", MODES)
def test_samples_are_those_of_the_hash(mode):
    model = RecurrentModel(seed=6)
    result = run(sample, model, mode, num_samples=5, seed=42)
    assert result.token_ids.shape == (B, 5, L)
    for row, number in itertools.product(range(B), range(5)):
        assert result.token_ids[row, number].tolist() == plain_sample(model, row, number, 42), (row, number)


def test_samples_follow_the_distribution():
    model, count = RecurrentModel(seed=8), 4001
    cases = {
        "plain": ({}, lambda p: p),
        "temperature": ({"temperature": 0.5}, lambda p: p**2),
        "top k": ({"top_k": 2}, lambda p: p * (p >= np.sort(p)[-2])),
        "top p": ({"top_p": 0.7}, lambda p: p * (np.array([p[p > x].sum() for x in p]) < 0.7 * p.sum())),
    }
    for name, (options, change) in cases.items():
        result = run(sample, model, max_length=2, num_samples=count, seed=1, return_alignments=False, **options)
        for row in range(B):
            p = np.exp(log_softmax(model.logits_and_alignments(row, [END])[0][0]))
            p[[PAD, START]] = 0
            p = change(p)
            p = p / p.sum()
            found = np.bincount(result.token_ids[row, :, 0], minlength=V) / count
            assert np.all(np.abs(found - p) < 4 * np.sqrt(p * (1 - p) / count) + 1e-9), (name, row, found, p)


def test_a_seed_fixes_the_samples_and_one_candidate_is_greedy():
    model = RecurrentModel(seed=6)
    draw = functools.partial(run, sample, model, num_samples=7)
    np.testing.assert_array_equal(draw(seed=1).token_ids, draw(seed=1).token_ids)
    assert np.any(draw(seed=1).token_ids != draw(seed=2).token_ids)
    greedy = run(greedy_search, model)
    for options in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}):
        result = draw(seed=3, **options)
        np.testing.assert_array_equal(result.token_ids, np.repeat(greedy.token_ids, 7, axis=1))
        np.testing.assert_allclose(result.log_probs, np.repeat(greedy.log_probs, 7, axis=1), atol=1e-5)
