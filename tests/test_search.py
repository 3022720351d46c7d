"""Search against brute force, against a plain Python beam search, and against tfa.seq2seq's published steps.

Axes are distinct primes: B 3, S 13, V 7, L 5, H 17, K and N as said.
"""

import itertools

import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_attn.search import SearchResult, beam_search, greedy_search, sample
from keras_attn.search.constraints import candidates, constrain, top_tokens
from keras_attn.search.selection import merge, select

B, S, V, L = 3, 13, 7, 5
PAD, UNKNOWN, START, END = 0, 1, 2, 3
CONTENT = (1, 4, 5, 6)  # what a hypothesis may hold besides the end token
EVERYTHING = 347  # a beam that loses nothing: 4^4 hypotheses and 4^4 endings or fewer at any step
MODES = {"tensorflow": ("eager", "graph", "xla"), "jax": ("jit",), "torch": ("eager",)}[keras.backend.backend()]


def compiled(function, mode=MODES[0]):
    """`function` of arrays in one of the backend's modes, with arrays out."""
    if mode == "jit":
        import jax

        # Compiling is nearly all the time that these tests take.
        run = jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})
    elif mode in ("graph", "xla"):
        import tensorflow as tf

        run = tf.function(function, jit_compile=mode == "xla")
    else:
        run = function

    def call(*arrays):
        result = run(*tree.map_structure(ops.convert_to_tensor, arrays))
        return SearchResult(*(None if x is None else ops.convert_to_numpy(x) for x in result))

    return call


# Two models. `step` is what search gets; `logits_and_alignments` tells the oracle the same in NumPy.


class TableModel:
    """The next token depends on the last one and its position; every row has tables of its own."""

    def __init__(self, seed=0, batch=B, source=S, scale=2.0):
        random = np.random.default_rng(seed)
        lengths = random.integers(1, source + 1, batch)
        self.memory = {
            "mask": np.arange(source) < lengths[:, None],
            "logits": random.normal(0, scale, (batch, L, V, V)).astype("float32"),
            "attention": random.normal(0, 2, (batch, L, V, source)).astype("float32"),
        }
        self.state = {"position": np.zeros(batch, "int32")}

    @staticmethod
    def step(token_ids, memory, state):
        flat = state["position"] * V + token_ids  # (R,)
        logits = ops.reshape(memory["logits"], (-1, L * V, V))
        scores = ops.reshape(memory["attention"], (-1, L * V, ops.shape(memory["mask"])[1]))
        logits = ops.take_along_axis(logits, flat[:, None, None], axis=1)[:, 0]  # (R, V)
        scores = ops.take_along_axis(scores, flat[:, None, None], axis=1)[:, 0]  # (R, S)
        alignment = ops.softmax(ops.where(memory["mask"], scores, -1e9))
        return logits, {"position": ops.minimum(state["position"] + 1, L - 1)}, alignment

    def logits_and_alignments(self, row, tokens):
        """What each token of a sequence was chosen from, and where the model looked. (T, V), (T, S)."""
        previous = [START, *tokens[:-1]]
        where = range(len(tokens)), previous
        scores = np.where(self.memory["mask"][row], self.memory["attention"][row][where], -1e9)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return self.memory["logits"][row][where], weights / weights.sum(-1, keepdims=True)


class RecurrentModel:
    """h' = tanh(E y + h W + memory), logits = h' O: the whole history matters, so parents do."""

    def __init__(self, seed=0, units=17):
        random = np.random.default_rng(seed)
        self.embeddings = random.normal(size=(V, units)).astype("float32")
        self.recurrent = (random.normal(size=(units, units)) / 3).astype("float32")
        self.output = (random.normal(size=(units, V)) / 2).astype("float32")
        self.attention = random.normal(size=(units, S)).astype("float32")
        self.memory = {
            "mask": np.arange(S) < np.array([[13], [7], [2]]),
            "bias": random.normal(size=(B, units)).astype("float32"),
        }
        self.state = [{"h": random.normal(size=(B, units)).astype("float32")}, ()]

    def step(self, token_ids, memory, state):
        embedded = ops.take(ops.convert_to_tensor(self.embeddings), token_ids, axis=0)
        h = ops.tanh(embedded + ops.matmul(state[0]["h"], self.recurrent) + memory["bias"])
        scores = ops.where(memory["mask"], ops.matmul(h, self.attention), -1e9)
        return ops.matmul(h, self.output), [{"h": h}, ()], ops.softmax(scores)

    def logits_and_alignments(self, row, tokens):
        h, logits, alignments = self.state[0]["h"][row].astype("float64"), [], []
        for token in [START, *tokens[:-1]]:
            h = np.tanh(self.embeddings[token] + h @ self.recurrent + self.memory["bias"][row])
            weights = np.exp(h @ self.attention) * self.memory["mask"][row]
            logits.append(h @ self.output)
            alignments.append(weights / weights.sum())
        return np.array(logits), np.array(alignments)


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    highest = logits.max(-1, keepdims=True)
    return logits - highest - np.log(np.exp(logits - highest).sum(-1, keepdims=True))


def score(log_prob, alignment, mask, normalization, length_penalty, coverage_penalty):
    length = len(alignment)
    norm = {"gnmt": ((5 + length) / 6) ** length_penalty, "average": length**length_penalty, "none": 1}
    covered = np.minimum(alignment.sum(0)[mask], 1)
    return log_prob / norm[normalization] + coverage_penalty * np.log(covered).sum()


def allowed(tokens, longest, shortest, prefix, banned, ngram):
    """Whether a whole sequence (end token last) is one that search may return."""
    if len(tokens) > longest or len(tokens) < min(shortest, longest):
        return False
    if list(tokens[: len(prefix)]) != list(prefix) or set(tokens[len(prefix) :]) & set(banned):
        return False
    if not ngram:
        return True
    grams = [tuple(tokens[i : i + ngram]) for i in range(len(tokens) - ngram + 1)]
    return len(set(grams)) == len(grams)


def brute_force(model, row, options, longest=L, shortest=1, prefix=(), banned=(), ngram=0):
    """All V^T sequences, scored and sorted: [(score, tokens, token log-probabilities, alignment)]."""
    found = []
    for length in range(L):
        for body in itertools.product(CONTENT, repeat=length):
            tokens = [*body, END]
            if not allowed(tokens, longest, shortest, prefix, banned, ngram):
                continue
            logits, alignment = model.logits_and_alignments(row, tokens)
            log_probs = log_softmax(logits)[range(len(tokens)), tokens]
            mask = model.memory["mask"][row]
            found.append((score(log_probs.sum(), alignment, mask, **options), tokens, log_probs, alignment))
    return sorted(found, key=lambda x: -x[0])


def check_against(result, row, expected, atol=1e-4):
    """The n-best of `row` are the `expected` ones, field by field."""
    for n, (best, tokens, log_probs, alignment) in enumerate(expected):
        length = len(tokens)
        assert result.token_ids[row, n].tolist() == tokens + [0] * (L - length), (row, n)
        assert result.lengths[row, n] == length
        np.testing.assert_allclose(result.scores[row, n], best, atol=atol)
        np.testing.assert_allclose(result.log_probs[row, n], log_probs.sum(), atol=atol)
        np.testing.assert_allclose(result.token_log_probs[row, n, :length], log_probs, atol=atol)
        assert not result.token_log_probs[row, n, length:].any()
        if result.alignments is not None:
            np.testing.assert_allclose(result.alignments[row, n, :length], alignment, atol=atol)
            assert not result.alignments[row, n, length:].any()


def options_of(normalization="gnmt", length_penalty=1.0, coverage_penalty=0.0):
    return {
        "normalization": normalization,
        "length_penalty": length_penalty,
        "coverage_penalty": coverage_penalty,
    }


# Brute force


@pytest.mark.parametrize("coverage_penalty", [0.0, 0.3])
@pytest.mark.parametrize(("normalization", "length_penalty"), [("gnmt", 0.6), ("average", 1.0), ("none", 1.0)])
def test_wide_beam_is_brute_force(normalization, length_penalty, coverage_penalty):
    model, longest = TableModel(), [5, 2, 4]
    options = options_of(normalization, length_penalty, coverage_penalty)

    def search(memory, state):
        return beam_search(
            model.step,
            memory,
            state,
            beam_size=EVERYTHING,
            n_best=11,
            max_length=L,
            row_max_length=longest,
            **options,
        )

    result = compiled(search)(model.memory, model.state)
    assert result.token_ids.shape == (B, 11, L)
    assert result.alignments.shape == (B, 11, L, S)
    for row in range(B):
        expected = brute_force(model, row, options, longest[row])
        check_against(result, row, expected[:11])
        assert not result.lengths[row, len(expected) :].any()
        assert np.all(result.scores[row, len(expected) :] == -np.inf)


CONSTRAINTS = {
    "minimum": {"shortest": [4, 1, 3]},
    "prefix": {"prefix": [[4, 1], [], [6, 6, 6]]},
    "ended prefix": {"prefix": [[5, END], [4], [4, 4, 4, 4, END]]},
    "banned": {"banned": [UNKNOWN, 5]},
    "unigrams": {"ngram": 1},
    "bigrams": {"ngram": 2},
    "all": {"shortest": [3, 5, 5], "prefix": [[4], [], [5, 4]], "banned": [UNKNOWN], "ngram": 2},
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_wide_beam_is_brute_force_under_constraints(name):
    constraint, options, longest = CONSTRAINTS[name], options_of("gnmt", 1.0, 0.2), [5, 4, 5]
    model = RecurrentModel()
    prefix = constraint.get("prefix", [[], [], []])
    padded = np.array([row + [0] * (L - len(row)) for row in prefix], "int32")

    def search(memory, state):
        return beam_search(
            model.step,
            memory,
            state,
            beam_size=EVERYTHING,
            n_best=7,
            max_length=L,
            row_max_length=longest,
            row_min_length=constraint.get("shortest"),
            forced_prefix=padded if "prefix" in constraint else None,
            banned_token_ids=constraint.get("banned", ()),
            no_repeat_ngram_size=constraint.get("ngram", 0),
            **options,
        )

    result = compiled(search)(model.memory, model.state)
    for row in range(B):
        expected = brute_force(
            model,
            row,
            options,
            longest[row],
            constraint.get("shortest", [1, 1, 1])[row],
            prefix[row],
            constraint.get("banned", ()),
            constraint.get("ngram", 0),
        )
        assert expected
        check_against(result, row, expected[:7])


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
    for options in (options_of("gnmt", 0.6, 0.1), options_of("average", 1.0)):
        model = RecurrentModel(seed=3)

        def search(memory, state, model=model, options=options):
            return beam_search(
                model.step,
                memory,
                state,
                beam_size=3,
                n_best=2,
                max_length=L,
                early_stopping=early_stopping,
                **options,
            )

        result = compiled(search, mode)(model.memory, model.state)
        for row in range(B):
            check_against(result, row, plain_beam(model, row, 3, options, early_stopping)[:2])


@pytest.mark.parametrize("mode", MODES)
def test_beam_of_one_is_greedy_and_greedy_takes_the_best_token(mode):
    options = {
        "max_length": L,
        "row_max_length": [5, 3, 4],
        "banned_token_ids": [5],
        "no_repeat_ngram_size": 2,
    }
    for seed in range(3) if mode == "eager" else [0]:  # a model is compiled in
        model = RecurrentModel(seed)
        greedy = compiled(lambda m, s, f=model.step: greedy_search(f, m, s, **options), mode)
        beam = compiled(lambda m, s, f=model.step: beam_search(f, m, s, beam_size=1, **options), mode)
        greedy, beam = greedy(model.memory, model.state), beam(model.memory, model.state)
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


def test_stops_when_nothing_can_overtake():
    """A model whose third step would be NaN: had it been taken, some score would be NaN."""
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


# Properties


def subset(structure, rows):
    return tree.map_structure(lambda x: x[rows], structure)


@pytest.fixture(scope="module")
def searches():
    """Compiled once a shape: hypothesis changes the arrays alone."""
    options = {"max_length": L, "coverage_penalty": 0.2, "no_repeat_ngram_size": 3}

    def beam(memory, state, limits, row_ids):
        return beam_search(TableModel.step, memory, state, beam_size=3, n_best=2, row_max_length=limits, **options)

    def greedy(memory, state, limits, row_ids):
        return greedy_search(TableModel.step, memory, state, row_max_length=limits, max_length=L)

    def draw(memory, state, limits, row_ids):
        return sample(
            TableModel.step,
            memory,
            state,
            row_max_length=limits,
            max_length=L,
            num_samples=2,
            seed=7,
            row_ids=row_ids,
        )

    mode = "graph" if "graph" in MODES else MODES[0]
    return {name: compiled(f, mode) for name, f in {"beam": beam, "greedy": greedy, "sample": draw}.items()}


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
def test_a_large_batch_lets_its_ended_rows_go(mode):
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
    run = compiled(search, mode)
    for start in range(0, rows, 23):
        part = list(range(start, start + 23))
        for whole, found in zip(together, run(*subset(arrays, part)), strict=True):
            np.testing.assert_allclose(whole[part], found, atol=1e-5)
    assert len(set(together.lengths[:, 0])) > 2


@pytest.mark.parametrize("early_stopping", [False, True])
def test_n_best_is_sorted_unique_and_begins_with_the_best(early_stopping):
    model = RecurrentModel(seed=5)

    def search(n_best):
        return compiled(
            lambda m, s: beam_search(
                model.step, m, s, beam_size=5, n_best=n_best, max_length=L, early_stopping=early_stopping
            )
        )(model.memory, model.state)

    one, five = search(1), search(5)
    np.testing.assert_array_equal(five.token_ids[:, :1], one.token_ids)
    np.testing.assert_allclose(five.scores[:, :1], one.scores, atol=1e-6)
    for row in range(B):
        assert np.all(np.diff(five.scores[row]) <= 0)
        assert len({tuple(tokens) for tokens in five.token_ids[row]}) == 5


def test_forced_decoding_finds_what_search_reports():
    model = RecurrentModel(seed=2)
    found = compiled(lambda m, s: beam_search(model.step, m, s, beam_size=5, max_length=L))(model.memory, model.state)
    forced = compiled(lambda m, s: greedy_search(model.step, m, s, max_length=L, forced_prefix=found.token_ids[:, 0]))(
        model.memory, model.state
    )
    for name, one, other in zip(SearchResult._fields, found, forced, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("mode", MODES)
def test_a_prefix_prevails_over_the_row_limit_and_ends_at_the_last_place(mode):
    model = RecurrentModel(seed=2)
    prefix = np.array([[4, 5, 6, 4, 5], [4, 4, 5, 0, 0], [6, 5, 4, 1, END]], "int32")
    expected = [[[4, 5, 6, 4, END]], [[4, 4, 5, END, 0]], [[6, 5, 4, 1, END]]]
    for search in (greedy_search, beam_search):
        run = compiled(
            lambda m, s, f=search: f(model.step, m, s, max_length=L, row_max_length=[2, 3, 1], forced_prefix=prefix),
            mode,
        )
        assert run(model.memory, model.state).token_ids.tolist() == expected


def test_without_alignments():
    model = RecurrentModel(seed=2)
    options = {"max_length": L, "coverage_penalty": 0.2}
    for search in (
        lambda m, s, keep: beam_search(model.step, m, s, return_alignments=keep, **options),
        lambda m, s, keep: greedy_search(model.step, m, s, return_alignments=keep, max_length=L),
    ):
        kept = compiled(lambda m, s, f=search: f(m, s, True))(model.memory, model.state)
        bare = compiled(lambda m, s, f=search: f(m, s, False))(model.memory, model.state)
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
        def run(memory, state):
            state = tree.map_structure(lambda x: ops.cast(x, dtype), state)
            return beam_search(step, memory, state, beam_size=3, n_best=2, max_length=L, coverage_penalty=0.1)

        return compiled(run)(model.memory, model.state)

    result, expected = search(low), search(widened)
    assert result.scores.dtype == result.token_log_probs.dtype == result.alignments.dtype == np.float32
    np.testing.assert_array_equal(result.token_ids, expected.token_ids)
    np.testing.assert_allclose(result.scores, expected.scores, atol=1e-5)


def test_impossible_rows_give_no_nan_and_disturb_no_others():
    model = TableModel(seed=1)
    expected = compiled(lambda m, s: beam_search(model.step, m, s, beam_size=3, max_length=L))(
        model.memory, model.state
    )
    model.memory["logits"][0] = -np.inf  # nothing is possible at all
    model.memory["logits"][1, :, :, 4:] = -np.inf  # only <unk>, the end token, pad and start are
    runs = {
        "beam": lambda m, s: beam_search(model.step, m, s, beam_size=3, n_best=3, max_length=L),
        "banned": lambda m, s: beam_search(
            model.step,
            m,
            s,
            beam_size=3,
            n_best=3,
            max_length=L,
            banned_token_ids=[1],
            row_min_length=[1, 4, 1],
        ),
        "greedy": lambda m, s: greedy_search(
            model.step, m, s, max_length=L, banned_token_ids=[1], row_min_length=[1, 4, 1]
        ),
        "sample": lambda m, s: sample(model.step, m, s, max_length=L, seed=1, num_samples=3, top_p=0.9),
    }
    for name, run in runs.items():
        result = compiled(run)(model.memory, model.state)
        assert not any(np.isnan(x).any() for x in result), name
        assert not result.lengths[0].any()
        assert not result.token_ids[0].any()
        assert np.all(result.scores[0] == -np.inf)
        if name in ("banned", "greedy"):  # no token before the fourth, and no way to the fourth
            assert np.all(result.scores[1] == -np.inf)
        if name == "beam":
            np.testing.assert_array_equal(result.token_ids[2, 0], expected.token_ids[2, 0])
            assert set(np.unique(result.token_ids[1])) <= {PAD, UNKNOWN, END}


# tfa.seq2seq (tensorflow/addons, tests/beam_search_decoder_test.py): K 3, V 5, end 0, length penalty 0.6, all
# logits 0.0001 but those below. tfa keeps live and finished hypotheses in one list ranked by normalised
# score; that list is the merge of ours. Its tokens 0..4 are 3..7 here.

TFA_LOGITS = {
    "live": {(0, 0, 2): 1.9, (0, 0, 3): 2.1, (0, 1, 3): 3.1, (0, 1, 4): 0.9, (1, 0, 1): 0.5, (1, 1, 2): 2.7}
    | {(1, 2, 2): 10.0, (1, 2, 3): 0.2},
    "ended": {(0, 0, 2): 1.9, (0, 0, 3): 2.1, (0, 1, 3): 3.1, (0, 1, 4): 0.9, (1, 0, 1): 0.5, (1, 1, 2): 5.7}
    | {(1, 2, 2): 1.0, (1, 2, 3): 0.2},
}


def tfa_step(logits, log_probs, finished, lengths, position):
    """One step of ours, shown as tfa shows it: token ids, parents, log-probabilities, lengths, finished."""
    batch, beams, _ = logits.shape
    shifted = np.concatenate([np.full((batch, beams, 3), -np.inf), logits], -1).reshape(batch * beams, -1)
    offsets = ops.arange(batch, dtype="int32")[:, None]
    limits = constrain(ops.zeros((batch,), dtype="int32"), beams, max_length=100)
    extensions = candidates(
        ops.convert_to_tensor(shifted.astype("float32")),
        ops.convert_to_tensor(position, "int32"),
        limits,
        (),
        beams,
    )
    live = ops.convert_to_tensor(np.where(finished, -np.inf, log_probs).astype("float32"))
    chosen = select(live, extensions, offsets)

    def norm(length):
        return ((5 + length) / 6) ** 0.6

    # A pointer names one of 2K hypotheses: the finished ones of before, then the K new ones.
    old = ops.convert_to_tensor(np.where(finished, log_probs / norm(lengths), -np.inf).astype("float32"))
    new = chosen.log_probs / norm(position + 1)
    names = ops.arange(2 * beams, dtype="int32")[None] + offsets * 0
    _, order = merge(old, names[:, :beams], new, names[:, beams:], offsets)

    def both(before, after):
        after = ops.convert_to_numpy(after)
        together = np.concatenate([np.broadcast_to(before, after.shape), after], 1)
        return np.take_along_axis(together, ops.convert_to_numpy(order), 1)

    return (
        both(0, ops.convert_to_numpy(chosen.token_ids) - 3),
        both(np.arange(beams), chosen.parents),
        both(log_probs, chosen.log_probs),
        both(lengths, np.full((batch, beams), position + 1)),
        both(True, np.zeros((batch, beams), bool)),
    )


def tfa_logits(name):
    logits = np.full((2, 3, 5), 0.0001)
    for where, value in TFA_LOGITS[name].items():
        logits[where] = value
    return logits


def test_tfa_beam_step():
    log_probs = np.full((2, 3), -np.log(3))
    finished, lengths = np.zeros((2, 3), bool), np.full((2, 3), 2)
    ids, parents, log_probs, lengths, finished = tfa_step(tfa_logits("live"), log_probs, finished, lengths, 2)
    assert ids.tolist() == [[3, 3, 2], [2, 2, 1]]
    assert parents.tolist() == [[1, 0, 0], [2, 1, 0]]
    assert np.all(lengths == 3)
    assert not finished.any()
    expected = [[-1.318522, -1.880748, -2.080748], [-1.098804, -1.336722, -2.330112]]
    np.testing.assert_allclose(log_probs, expected, atol=2e-6)


def test_tfa_beam_step_with_end_token():
    log_probs = np.full((2, 3), -np.log(3))
    finished = np.array([[False, True, False], [False, False, True]])
    lengths = np.array([[2, 1, 2], [2, 2, 1]])
    ids, parents, log_probs, lengths, finished = tfa_step(tfa_logits("ended"), log_probs, finished, lengths, 2)
    assert ids.tolist() == [[0, 3, 2], [2, 0, 1]]
    assert parents.tolist() == [[1, 0, 0], [1, 2, 0]]
    assert lengths.tolist() == [[1, 3, 3], [3, 1, 3]]
    assert finished.tolist() == [[True, False, False], [False, True, False]]
    expected = [[-1.098612, -1.880748, -2.080748], [-1.111909, -1.098612, -2.330112]]
    np.testing.assert_allclose(log_probs, expected, atol=2e-6)


def test_a_beam_wider_than_the_first_step_keeps_empty_slots():
    """As tfa's test_large_beam_step: 8 slots, 5 tokens, one hypothesis; the end token stands apart here."""
    log_probs = np.full((1, 8), -np.inf)
    log_probs[0, 0] = 0.0
    offsets = ops.zeros((1, 1), dtype="int32")
    logits = np.concatenate([np.full((8, 3), -np.inf), np.full((8, 5), 0.0001)], -1).astype("float32")
    limits = constrain(ops.zeros((1,), dtype="int32"), 8, max_length=5)
    extensions = candidates(ops.convert_to_tensor(logits), ops.convert_to_tensor(0), limits, (), 8)
    chosen = select(ops.convert_to_tensor(log_probs.astype("float32")), extensions, offsets)
    found = ops.convert_to_numpy(chosen.log_probs)[0]
    np.testing.assert_allclose(found[:4], np.log(1 / 5), atol=1e-6)
    assert np.all(found[4:] == -np.inf)
    assert np.all(ops.convert_to_numpy(chosen.parents)[0, :4] == 0)
    assert sorted(ops.convert_to_numpy(chosen.token_ids)[0, :4].tolist()) == [4, 5, 6, 7]


# Sampling


def mix(x):
    x = np.uint32(x)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def plain_sample(model, row, number, seed):
    """One plain draw in NumPy, from the same hash: so every backend draws the same."""
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
    result = compiled(lambda m, s: sample(model.step, m, s, max_length=L, num_samples=5, seed=42), mode)(
        model.memory, model.state
    )
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
        result = compiled(
            lambda m, s, o=options: sample(
                model.step, m, s, max_length=2, num_samples=count, seed=1, return_alignments=False, **o
            )
        )(model.memory, model.state)
        for row in range(B):
            p = np.exp(log_softmax(model.logits_and_alignments(row, [END])[0][0]))
            p[[PAD, START]] = 0
            p = change(p)
            p = p / p.sum()
            found = np.bincount(result.token_ids[row, :, 0], minlength=V) / count
            assert np.all(np.abs(found - p) < 4 * np.sqrt(p * (1 - p) / count) + 1e-9), (name, row, found, p)


def test_a_seed_fixes_the_samples_and_one_candidate_is_greedy():
    model = RecurrentModel(seed=6)

    def draw(**options):
        return compiled(lambda m, s: sample(model.step, m, s, max_length=L, num_samples=7, **options))(
            model.memory, model.state
        )

    np.testing.assert_array_equal(draw(seed=1).token_ids, draw(seed=1).token_ids)
    assert np.any(draw(seed=1).token_ids != draw(seed=2).token_ids)
    greedy = compiled(lambda m, s: greedy_search(model.step, m, s, max_length=L))(model.memory, model.state)
    for options in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}):
        result = draw(seed=3, **options)
        np.testing.assert_array_equal(result.token_ids, np.repeat(greedy.token_ids, 7, axis=1))
        np.testing.assert_allclose(result.log_probs, np.repeat(greedy.log_probs, 7, axis=1), atol=1e-5)


def test_the_best_of_a_large_vocabulary():
    """1,031 tokens take the folded way, and 8 does not divide them; 97 the plain one."""
    random = np.random.default_rng(0)
    for vocabulary, count in itertools.product((1031, 97), (1, 5)):
        logits = random.normal(size=(B, vocabulary)).astype("float32")
        logits[0, 3:] = -np.inf
        logits[1, -2:] = 9.0, 8.0  # in what is left over
        rows = ops.arange(B, dtype="int32")[:, None]
        values, token_ids = map(ops.convert_to_numpy, top_tokens(ops.convert_to_tensor(logits), count, rows))
        assert token_ids.shape == (B, count)
        np.testing.assert_array_equal(values, -np.sort(-logits, axis=-1)[:, :count])
        np.testing.assert_array_equal(values, np.take_along_axis(logits, token_ids, axis=-1))
        assert all(len(set(row)) == count for row in token_ids.tolist())


# Errors, and the exported graph


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 6}, "1 <= n_best <= beam_size"),
        ({"length_penalty": -1.0}, "`length_penalty` >= 0"),
        ({"coverage_penalty": -1.0}, "`coverage_penalty` >= 0"),
        ({"normalization": "wu"}, "'average', 'gnmt', 'none'"),
        ({"max_length": 0}, "integer >= 1"),
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
    for options in ({"temperature": 0.0}, {"top_p": 0.0}, {"top_k": -1}, {"num_samples": 0}):
        with pytest.raises(ValueError, match="Expected"):
            sample(model.step, model.memory, model.state, max_length=L, seed=0, **options)
    with pytest.raises(ValueError, match="mask"):
        greedy_search(model.step, {"values": 0}, model.state, max_length=L)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the exported graph is TensorFlow's")
def test_exported_with_unknown_batch_and_source_length(tmp_path):
    import tensorflow as tf

    model = TableModel()
    options = options_of("gnmt", 0.6, 0.2)

    def search(mask, logits, attention, limits, prefix):
        result = beam_search(
            model.step,
            {"mask": mask, "logits": logits, "attention": attention},
            {"position": tf.zeros_like(limits)},
            beam_size=3,
            n_best=2,
            max_length=L,
            row_max_length=limits,
            forced_prefix=prefix,
            no_repeat_ngram_size=2,
            **options,
        )
        drawn = sample(
            model.step,
            {"mask": mask, "logits": logits, "attention": attention},
            {"position": tf.zeros_like(limits)},
            max_length=L,
            seed=1,
        )
        return {**result._asdict(), "drawn": drawn.token_ids, "drawn_alignments": drawn.alignments}

    signature = (
        tf.TensorSpec((None, None), "bool"),
        tf.TensorSpec((None, L, V, V)),
        tf.TensorSpec((None, L, V, None)),
        tf.TensorSpec((None,), "int32"),
        tf.TensorSpec((None, None), "int32"),
    )
    module = tf.Module()
    module.search = tf.function(search, input_signature=signature)
    graph = module.search.get_concrete_function().graph.as_graph_def()
    names = {node.op for node in graph.node} | {n.op for f in graph.library.function for n in f.node_def}
    assert not [name for name in names if name.startswith("Xla")]  # the stock server has none
    tf.saved_model.save(module, str(tmp_path))
    reloaded = tf.saved_model.load(str(tmp_path))
    limits = np.array([5, 3, 4], "int32")
    for prefix in (np.zeros((B, 0), "int32"), np.array([[4], [0], [5]], "int32")):
        arrays = model.memory["mask"], model.memory["logits"], model.memory["attention"], limits, prefix
        found, expected = reloaded.search(*arrays), search(*arrays)
        for name, x in expected.items():
            np.testing.assert_allclose(found[name], x, atol=1e-5, err_msg=name)
        assert found["alignments"].shape == (B, 2, L, S)
        # Other sizes through the same graph.
        alone = reloaded.search(*(x[1:2] for x in arrays))
        np.testing.assert_array_equal(alone["token_ids"], expected["token_ids"][1:2])
