"""From a configuration and a corpus to trained weights: tokenizers, batches, and one call of `model.fit`."""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import keras

from keras_attn import ParallelDataset, Tokenizer, Translator
from keras_attn.backend import clipping_replicas, compilation_scope
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from recipes import corpora
from recipes.config import TrainingConfig
from recipes.training.callbacks import Checkpoint, StopAfterSteps, StopIfNotFinite, TimeBudget, Validation
from recipes.training.schedules import schedule


def train_tokenizers(
    config: TrainingConfig, sources: Sequence[str], targets: Sequence[str]
) -> tuple[Tokenizer, Tokenizer]:
    """A tokenizer for each side; with `shared_vocabulary` the same one twice."""

    def learn(lines, size):
        options = {"min_frequency": config.min_frequency, "lowercase": config.lowercase}
        return Tokenizer.train(lines, level=config.level, vocabulary_size=size, **options)

    if config.shared_vocabulary:
        return (learn([*sources, *targets], config.source_vocabulary_size),) * 2
    return learn(sources, config.source_vocabulary_size), learn(targets, config.target_vocabulary_size)


def datasets(config: TrainingConfig, corpus: corpora.Corpus, tokenizers, seed: int) -> tuple[ParallelDataset, ...]:
    """Training and validation batches.

    Raises:
        ValueError: if a split has no pair with text on both sides that is short enough; the sentence names the split.
    """
    shared = {"batch_size": config.batch_size, "max_length": config.max_tokens, "on_too_long": "drop", "seed": seed}

    def batches(split, lines, **options):
        try:
            return ParallelDataset.from_text(*lines, *tokenizers, **shared, **options)
        except ValueError as error:
            raise ValueError(f"In the split {split} of the corpus: {error}") from None

    pairs = corpora.pairs_up_to(config.max_words, corpus.splits["train"])
    training = batches("train", pairs, curriculum_epochs=config.curriculum_epochs)
    return training, batches("val", corpus.splits["val"], shuffle=False)


def fit(
    translator: Translator,
    training: ParallelDataset,
    validation: ParallelDataset,
    corpus: corpora.Corpus,
    config: TrainingConfig,
    arguments: argparse.Namespace,
    out: Path,
) -> tuple[TimeBudget, list[dict]]:
    """Compiles and fits the translator's model, which then has its best weights.

    Returns:
        The seconds that training took, and the history, a row for each epoch.
    """
    model = translator.model
    max_steps = config.max_steps or config.epochs * len(training)
    rate = schedule(config, max_steps) if arguments.minutes is None else config.learning_rate
    average = {"use_ema": True, "ema_momentum": config.ema_decay} if config.ema_decay else {}
    clipnorm = config.global_clipnorm / clipping_replicas(model)
    with compilation_scope(model):
        model.compile(
            optimizer=keras.optimizers.Adam(rate, global_clipnorm=clipnorm, **average),
            loss=SmoothedCrossentropy(label_smoothing=config.label_smoothing),
            weighted_metrics=[Perplexity(), TokenAccuracy()],
        )
    sources, references = (lines[: config.validation_sentences] for lines in corpus.splits["val"])
    patience = math.inf if config.max_steps else config.patience
    options = {"metric": config.metric, "tokenize": config.tokenize, "patience": patience}
    scorer = Validation(translator, sources, references, **options)
    budget = TimeBudget(arguments.minutes and 60 * arguments.minutes, config.learning_rate, config.hold_fraction)
    checkpoint = Checkpoint(out / "checkpoint.npz", out / "history.csv", scorer, budget)
    # Keras prepares the batches of an epoch one epoch early on some backends. Set here, epoch n has the order of
    # epoch n after --resume too.
    order = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: training.set_epoch(epoch))
    if checkpoint.path.exists() and checkpoint.restore(model):  # killed after the last epoch
        scorer.set_model(model)
        scorer.on_train_end()
    else:
        model.fit(
            training,
            validation_data=validation,
            initial_epoch=len(checkpoint.history),
            epochs=math.ceil(max_steps / len(training)),
            shuffle=False,  # the dataset shuffles, by seed and epoch
            callbacks=[
                StopIfNotFinite(checkpoint),  # before all that would score or save such weights
                order,
                StopAfterSteps(max_steps, len(training)),
                budget,
                scorer,
                checkpoint,
            ],
            verbose=1 if sys.stdout.isatty() else 2,
        )
    return budget, checkpoint.history
