# pyright: standard
"""A user's program, which a type checker reads as a user's editor would: `tests/unit/test_types.py`, and it runs."""

from pathlib import Path

import keras

import keras_attn
from keras_attn.evaluation import bleu
from keras_attn.plots import alignment

LINES = ["ten black birds see one dog", "two red dogs see ten black cats"]


def tokenizers() -> tuple[keras_attn.Tokenizer, keras_attn.Tokenizer]:
    source = keras_attn.Tokenizer.train(LINES, level="word")
    return source, keras_attn.Tokenizer.train([line[::-1] for line in LINES], level="character", lowercase=True)


def trained(source: keras_attn.Tokenizer, target: keras_attn.Tokenizer) -> keras_attn.models.RNNSearch:
    data = keras_attn.ParallelDataset.from_text(LINES, [line[::-1] for line in LINES], source, target, batch_size=2)
    model = keras_attn.models.RNNSearch(source.vocabulary_size, target.vocabulary_size, units=3, attention_units=2)
    model.compile(keras.optimizers.Adam(1e-3), keras_attn.losses.SmoothedCrossentropy(label_smoothing=0.1))
    model.fit(data, epochs=1, verbose=0)
    return model


def translated(translator: keras_attn.Translator, folder: Path) -> list[str]:
    translations = translator.generate(LINES, beam_size=2, max_length=5, replace_unknown=True)
    first: keras_attn.Translation = translations[0]
    if first.alignment is not None:
        alignment(first.alignment, first.source_tokens, first.tokens, path=folder / "alignment.png")
    return [one.text for one in translations]


def main(folder: Path) -> float:
    source, target = tokenizers()
    translator = keras_attn.Translator(trained(source, target), source, target)
    translator.save_to_preset(folder / "preset")
    again = keras_attn.Translator.from_preset(folder / "preset")
    if translated(again, folder) != translated(translator, folder):
        raise AssertionError("the preset translates otherwise")
    layer = keras_attn.BahdanauAttention(5)
    context, weights, _ = layer(keras.ops.ones((2, 3, 4)), keras.ops.ones((2, 7, 6)))
    if tuple(context.shape) != (2, 3, 6) or tuple(weights.shape) != (2, 3, 7):
        raise AssertionError(f"shapes {context.shape} and {weights.shape}")
    return bleu([line[::-1] for line in LINES], [[line[::-1] for line in LINES]]).score


if __name__ == "__main__":
    main(Path.cwd())
