"""Draws the picture of each guide: guides/serving.svg beside docs/guides/serving.md, and so on.

    python -m recipes.pages.pictures [NAME ...] [--output docs]

Numbers come from committed reports, texts from the shipped preset. All pictures are as wide as a phone. That of the
guide to attention has a command of its own, `recipes.pages.figures`.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from keras_attn.cli import command
from recipes.pages import guide_diagrams, guide_figures, preset_pictures, scaling_diagrams
from recipes.pages.gallery import PRESET, REPORTS, ROOT, read

QUEEN, GIRL, ACTRESS = (
    "The queen forgot the black orange.",
    "The small girl sold the red car.",
    "A black watch was chosen by the famous actress.",
)
RECIPES = ("lstm_seq2seq", "rnnencdec", "transformer", "luong", "rnnsearch")
BOTH_WAYS = "luong-multi30k-de-en-bidirectional-true-units-290"
NEW_WORD, NEW_TEXT = "zebra", ["The lazy zebra sold the quartz.", "A zebra forgot the zoo."] * 20
DROPOUT, SEEDS = 0.1, (0, 1, 3, 4)


def main(argv=None) -> int:
    parser = command.Parser("recipes.pages.pictures", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(PICTURES)}")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", metavar="FOLDER", help="default: docs")
    return command.run(write, parser, argv)


def write(arguments: argparse.Namespace) -> None:
    from keras_attn.plots.plot_style import save
    from recipes.pages.diagrams import text_style

    if unknown := [name for name in arguments.names if name not in PICTURES]:
        raise ValueError(f"Expected names of {', '.join(PICTURES)}. Received: {', '.join(unknown)}")
    names = arguments.names or list(PICTURES)
    for name in names:
        path = arguments.output / f"{name}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        with text_style():
            save(PICTURES[name](), path)
    print(f"{len(names)} pictures are in {arguments.output}.")


def translator():
    """The shipped preset."""
    from keras_attn import Translator

    with command.quietly():
        return Translator.from_preset(PRESET)


def _aligned(translation):
    """The alignment of a translation of the preset, word by word."""
    from keras_attn import plots

    one = translator()
    return plots.align_words(translation, one.source_tokenizer, one.target_tokenizer)


def getting_started():
    from keras_attn import plots

    return plots.alignment(*_aligned(translator().generate([ACTRESS])[0]))


def models():
    panels = {
        "BLEU, Multi30k, German to English": [read(f"{name}-multi30k-de-en") for name in RECIPES] + [read(BOTH_WAYS)],
        "BLEU, phrases, English to French": [read(f"{name}-phrases-en-fr") for name in RECIPES],
    }
    return guide_figures.models(panels)


def own_text():
    return guide_diagrams.own_text(read("rnnsearch-multi30k-de-en")).figure


def searching():
    return preset_pictures.beam(*preset_pictures.beam_steps(translator(), GIRL, 3)).figure


def evaluation():
    return guide_figures.intervals(read("attention_study-multi30k-de-en"))


def serving():
    from keras import ops, tree

    one, beam_size = translator(), 5
    (translation,) = one.generate([QUEEN], beam_size=beam_size)
    memory, state = one.model.encode(ops.convert_to_tensor([translation.source_token_ids], dtype="int32"))
    shapes = {
        "memory": memory["values"].shape[1:],
        "state": tree.flatten(state["cell"])[0].shape[1:],
        "logits": one.target_tokenizer.vocabulary_size,
    }
    return guide_diagrams.serving(QUEEN, translation, shapes, beam_size).figure


def backends():
    lines = (REPORTS / "speed.jsonl").read_text(encoding="utf-8").splitlines()
    return guide_figures.backends([json.loads(line) for line in lines])


def extending():
    return guide_diagrams.extending().figure


def migrating_from_keras_and_joeynmt():
    return guide_diagrams.attention_orders().figure


def faq():
    """The preset, and the same model with an attention that prefers nothing: its score vector is zero."""
    one = translator()
    (good,) = one.generate([QUEEN])
    (attention,) = one.model.decoder.attentions
    (vector,) = [weight for weight in attention.weights if len(weight.shape) == 1]
    vector.assign(np.zeros(vector.shape, "float32"))
    (bad,) = one.generate([QUEEN])
    titles = f"trained:\n{_entropy(good)}", f"ignores the source:\n{_entropy(bad)}"
    return guide_figures.unlearned(*zip(titles, map(_aligned, (good, bad)), strict=True))


def _entropy(translation) -> str:
    weights = np.clip(translation.alignment, 1e-9, 1.0)
    return f"{-(weights * np.log(weights)).sum(-1).mean():.2f} nats"


def fine_tuning():
    from keras_attn import Tokenizer

    old = translator().source_tokenizer
    new = old.extended(Tokenizer.train(NEW_TEXT, vocabulary_size=300))
    sizes = old.vocabulary_size, new.vocabulary_size
    added = new.vocabulary[sizes[0] :]
    return preset_pictures.extension(NEW_WORD, old.pieces(NEW_WORD), new.pieces(NEW_WORD), sizes, added).figure


def training():
    from keras_attn.text import BPEDropout

    tokenizer = translator().source_tokenizer
    drawn, plain = BPEDropout(tokenizer, DROPOUT), tokenizer.pieces(QUEEN)
    rows = [("validation, translation", plain)]
    for epoch, seed in enumerate(SEEDS, 1):
        rows.append((f"epoch {epoch}", tokenizer.tokens(drawn.encode([QUEEN], seed=seed)[0])))
    return preset_pictures.pieces(rows, plain).figure


def presets():
    import keras_attn

    return guide_diagrams.presets(PRESET, keras_attn.presets()[PRESET]).figure


def migrating_from_tfa():
    return guide_diagrams.tfa_parts().figure


def without_keras():
    return guide_diagrams.without_keras().figure


def marian():
    return guide_diagrams.marian().figure


def clusters():
    return scaling_diagrams.clusters().figure


def large_corpora():
    return scaling_diagrams.large_corpora().figure


def performance():
    lines = (REPORTS / "speed.jsonl").read_text(encoding="utf-8").splitlines()
    scaling = json.loads((ROOT / "docs" / "scaling.json").read_text(encoding="utf-8"))
    return guide_figures.performance(
        scaling["training"], read("sweep-rnnsearch-multi30k-de-en")["rows"], [json.loads(line) for line in lines]
    )


PICTURES: dict[str, Callable] = {  # by the page that shows it
    "guides/getting-started": getting_started,
    "guides/models": models,
    "guides/own-text": own_text,
    "guides/searching": searching,
    "guides/evaluation": evaluation,
    "guides/serving": serving,
    "guides/backends": backends,
    "guides/performance": performance,
    "guides/extending": extending,
    "guides/migrating-from-keras-and-joeynmt": migrating_from_keras_and_joeynmt,
    "guides/faq": faq,
    "fine-tuning": fine_tuning,
    "training": training,
    "presets": presets,
    "migrating-from-tfa": migrating_from_tfa,
    "without-keras": without_keras,
    "marian": marian,
    "clusters": clusters,
    "large-corpora": large_corpora,
}


if __name__ == "__main__":
    sys.exit(main())
