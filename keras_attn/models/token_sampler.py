"""Scheduled sampling of tokens: before the teacher-forced pass, a loop of steps decides which tokens it reads."""

from collections.abc import Callable

import keras
from keras import ops

from keras_attn.backend import scan, without_gradients
from keras_attn.layers import ScheduledSampler


class TokenSampler(ScheduledSampler):
    """Replaces given target tokens by the model's own, in training, as `ScheduledSampling` says.

    No gradient flows through a sampled token. So the tokens can be chosen first, without gradients, by the model's
    single step, and the pass that has gradients is the teacher-forced one: its work stays outside the loop, and at
    probability 0 it is the same as without sampling, bit for bit. Dropout of the decoder and of the read-out acts in
    that pass only.

    It has no weights, so that those of a plain model fit, and the other way round.
    """

    def read(self, token_ids, memory, state, step: Callable):
        """The tokens that a step of training reads.

        Args:
            token_ids: `(B, T)`, the given target inputs.
            memory, state: As of `Seq2Seq.encode`.
            step: As `Seq2Seq.step`.

        Returns:
            `(B, T)`; the first token is always the given one.
        """
        probability = self.probability
        given = ops.transpose(token_ids)  # (T, B)
        later = given[1:]  # (T - 1, B)
        # Drawn for T = 1, too: the draws count the batches.
        uniforms = keras.random.uniform((2, *ops.shape(later)), dtype="float32", seed=self.seed_generator)
        if token_ids.shape[1] == 1:
            return token_ids
        xs = {"given": later, "chosen": uniforms[0] < probability, "uniform": uniforms[1]}  # each (T - 1, B)

        def advance(carry, x, memory):
            token_ids, state = carry
            logits, state, _ = step(token_ids, memory, state)
            token_ids = ops.where(x["chosen"], self._choose(logits, x["uniform"]), x["given"])  # (B,)
            return (token_ids, state), token_ids

        def run(memory, carry, xs):
            return scan(advance, carry, xs, constants=memory)[1]  # (T - 1, B)

        sampled = without_gradients(run, memory, (given[0], state), xs)
        return ops.transpose(ops.concatenate([given[:1], sampled], axis=0))

    def _choose(self, logits, uniform):
        """A token `(B,)` for each row of logits `(B, V)`."""
        logits = ops.cast(logits, "float32")
        if self.settings.choose == "argmax":
            return ops.cast(ops.argmax(logits, axis=-1), "int32")
        # The inverse of the distribution function takes one random number a row, Gumbel noise V of them.
        weights = ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))  # (B, V)
        below = ops.cumsum(weights, axis=-1)  # (B, V)
        passed = ops.sum(ops.cast(below <= uniform[:, None] * below[:, -1:], "int32"), axis=-1)  # (B,)
        return ops.minimum(passed, ops.shape(logits)[-1] - 1)  # the product may have been rounded up to the sum
