"""A whole training: tokenizers, batches, fitting, scores, a picture, the preset, the report and the SavedModel."""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import keras

from keras_attn import Translator, downloads, files
from keras_attn.backend import bfloat16_products, data_parallel, preferred_precision
from keras_attn.requirements import is_installed
from keras_attn.training import corpora, distribution, fitting, starting_point
from keras_attn.training import plan as plans
from keras_attn.training import report as reports
from keras_attn.training.plan import TrainingPlan
from keras_attn.training.run_folder import open_run, refuse_taken
from keras_attn.training.run_report import export_arguments
from keras_attn.training.termination import Termination


def train(plan: TrainingPlan, begun: Callable = lambda job: None) -> None:
    """Trains a recipe, scores it, draws an alignment, saves it and exports it.

    A recipe is a module with `Config`, `CONFIGS` (a dict of it for some corpora, by name or pattern) and `build`, which
    takes a `Config` and two vocabulary sizes and returns the model. It may have `data_options`, which takes the
    `Config`, the source and target lines of the training pairs and the two tokenizers, and returns further arguments
    of `ParallelDataset.from_text`.

    The run's folder gets the preset (model and tokenizers, for `Translator.from_preset`), report.json, history.csv,
    translations.txt and alignment.png; the SavedModel goes to saved_models/ under the folder's name.

    Args:
        plan: The plan, see `keras_attn.training.plan.make_plan`.
        begun: Takes the job of this process, before it meets the others.

    Raises:
        ValueError: For text, a preset or devices that do not fit the plan.
        FileNotFoundError: If there is no such corpus or preset.
        FileExistsError: If the folder is taken.
        RuntimeError: If training diverges, or the export fails.
        Terminated: After SIGTERM.
    """
    recipe = plans.load_recipe(plan.recipe)
    if plan.export and not (is_installed("tensorflow") and is_installed("tensorflow_text")):
        print('Note: this run writes no SavedModel, which needs TensorFlow: pip install "keras_attn[tensorflow]".')
        plan = dataclasses.replace(plan, export=False)
    config, out = plan.config, plan.out
    job = distribution.join(plan.distribute)
    begun(job)
    with contextlib.ExitStack() as stack:
        job.init()
        termination = stack.enter_context(Termination())
        if job.rank:  # one process reports
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        job.assert_equal(plans.of_command(plan))
        job.on_rank_0(lambda: (stack.enter_context(files.locked(out)), refuse_taken(out, plan.resume)))
        devices = distribution.devices_for(plan.distribute, config.sentences_per_batch, config.accumulation_steps)
        model_scope = stack.enter_context(data_parallel(devices))
        _train(recipe, plan, devices, model_scope, job, termination)


def _train(recipe: ModuleType, plan: TrainingPlan, devices, model_scope, job, termination: Termination) -> None:
    if plan.config.precision == "auto":
        plan = _with_settings(plan, precision=preferred_precision())
    if plan.config.bfloat16_products:
        with bfloat16_products():  # refuses a backend without them now
            pass
    keras.utils.set_random_seed(plan.seed)
    keras.config.set_dtype_policy(plan.config.precision)
    start = starting_point.StartingPoint(plan.preset) if plan.preset else None
    if start:
        job.assert_equal(start.identity)
        config = start.configured(plan.config, plan.recipe_name, plan.changed_names)
        plan = dataclasses.replace(plan, config=config)
    config, out = plan.config, plan.out
    options = {"data": plan.data, "stream": False if config.max_words else plan.stream}
    options |= {"tags": plan.tags, "seed": plan.seed}
    corpus = corpora.load(plan.corpus, plan.source, plan.target, **options)
    _check_splits(corpus, config.metric)
    if start:
        tokenizers = start.tokenizers(config, corpus)
    else:
        tokenizers = fitting.train_tokenizers(config, *corpus.splits["train"], corpus.tags)
    starting_point.check_tags(corpus, tokenizers[0])
    distribution.check_equal_text(job, corpus, tokenizers)
    cache = plan.cache or downloads.cache_folder() / "token_files"
    data_options = getattr(recipe, "data_options", None)
    training, validation = fitting.datasets(config, corpus, tokenizers, plan.seed, cache, data_options)
    distribution.check_batches(devices, {"train": training, "val": validation})
    with model_scope():
        sizes = [tokenizer.vocabulary_size for tokenizer in tokenizers]
        model = start.build(recipe, config, sizes, plan.changed_names) if start else recipe.build(config, *sizes)
    if config.guided_alignment:
        model.check_attention()
    lengths = (start.length_arguments if start else {}) | {"trained_length": config.max_tokens}
    translator = Translator(model, *tokenizers, **lengths)
    # Refuses search options that are wrong now, not after hours of training.
    translator.generate([], beam_size=plan.beam, length_penalty=config.length_penalty)
    identity = plans.identity(plan, corpus, tokenizers, start and start.identity)
    job.on_rank_0(lambda: open_run(out, identity, plan.resume))
    if start and not job.broadcast((out / "checkpoint.npz").exists()):  # else the run has weights of its own
        start.give_weights(model)
    if start:
        start.forget_weights()

    if job.broadcast((out / "report.json").exists()):  # killed after that, in the export
        translator = Translator.from_preset(out)
    else:
        budget, history, average = fitting.fit(
            plan, translator, training, validation, corpus.splits["val"], job, termination
        )
        updates = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        report = identity | {
            "command": plans.command_line(plan, start and start.name),
            "parameters": model.count_params(),
            **({"devices": len(devices)} if devices else {}),
            **({"processes": job.count} if job.count > 1 else {}),
            **reports.training_figures(training, updates, budget, history, config),
            **average,
        }
        _finish(translator, corpus, config, report, out, plan.beam, job)

    def end():
        (out / "checkpoint.npz").unlink(missing_ok=True)
        if plan.export:
            _export(translator, config, out, plan.beam)
        (out / "run.json").unlink()  # last: as long as it is there, --resume goes on

    job.on_rank_0(end)


def _with_settings(plan: TrainingPlan, **settings) -> TrainingPlan:
    return dataclasses.replace(plan, config=dataclasses.replace(plan.config, **settings))


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


def _finish(translator, corpus, config, report: dict, out: Path, beam_size: int, job) -> None:
    """Scores the test split, then writes translations, picture, preset and, last, the report.

    All processes of the job translate the whole split; rank 0 scores and writes.
    """
    sources = corpus.splits["test"][0]
    options = {"batch_size": 64, "length_penalty": config.length_penalty}
    greedy, _ = reports.translate(translator, sources, beam_size=1, return_alignments=False, **options)
    translations, seconds = reports.translate(translator, sources, beam_size=beam_size, **options)
    report |= {"beam_size": beam_size, "decode_seconds": round(seconds, 2)}
    job.on_rank_0(lambda: reports.write_results(translator, corpus, config, report, out, greedy, translations))


def _export(translator, config, out: Path, beam_size: int) -> None:
    """Writes the SavedModel to saved_models/, in a folder of the run's name.

    Raises:
        RuntimeError: if that fails; the run itself is complete.
    """
    directory = Path("saved_models", out.resolve().name)
    try:
        options = {"beam_size": beam_size, "length_penalty": config.length_penalty}
        folder = translator.export(directory, **options, **export_arguments(out))
    except (ValueError, OSError, RuntimeError) as error:
        again = f"keras-attn export {out} {directory}"
        raise RuntimeError(f"The run in {out} is complete; its export ({again}) failed: {error}") from error
    print(f"The SavedModel is in {folder}.")
