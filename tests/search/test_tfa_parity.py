"""Steps of beam search against those published in the tests of tfa.seq2seq."""

import numpy as np
from keras import ops

from keras_attn.search.beam import merge, select
from keras_attn.search.constraints import candidates, constrain

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
    """One step in the form of tfa: token ids, parents, log-probabilities, lengths, finished."""
    batch, beams, _ = logits.shape
    shifted = np.concatenate([np.full((batch, beams, 3), -np.inf), logits], -1).reshape(batch * beams, -1)
    limits = constrain(ops.zeros((batch,), dtype="int32"), beams, max_length=100)
    extensions = candidates(
        ops.convert_to_tensor(shifted.astype("float32")),
        ops.convert_to_tensor(position, "int32"),
        limits,
        (),
        beams,
    )
    live = ops.convert_to_tensor(np.where(finished, -np.inf, log_probs).astype("float32"))
    chosen = select(live, extensions)

    def norm(length):
        return ((5 + length) / 6) ** 0.6

    # A pointer names one of 2K hypotheses: the finished ones of before, then the K new ones.
    old = ops.convert_to_tensor(np.where(finished, log_probs / norm(lengths), -np.inf).astype("float32"))
    new = chosen.log_probs / norm(position + 1)
    names = ops.broadcast_to(ops.arange(2 * beams, dtype="int32"), (batch, 2 * beams))
    _, order = merge(old, names[:, :beams], new, names[:, beams:])

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
    """tfa's test_large_beam_step: 8 slots, 5 tokens, one hypothesis; the end token is separate here."""
    log_probs = np.full((1, 8), -np.inf)
    log_probs[0, 0] = 0.0
    logits = np.concatenate([np.full((8, 3), -np.inf), np.full((8, 5), 0.0001)], -1).astype("float32")
    limits = constrain(ops.zeros((1,), dtype="int32"), 8, max_length=5)
    extensions = candidates(ops.convert_to_tensor(logits), ops.convert_to_tensor(0), limits, (), 8)
    chosen = select(ops.convert_to_tensor(log_probs.astype("float32")), extensions)
    found = ops.convert_to_numpy(chosen.log_probs)[0]
    np.testing.assert_allclose(found[:4], np.log(1 / 5), atol=1e-6)
    assert np.all(found[4:] == -np.inf)
    assert np.all(ops.convert_to_numpy(chosen.parents)[0, :4] == 0)
    assert sorted(ops.convert_to_numpy(chosen.token_ids)[0, :4].tolist()) == [4, 5, 6, 7]
