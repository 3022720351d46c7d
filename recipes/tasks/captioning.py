"""Captioning: Xu et al. Show, Attend and Tell: Neural Image Caption Generation with Visual Attention. ICML 2015.

    pip install scikit-learn
    python -m recipes.tasks.captioning

Soft attention over the features of a convolutional network, with the gate beta (section 4.2.1), the initial state
from the mean feature, the deep output (eq. 7) and the doubly stochastic loss (eq. 14, as a mean over places). The
pictures are canvases with one to three of scikit-learn's handwritten digits, and the captions say what stands where:
"seven at top left , two at middle right". The paper's are photographs, whose features a network trained on ImageNet
computes; here the network is small and learned with the rest, and reads the place of each pixel, too.

Expected: captions right in percent 81.2; attention inside the right box in percent 37.8. 0.49 M parameters, 3.4
minutes of one core (torch; report, picture: `recipes/reports/digits/captioning.json`, `.png`).
"""

import keras
from keras import layers

import keras_attn
from recipes.tasks.corpora import CANVAS, captioned_canvases, percent_inside
from recipes.tasks.pictures import caption
from recipes.tasks.task import Task, search


def show_attend_tell(vocabulary_size: int, units: int = 128) -> keras.Model:
    """The model, from images `(B, 36, 36, 3)`."""
    image = values = keras.Input((CANVAS, CANVAS, 3))
    for filters, size, stride in ((32, 5, 2), (96, 5, 3), (128, 3, 1)):
        values = layers.Conv2D(filters, size, stride, "same", activation="relu")(values)
        values = layers.BatchNormalization(momentum=0.9)(values)  # in the end a, (B, 6, 6, D)
    mean = layers.GlobalAveragePooling2D()(values)
    state = [layers.Dense(units, "tanh")(mean) for _ in "hc"]
    encoder = keras.Model(image, {"values": values, "cell_state": state})
    decoder = keras_attn.AttentionDecoder(layers.LSTMCell(units), keras_attn.GatedAttention(units // 2))
    embedding, readout = layers.Embedding(vocabulary_size, units), keras_attn.DeepOutput(units, activation="tanh")
    logits, loss = layers.Dense(vocabulary_size), keras_attn.DoublyStochasticLoss(0.02)
    head = keras.Sequential([layers.Dropout(0.3), logits])
    return keras_attn.models.AttentionSeq2Seq(encoder, decoder, embedding, head, readout=readout, coverage_loss=loss)


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
