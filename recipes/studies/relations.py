"""The study of pronouns: the noun to which the heads of a small Transformer attend from "it".

    python -m recipes.studies.relations

A sentence has two nouns of different kinds, and an adjective that only one of the kinds can have: "the animal did not
cross the street because it was too tired" or "too wide". French says "il" or "elle", by the gender of that noun, before
the adjective comes. All such sentences are generated. A fourth of the pairs of a noun and its adjective are kept for
the test, whose sentences have a noun of each gender, so that a guess has 50 %.

The references of the test are teacher-forced. For each head of encoder, decoder and cross attention the report has two
rows, in percent: that of **it**, or the row that predicts the pronoun; and that of the **adjective**, or the row that
predicts it. "found" counts the sentences in which the largest weight of the row, without that of the word itself, is on
the noun that is meant, "wrong" those with the other noun; "above" those in which the noun that is meant has the more
weight of both. The rest are mean weights: of the noun that is meant, of the other noun, of the pronoun.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_attn.cli import command, line_streaming
from recipes.studies.heads import per_mille
from recipes.studies.lecture import trained_accuracy

NOUNS = {  # four masculine, four feminine
    "animal": "animal l' animal, dog le chien, cat le chat, horse le cheval, "
    "cow la vache, mouse la souris, goat la chèvre, turtle la tortue",
    "place": "bridge le pont, path le chemin, field le champ, garden le jardin, "
    "street la rue, river la rivière, road la route, square la place",
    "food": "cake le gâteau, bread le pain, cheese le fromage, rice le riz, "
    "soup la soupe, apple la pomme, pie la tarte, salad la salade",
}
ADJECTIVES = {
    "animal": "tired fatigué, hungry affamé, thirsty assoiffé, scared effrayé",
    "place": "wide large, narrow étroit, crowded bondé, flooded inondé",
    "food": "salty salé, sweet sucré, spicy épicé, burnt brûlé",
}
VERBS = {
    ("animal", "place"): "cross traversé, reach atteint, leave quitté",
    ("place", "animal"): "stop arrêté, hide caché, attract attiré",
    ("animal", "food"): "eat mangé, want voulu, smell senti",
    ("food", "animal"): "attract attiré, tempt tenté, save sauvé",
}
LAYERS = 2
PICTURES = "encoder", "cross"
SHOWN = [f"the animal did not cross the street because it was too {adjective} ." for adjective in ("tired", "wide")]
PLACES = {"encoder": (1, 6, 8), "decoder": (2, 8, 11), "cross": (1, 6, 8)}  # of both nouns and of the pronoun
ROWS = {"encoder": (8, 11), "decoder": (10, 13), "cross": (10, 13)}  # of the pronoun and of the adjective


class Example(NamedTuple):
    """A sentence: its words, whether "it" is the first noun, and whether it is one of the test."""

    source: str
    target: str
    is_first: bool
    is_new: bool  # its noun and its adjective are not together in training
    has_both_genders: bool


def main(argv=None) -> int:
    parser = command.Parser("recipes.studies.relations", description=__doc__)
    option = parser.add_argument
    option("--seeds", type=command.between(int, 1, 100), default=3, help="default: %(default)s")
    option("--items", type=command.between(int, 64, 10**7), default=38_400, help="training items")
    option("--out", type=Path, default=Path("runs", "relations"), help="a new folder (default: %(default)s)")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    from keras_attn.training import report, surroundings

    started, seeds, items = time.monotonic(), arguments.seeds, arguments.items
    with line_streaming.new_folder(arguments.out):
        runs = [train(seed, items) for seed in range(seeds)]
        found = {"study": "relations", "command": "python -m recipes.studies.relations", "seeds": seeds, "items": items}
        found |= {"sentences": SHOWN, "runs": runs, "minutes": round((time.monotonic() - started) / 60, 1)}
        report.write(arguments.out / "report.json", found | surroundings())
    print(f"The study is in {arguments.out}: report.json.")


def sentences() -> list[Example]:
    """All sentences of the language."""
    found = []
    for kinds, verbs in VERBS.items():
        nouns = [enumerate(NOUNS[kind].split(", ")) for kind in kinds]
        for (i, one), (j, other), verb, is_first in itertools.product(*nouns, verbs.split(", "), (True, False)):
            (first, le_premier), (second, le_second) = one.split(" ", 1), other.split(" ", 1)
            (verb_, participle), noun = verb.split(), i if is_first else j
            pronoun, ending = ("il", "") if noun < 4 else ("elle", "e")
            for k, pair in enumerate(ADJECTIVES[kinds[0 if is_first else 1]].split(", ")):
                adjective, adjectif = pair.split()
                adjectif = adjectif if adjectif.endswith("e") else adjectif + ending
                source = f"the {first} did not {verb_} the {second} because it was too {adjective} ."
                target = f"{le_premier} n' a pas {participle} {le_second} parce qu' {pronoun} était trop {adjectif} ."
                found.append(Example(source, target, is_first, (noun + k) % 4 == 0, (i < 4) != (j < 4)))
    return found


def train(seed: int, items: int) -> dict:
    """Trains a Transformer, and measures its pronouns and heads."""
    import keras
    from keras import ops

    from keras_attn.models import TransformerSeq2Seq

    keras.utils.set_random_seed(seed)
    every, random = sentences(), np.random.default_rng(seed)
    test = [one for one in every if one.is_new and one.has_both_genders]
    known = [one for one in every if not one.is_new]
    known = [known[n] for n in random.integers(0, len(known), items)]
    rows = [[text.split() for text in side] for side in list(zip(*known + test, strict=True))[:2]]
    ids = [{word: n for n, word in enumerate(sorted({w for row in side for w in row}), start=4)} for side in rows]
    source, target = (np.array([[of[w] for w in row] for row in side]) for of, side in zip(ids, rows, strict=True))
    inputs = np.concatenate([np.ones_like(target[:, :1]), target[:, :-1]], axis=1)  # (B, T)
    sizes = {"units": 64, "num_layers": LAYERS, "num_heads": 4, "feed_forward_units": 128, "dropout": 0.1}
    model = TransformerSeq2Seq(*(len(of) + 4 for of in ids), **sizes, normalize_first=True)
    x, new = (
        {"encoder_token_ids": source[part], "decoder_token_ids": inputs[part]}
        for part in (slice(items), slice(items, None))
    )
    tokens = trained_accuracy(model, x, target[:items], new, target[items:], learning_rate=3e-3)
    right = model.predict(new, batch_size=512, verbose=0).argmax(-1) == target[items:]  # (B, T)
    scores = {"pronouns": right[:, ROWS["cross"][0]], "sentences": right.all(axis=1)}
    attentions = {kind: ops.convert_to_numpy(weights) for kind, weights in model.attentions(new).items()}
    shown = [[one.source for one in test].index(text) for text in SHOWN]
    return {
        "seed": seed,
        "layers": LAYERS,
        "test_sentences": len(test),
        "parameters": model.count_params(),
        "tokens": tokens,
        **{name: round(100 * float(hits.mean()), 1) for name, hits in scores.items()},
        "rows": heads(attentions, np.array([one.is_first for one in test])),
        "per_mille": [
            per_mille(np.concatenate(attentions[kind][:, n, :, ROWS[kind][0]])) for kind in PICTURES for n in shown
        ],
    }


def heads(attentions: dict[str, np.ndarray], is_first: np.ndarray) -> list[dict]:
    """The measures of each head, from weights `(layers, B, N, T, S)` and whether "it" is the first noun, `(B,)`."""
    found = []
    for kind, weights in attentions.items():
        for layer, head in np.ndindex(len(weights), weights.shape[2]):
            row = {"name": f"{kind} {layer + 1}, head {head + 1}"}
            for name, place in zip(("it", "adjective"), ROWS[kind], strict=True):
                own = weights[layer, :, head, place].copy()  # (B, S)
                first, second, pronoun = own[:, list(PLACES[kind])].T  # (B,) each
                right, other = np.where(is_first, (first, second), (second, first))  # (B,) each
                measures = {"right": right, "other": other, "pronoun": pronoun}
                if name == "it":
                    if kind != "cross":
                        own[:, place] = 0
                    largest = {"found": right == own.max(axis=1), "wrong": other == own.max(axis=1)}
                    measures = largest | {"above": right > other, "right": right, "other": other}
                row |= {f"{name}: {key}": round(100 * float(one.mean()), 1) for key, one in measures.items()}
            found.append(row)
    return found


if __name__ == "__main__":
    sys.exit(main())
