"""Progress of a training: an overview before it, a line that moves, and translations after each validation."""

import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import keras

from keras_attn import ParallelDataset, Tokenizer, plots
from keras_attn.requirements import require
from keras_attn.training.report import surroundings

_LINES = ("source", "reference", "translation")


def overview(
    model: keras.Model, training: ParallelDataset, lines: Sequence[str], tokenizers: Sequence[Tokenizer], updates: int
) -> str:
    """Returns lines for people: the data, the model's parameters by layer, the backend and the shapes to compile.

    Args:
        model: The model.
        training: Its batches.
        lines: Source and target lines of the validation split, among which unknown tokens are counted.
        tokenizers: Of source and target.
        updates: Of the run, at most.
    """
    data = training.report()
    dropped = [(data[f"dropped_{why}"], f"{why.replace('_', ' ')}") for why in ("blank", "too_long")]
    left_out = ", ".join(f"{count:,} {why}" for count, why in dropped if count)
    shares = []
    for side, tokenizer, texts in zip(("source", "target"), tokenizers, lines, strict=True):
        ids = [token_id for row in tokenizer.encode_batch(list(texts)) for token_id in row]
        unknown = sum(token_id == tokenizer.special_ids.unknown for token_id in ids) / max(1, len(ids))
        shares.append(f"{side} {tokenizer.vocabulary_size:,} tokens ({tokenizer.level}, {unknown:.1%} unknown)")
    parts = {layer.name: layer.count_params() for layer in model.layers if layer.built and layer.count_params()}
    return "\n".join(
        (
            f"pairs      {data['pairs']:,}{f' (left out: {left_out})' if left_out else ''}, mean length "
            f"{data['source_tokens'] / data['pairs']:.1f} and {data['target_tokens'] / data['pairs']:.1f} tokens",
            f"vocabulary {', '.join(shares)}",
            f"model      {model.count_params():,} parameters: "
            + ", ".join(f"{name} {count:,}" for name, count in parts.items()),
            f"training   at most {updates:,} updates, {data['batches']:,} batches an epoch of "
            f"{len(training.shapes)} shapes, each compiled once, on {surroundings()['backend']}",
        )
    )


class Progress(keras.callbacks.Callback):
    """Shows the state of training in one line: epoch, batch, loss, learning rate, speed and the time that is left.

    In a terminal the line moves; elsewhere, as in a log file, there is one for each epoch. It replaces Keras' bar: call
    `fit` with `verbose=0`.

    Args:
        data: The training dataset, whose target tokens and batches are counted.
        max_batches: Of the run; None: those of the epochs of `fit`.
        stream: Where to write; None: `sys.stdout`.
        seconds_left: A function without arguments that returns the most that is left; None: no limit.

    Example:
        from keras_attn.training.progress import Progress

        model.fit(data, epochs=2, verbose=0, callbacks=[Progress(data)])
    """

    def __init__(
        self,
        data: ParallelDataset,
        max_batches: int | None = None,
        stream=None,
        seconds_left: Callable[[], float] | None = None,
    ):
        super().__init__()
        report = data.report()
        self.tokens = report["target_tokens"] / report["batches"]  # of a batch, on average
        self.epoch_batches = len(data)
        self.max_batches = max_batches
        self.seconds_left = seconds_left or (lambda: math.inf)
        self.stream = stream

    def on_train_begin(self, logs=None):
        self._file = self.stream or sys.stdout
        self._moves = self._file.isatty()
        self._seconds, self._between = 0.0, 0.0  # within batches, and after the last batch of epochs
        self._done, self._shown = 0, -math.inf  # batches of this fit, the time of the last line

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        self._last = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        self._seconds += now - self._last
        self._last = now
        self._done += 1
        if self._moves and now - self._shown > 0.5:
            self._shown = now
            self._write(f"\r{self._line(batch + 1, logs)}\033[K")

    def on_epoch_end(self, epoch, logs=None):
        self._between += time.monotonic() - self._last
        self._write(f"{chr(13) * self._moves}{self._line(self.params['steps'], logs)}\n")

    def _line(self, batch: int, logs) -> str:
        steps, epochs = self.params["steps"], self.params["epochs"]
        total = min(self.max_batches or math.inf, epochs * self.epoch_batches)
        left = total - self._epoch * self.epoch_batches - (self.epoch_batches - steps) - batch
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        scores = "".join(f"  {name} {value:.4g}" for name, value in (logs or {}).items() if name.startswith("val_"))
        seconds = max(0, left) * self._seconds / max(1, self._done)
        seconds += left / self.epoch_batches * self._between / max(1, self._done / steps)
        minutes, rest = divmod(round(max(0, min(seconds, self.seconds_left()))), 60)
        return (
            f"epoch {self._epoch + 1}/{epochs}  batch {batch:,}/{steps:,}  loss {logs['loss']:.4f}  rate {rate:.2e}  "
            f"{self._done * self.tokens / max(self._seconds, 1e-9):,.0f} tokens/s  {minutes}:{rest:02} left{scores}"
        )

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


class SampleBoard(keras.callbacks.TensorBoard):
    """Keras' `TensorBoard` of losses, metrics and scores, with a few translations and pictures of their alignments.

    Args:
        folder: The folder that TensorBoard reads.
        validation: A `keras_attn.training.callbacks.Validation`, which comes before this callback.
        count: Number of sentences.

    Raises:
        ModuleNotFoundError: If TensorFlow, which writes the files on every backend, or TensorBoard is not installed.
    """

    def __init__(self, folder: Path, validation, count: int = 3):
        require("tensorboard", "tensorflow", "tensorboard", purpose="this callback, on every backend")
        super().__init__(str(folder), write_graph=False)
        self.folder = folder
        self.validation = validation
        validation.samples = count

    def on_epoch_end(self, epoch, logs=None):
        from matplotlib.image import imread  # slow to import

        super().on_epoch_end(epoch, logs)
        own, translator = self.validation, self.validation.translator
        writer = self.summary.create_file_writer(str(self.folder / "samples"))
        with writer.as_default(epoch):
            for n, translation in enumerate(own.sample_translations):
                lines = own.sources[n], own.references[n], translation.text
                text = "\n".join(f"    {name:12}{line}" for name, line in zip(_LINES, lines, strict=True))
                self.summary.text(f"sample {n + 1}", text)
                if translation.tokens and translation.alignment is not None:
                    tokenizers = translator.source_tokenizer, translator.target_tokenizer
                    words = plots.align_words(translation, *tokenizers, own.sources[n])
                    with tempfile.TemporaryDirectory() as folder:
                        plots.alignment(*words, path=(path := Path(folder, "alignment.png")))
                        self.summary.image(f"alignment {n + 1}", imread(path)[None])
        writer.close()


class Samples(keras.callbacks.Callback):
    """Prints a few translations after each validation.

    Args:
        validation: A `keras_attn.training.callbacks.Validation`, which comes before this callback.
        count: Number of sentences.
    """

    def __init__(self, validation, count: int = 3):
        super().__init__()
        self.validation = validation
        self.count = count

    def on_epoch_end(self, epoch, logs=None):
        own = self.validation
        for source, reference, text in zip(own.sources[: self.count], own.references, own.texts, strict=False):
            lines = zip(_LINES, (source, reference, text), strict=True)
            print("\n".join(f"  {name:12}{line}" for name, line in lines), flush=True)
