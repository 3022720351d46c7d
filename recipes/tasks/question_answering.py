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

import keras
import numpy as np
from keras import layers, ops

import keras_attn
from recipes.tasks.corpora import FACTS, WORDS, question_sets
from recipes.tasks.pictures import hops_of_stories
from recipes.tasks.task import Task


def memory_network(vocabulary_size: int, hops: int, units: int = 64) -> keras.Model:
    """Texts `(B, N + 1, S)` of token ids, stories and questions -> logits of answers, p `(B, N)` of each hop."""
    texts = keras.Input((FACTS + 1, WORDS), dtype="int32")
    embeddings = [[layers.Embedding(n, units, "normal") for n in (vocabulary_size, FACTS)] for _ in range(hops + 1)]
    k, j = np.arange(1, units + 1) / units, np.arange(1, WORDS + 1)[:, None] / WORDS
    order = ((1 - j) - k * (1 - 2 * j)).astype("float32")  # l, (S, D)
    order = ops.cast(texts != 0, "float32")[..., None] * order  # (B, N + 1, S, D)
    bags = [ops.sum(of_words(texts) * order, axis=-2) for of_words, _ in embeddings]  # sum_j l_j * A x_j, (B, N + 1, D)
    time = ops.zeros_like(texts[:, 1:, 0]) + np.arange(FACTS, dtype="int32")  # (B, N)
    real = ops.any(texts[:, :-1] != 0, axis=-1)  # (B, N)
    memories = [bag[:, :-1] + of_times(time) for bag, (_, of_times) in zip(bags, embeddings, strict=True)]
    u, weights = bags[0][:, -1], []
    for n in range(hops):
        context, p, _ = keras_attn.DotAttention()(u, memories[n + 1], memories[n], mask=real)
        u, weights = u + context, [*weights, p]
    return keras.Model(texts, [layers.Dense(vocabulary_size, use_bias=False)(u), *weights])


def main(argv=None) -> None:
    task = Task("question_answering", __doc__, argv, epochs=12, items=20000)
    train, tests, tokenizer = question_sets(task.items, task.tests(1000), task.seed)
    networks = {hops: memory_network(tokenizer.vocabulary_size, hops) for hops in (1, 3)}
    for hops, network in networks.items():
        task.fit(network, *train, learning_rate=5e-3, batch_size=32, name=f"hops {hops}")
    for hops, note in ((3, ""), (1, " with one hop")):
        for kind, (_, texts, answers) in tests.items():
            task.count(kind, networks[hops].predict(texts, verbose=0)[0].argmax(-1) == answers, note)
    hops_of_stories(networks[3], tests.values(), tokenizer, task.picture)
    measured = f"{task.tests(1000):,} new stories for each of both kinds, of 2 to {FACTS} sentences, three hops or one."
    task.finish("generated stories", measured)


if __name__ == "__main__":
    main()
