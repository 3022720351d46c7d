"""Speech: Chan, Jaitly, Le, Vinyals. Listen, Attend and Spell. ICASSP 2016, arXiv:1508.01211.

    pip install espeakng-loader
    python -m recipes.tasks.speech

The listener is a `PyramidEncoder` of bidirectional LSTMs, the speller an LSTM that writes letters, with the
location-aware attention of Chorowski et al. (Attention-Based Models for Speech Recognition, NeurIPS 2015). The speech
is synthesised: numbers below 1,000, by the free voices of eSpeak NG at many speeds and pitches. Numbers and voices of
the test are not among those of the training. The papers' speech is by people.

Expected: word error rate in percent 2.0; letter error rate in percent 1.1; numbers right in percent 93.0. 1.33 M
parameters, 2.6 minutes of one core (jax; report, picture: `recipes/reports/spoken-numbers/speech.json`, `.png`).
"""

import keras
import numpy as np
from keras import layers

import keras_attn
from keras_attn import plots
from keras_attn.evaluation import edit_distance
from recipes.tasks.corpora import FILTERS, HOP, RATE, VOICES, utterances
from recipes.tasks.task import Task, optimizer, search

UNITS = 96


def listen_attend_spell(vocabulary_size: int) -> keras.Model:
    """The model, from frames `(B, S, 32)`."""
    frames = keras.Input((None, FILTERS))
    stacks = [layers.StackedRNNCells([layers.LSTMCell(UNITS) for _ in range(3)]) for _ in range(2)]
    values, *_ = keras_attn.PyramidEncoder(stacks[0], backward_cell=stacks[1], dropout=0.2)(layers.Masking()(frames))
    encoder = keras.Model(frames, {"values": values})
    attention = keras_attn.LocationSensitiveAttention(UNITS, filters=8, kernel_size=11, cumulative=False)
    decoder = keras_attn.AttentionDecoder(
        layers.LSTMCell(2 * UNITS),
        attention,
        attend="after",
        attentional=keras_attn.AttentionalLayer(2 * UNITS),
        input_feeding=True,
        dropout=0.2,
    )
    embedding = layers.Embedding(vocabulary_size, UNITS, mask_zero=True)
    return keras_attn.models.AttentionSeq2Seq(encoder, decoder, embedding, layers.Dense(vocabulary_size))


def main(argv=None) -> None:
    task = Task("speech", __doc__, argv, epochs=4, items=2000)
    numbers = np.random.default_rng(task.seed).permutation(1000)
    heard = np.resize(numbers[200:], task.items).tolist()
    train = utterances(heard, VOICES[:-2], task.seed)
    test = utterances(numbers[: task.tests(200)].tolist(), VOICES[-2:], task.seed + 1)
    tokenizer = keras_attn.Tokenizer.train([one.words for one in train], level="character")
    targets = [tokenizer.encode(one.words) for one in train]
    data = keras_attn.ParallelDataset.from_arrays(
        [one.frames for one in train], targets, batch_size=32, bucket_boundaries=3, curriculum_epochs=1, seed=task.seed
    )
    model = listen_attend_spell(tokenizer.vocabulary_size)
    model.compile(optimizer(task, len(data), 2e-3), keras_attn.losses.SmoothedCrossentropy(0.0))
    task.fit(model, data)
    unseen = keras.utils.pad_sequences([one.frames for one in test], dtype="float32", padding="post")
    found, alignments = search(model, unseen, max_length=48)
    written = [tokenizer.decode(ids) for ids in found]
    pairs = [(one.words, text) for one, text in zip(test, written, strict=True)]
    words = [(edit_distance(one.split(), two.split()), len(one.split())) for one, two in pairs]
    letters = [(edit_distance(one, two), len(one)) for one, two in pairs]
    rates = [100 * np.divide(*np.sum(edits, axis=0)) for edits in (words, letters)]
    scores = dict(zip(("word error rate in percent", "letter error rate in percent"), rates, strict=True))
    scores["numbers right in percent"] = 100 * np.mean([one == two for one, two in pairs])
    best = max(range(min(50, len(test))), key=lambda n: (test[n].words == written[n], len(written[n])))
    frames = test[best].frames
    alignment = alignments[best][: len(written[best]), : -(-len(frames) // 4)]
    seconds, path = len(frames) * HOP / RATE, task.out / "picture.png"
    plots.spectrogram_alignment(alignment, frames, [*written[best]], seconds=seconds, path=path)
    measured = f"{len(test)} numbers that were not trained on, by two voices that were not either, beam 4."
    alt = (
        f"The spectrogram of {test[best].words!r}, and below the places that each letter attends to, from left to right"
    )
    samples = [{"reference": one, "written": two} for one, two in pairs[:20]]
    task.finish("numbers by eSpeak NG", scores, measured, alt, samples=samples)


if __name__ == "__main__":
    main()
