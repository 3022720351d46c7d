"""Trains a recipe, scores it, draws an alignment, saves it and exports it.

    python -m recipes.train RECIPE [--corpus NAME|DIR] [--source en --target fr] [--data DIR]
                                   [--epochs N] [--minutes N] [--set name=value ...] [--seed N]
                                   [--out runs/RECIPE] [--resume] [--distribute data]
                                   [--stream] [--cache DIR] [--from PRESET] [--tags target|corpus]

A recipe is a module of `recipes` with a `Config`, `CONFIGS` (a dict of it for some corpora, by name or pattern), and
`build`. The run's folder gets the preset (model and tokenizers, for `Translator.from_preset`), report.json,
history.csv, translations.txt and alignment.png; the SavedModel goes to saved_models/ under the folder's name. A run
that was killed continues with `--resume` after its last whole epoch, one that received SIGTERM after its last batch. No
other run may begin in the folder meanwhile. With `--distribute data` and Keras' variables KERAS_DISTRIBUTION_..., this
is one of several processes that train one model (docs/clusters.md). With `--from` training goes on from the weights,
tokenizers and sizes of a preset or a run (docs/fine-tuning.md).
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import math
import os
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path

import recipes
from keras_attn import downloads, files
from keras_attn.cli import command
from keras_attn.cli.command import between
from recipes.config import TrainingConfig, config_for, override
from recipes.corpora import TAGS
from recipes.training import settings
from recipes.training.run_folder import open_run, refuse_taken


def main(argv=None) -> int:
    jobs = []
    status = command.run(lambda arguments: train(arguments, jobs.append), parser(), argv)
    return jobs[0].exit(status) if jobs else status


def parser() -> command.Parser:
    parser = command.Parser("recipes.train", description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("recipe", metavar="RECIPE", help="such as rnnsearch, or a module of your own: my.recipe")
    option("--corpus", default="phrases", help="a name or a folder, or several: a+b, or a:3+b:1 (default: phrases)")
    option("--source", help="language of the source side (default: the corpus decides)")
    option("--target", help="language of the target side")
    option("--tags", choices=TAGS, help="tag source lines, as with <2fr>, by target language or name of the corpus")
    option(
        "--from", metavar="PRESET", dest="preset", help="go on from a run's folder, a preset's name or hf://USER/NAME"
    )
    option("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    option("--epochs", type=int, help="at most (default: the recipe's)")
    option("--minutes", type=float, help="of training at most, validation included")
    option(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        dest="changes",
        help="settings of the recipe, listed in recipes/config.py and the recipe's file",
    )
    option("--seed", type=int, default=0)
    option("--out", type=Path, help="folder of the run (default: runs/RECIPE)")
    option("--resume", action="store_true", help="continue the run in that folder")
    option("--distribute", choices=["data"], help="divide each batch among all devices")
    option("--stream", action=argparse.BooleanOptionalAction, help="train from files (default: if these are large)")
    option("--cache", type=Path, help="folder of the token files that are made of them (default: in Keras' cache)")
    option("--beam", type=between(int, 1, 1000), default=5, help="beam size of the final scores (default: %(default)s)")
    option("--no-export", action="store_true", help="write no SavedModel")
    return parser


def train(arguments: argparse.Namespace, begun: Callable = lambda job: None) -> None:
    """A whole run.

    Args:
        arguments: As `parser` reads them.
        begun: Takes the job of this process, before it meets the others.
    """
    recipe = load_recipe(arguments.recipe)
    config = configure(recipe, arguments)
    out = arguments.out or Path("runs", arguments.recipe)

    from keras_attn.backend import data_parallel
    from recipes.training import distribution
    from recipes.training.stopping import Termination

    job = distribution.join(arguments.distribute)
    begun(job)
    with contextlib.ExitStack() as stack:
        job.init()
        termination = stack.enter_context(Termination())
        if job.rank:  # one process tells what happens
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        job.assert_equal(settings.of_command(arguments, config, out))
        job.on_rank_0(lambda: (stack.enter_context(files.locked(out)), refuse_taken(out, arguments.resume)))
        steps = config.accumulation_steps
        devices = distribution.devices_for(arguments.distribute, config.sentences_per_batch, steps)
        model_scope = stack.enter_context(data_parallel(devices))
        _train(recipe, config, arguments, out, devices, model_scope, job, termination)


def _train(
    recipe, config: TrainingConfig, arguments: argparse.Namespace, out: Path, devices, model_scope, job, termination
) -> None:
    import keras

    from keras_attn import Translator
    from keras_attn.backend import bfloat16_products, preferred_precision
    from recipes import corpora
    from recipes.training import distribution, fitting, starting_point
    from recipes.training import report as run_report

    if config.precision == "auto":
        config = dataclasses.replace(config, precision=preferred_precision())
    if config.bfloat16_products:
        with bfloat16_products():  # refuses a backend without them now
            pass
    keras.utils.set_random_seed(arguments.seed)
    keras.config.set_dtype_policy(config.precision)
    changes = settings.changed_names(arguments)
    start = starting_point.StartingPoint(arguments.preset) if arguments.preset else None
    if start:
        job.assert_equal(start.identity)
        config = start.configured(config, arguments.recipe, changes)
    options = {"data": arguments.data, "stream": False if config.max_words else arguments.stream}
    options |= {"tags": arguments.tags, "seed": arguments.seed}
    corpus = corpora.load(arguments.corpus, arguments.source, arguments.target, **options)
    _check_splits(corpus, config.metric)
    if start:
        tokenizers = start.tokenizers(config, corpus)
    else:
        tokenizers = fitting.train_tokenizers(config, *corpus.splits["train"], corpus.tags)
    starting_point.check_tags(corpus, tokenizers[0])
    distribution.check_equal_text(job, corpus, tokenizers)
    cache = arguments.cache or downloads.cache_folder() / "token_files"
    training, validation = fitting.datasets(config, corpus, tokenizers, arguments.seed, cache)
    distribution.check_batches(devices, {"train": training, "val": validation})
    with model_scope():
        sizes = [tokenizer.vocabulary_size for tokenizer in tokenizers]
        model = start.build(recipe, config, sizes, changes) if start else recipe.build(config, *sizes)
    if config.guided_alignment:
        model.check_attention()
    translator = Translator(model, *tokenizers, **(start.options if start else {}))
    # Refuses search options that are wrong now, not after hours of training.
    translator.generate([], beam_size=arguments.beam, length_penalty=config.length_penalty)
    identity = settings.of_run(arguments, config, corpus, tokenizers, start)
    job.on_rank_0(lambda: open_run(out, identity, arguments.resume))
    if start and not job.broadcast((out / "checkpoint.npz").exists()):  # else the run has weights of its own
        start.give_weights(model)
    if start:
        start.forget_weights()

    if job.broadcast((out / "report.json").exists()):  # killed after that, in the export
        translator = Translator.from_preset(out)
    else:
        budget, history, average = fitting.fit(
            translator, training, validation, corpus, config, arguments, out, job, termination
        )
        updates = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        report = identity | {
            "command": settings.command_line(arguments, start),
            "parameters": model.count_params(),
            **({"devices": len(devices)} if devices else {}),
            **({"processes": job.count} if job.count > 1 else {}),
            **run_report.training_figures(training, updates, budget, history, config),
            **average,
        }
        finish(translator, corpus, config, report, out, arguments.beam, job)

    def end():
        (out / "checkpoint.npz").unlink(missing_ok=True)
        if not arguments.no_export:
            export(translator, config, out, arguments.beam)
        (out / "run.json").unlink()  # last: as long as it is there, --resume goes on

    job.on_rank_0(end)


def load_recipe(name: str):
    """The recipe's module: one of `recipes`, or one of the user's by its dotted name.

    Raises:
        ValueError: if there is none of that name; the sentence lists the recipes.
    """
    modules = [module.name for module in pkgutil.iter_modules(recipes.__path__)]
    path = f"recipes.{name}" if name in modules else name if "." in name and _exists(name) else None
    if path and hasattr(recipe := importlib.import_module(path), "build"):
        return recipe
    known = [m for m in modules if m != "train" and hasattr(importlib.import_module(f"recipes.{m}"), "build")]
    raise ValueError(
        f"Expected a recipe among: {', '.join(known)}; or a module of your own with Config, CONFIGS and build. "
        f"Received: {name!r}"
    )


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent package
        return False


def configure(recipe, arguments: argparse.Namespace) -> TrainingConfig:
    """The recipe's configuration for this corpus, changed by the command line.

    Raises:
        ValueError: for an unknown setting, or a value outside its range.
    """
    config = config_for(recipe.CONFIGS, arguments.corpus) or recipe.Config()
    changes = [] if arguments.epochs is None else [f"epochs={arguments.epochs}"]
    config = override(config, [*changes, *arguments.changes])
    if arguments.stream and config.max_words:
        raise ValueError(
            "Expected --stream without max_words, for it counts tokens alone (max_tokens). Received: "
            f"max_words={config.max_words}"
        )
    if arguments.epochs is not None and config.max_steps:
        raise ValueError(
            f"Expected --set max_steps=N in place of --epochs, where updates are counted. Received: "
            f"--epochs {arguments.epochs} and max_steps={config.max_steps}"
        )
    settings.check_start(arguments, config)
    if arguments.minutes is not None and not 0 < arguments.minutes < math.inf:
        raise ValueError(f"Expected --minutes above 0. Received: {arguments.minutes}")
    return config


def _check_splits(corpus, metric: str) -> None:
    if missing := [split for split in ("train", "val", "test") if split not in corpus.splits]:
        raise ValueError(f"Expected the corpus to have train, val and test. It lacks: {', '.join(missing)}")
    for split, sides in corpus.splits.items():
        if split == "train" and corpus.is_streamed:
            continue  # it is not read twice: `ParallelDataset.from_files` finds what is wrong
        if not any(source.strip() and target.strip() for source, target in zip(*sides, strict=True)):
            raise ValueError(
                f"Expected the split {split} of the corpus to have a pair with text on both sides. "
                f"Received: {len(sides[0]):,} pairs without one."
            )
        if metric == "wer" and split != "train" and not all(map(str.strip, sides[1])):
            line = 1 + next(n for n, answer in enumerate(sides[1]) if not answer.strip())
            raise ValueError(
                f"Expected no blank answer in the split {split} with metric=wer. Received: one in line {line:,}"
            )


def finish(translator, corpus, config, report: dict, out: Path, beam_size: int, job) -> None:
    """Scores the test split, then writes translations, picture, preset and, last, the report.

    All processes of the job translate the whole split; rank 0 scores and writes.
    """
    from recipes.training import report as run_report

    sources = corpus.splits["test"][0]
    options = {"batch_size": 64, "length_penalty": config.length_penalty}
    greedy, _ = run_report.translate(translator, sources, beam_size=1, return_alignments=False, **options)
    translations, seconds = run_report.translate(translator, sources, beam_size=beam_size, **options)
    report |= {"beam_size": beam_size, "decode_seconds": round(seconds, 2)}
    job.on_rank_0(lambda: run_report.write_results(translator, corpus, config, report, out, greedy, translations))


def export(translator, config, out: Path, beam_size: int) -> None:
    """Writes the SavedModel to saved_models/, in a folder of the run's name.

    Raises:
        RuntimeError: if that fails; the run itself is complete.
    """
    from keras_attn.cli.run_report import export_arguments

    directory = Path("saved_models", out.resolve().name)
    try:
        options = {"beam_size": beam_size, "length_penalty": config.length_penalty}
        folder = translator.export(directory, **options, **export_arguments(out))
    except (ValueError, OSError, RuntimeError) as error:
        again = f"keras-attn export {out} {directory}"
        raise RuntimeError(f"The run in {out} is complete; its export ({again}) failed: {error}") from error
    print(f"The SavedModel is in {folder}.")


if __name__ == "__main__":
    sys.exit(main())
