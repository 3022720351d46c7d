"""The studies of the lecture: tasks that show what a score function, a second head and a Transformer can do.

    python -m recipes.studies.lecture

**Scores.** A sentence is ten positions, each with a key and a value. At each of ten steps the query asks for a value:
by the key in the same code as in the memory ("key"); by the key in another code ("other code"); by the position
("position"); or, where keys repeat, by a key that is at most one position from the step ("near"). The model is an
attention, and a projection of its context to the values; nothing else can find the answer.

**Heads.** Self-attention has to name the two symbols before and the two after each symbol, with one, two or four heads.

**Transformer.** A `TransformerSeq2Seq` of one layer and one head learns to write a word backwards.

The report has the accuracies on new items, in percent, and the alignments of one item for the pictures. It takes 3 to
15 minutes of one core. One seed: differences of a percent or two mean nothing, which the tasks do not need.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from keras_attn.cli import command, line_streaming
from recipes.studies.heads import per_mille

SCORES = "dot", "scaled_dot", "general", "additive", "concat", "cosine", "location", "local_m", "local_p"
TASKS = "key", "other code", "position", "near"
LENGTH, KEYS, VALUES = 10, 16, 8
LETTERS, WORD = "abcdefghijkl", "decade"


def main(argv=None) -> int:
    parser = command.Parser("recipes.studies.lecture", description=__doc__)
    parser.add_argument("--items", type=command.between(int, 64, 10**7), default=25_600, help="training items")
    parser.add_argument("--out", type=Path, default=Path("runs", "lecture"), help="a new folder (default: %(default)s)")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    from keras_attn.training import report, surroundings

    started, seed, items = time.monotonic(), 0, arguments.items
    with line_streaming.new_folder(arguments.out):
        rows = [{"name": name} | {task: recall(name, task, seed, items) for task in TASKS} for name in SCORES]
        heads = [neighbours(count, seed, items) for count in (1, 2, 4)]
        found = {"study": "lecture", "command": "python -m recipes.studies.lecture", "seed": seed, "items": items}
        found |= {"scores": rows, "chance": 100 / VALUES, "heads": heads, "transformer": backwards(seed, items)}
        found["minutes"] = round((time.monotonic() - started) / 60, 1)
        report.write(arguments.out / "report.json", found | surroundings())
    print(*rows, f"The study is in {arguments.out}: report.json.", sep="\n")


def pairs(task: str, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries `(B, T, K + V)`, the memory `(B, S, K + V)` and the values that are asked for, `(B, T)`."""
    keys = random.permuted(np.tile(np.arange(KEYS), (count, 1)), axis=1)[:, :LENGTH]  # (B, S), all different
    steps = np.tile(np.arange(LENGTH), (count, 1))  # (B, T)
    asked = random.permuted(steps, axis=1)  # (B, T), positions
    if task == "near":
        keys = np.tile(keys[:, :3], 4)[:, :LENGTH]  # any three neighbours differ
        asked = np.clip(steps + random.integers(-1, 2, steps.shape), 0, LENGTH - 1)
    values = random.integers(0, VALUES, (count, LENGTH))  # (B, S)
    named = asked if task == "position" else np.take_along_axis(keys, asked, axis=1)  # (B, T)
    if task == "other code":
        named = (named + 1) % KEYS
    queries = 3 * np.eye(KEYS + VALUES)[named]  # (B, T, K + V)
    memory = np.concatenate([3 * np.eye(KEYS)[keys], np.eye(VALUES)[values]], axis=-1)  # (B, S, K + V)
    return queries.astype("float32"), memory.astype("float32"), np.take_along_axis(values, asked, axis=1)


def recall(name: str, task: str, seed: int, items: int) -> float:
    """The accuracy of an attention with this score, in percent."""
    import keras

    from keras_attn.layers import get_attention

    keras.utils.set_random_seed(seed)
    options = {"window": 1} if name.startswith("local_") else {}
    queries, memory = keras.Input((LENGTH, KEYS + VALUES)), keras.Input((LENGTH, KEYS + VALUES))
    context, *_ = get_attention(name, 32, **options)(queries, memory)
    model = keras.Model([queries, memory], keras.layers.Dense(VALUES)(context))
    random = np.random.default_rng(seed)
    *x, y = pairs(task, items, random)
    *new, expected = pairs(task, min(1000, items), random)
    return trained_accuracy(model, x, y, new, expected)


def neighbours(count: int, seed: int, items: int) -> dict:
    """The accuracy of self-attention with so many heads, and each head's alignment of one item."""
    import keras
    from keras import ops

    from keras_attn import SelfAttention

    keras.utils.set_random_seed(seed)
    words = np.random.default_rng(seed).integers(0, KEYS, (items + min(1000, items), LENGTH))  # (B, S)
    answers = np.stack([np.roll(words, -offset, axis=1) for offset in (-2, -1, 1, 2)], axis=-1)  # (B, S, 4)
    inputs = keras.Input((LENGTH,), dtype="int32")
    positions = ops.cumsum(ops.ones_like(inputs), axis=1) - 1  # (B, S)
    both = ops.one_hot(inputs, KEYS), 4 * ops.one_hot(positions, LENGTH)
    x = keras.layers.Dense(4 * KEYS, use_bias=False)(ops.concatenate(both, axis=-1))  # (B, S, H)
    found, relations = SelfAttention(count)(x)
    logits = keras.layers.Reshape((LENGTH, 4, KEYS))(keras.layers.Dense(4 * KEYS)(found))
    model = keras.Model(inputs, logits[:, 2:-2])
    accuracy = trained_accuracy(model, words[:items], answers[:items, 2:-2], words[items:], answers[items:, 2:-2])
    shown = ops.convert_to_numpy(keras.Model(inputs, relations)(words[-1:]))[0]  # (N, S, S)
    return {"heads": count, "accuracy": accuracy, "per_mille": [per_mille(one) for one in shown]}


def backwards(seed: int, items: int) -> dict:
    """The accuracy of a Transformer that writes letters backwards, and its three attentions for one word."""
    import keras
    from keras import ops

    from keras_attn.models import TransformerSeq2Seq

    keras.utils.set_random_seed(seed)
    random = np.random.default_rng(seed)
    source = random.integers(4, 4 + len(LETTERS), (items + min(1000, items), 6))  # (B, S), after the special ids
    source[-1] = [4 + LETTERS.index(letter) for letter in WORD]
    target = source[:, ::-1]  # (B, T)
    inputs = np.concatenate([np.full_like(target[:, :1], 1), target[:, :-1]], axis=1)  # (B, T)
    size = 4 + len(LETTERS)
    model = TransformerSeq2Seq(size, size, units=64, num_layers=1, num_heads=1, feed_forward_units=64, dropout=0.0)
    x, new = (
        {"encoder_token_ids": source[part], "decoder_token_ids": inputs[part]}
        for part in (slice(items), slice(items, None))
    )
    accuracy = trained_accuracy(model, x, target[:items], new, target[items:], learning_rate=3e-3)
    found = model.attentions({name: ids[-1:] for name, ids in new.items()})
    shown = [per_mille(ops.convert_to_numpy(found[name])[0, 0, 0]) for name in ("encoder", "decoder", "cross")]
    return {"word": WORD, "accuracy": accuracy, "per_mille": shown}


def trained_accuracy(model, x, y, new, expected, learning_rate: float = 1e-2) -> float:
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    schedule = keras.optimizers.schedules.CosineDecay(learning_rate, len(y) // 64)
    model.compile(keras.optimizers.Adam(schedule), loss)
    model.fit(x, y, batch_size=64, verbose=0)
    return round(100 * float((model.predict(new, batch_size=500, verbose=0).argmax(-1) == expected).mean()), 1)


if __name__ == "__main__":
    sys.exit(main())
