"""From a configuration and a corpus to trained weights: tokenizers, batches, and one call of `model.fit`."""

import math
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from keras_attn import ParallelDataset, Tokenizer, Translator
from keras_attn.backend import Job, bfloat16_products
from keras_attn.evaluation import model1_links
from keras_attn.models import Seq2Seq
from keras_attn.training import corpora
from keras_attn.training.callbacks import Checkpoint, RunBatches, StopIfNotFinite, Stopping, TimeBudget, Validation
from keras_attn.training.config import TrainingConfig
from keras_attn.training.corpora import TextFiles
from keras_attn.training.plan import TrainingPlan
from keras_attn.training.progress import Progress, SampleBoard, Samples, overview
from keras_attn.training.schedules import schedule
from keras_attn.training.termination import Termination
from keras_attn.translation import compile_model


def train_tokenizers(
    config: TrainingConfig,
    sources: Sequence[str] | TextFiles,
    targets: Sequence[str] | TextFiles,
    tags: Sequence[str] = (),
) -> tuple[Tokenizer, Tokenizer]:
    """Returns a tokenizer for each side, that of the source with `tags`; with `shared_vocabulary` the same one twice.

    Of level "letter", the source's cuts words into letters (`Tokenizer.with_letters`), and the target's has symbols.

    From lists they learn from all lines, and from files from a sample, which is all lines if there are few.

    Raises:
        ValueError: If a tokenizer refuses the text or its size; the message names the setting of the size.
    """

    def learn(setting, *sides, level=config.level, lowercase=config.lowercase, tags=()):
        size = getattr(config, setting)
        if level == "bpe" and size == getattr(TrainingConfig, setting):
            size = None  # the same, or as many as a small text allows
        options = {"vocabulary_size": size, "level": level, "tags": tags}
        options |= {"min_frequency": config.min_frequency, "lowercase": lowercase}
        try:
            if isinstance(sides[0], TextFiles):
                return Tokenizer.train_from_files([path for side in sides for path in side.paths], **options)
            return Tokenizer.train([line for side in sides for line in side], **options)
        except ValueError as error:
            if "vocabulary_size" not in str(error):
                raise
            raise ValueError(
                f"{error}. Set it by --set {setting}=N; {setting}=none takes as many as a small text allows"
            ) from None

    if config.level == "letter":
        letters = learn("source_vocabulary_size", sources, lowercase=True, tags=tags).with_letters()
        return letters, learn("target_vocabulary_size", targets, level="symbol")
    if config.shared_vocabulary:
        return (learn("source_vocabulary_size", sources, targets, tags=tags),) * 2
    return learn("source_vocabulary_size", sources, tags=tags), learn("target_vocabulary_size", targets)


def datasets(
    config: TrainingConfig,
    corpus: corpora.Corpus,
    tokenizers: tuple[Tokenizer, Tokenizer],
    seed: int,
    cache: Path,
    data_options: Callable[..., dict] | None = None,
) -> tuple[ParallelDataset, ...]:
    """Returns training and validation batches.

    A training split that stays in files is encoded into token files in `cache`, unless it has them. Another process
    that calls this meanwhile waits for them.

    Args:
        config: The settings.
        corpus: The text.
        tokenizers: Of source and target.
        seed: Of the order of the batches.
        cache: Folder of token files.
        data_options: A recipe's function of this name, see `keras_attn.training.run.train`; None: `guided_alignment`.

    Raises:
        ValueError: If a split has no pair with text on both sides that is short enough; the message names the split.
    """
    shared = {"max_length": config.max_tokens, "on_too_long": "drop", "seed": seed}
    sentences = None if config.tokens_per_batch else config.batch_size
    shared |= {"batch_size": sentences, "tokens_per_batch": config.tokens_per_batch}

    def batches(split, lines, **options):
        pointer = getattr(config, "pointer", False)
        try:
            if isinstance(lines[0], TextFiles):
                for name in ("pointer", "bpe_dropout", "guided_alignment"):  # which read pairs
                    if getattr(config, name, False):
                        raise ValueError(f"Expected --no-stream with {name}. Received: text files")
                paths = (side.paths for side in lines)
                return ParallelDataset.from_files(*paths, *tokenizers, cache, **shared, **options)
            return ParallelDataset.from_text(*lines, *tokenizers, pointer=pointer, **shared, **options)
        except ValueError as error:
            raise ValueError(f"In the split {split} of the corpus: {error}") from None

    pairs = corpora.pairs_up_to(config.max_words, corpus.splits["train"])
    if config.max_words and (dropped := (count := len(corpus.splits["train"][0])) - len(pairs[0])):
        limit = f"max_words={config.max_words}"
        print(f"Note: {dropped:,} of {count:,} training pairs have a side of more words than {limit} and are left out.")
    every = config.validate_every and config.validate_every * config.accumulation_steps
    options = {"curriculum_epochs": config.curriculum_epochs, "batches_per_epoch": every}
    if config.bpe_dropout:
        options |= {"bpe_dropout": config.bpe_dropout}
    if corpus.is_streamed and data_options:
        raise ValueError("Expected --no-stream with a recipe's data_options, which read pairs. Received: text files")
    if not corpus.is_streamed:
        options |= (data_options or guided_alignment)(config, pairs, tokenizers)
    training = batches("train", pairs, **options)
    return training, batches("val", corpus.splits["val"], shuffle=False)


def guided_alignment(config: TrainingConfig, pairs: Sequence[Sequence[str]], tokenizers: Sequence[Tokenizer]) -> dict:
    """Returns the arguments of `ParallelDataset.from_text` for links of IBM Model 1 in both directions.

    The links are between words as the tokenizers separate them.
    """
    if not config.guided_alignment:
        return {}
    sides = ([_words(tokenizer, line) for line in side] for tokenizer, side in zip(tokenizers, pairs, strict=True))
    return {"links": model1_links(*sides), "alignment_weight": config.guided_alignment}


def _words(tokenizer: Tokenizer, line: str) -> str:
    """A line whose words, separated by blanks, are those of `Tokenizer.words`."""
    words = tokenizer.pieces(line) if tokenizer.separator else line.split(" ")
    return " ".join(re.sub(r"\s", "_", word) for word in words if word)


def fit(
    plan: TrainingPlan,
    translator: Translator,
    training: ParallelDataset,
    validation: ParallelDataset,
    validation_pairs: Sequence[Sequence[str]],
    job: Job,
    termination: Termination,
) -> tuple[TimeBudget, list[dict], dict]:
    """Compiles and fits the translator's model, which then has its best weights.

    All processes of the job fit it together, each with its rows of every batch.

    Args:
        plan: The plan of the training.
        translator: Has the model.
        training, validation: Their batches.
        validation_pairs: Source and target lines, the first of which are translated and scored.
        job: The processes.
        termination: Notes SIGTERM and Ctrl+C.

    Returns:
        The seconds that training took, the history, a row for each epoch, and the best of these, with what
        `Validation.choose_average` says.
    """
    model, config, out = translator.model, plan.config, plan.out
    steps = config.accumulation_steps
    max_batches = steps * config.max_steps if config.max_steps else config.epochs * training.report()["batches"]
    updates = math.ceil(max_batches / steps)
    _compile(model, plan, updates)
    scorer = Validation(
        translator,
        *(lines[: config.validation_sentences] for lines in validation_pairs),
        metric=config.metric,
        tokenize=config.tokenize,
        patience=math.inf if config.max_steps else config.patience,
        average_checkpoints=config.average_checkpoints,
    )
    budget = TimeBudget(plan.minutes and 60 * plan.minutes, config.learning_rate, config.hold_fraction, job)
    checkpoint = Checkpoint(out / "checkpoint.npz", out / "history.csv", scorer, budget, job)
    batches, validation_batches = (RunBatches(data, (job.rank, job.count)) for data in (training, validation))
    stopping = Stopping(max_batches, termination, budget, checkpoint, batches)
    shown = [Progress(training, max_batches, seconds_left=budget.seconds_left), Samples(scorer)]
    shown += [SampleBoard(out / "tensorboard", scorer)] if plan.tensorboard else []
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    print(overview(model, training, [lines[:1000] for lines in validation_pairs], tokenizers, updates), flush=True)
    has_ended = job.broadcast(checkpoint.path.exists()) and checkpoint.restore(model)
    while not has_ended:
        batches.start(checkpoint.first_batch)
        with termination.deferred(), bfloat16_products() if config.bfloat16_products else nullcontext():
            model.fit(
                batches,
                validation_data=validation_batches,
                initial_epoch=len(checkpoint.history),
                epochs=math.ceil(max_batches / len(training)),
                shuffle=False,  # the dataset shuffles, by seed and epoch
                # Weights that are not finite end training before they are scored or saved.
                callbacks=[StopIfNotFinite(checkpoint), scorer, budget, *shown, checkpoint, stopping],
                verbose=0,
            )
        has_ended = not batches.first or checkpoint.restore(model)
    scorer.set_model(model)
    scorer.on_train_end()
    return budget, checkpoint.history, {"best_epoch": 1 + scorer.best_epoch} | scorer.choose_average()


def _compile(model: Seq2Seq, plan: TrainingPlan, updates: int) -> None:
    """Compiles the model for so many updates."""
    config, steps = plan.config, plan.config.accumulation_steps
    rate = schedule(config, updates) if plan.minutes is None else config.learning_rate
    if plan.minutes is not None and (config.warmup_steps or config.schedule != "linear"):
        print("Note: with --minutes the learning rate follows the time, without warmup_steps and schedule.", flush=True)
    if plan.minutes is None and (note := note_on_average(config.ema_decay, updates)):
        print(note, flush=True)
    compile_model(
        model,
        rate,
        global_clipnorm=config.global_clipnorm,
        label_smoothing=config.label_smoothing,
        gradient_accumulation_steps=steps if steps > 1 else None,
        use_ema=config.ema_decay > 0,
        ema_momentum=config.ema_decay ** (1 / steps),  # which Keras applies after each batch
    )


def note_on_average(decay: float, updates: int) -> str | None:
    """Returns a note where a moving average of the weights covers more than a fifth of a run; else None.

    It looks back about `1 / (1 - decay)` updates, so that early weights, which are worse, count as well.
    """
    window = round(1 / (1 - decay))
    if not decay or 5 * window <= updates:
        return None
    fewer = max(0, updates // 10 - 1) / max(1, updates // 10)  # a tenth of the run
    return (
        f"Note: ema_decay={decay:g} averages the weights of about the last {window:,} updates, and the run has "
        f"{updates:,}. For so few set it to {fewer:.4g}."
    )
