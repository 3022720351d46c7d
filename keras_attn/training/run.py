"""A whole training: tokenizers, batches, fitting, scores, a picture, the preset, the report and the SavedModel."""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import keras

from keras_attn import ParallelDataset, Translator, downloads, files
from keras_attn.backend import (
    Job,
    bfloat16_products,
    data_parallel,
    has_bfloat16_products,
    preferred_precision,
    training_devices,
)
from keras_attn.evaluation import by_metric
from keras_attn.requirements import is_installed
from keras_attn.training import corpora, fitting, starting_point
from keras_attn.training import plan as plans
from keras_attn.training import report as reports
from keras_attn.training.plan import TrainingPlan
from keras_attn.training.recipes import load_recipe
from keras_attn.training.termination import Termination


def train(plan: TrainingPlan, begun: Callable[[Job], None] = lambda job: None) -> None:
    """Trains a recipe, scores it, draws an alignment, saves it and exports it.

    A recipe is a module with `Config`, `CONFIGS` (a dict of it for some corpora, by name or pattern) and `build`, which
    takes a `Config` and two vocabulary sizes and returns the model. It may have `data_options`, which takes the
    `Config`, the source and target lines of the training pairs and the two tokenizers, and returns further arguments
    of `ParallelDataset.from_text`.

    The run's folder gets the preset (model and tokenizers, for `Translator.from_preset`), report.json, history.csv,
    translations.txt, alignment.png and curves.png; the SavedModel goes to saved_models/ under the folder's name.

    Args:
        plan: The plan, see `keras_attn.training.plan.make_plan`.
        begun: Takes the job of this process, before it meets the others.

    Raises:
        ValueError: For text, a preset or devices that do not fit the plan.
        FileNotFoundError: If there is no such corpus or preset.
        FileExistsError: If the folder is taken.
        RuntimeError: If training diverges, or the export fails.
        Terminated, KeyboardInterrupt: After SIGTERM or Ctrl+C.
    """
    recipe = load_recipe(plan.recipe)
    if plan.export and not (is_installed("tensorflow") and is_installed("tensorflow_text")):
        print('Note: this run writes no SavedModel, which needs TensorFlow: pip install "keras_attn[tensorflow]".')
        plan = dataclasses.replace(plan, export=False)
    out = plan.out
    job = join_job(plan.distribute)
    begun(job)
    with contextlib.ExitStack() as stack:
        job.init()
        termination = stack.enter_context(Termination())
        if job.rank:  # one process reports
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
        job.on_rank_0(lambda: (stack.enter_context(files.locked(out)), refuse_taken(out, plan.resume)))
        devices = _devices_for(plan.distribute, plan.config.accumulation_steps)
        model_scope = stack.enter_context(data_parallel(devices))
        _train(recipe, plan, devices, model_scope, job, termination)


def _train(recipe: ModuleType, plan: TrainingPlan, devices, model_scope, job, termination: Termination) -> None:
    if plan.config.precision == "auto":
        plan = _with_settings(plan, precision=preferred_precision())
    if plan.config.bfloat16_products is None:
        plan = _with_settings(plan, bfloat16_products=has_bfloat16_products())
    if plan.config.bfloat16_products:
        with bfloat16_products():  # refuses a backend without them now
            pass
    keras.utils.set_random_seed(plan.seed)
    keras.config.set_dtype_policy(plan.config.precision)
    start = starting_point.StartingPoint(plan.preset) if plan.preset else None
    if start:
        config = start.configured(plan.config, plan.recipe_name, plan.changed_names)
        plan = dataclasses.replace(plan, config=config)
    config, out = plan.config, plan.out
    options = {"data": plan.data, "stream": False if config.max_words else plan.stream}
    options |= {"tags": plan.tags, "seed": plan.seed}
    corpus = corpora.load(plan.corpus, plan.source, plan.target, **options)
    print(corpora.describe(corpus), flush=True)
    _check_splits(corpus, config.metric)
    if start:
        tokenizers = start.tokenizers(config, corpus)
    else:
        tokenizers = fitting.train_tokenizers(config, *corpus.splits["train"], corpus.tags)
    starting_point.check_tags(corpus, tokenizers[0])
    identity = plans.identity(plan, corpus, tokenizers, start and start.identity)
    texts = {f"text of the split {split}": [*map(_digest, sides)] for split, sides in corpus.splits.items()}
    if job.count > 1:
        job.assert_equal(texts | {"out": str(out), "beam": plan.beam} | identity)
    cache = plan.cache or downloads.cache_folder() / "token_files"
    data_options = getattr(recipe, "data_options", None)
    training, validation = fitting.datasets(config, corpus, tokenizers, plan.seed, cache, data_options)
    _check_batches(devices, {"train": training, "val": validation})
    with model_scope():
        sizes = [tokenizer.vocabulary_size for tokenizer in tokenizers]
        model = start.build(recipe, config, sizes, plan.changed_names) if start else recipe.build(config, *sizes)
    if config.guided_alignment:
        model.check_attention()
    lengths = (start.length_arguments if start else {}) | {"trained_length": config.max_tokens}
    translator = Translator(model, *tokenizers, **lengths)
    # Refuse options of the search and the scores that are wrong now, not after hours of training.
    translator.generate([], beam_size=plan.beam, length_penalty=config.length_penalty)
    by_metric.all_scores(config.metric, ["a"], [["a"]], ["a"], config.tokenize)
    job.on_rank_0(lambda: open_run(out, identity | texts, plan.resume))
    if start:  # to resume, the checkpoint has the run's own
        start.give_weights(model)

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
    """Raises ValueError for missing splits, and for no text to validate and score on."""
    if missing := [split for split in corpora.SPLITS if split not in corpus.splits]:
        raise ValueError(f"Expected the corpus to have train, val and test. It lacks: {', '.join(missing)}")
    for split in ("val", "test"):
        sources, targets = corpus.splits[split]
        if not any(source.strip() and target.strip() for source, target in zip(sources, targets, strict=True)):
            raise ValueError(
                f"Expected the split {split} of the corpus to have a pair with text on both sides. "
                f"Received: {len(sources):,} pairs without one."
            )
        if metric == "wer" and not all(map(str.strip, targets)):
            line = 1 + next(n for n, answer in enumerate(targets) if not answer.strip())
            raise ValueError(
                f"Expected no blank answer in the split {split} with metric=wer. Received: one in line {line:,}"
            )


def _finish(translator, corpus, config, report: dict, out: Path, beam_size: int, job) -> None:
    """Scores the test split, then writes translations, picture, preset and, last, the report.

    All processes of the job translate the whole split; rank 0 scores and writes.
    """
    sources = corpus.splits["test"][0]
    options = {"batch_size": 64, "length_penalty": config.length_penalty}
    print(f"Translating the test split, {len(sources):,} sentences, greedily and with beam {beam_size}.", flush=True)
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
    print("Exporting and checking the SavedModel.", flush=True)
    try:
        options = {"beam_size": beam_size, "length_penalty": config.length_penalty}
        folder = translator.export(directory, **options, **reports.export_arguments(out))
    except (ValueError, OSError, RuntimeError) as error:
        again = f"keras-attn export {out} {directory}"
        raise RuntimeError(f"The run in {out} is complete; its export ({again}) failed: {error}") from error
    print(f"The SavedModel is in {folder}.")


# --- the folder


def refuse_taken(out: Path, resume: bool) -> None:
    """Raises FileExistsError if the folder has other files or a finished run, before any work."""
    if resume and files.is_empty(out):
        print(f"Note: there is no run to resume in {str(out)!r}; a new one begins.", flush=True)
    if files.is_empty(out) or (resume and (out / "run.json").exists()):
        return
    if not resume:
        raise FileExistsError(
            f"Expected --out to be a new or empty folder. {str(out)!r} already holds a run or other files; "
            f"choose another, or continue an unfinished run with --resume."
        )
    if (out / "report.json").exists():
        raise FileExistsError(f"The run in {str(out)!r} is finished: there is nothing to resume.")
    raise FileExistsError(f"Expected a run to resume in {str(out)!r}. It has other files and no run.json.")


def open_run(out: Path, settings: dict, resume: bool) -> None:
    """Writes the settings into run.json or, to resume, checks that they are those of the unfinished run."""
    path = out / "run.json"
    if not (resume and path.exists()):
        reports.write(path, settings)
        return
    begun = reports.read_settings(path)
    if different := [name for name in settings if begun.get(name) != settings[name]]:
        if different == ["config"]:
            own, new = begun["config"], settings["config"]
            changed = [name for name in own | new if own.get(name) != new.get(name)]
            different = [f"{name} ({own.get(name)!r})" for name in changed]
        raise ValueError(f"Expected the same run as in {str(out)!r}. It was begun with another {', '.join(different)}.")
    if not (out / "translator.json").exists():  # killed while the preset was moved into place
        (out / "model.keras").unlink(missing_ok=True)
        for name in ("source_tokenizer", "target_tokenizer"):
            shutil.rmtree(out / name, ignore_errors=True)


# --- several devices and processes


def join_job(distribute: str | None) -> Job:
    """The job of this process, as the environment describes it.

    Args:
        distribute: "data" or None.

    Raises:
        ValueError: If the variables are wrong, or the backend or the command cannot train with several processes.
    """
    job = Job.from_environment()
    if job.count > 1 and distribute is None:
        raise ValueError(f"Expected --distribute data with {job.count} processes. Received: no --distribute")
    if job.count == 1 and distribute is not None:
        for name, several in (("WORLD_SIZE", os.environ.get("WORLD_SIZE", "1") != "1"), ("TF_CONFIG", _has_workers())):
            if several:
                raise ValueError(
                    "Expected one process, or several on JAX (KERAS_BACKEND=jax) with Keras' variables "
                    f"KERAS_DISTRIBUTION_.... Received: {name}={os.environ[name]}"
                )
    return job


def _devices_for(distribute: str | None, accumulation_steps: int) -> list[str]:
    """The devices on which to train, printed if there is a choice: none without `distribute`.

    Raises:
        ValueError: If the backend cannot.
    """
    if distribute is None:
        return []
    devices = training_devices()
    if accumulation_steps > 1 and len(devices) > 1 and keras.backend.backend() == "tensorflow":
        raise ValueError(
            "Expected an update for each batch: Keras cannot accumulate gradients on several devices of TensorFlow. "
            f"Use JAX (KERAS_BACKEND=jax). Received: accumulation_steps={accumulation_steps}"
        )
    print(f"Training on {len(devices)} device{'s' * (len(devices) > 1)}: {', '.join(devices)}.", flush=True)
    return devices


def _check_batches(devices: Sequence[str], splits: dict[str, ParallelDataset]) -> None:
    """Raises ValueError for batches that do not divide among the devices, with the rows of the first."""
    for split, data in splits.items() if devices else ():
        for rows, *lengths in data.shapes:
            if rows % len(devices):
                raise ValueError(
                    f"Expected batches that divide among {len(devices)} devices: use another batch_size, or a larger "
                    f"split or tokens_per_batch. Received: {rows} pairs of up to {max(lengths)} tokens in the split "
                    f"{split}"
                )


def _digest(side: Sequence[str] | corpora.TextFiles) -> str:
    if isinstance(side, corpora.TextFiles):
        return " ".join(map(files.sha256, side.paths))
    return hashlib.sha256("\n".join(side).encode()).hexdigest()


def _has_workers() -> bool:
    """Returns whether TF_CONFIG describes several workers, whose strategy fails in Keras."""
    try:
        workers = json.loads(os.environ.get("TF_CONFIG", "{}"))["cluster"]["worker"]
    except (ValueError, KeyError, TypeError):
        return False
    return keras.backend.backend() == "tensorflow" and len(workers) > 1
