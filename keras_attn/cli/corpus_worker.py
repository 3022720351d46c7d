"""A worker of a bulk translation: loads a translator once and translates blocks of lines.

Importing this file does not import Keras, so that a process of a cluster can choose the backend first.
"""

import argparse
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_attn.cli import command, environment, output_formats
from keras_attn.cli.corpus_blocks import Block
from keras_attn.cli.line_streaming import Progress
from keras_attn.cli.search_flags import load_translator, search_arguments
from keras_attn.cli.text_windows import TextReader, in_batches
from keras_attn.translation import Translation

_ATTEMPTS = 4  # to translate a block
COUNTS = ("lines", "failed", "invalid", "cut")


class BlockTranslator:
    """Translates blocks as `keras-attn translate` translates windows of the same lines: the same bytes.

    Args:
        arguments: Parsed arguments of `keras-attn translate-corpus`, with absolute paths.
        backend: The backend on which to translate.
        run: A name for this run of the command.

    Raises:
        ValueError: If an option is refused, or the preset is damaged.
        FileNotFoundError: If there is no preset.
        ImportError: If something is not installed.
    """

    def __init__(self, arguments: argparse.Namespace, backend: str, run: str):
        command.import_keras(functools.partial(environment.prepare, backend))
        self.run = run
        self.max_characters = arguments.max_characters
        self.options, self.form = translation_options(arguments)
        self.translator = load_translator(arguments, arguments.run)
        self.translator.generate([], **self.options)  # refuses bad options

    def __call__(self, row: dict) -> dict:
        """Translates a block and writes its results, unless they are there.

        Args:
            row: The fields of a `Block`.

        Returns:
            dict with `lines`, how many are done, and `error`, a sentence or "": an error that other blocks meet, too.
        """
        block = Block(**{name: row[name] for name in Block._fields})
        try:
            if not block.results.exists():
                if block.attempt(self.run) > _ATTEMPTS:
                    last = block.first + block.size - 1
                    lines = f"lines {block.first:,} to {last:,} of {Path(block.folder).name!r}"
                    raise OSError(f"Expected workers that survive. Received: {lines}, at which {_ATTEMPTS} have died.")
                self._translate(block)
        except OSError as error:
            return {"lines": 0, "error": f"{error}"}
        return {"lines": block.size, "error": ""}

    def fingerprint(self) -> str:
        """Returns a hash of all weights, both tokenizers, the shortlist, and of whether products are in int8."""
        digest = hashlib.sha256(b"int8" if self.translator.int8_weights else b"")
        for tokenizer in (self.translator.source_tokenizer, self.translator.target_tokenizer):
            digest.update(tokenizer.fingerprint.encode())
        if self.translator.shortlist is not None:
            digest.update(self.translator.shortlist.fingerprint.encode())
        for weight in self.translator.model.get_weights():
            digest.update(np.ascontiguousarray(weight).tobytes())
        return digest.hexdigest()

    def _translate(self, block: Block) -> None:
        reader, failures = TextReader(self.max_characters), {}
        texts = reader.read(block.lines())
        numbers = range(block.first, block.first + len(texts))
        generate = functools.partial(self._generate, failures)
        found = in_batches(generate, texts, numbers, self.options["batch_size"], Progress(False), [1] * len(texts))
        output = "".join(map(self.form, numbers, texts, found))
        counts = (len(texts), len(failures), reader.invalid, reader.cut)
        block.write(output, failures, dict(zip(COUNTS, counts, strict=True)))

    def _generate(self, failures: dict[int, str], texts: Sequence[str], numbers: Sequence[int]) -> list[Translation]:
        """Translates texts. One that fails has a blank translation, and its number and reason in `failures`."""
        try:
            return self.translator.generate(texts, **self.options)
        except Exception as error:  # whatever fails, the other lines are translated; backends' errors share no class
            if len(texts) == 1:
                failures[numbers[0]] = " ".join(f"{type(error).__name__}: {error}".split())
                return [Translation("")]
            half = len(texts) // 2
            return [
                *self._generate(failures, texts[:half], numbers[:half]),
                *self._generate(failures, texts[half:], numbers[half:]),
            ]


def translation_options(arguments: argparse.Namespace) -> tuple[dict, functools.partial]:
    """Returns the keyword arguments of `Translator.generate`, and the format of a line.

    Raises:
        ValueError: If the arguments do not fit together.
    """
    options = search_arguments(arguments, arguments.run)
    name, fields = arguments.format, arguments.fields
    if arguments.scores or arguments.alignments:
        if fields or name not in (None, "jsonl"):
            raise ValueError("Expected --scores and --alignments with --format jsonl and without --fields.")
        name, fields = "jsonl", "text" + ",score" * arguments.scores + ",tokens,alignment" * arguments.alignments
    form, options["return_alignments"] = output_formats.chosen(name, fields, options["n_best"])
    return options, form
