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
from keras import layers

import keras_attn
from keras_attn import plots
from recipes.tasks.corpora import FILTERS, HOP, RATE, edits_in_percent, spoken_numbers
from recipes.tasks.task import Task, search


def listen_attend_spell(vocabulary_size: int, units: int = 96) -> keras.Model:
    """The model, from frames `(B, S, 32)`."""
    frames = keras.Input((None, FILTERS))
    stacks = [layers.StackedRNNCells([layers.LSTMCell(units) for _ in range(3)]) for _ in range(2)]
    values, *_ = keras_attn.PyramidEncoder(stacks[0], backward_cell=stacks[1], dropout=0.2)(layers.Masking()(frames))
    attention = keras_attn.LocationSensitiveAttention(units, filters=8, kernel_size=11, cumulative=False)
    cell, vector = layers.LSTMCell(2 * units), keras_attn.AttentionalLayer(2 * units)
    options = {"attend": "after", "attentional": vector, "input_feeding": True, "dropout": 0.2}
    decoder = keras_attn.AttentionDecoder(cell, attention, **options)
    embedding = layers.Embedding(vocabulary_size, units, mask_zero=True)
    encoder, head = keras.Model(frames, values), layers.Dense(vocabulary_size)
    return keras_attn.models.AttentionSeq2Seq(encoder, decoder, embedding, head)


def main(argv=None) -> None:
    task = Task("speech", __doc__, argv, epochs=4, items=2000)
    (frames, words), (unseen, references) = spoken_numbers(task.items, task.tests(200), task.seed)
    tokenizer = keras_attn.Tokenizer.train(words, level="character")
    order = {"bucket_boundaries": 3, "curriculum_epochs": 1, "seed": task.seed}
    data = keras_attn.ParallelDataset.from_arrays(frames, tokenizer.encode_batch(words), batch_size=32, **order)
    model = listen_attend_spell(tokenizer.vocabulary_size)
    task.fit(model, data, learning_rate=2e-3)
    padded = keras.utils.pad_sequences(unseen, dtype="float32", padding="post")
    found, written, right, best = search((model, None, tokenizer), padded, references, max_length=48)
    task.scores["word error rate in percent"] = edits_in_percent(references, written, str.split)
    task.scores["letter error rate in percent"] = edits_in_percent(references, written, list)
    task.count("numbers", right)
    letters, frames, seconds = [*written[best]], unseen[best], len(unseen[best]) * HOP / RATE
    alignment = found[best].alignment[: len(letters), : -(-len(frames) // 4)]  # without the end and the padding
    plots.spectrogram_alignment(alignment, frames, letters, seconds=seconds, path=task.picture)
    measured = f"{len(found)} numbers that were not trained on, by two voices that were not either, beam 4."
    task.finish("numbers by eSpeak NG", measured, {"reference": references, "written": written})


if __name__ == "__main__":
    main()
