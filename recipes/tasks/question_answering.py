"""Question answering: Sukhbaatar, Szlam, Weston, Fergus. End-To-End Memory Networks. NIPS 2015, arXiv:1503.08895.

    python -m recipes.tasks.question_answering

The memory is a story, whose sentences are bags of words with their places (section 4.1). In each hop the question, with
what the hops before have found, attends to it, by the keys of one embedding and the values of the next ("adjacent"
weights, section 2.2). The stories are generated, in the form of tasks 1 and 2 of bAbI: where someone is follows from
one sentence, where a thing is from two: who took it last, and where that person went. The paper's have up to 88
sentences. Two models are trained, with three hops and with one.

Expected: one fact right in percent 100.0; two facts right in percent 97.4; one fact right in percent with one hop
100.0; two facts right in percent with one hop 38.6. 0.01 M parameters, 0.4 minutes of one core (jax; report, picture:
`recipes/reports/generated-stories/question_answering.json`, `.png`).
"""

import itertools

import keras
import numpy as np
from keras import layers, ops

import keras_attn
from keras_attn import plots
from recipes.tasks.corpora import FACTS, question_ids, questions
from recipes.tasks.task import Task, longest

UNITS, WORDS = 64, 6


def bags(embedding, ids):
    """sum_j l_j * A x_j for sentences of ids `(..., S)`, by the embedding A."""
    k, j = np.arange(1, UNITS + 1) / UNITS, np.arange(1, WORDS + 1)[:, None] / WORDS
    weights = ((1 - j) - k * (1 - 2 * j)).astype("float32")  # l, (S, D)
    words = embedding(ids) * ops.cast(ids != 0, "float32")[..., None]
    return ops.sum(ops.multiply(words, weights), axis=-2)  # (..., D)


def memory_network(vocabulary_size: int, hops: int) -> keras.Model:
    """Stories `(B, N, S)` and questions `(B, S)` of token ids -> logits of answers, p `(B, N)` of each hop."""
    story, question = keras.Input((FACTS, WORDS), dtype="int32"), keras.Input((WORDS,), dtype="int32")
    embeddings = [[layers.Embedding(n, UNITS, "normal") for n in (vocabulary_size, FACTS)] for _ in range(hops + 1)]
    u, real, weights = bags(embeddings[0][0], question), ops.any(story != 0, axis=-1), []
    time = ops.zeros_like(story[..., 0]) + np.arange(FACTS, dtype="int32")  # (B, N)
    memories = [bags(of_words, story) + of_times(time) for of_words, of_times in embeddings]
    for keys, values in itertools.pairwise(memories):
        context, p, _ = keras_attn.DotAttention()(u, values, keys, mask=real)
        u, weights = u + context, [*weights, p]
    return keras.Model([story, question], [layers.Dense(vocabulary_size, use_bias=False)(u), *weights])


def main(argv=None) -> None:
    task = Task("question_answering", __doc__, argv, epochs=12, items=20000)
    train = [one for facts in (1, 2) for one in questions(task.items // 2, task.seed + facts, facts)]
    tests = [questions(task.tests(1000), task.seed + 2 + facts, facts) for facts in (1, 2)]
    lines = [line for one in train for line in (*one.story, one.text)]
    tokenizer = keras_attn.Tokenizer.train(lines, level="word")
    networks, panels, titles = {}, [], []
    for hops in (1, 3):
        networks[hops] = memory_network(tokenizer.vocabulary_size, hops)
        options = {"learning_rate": 5e-3, "batch_size": 32, "name": f"hops {hops}"}
        task.fit(networks[hops], *question_ids(train, tokenizer, WORDS), **options)
    for hops, note in ((3, ""), (1, " with one hop")):
        for kind, test in zip(("one fact", "two facts"), tests, strict=True):
            source, answers = question_ids(test, tokenizer, WORDS)
            logits, *weights = networks[hops].predict(source, verbose=0)
            right = logits.argmax(-1) == answers
            task.scores[f"{kind} right in percent{note}"] = 100 * np.mean(right)
            n = longest(right, [len(one.story) for one in test])
            if hops == 3:
                panels.append((np.stack(weights, -1)[n, -len(test[n].story) :], ["1", "2", "3"], test[n].story))
                titles.append(f"{test[n].text.removeprefix('where is ')}?\n{tokenizer.vocabulary[logits[n].argmax()]}")
    plots.alignments(panels, titles=titles, path=task.picture)
    measured = f"{task.tests(1000):,} new stories for each of both kinds, of 2 to {FACTS} sentences, three hops or one."
    task.finish("generated stories", measured)


if __name__ == "__main__":
    main()
