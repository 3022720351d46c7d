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
from recipes.tasks.corpora import FACTS, Question, questions
from recipes.tasks.task import Task, optimizer

UNITS, WORDS = 64, 6
KINDS = {1: "one fact", 2: "two facts"}


@keras.saving.register_keras_serializable(package="question_answering")
class BagOfWords(layers.Layer):
    """sum_j l_j * A x_j for sentences of ids `(..., S)`; those of a story `(B, N, S)` also have their times T_A."""

    def __init__(self, vocabulary_size: int, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.embedding, self.times = (layers.Embedding(n, UNITS, "normal") for n in (vocabulary_size, FACTS))

    def build(self, _):
        for embedding in (self.embedding, self.times):
            embedding.build(())

    def call(self, ids):
        k, j = np.arange(1, UNITS + 1) / UNITS, np.arange(1, WORDS + 1)[:, None] / WORDS
        weights = ((1 - j) - k * (1 - 2 * j)).astype("float32")  # l, (S, D)
        words = self.embedding(ids) * ops.cast(ids != 0, "float32")[..., None]
        bags = ops.sum(words * weights, axis=-2)  # (..., D)
        return bags + self.times(np.arange(FACTS)) if len(ids.shape) == 3 else bags

    def get_config(self):
        return {**super().get_config(), "vocabulary_size": self.vocabulary_size}


def memory_network(vocabulary_size: int, hops: int) -> keras.Model:
    """Stories `(B, N, S)` and questions `(B, S)` of token ids -> logits of answers, p `(B, N)` of each hop."""
    story, question = keras.Input((FACTS, WORDS), dtype="int32"), keras.Input((WORDS,), dtype="int32")
    embeddings = [BagOfWords(vocabulary_size) for _ in range(hops + 1)]
    u, real, weights = embeddings[0](question), ops.any(story != 0, axis=-1), []
    memories = [embedding(story) for embedding in embeddings]
    for keys, values in itertools.pairwise(memories):
        context, p, _ = keras_attn.DotAttention()(u, values, keys, mask=real)
        u, weights = u + context, [*weights, p]
    return keras.Model([story, question], [layers.Dense(vocabulary_size, use_bias=False)(u), *weights])


def main(argv=None) -> None:
    task = Task("question_answering", __doc__, argv, epochs=12, items=20000)
    train = [one for facts in KINDS for one in questions(task.items // 2, task.seed + facts, facts)]
    tests = {facts: questions(task.tests(1000), task.seed + 2 + facts, facts) for facts in KINDS}
    lines = [line for one in train for line in (*one.story, one.text)]
    tokenizer = keras_attn.Tokenizer.train(lines, level="word")
    scores, panels, titles, (*source, answers) = {}, [], [], arrays(train, tokenizer)
    for hops in (1, 3):
        attentive = memory_network(tokenizer.vocabulary_size, hops)
        model = keras.Model(attentive.input, attentive.outputs[0])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer(task, -(-len(train) // 32), 5e-3), loss, metrics=["accuracy"])
        task.fit(model, source, answers, name=f"hops {hops}", batch_size=32)
        found = {}
        for facts, test in tests.items():
            *source_of_test, right = arrays(test, tokenizer)
            logits, *weights = attentive.predict(source_of_test, verbose=0)
            answered = logits.argmax(-1)
            found[f"{KINDS[facts]} right in percent{' with one hop' * (hops == 1)}"] = 100 * np.mean(answered == right)
            if hops > 1:
                n = max(range(min(50, len(test))), key=lambda n: (answered[n] == right[n], len(test[n].story)))
                panels.append((np.stack(weights, -1)[n, -len(test[n].story) :], ["1", "2", "3"], test[n].story))
                titles.append(f"{test[n].text.removeprefix('where is ')}?\n{tokenizer.tokens(answered[n : n + 1])[0]}")
        scores = found | scores
    plots.alignments(panels, titles=titles, path=task.out / "picture.png")
    measured = f"{task.tests(1000):,} new stories for each of both kinds, of 2 to {FACTS} sentences, three hops or one."
    alt = "The sentences of two stories with their questions, and the weight that each of three hops gives to each"
    task.finish("generated stories", scores, measured, alt)


def arrays(rows: list[Question], tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids of stories `(B, N, S)`, whose last sentence is the last, of questions `(B, S)` and of answers `(B,)`."""
    stories, asked = np.zeros((len(rows), FACTS, WORDS), "int32"), np.zeros((len(rows), WORDS), "int32")
    for story, question, row in zip(stories, asked, rows, strict=True):
        places = [*story[FACTS - len(row.story) :], question]
        for place, ids in zip(places, tokenizer.encode_batch([*row.story, row.text]), strict=True):
            place[: len(ids)] = ids
    return stories, asked, np.array([tokenizer.vocabulary.index(row.answer) for row in rows])


if __name__ == "__main__":
    main()
