"""Captioning: Xu et al. Show, Attend and Tell: Neural Image Caption Generation with Visual Attention. ICML 2015.

    pip install scikit-learn
    python -m recipes.tasks.captioning

Soft attention over the features of a convolutional network, with the gate beta (section 4.2.1), the initial state
from the mean feature, the deep output (eq. 7) and the doubly stochastic loss (eq. 14, as a mean over places). The
pictures are canvases with one to three of scikit-learn's handwritten digits, and the captions say what stands where:
"seven at top left , two at middle right". The paper's are photographs, whose features a network trained on ImageNet
computes; here the network is small and learned with the rest, and reads the place of each pixel, too.

Expected: captions right in percent 79.8; attention inside the right box in percent 37.4. 0.49 M parameters, 1.7
minutes of one core (torch; report, picture: `recipes/reports/digits/captioning.json`, `.png`).
"""

import keras
from keras import layers, ops

import keras_attn
from recipes.tasks.corpora import CANVAS, captioned_canvases, percent_inside
from recipes.tasks.pictures import caption
from recipes.tasks.task import Task, search

UNITS, LAMBDA = 128, 0.02


@keras.saving.register_keras_serializable(package="captioning")
class DeepHead(layers.Layer):
    """Logits from output, context and word; in training, lambda mean_i (1 - sum_t alpha_ti)^2 is added to the loss."""

    def __init__(self, vocabulary_size: int, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.hidden, self.projection = keras_attn.DeepOutput(UNITS, activation="tanh"), layers.Dense(vocabulary_size)
        self.dropout = layers.Dropout(0.3)

    def call(self, outputs, contexts, embedded, alignments, mask=None, training=False):
        if training:
            real = 1.0 if mask is None else ops.cast(mask, "float32")[:, :, None]  # (B, T, 1)
            self.add_loss(LAMBDA * ops.mean((1 - ops.sum(real * alignments, axis=1)) ** 2))
        return self.projection(self.dropout(self.hidden(outputs, embedded, contexts), training=training))


def show_attend_tell(vocabulary_size: int) -> keras.Model:
    """The model, from images `(B, 36, 36, 3)`."""
    image = values = keras.Input((CANVAS, CANVAS, 3))
    for filters, size, stride in ((32, 5, 2), (96, 5, 3), (128, 3, 1)):
        values = layers.Conv2D(filters, size, stride, "same", activation="relu")(values)
        values = layers.BatchNormalization(momentum=0.9)(values)  # in the end a, (B, 6, 6, D)
    mean = layers.GlobalAveragePooling2D()(values)
    state = [layers.Dense(UNITS, "tanh")(mean) for _ in "hc"]
    encoder = keras.Model(image, {"values": values, "cell_state": state})
    decoder = keras_attn.AttentionDecoder(layers.LSTMCell(UNITS), keras_attn.GatedAttention(UNITS // 2))
    embedding = layers.Embedding(vocabulary_size, UNITS, mask_zero=True)
    return keras_attn.models.AttentionSeq2Seq(encoder, decoder, embedding, DeepHead(vocabulary_size))


def main(argv=None) -> None:
    task = Task("captioning", __doc__, argv, epochs=6, items=12000)
    (images, sentences, _), (unseen, references, test) = captioned_canvases(task.items, task.tests(500), task.seed)
    tokenizer = keras_attn.Tokenizer.train(sentences, level="word")
    model, targets = show_attend_tell(tokenizer.vocabulary_size), tokenizer.encode_batch(sentences)
    data = keras_attn.ParallelDataset.from_arrays(images, targets, batch_size=64, seed=task.seed)
    task.fit(model, data, learning_rate=3e-3)
    found, captions, right, best = search((model, None, tokenizer), unseen, references, max_length=20)
    task.count("captions", right)
    task.scores["attention inside the right box in percent"] = percent_inside(test, found, right)
    caption(unseen[best], found[best], task.picture)
    measured = (
        f"{len(test)} canvases of digits that were not trained on, beam 4; exact captions, and the share of the "
        f"attention, while a digit's name is written, inside its box, which is {6400 / CANVAS**2:.0f} % of a canvas."
    )
    task.finish("scikit-learn's digits", measured, {"reference": references, "caption": captions})


if __name__ == "__main__":
    main()
