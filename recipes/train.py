"""Trains a recipe, scores it, draws it, saves it and exports it.

    python -m recipes.train RECIPE [--corpus NAME|DIR] [--source en --target fr] [--data DIR]
                                   [--epochs N] [--minutes N] [--set name=value ...] [--seed N]
                                   [--out runs/RECIPE] [--resume]

A recipe is a module of `recipes` with a `Config`, `PRESETS` of it for some corpora, and `build`. The run's
folder gets the preset (model and tokenizers, for `Translator.from_preset`), report.json, history.csv,
translations.txt and alignment.png; the SavedModel goes to saved_models/ under the folder's name. A run that
was killed goes on with `--resume` from its last whole epoch.
"""

import argparse
import dataclasses
import importlib.util
import math
import pkgutil
import sys
from pathlib import Path

import recipes
from keras_attn.cli import command
from keras_attn.cli.environment import surroundings
from recipes.config import TrainingConfig, override
from recipes.training.run_folder import open_run, refuse_taken


def main(argv=None) -> int:
    return command.run(train, parser(), argv)


def parser() -> command.Parser:
    parser = command.Parser("recipes.train", description=__doc__.splitlines()[0])
    parser.add_argument("recipe", metavar="RECIPE", help="such as rnnsearch, or a module of your own: my.recipe")
    parser.add_argument(
        "--corpus", default="phrases", help="a name or a folder, or several with + between (default: phrases)"
    )
    parser.add_argument("--source", help="language of the source side (default: the corpus decides)")
    parser.add_argument("--target", help="language of the target side")
    parser.add_argument("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    parser.add_argument("--epochs", type=int, help="at most (default: the recipe's)")
    parser.add_argument("--minutes", type=float, help="training ends after so many, validation included")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", dest="changes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of the run (default: runs/RECIPE)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in that folder")
    parser.add_argument("--beam", type=int, default=5, help="beam size of the final scores (default: %(default)s)")
    parser.add_argument("--no-export", action="store_true", help="write no SavedModel")
    return parser


def train(arguments: argparse.Namespace) -> None:
    """The whole of a run; `arguments` as `parser` reads them."""
    recipe = load_recipe(arguments.recipe)
    config = configure(recipe, arguments)
    out = arguments.out or Path("runs", arguments.recipe)
    refuse_taken(out, arguments.resume)

    import keras

    from recipes import corpora

    keras.utils.set_random_seed(arguments.seed)
    keras.config.set_dtype_policy(config.precision)
    corpus = corpora.load(arguments.corpus, arguments.source, arguments.target, data=arguments.data)
    if missing := [split for split in ("train", "val", "test") if split not in corpus.splits]:
        raise ValueError(f"Expected the corpus to have train, val and test. It lacks: {', '.join(missing)}")
    tokenizers = train_tokenizers(config, *corpus.splits["train"])
    training, validation = datasets(config, corpus, tokenizers, arguments.seed)
    model = recipe.build(config, *(tokenizer.vocabulary_size for tokenizer in tokenizers))
    settings = _settings(arguments, config, corpus, tokenizers)
    open_run(out, settings, arguments.resume)

    translator, clock, history = fit(model, tokenizers, training, validation, corpus, config, arguments, out)
    report = settings | {
        "command": command_line(arguments),
        "parameters": model.count_params(),
        **_training_figures(training, int(model.optimizer.iterations), clock, history, config.metric),
    }
    finish(translator, corpus, config, report, out, arguments.beam)
    if not arguments.no_export:
        export(translator, config, out, arguments.beam)


def load_recipe(name: str):
    """The recipe's module: one of `recipes`, or one's own by its dotted name.

    Raises:
        ValueError: if there is none of that name; the sentence lists those there are.
    """
    modules = [module.name for module in pkgutil.iter_modules(recipes.__path__)]
    path = f"recipes.{name}" if name in modules else name if "." in name and _exists(name) else None
    if path and hasattr(recipe := importlib.import_module(path), "build"):
        return recipe
    known = [m for m in modules if m != "train" and hasattr(importlib.import_module(f"recipes.{m}"), "build")]
    raise ValueError(
        f"Expected a recipe among: {', '.join(known)}; or a module of your own with Config, PRESETS and build. "
        f"Received: {name!r}"
    )


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package on the way
        return False


def configure(recipe, arguments: argparse.Namespace) -> TrainingConfig:
    """The recipe's configuration for this corpus, then what the command line changes."""
    config = recipe.PRESETS.get(arguments.corpus, recipe.Config())
    changes = [] if arguments.epochs is None else [f"epochs={arguments.epochs}"]
    config = override(config, [*changes, *arguments.changes])
    for name, value in (
        ("epochs", config.epochs),
        ("updates", 1 if config.updates is None else config.updates),
        ("batch_size", config.batch_size),
        ("beam", arguments.beam),
    ):
        if value < 1:
            raise ValueError(f"Expected {name} of at least 1. Received: {value}")
    if arguments.minutes is not None and arguments.minutes <= 0:
        raise ValueError(f"Expected --minutes above 0. Received: {arguments.minutes}")
    return config


def train_tokenizers(config: TrainingConfig, sources, targets):
    """A tokenizer for each side, or twice the same."""
    from keras_attn.text import Tokenizer

    def learn(lines, size):
        cut = {"min_frequency": config.minimum_count, "lowercase": config.lowercase}
        return Tokenizer.train(lines, level=config.level, vocabulary_size=size, **cut)

    if config.joint:
        return (learn([*sources, *targets], config.source_vocabulary_size),) * 2
    return learn(sources, config.source_vocabulary_size), learn(targets, config.target_vocabulary_size)


def datasets(config: TrainingConfig, corpus, tokenizers, seed: int):
    """Training and validation batches."""
    from keras_attn.data import ParallelDataset
    from recipes import corpora

    shared = {"batch_size": config.batch_size, "max_length": config.longest, "on_too_long": "drop", "seed": seed}
    curriculum = {"curriculum_epochs": config.curriculum_epochs}
    pairs = corpora.of_at_most(config.most_words, corpus.splits["train"])
    training = ParallelDataset.from_text(*pairs, *tokenizers, **shared, **curriculum)
    validation = ParallelDataset.from_text(*corpus.splits["val"], *tokenizers, **shared, shuffle=False)
    return training, validation


def fit(model, tokenizers, training, validation, corpus, config, arguments, out: Path):
    """Compiles and fits. Returns the translator with the best weights, the clock, and the history as rows."""
    import keras

    from keras_attn.losses import SmoothedCrossentropy
    from keras_attn.metrics import Perplexity, TokenAccuracy
    from keras_attn.translator import Translator
    from recipes.training.callbacks import Checkpoint, Clock, LastUpdate, Validation
    from recipes.training.schedules import schedule

    rate, share = config.learning_rate, config.constant_share
    updates = config.updates or config.epochs * len(training)
    if arguments.minutes is None:
        rate = schedule(config, updates)
    average = {"use_ema": True, "ema_momentum": config.average_decay} if config.average_decay else {}
    model.compile(
        optimizer=keras.optimizers.Adam(rate, global_clipnorm=config.gradient_norm, **average),
        loss=SmoothedCrossentropy(label_smoothing=config.label_smoothing),
        weighted_metrics=[Perplexity(), TokenAccuracy()],
    )
    translator = Translator(model, *tokenizers)
    sources, references = (lines[: config.validation_sentences] for lines in corpus.splits["val"])
    clock = Clock(arguments.minutes and 60 * arguments.minutes, config.learning_rate, share)
    scored = {"metric": config.metric, "tokenize": config.tokenize}
    scored["patience"] = math.inf if config.updates else config.patience
    scorer = Validation(translator, sources, references, **scored)
    checkpoint = Checkpoint(out / "checkpoint.npz", out / "history.csv", scorer, clock)
    # Keras draws an epoch's batches one epoch ahead on some backends; said here, epoch n is epoch n after
    # --resume too.
    order = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: training.set_epoch(epoch))
    ended = checkpoint.path.exists() and checkpoint.restore(model)
    if ended:
        scorer.set_model(model)
        scorer.on_train_end()
    else:
        model.fit(
            training,
            validation_data=validation,
            initial_epoch=len(checkpoint.history),
            epochs=math.ceil(updates / len(training)),
            shuffle=False,  # the dataset shuffles, by seed and epoch
            callbacks=[order, LastUpdate(updates, len(training)), clock, scorer, checkpoint],
            verbose=1 if sys.stdout.isatty() else 2,
        )
    return translator, clock, checkpoint.history


def finish(translator, corpus, config, report: dict, out: Path, beam_size: int) -> None:
    """Scores the test split, then writes translations, picture, preset and, last, the report."""
    from keras_attn.evaluation import by_metric
    from recipes.training import report as reports
    from recipes.training import scoring

    sources, references = corpus.splits["test"]
    options = {"batch_size": 64, "length_penalty": config.length_penalty}
    greedy, _ = reports.translate(translator, sources, beam_size=1, return_alignments=False, **options)
    found, seconds = reports.translate(translator, sources, beam_size=beam_size, **options)
    scored = config.metric, sources, references
    results = by_metric.all_scores(*scored, [t.text for t in found], config.tokenize)
    # TER searches for shifts, for minutes where translations are poor: it is asked for once.
    greedy_results = by_metric.all_scores(*scored, [t.text for t in greedy], config.tokenize, main_only=True)
    reports.write_translations(out / "translations.txt", sources, references, found)
    reports.draw_reordering(out / "alignment.png", translator, found, references)
    if not (out / "translator.json").exists():
        translator.save_to_preset(out)
    figures = {
        "beam_size": beam_size,
        "test_sentences": len(sources),
        **results,
        f"greedy_{config.metric}": greedy_results[config.metric],
        **scoring.repeated(config.metric, corpus.splits),
        "decode_seconds": round(seconds, 2),
        "peak_memory_mb": reports.peak_memory_mb(),
    }
    reports.write(out / "report.json", report | figures | surroundings())
    for name in ("checkpoint.npz", "run.json"):
        (out / name).unlink()
    for name, result in results.items():
        print(f"{name} {result['score']:.2f}  {result['signature']}")
    print(f"The run is in {out}.")


def export(translator, config, out: Path, beam_size: int) -> None:
    """Writes the SavedModel below saved_models/, under the run's name.

    Raises:
        RuntimeError: if that fails; the run itself is whole.
    """
    from keras_attn.cli.run_report import export_arguments

    directory = Path("saved_models", out.resolve().name)
    try:
        options = {"beam_size": beam_size, "length_penalty": config.length_penalty}
        folder = translator.export(directory, **options, **export_arguments(out))
    except (ValueError, OSError, RuntimeError) as error:
        again = f"keras-attn export {out} {directory}"
        raise RuntimeError(f"The run in {out} is whole; its export ({again}) failed: {error}") from error
    print(f"The SavedModel is in {folder}.")


def _settings(arguments, config, corpus, tokenizers) -> dict:
    """What decides a run's outcome; JSON, for it is compared with what the file says."""
    return {
        "recipe": arguments.recipe,
        "corpus": corpus.name,
        "source": corpus.source,
        "target": corpus.target,
        "seed": arguments.seed,
        "minutes": arguments.minutes,
        "config": dataclasses.asdict(config),
        "source_vocabulary_size": tokenizers[0].vocabulary_size,
        "target_vocabulary_size": tokenizers[1].vocabulary_size,
        "tokenizers": [tokenizer.fingerprint for tokenizer in tokenizers],
    }


def _training_figures(training, updates: int, clock, history: list[dict], metric: str) -> dict:
    data = training.report()
    best = min if metric == "wer" else max
    return {
        "updates": updates,
        "epochs": len(history),
        "best_epoch": 1 + best(range(len(history)), key=lambda i: history[i][f"val_{metric}"]),
        "train_seconds": round(clock.seconds, 1),
        "target_tokens_per_second": round(updates / data["batches"] * data["target_tokens"] / clock.training_seconds),
        "training_pairs": data["pairs"],
        "padding": round(data["padding"], 4),
        "data": data,
        "history": {name: [round(row[name], 4) for row in history] for name in history[0]},
    }


def command_line(arguments) -> str:
    """The command line, without the folders of this machine."""
    from recipes import corpora

    parts = ["python -m recipes.train", arguments.recipe]
    for name, value in (
        ("corpus", corpora.public_name(arguments.corpus)),
        ("source", arguments.source),
        ("target", arguments.target),
    ):
        parts += [f"--{name} {value}"] if value else []
    for name in ("epochs", "minutes", "seed"):
        value = getattr(arguments, name)
        parts += [f"--{name} {value:g}"] if value is not None else []
    return " ".join([*parts, *(["--set", *arguments.changes] if arguments.changes else [])])


if __name__ == "__main__":
    sys.exit(main())
