"""Search against brute force and against a plain Python beam search."""

import functools
import itertools
from functools import partial

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from keras import ops, tree

from keras_attn.search import SearchResult, beam_search, greedy_search, sample
from keras_attn.search.constraints import top_tokens
from tests.search.searching import (
    CONTENT,
    END,
    EVERYTHING,
    MODES,
    PAD,
    UNKNOWN,
    B,
    L,
    RecurrentModel,
    S,
    TableModel,
    V,
    allowed,
    brute_force,
    check_against,
    compiled,
    log_softmax,
    options_of,
    run,
    score,
)

# Brute force


@pytest.mark.parametrize("penalties", [("gnmt", 0.6, 0.3), ("average", 1.0, 0.0), ("none", 1.0, 0.3)])
def test_wide_beam_is_brute_force(penalties):
    model, longest, options = TableModel(), [5, 2, 4], options_of(*penalties)
    result = run(beam_search, model, beam_size=EVERYTHING, n_best=11, row_max_length=longest, **options)
    assert result.token_ids.shape == (B, 11, L)
    assert result.alignments.shape == (B, 11, L, S)
    for row in range(B):
        expected = brute_force(model, row, options, longest[row])
        check_against(result, row, expected)


def test_a_step_without_state_needs_none():
    rng = np.random.default_rng(7)
    table = ops.convert_to_tensor(rng.normal(size=(V, V)).astype("float32"))
    memory = {"mask": ops.ones((B, S), dtype="bool")}

    def step(token_ids, memory, state):
        return ops.take(table, token_ids, axis=0), state, ops.cast(memory["mask"], "float32") / S

    for search in (partial(beam_search, beam_size=3, n_best=3), greedy_search, partial(sample, seed=1, num_samples=2)):
        without = search(step, memory, (), max_length=L)
        beside = search(step, memory, {"unused": ops.zeros((B, 1))}, max_length=L)
        for one, other in zip(without, beside, strict=True):
            np.testing.assert_array_equal(ops.convert_to_numpy(one), ops.convert_to_numpy(other))


CONSTRAINTS = {
    "minimum": {"shortest": [4, 1, 3]},
    "prefix": {"prefix": [[4, 1], [], [6, 6, 6]]},
    "ended prefix": {"prefix": [[5, END], [4], [4, 4, 4, 4, END]]},
    "unigrams": {"ngram": 1},
    "all": {"shortest": [3, 5, 5], "prefix": [[4], [], [5, 4]], "banned": [UNKNOWN], "ngram": 2},
}


@pytest.fixture(scope="module")
def constrained():
    """A wide beam search; the constraints of a row are inputs, so that the first three share a program."""

    @functools.cache
    def search_with(banned, ngram):
        def search(memory, state, shortest, prefix):
            return beam_search(
                RecurrentModel().step,
                memory,
                state,
                beam_size=EVERYTHING,
                n_best=7,
                max_length=L,
                row_max_length=[5, 4, 5],
                row_min_length=shortest,
                forced_prefix=prefix,
                banned_token_ids=banned,
                no_repeat_ngram_size=ngram,
                coverage_penalty=0.2,
            )

        return compiled(search)

    return search_with


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_wide_beam_is_brute_force_under_constraints(constrained, name):
    model, longest = RecurrentModel(), [5, 4, 5]
    given = {"shortest": [1, 1, 1], "prefix": [[], [], []], "banned": [], "ngram": 0, **CONSTRAINTS[name]}
    shortest, prefix, banned, ngram = given.values()
    padded = np.array([row + [0] * (L - len(row)) for row in prefix], "int32")
    search = constrained(tuple(banned), ngram)
    result = search(model.memory, model.state, np.array(shortest, "int32"), padded)
    for row in range(B):
        options = options_of("gnmt", 1.0, 0.2)
        expected = brute_force(model, row, options, longest[row], shortest[row], prefix[row], banned, ngram)
        assert expected
        check_against(result, row, expected)


# A narrow beam, against the same rules in plain Python. The oracle goes on to the end, so it checks the stop
# too.


def plain_beam(model, row, beam_size, options, early_stopping):
    live, finished = [(0.0, [])], []
    for position in range(L):
        grown = []
        for log_prob, tokens in live:
            log_probs = log_softmax(model.logits_and_alignments(row, [*tokens, END])[0])[-1]
            grown += [(log_prob + log_probs[t], [*tokens, t]) for t in (*CONTENT, END)]
        if position == L - 1:
            grown = [x for x in grown if x[1][-1] == END]
        grown.sort(key=lambda x: -x[0])
        ended = [x for x in grown[:beam_size] if x[1][-1] == END]
        live = [x for x in grown if x[1][-1] != END][:beam_size]
        for log_prob, tokens in ended:
            logits, alignment = model.logits_and_alignments(row, tokens)
            log_probs = log_softmax(logits)[range(len(tokens)), tokens]
            mask = model.memory["mask"][row]
            finished.append((score(log_prob, alignment, mask, **options), tokens, log_probs, alignment))
        if early_stopping and len(finished) >= beam_size:
            break
    return sorted(finished, key=lambda x: -x[0])


@pytest.mark.parametrize(("mode", "early_stopping"), [(MODES[0], True), *((mode, False) for mode in MODES)])
def test_narrow_beam_is_plain_beam(mode, early_stopping):
    model = RecurrentModel(seed=3)
    options = options_of("average", 1.0) if early_stopping else options_of("gnmt", 0.6, 0.1)
    result = run(beam_search, model, mode, beam_size=3, n_best=2, early_stopping=early_stopping, **options)
    for row in range(B):
        check_against(result, row, plain_beam(model, row, 3, options, early_stopping))


@pytest.mark.parametrize("mode", MODES)
def test_beam_of_one_is_greedy_and_greedy_takes_the_best_token(mode):
    options = {"row_max_length": [5, 3, 4], "banned_token_ids": [5], "no_repeat_ngram_size": 2}
    for seed in range(3) if mode == "eager" else [0]:  # a model is compiled in
        model = RecurrentModel(seed)
        greedy = run(greedy_search, model, mode, **options)
        beam = run(beam_search, model, mode, beam_size=1, **options)
        for name, one, other in zip(SearchResult._fields, greedy, beam, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5, err_msg=name)
        for row, longest in enumerate(options["row_max_length"]):
            tokens = []
            while tokens[-1:] != [END]:
                left = [
                    t
                    for t in (1, 4, 6, END)
                    if allowed([*tokens, t], longest, 1, (), (), 2) and (t == END or len(tokens) + 1 < longest)
                ]
                last = model.logits_and_alignments(row, [*tokens, END])[0][-1]
                tokens.append(max(left, key=lambda t: last[t]))
            assert greedy.token_ids[row, 0].tolist() == tokens + [0] * (L - len(tokens))


def test_stops_when_no_hypothesis_can_overtake():
    """The third step of the model gives NaN: if it were taken, some score would be NaN."""
    logits = np.full((1, V), -20.0, "float32")
    logits[0, END] = 0.0

    def step(token_ids, memory, state):
        late = (state >= 2)[:, None]
        return (
            ops.where(late, float("nan"), logits),
            state + 1,
            ops.zeros_like(memory["mask"], dtype="float32"),
        )

    memory, state = {"mask": np.ones((2, S), "bool")}, np.zeros(2, "int32")
    for n_best in (1, 2):
        search = compiled(lambda m, s, n=n_best: beam_search(step, m, s, beam_size=3, n_best=n, max_length=L))
        result = search(memory, state)
        assert np.isfinite(result.scores).all()
        assert result.lengths[:, 0].tolist() == [1, 1]


@pytest.mark.parametrize(("share", "length"), [(0.32, L), (0.31, 1)])
def test_the_bound_is_the_best_possible_one(share, length):
    """One token ends with probability 0.5; another has `share`, and from then on probability 1 at each step.

    The norms of 1 and 5 tokens are 1 and 5 / 3, so that the long one is better where log share > 5 / 3 log 0.5, from
    0.315 on. Below that the search stops after its first step: the later ones give NaN.
    """
    first = np.full((1, V), -20.0, "float32")
    first[0, [END, 4, 5]] = np.log([0.5, share, 0.5 - share])
    goes_on, ends = np.full((2, 1, V), -30.0, "float32")
    goes_on[0, 4] = ends[0, END] = 0.0

    def step(token_ids, memory, state):
        later = ops.where((state >= L - 1)[:, None], ends, goes_on) + (0.0 if length > 1 else float("nan"))
        logits = ops.where((state == 0)[:, None], first, later)
        return logits, state + 1, ops.zeros_like(memory["mask"], dtype="float32")

    search = compiled(lambda m, s: beam_search(step, m, s, beam_size=2, max_length=L))
    result = search({"mask": np.ones((1, S), "bool")}, np.zeros(1, "int32"))
    assert result.lengths.tolist() == [[length]]
    expected = np.log(share) * 3 / 5 if length > 1 else np.log(0.5)
    np.testing.assert_allclose(result.scores, [[expected]], atol=1e-4)


# Properties


def subset(structure, rows):
    return tree.map_structure(lambda x: x[rows], structure)


@pytest.fixture(scope="module")
def searches():
    """Compiled once for each shape, since hypothesis only changes the arrays."""
    beams = {"beam_size": 3, "n_best": 2, "coverage_penalty": 0.2, "no_repeat_ngram_size": 3}

    def one(search, **options):
        def found(memory, state, limits, row_ids):
            own = {"row_ids": row_ids} if search is sample else {}
            return search(TableModel.step, memory, state, row_max_length=limits, max_length=L, **options, **own)

        return compiled(found, "graph" if "graph" in MODES else MODES[0])

    return {
        "beam": one(beam_search, **beams),
        "greedy": one(greedy_search),
        "sample": one(sample, num_samples=2, seed=7),
    }


@pytest.mark.parametrize("name", ["beam", "greedy", "sample"])
@hypothesis.given(seed=st.integers(0, 10**6), rows=st.permutations(range(B)), alone=st.integers(0, B - 1))
@hypothesis.settings(max_examples=7, deadline=None, derandomize=True)
def test_batch_mates_order_and_padding_change_nothing(searches, name, seed, rows, alone):
    search, model = searches[name], TableModel(seed)
    limits = np.random.default_rng(seed).integers(1, L + 1, B).astype("int32")
    row_ids = np.array([11, 5, 31], "int32")
    together = search(model.memory, model.state, limits, row_ids)
    arrays = (model.memory, model.state, limits, row_ids)

    def same(result, expected, source=S):
        np.testing.assert_array_equal(result.token_ids, expected.token_ids)
        np.testing.assert_array_equal(result.lengths, expected.lengths)
        np.testing.assert_allclose(result.scores, expected.scores, atol=1e-5)
        np.testing.assert_allclose(result.alignments[..., :source], expected.alignments, atol=1e-6)
        assert not result.alignments[..., source:].any()

    same(search(*subset(arrays, list(rows))), SearchResult(*subset(tuple(together), list(rows))))
    same(search(*subset(arrays, [alone])), SearchResult(*subset(tuple(together), [alone])))
    wider = dict(model.memory)
    wider["mask"] = np.pad(wider["mask"], [(0, 0), (0, 4)])
    wider["attention"] = np.pad(wider["attention"], [(0, 0)] * 3 + [(0, 4)], constant_values=9)
    same(search(wider, *arrays[1:]), together)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "xla"])
def test_a_large_batch_is_compacted(mode):
    """69 rows are searched in loops of 69, 35 and 18; 23 rows in one."""
    rows, n_best = 69, 2
    model, random = TableModel(seed=3, batch=rows), np.random.default_rng(3)
    prefix = random.integers(4, V, (rows, 2)) * (random.random((rows, 1)) < 0.3)
    limits = random.integers(1, L + 1, rows)
    arrays = model.memory, model.state, limits.astype("int32"), prefix.astype("int32")

    def search(memory, state, limits, prefix):
        return beam_search(
            model.step,
            memory,
            state,
            beam_size=3,
            n_best=n_best,
            max_length=L,
            row_max_length=limits,
            row_min_length=limits - 2,
            forced_prefix=prefix,
            coverage_penalty=0.2,
            no_repeat_ngram_size=2,
        )

    together = compiled(search, mode)(*arrays)
    of_part = compiled(search, mode)
    for start in range(0, rows, 23):
        part = list(range(start, start + 23))
        for whole, found in zip(together, of_part(*subset(arrays, part)), strict=True):
            np.testing.assert_allclose(whole[part], found, atol=1e-5)
    assert len(set(together.lengths[:, 0])) > 2


def test_forced_decoding_gives_the_scores_of_search():
    model = RecurrentModel(seed=2)
    found = run(beam_search, model, beam_size=5)
    forced = run(greedy_search, model, forced_prefix=found.token_ids[:, 0])
    for name, one, other in zip(SearchResult._fields, found, forced, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("mode", MODES)
def test_a_prefix_prevails_over_the_row_limit_and_ends_at_the_last_place(mode):
    model = RecurrentModel(seed=2)
    prefix = np.array([[4, 5, 6, 4, 5], [4, 4, 5, 0, 0], [6, 5, 4, 1, END]], "int32")
    expected = [[[4, 5, 6, 4, END]], [[4, 4, 5, END, 0]], [[6, 5, 4, 1, END]]]
    for search in (greedy_search, beam_search):
        result = run(search, model, mode, row_max_length=[2, 3, 1], forced_prefix=prefix)
        assert result.token_ids.tolist() == expected


def test_without_alignments():
    model = RecurrentModel(seed=2)
    for search, options in ((beam_search, {"coverage_penalty": 0.2}), (greedy_search, {})):
        kept, bare = (run(search, model, return_alignments=keep, **options) for keep in (True, False))
        assert bare.alignments is None
        np.testing.assert_array_equal(kept.token_ids, bare.token_ids)


# Precision and impossible rows


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_models_are_scored_in_float32(dtype):
    model = RecurrentModel(seed=4)

    def low(token_ids, memory, state):
        h = ops.cast(state[0]["h"], "float32")
        logits, state, alignment = model.step(token_ids, memory, [{"h": h}, ()])
        state = tree.map_structure(lambda x: ops.cast(x, dtype), state)
        return ops.cast(logits, dtype), state, ops.cast(alignment, dtype)

    def widened(token_ids, memory, state):
        logits, state, alignment = low(token_ids, memory, state)
        return ops.cast(logits, "float32"), state, ops.cast(alignment, "float32")

    def search(step):
        def found(memory, state):
            state = tree.map_structure(lambda x: ops.cast(x, dtype), state)
            return beam_search(step, memory, state, beam_size=3, n_best=2, max_length=L, coverage_penalty=0.1)

        return compiled(found)(model.memory, model.state)

    result, expected = search(low), search(widened)
    assert result.scores.dtype == result.token_log_probs.dtype == result.alignments.dtype == np.float32
    np.testing.assert_array_equal(result.token_ids, expected.token_ids)
    np.testing.assert_allclose(result.scores, expected.scores, atol=1e-5)


def test_impossible_rows_give_no_nan_and_disturb_no_others():
    model = TableModel(seed=1)
    expected = run(beam_search, model, beam_size=3)
    model.memory["logits"][0] = -np.inf  # nothing is possible at all
    model.memory["logits"][1, :, :, 4:] = -np.inf  # only <unk>, the end token, pad and start are
    beams, limits = {"beam_size": 3, "n_best": 3}, {"banned_token_ids": [1], "row_min_length": [1, 4, 1]}
    searches = {
        "beam": (beam_search, beams),
        "banned": (beam_search, beams | limits),
        "greedy": (greedy_search, limits),
        "sample": (sample, {"seed": 1, "num_samples": 3, "top_p": 0.9}),
    }
    for name, (search, options) in searches.items():
        result = run(search, model, **options)
        assert not any(np.isnan(x).any() for x in result), name
        assert not result.lengths[0].any()
        assert not result.token_ids[0].any()
        assert np.all(result.scores[0] == -np.inf)
        if name in ("banned", "greedy"):  # no token before the fourth, and no way to the fourth
            assert np.all(result.scores[1] == -np.inf)
        if name == "beam":
            np.testing.assert_array_equal(result.token_ids[2, 0], expected.token_ids[2, 0])
            assert set(np.unique(result.token_ids[1])) <= {PAD, UNKNOWN, END}


def test_the_best_of_a_large_vocabulary():
    """1,031 tokens, which 8 does not divide, are folded into strips; 97 are not."""
    random = np.random.default_rng(0)
    for vocabulary, count in itertools.product((1031, 97), (1, 5)):
        logits = random.normal(size=(B, vocabulary)).astype("float32")
        logits[0, 3:] = -np.inf
        logits[1, -2:] = 9.0, 8.0  # in what is left over
        values, token_ids = map(ops.convert_to_numpy, top_tokens(ops.convert_to_tensor(logits), count))
        assert token_ids.shape == (B, count)
        np.testing.assert_array_equal(values, -np.sort(-logits, axis=-1)[:, :count])
        np.testing.assert_array_equal(values, np.take_along_axis(logits, token_ids, axis=-1))
        assert all(len(set(row)) == count for row in token_ids.tolist())


# Errors, and the exported graph


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 6}, "1 <= n_best <= beam_size"),
        ({"beam_size": 2.5}, "beam_size to be a whole number"),
        ({"length_penalty": float("inf")}, "Received: length_penalty=inf"),
        ({"length_penalty": 1000.0}, "finite norms in float32. Received: length_penalty=1000.0"),
        ({"coverage_penalty": 1e39}, r"and at most 1e\+30. Received: coverage_penalty=1e\+39"),
        ({"normalization": "wu"}, "'average', 'gnmt', 'none'"),
        ({"normalization": np.ones(4, "float32")}, r"each of max_length=5 lengths. Received: .* shape \(4,\)"),
        ({"max_length": 0}, "whole number of at least 1"),
        ({"banned_token_ids": [END]}, "without the end token 3"),
        ({"no_repeat_ngram_size": -1}, "`no_repeat_ngram_size` >= 0"),
        ({"forced_prefix": np.ones((B, L + 1), "int32")}, "at most max_length=5"),
    ],
)
def test_options_are_checked(options, message):
    model = TableModel()
    with pytest.raises(ValueError, match=message):
        beam_search(model.step, model.memory, model.state, **{"max_length": L, **options})


def test_sample_options_and_memory_are_checked():
    model = TableModel()
    wrong = [{"temperature": t} for t in (0.0, 1e-40, 1e38, np.inf)]
    wrong += [{"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}]
    for options in (*wrong, {"top_k": 0.5}, {"num_samples": 0}):
        with pytest.raises(ValueError, match="Expected"):
            sample(model.step, model.memory, model.state, max_length=L, seed=0, **options)
    with pytest.raises(ValueError, match="mask"):
        greedy_search(model.step, {"values": 0}, model.state, max_length=L)
