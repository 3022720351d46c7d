"""The table of registered presets in docs/presets.md, written from the registry: `python -m recipes.pages.presets`."""

import argparse
import re
import sys
from pathlib import Path

from keras_attn import saving
from keras_attn.cli import command
from recipes import named_corpora
from recipes.pages.results import table

PAGE = Path(__file__).parents[2] / "docs" / "presets.md"
_TABLE = re.compile(r"(?<=\n\n)\| name \|.*?(?=\n\n)", re.DOTALL)
_METRICS = {"bleu": "BLEU {:.2f}", "wer": "{:.2f} % of words wrong"}


def main(argv=None) -> int:
    parser = command.Parser("recipes.pages.presets", description=__doc__)
    return command.run(write, parser, argv, prepare=None)


def write(_: argparse.Namespace) -> None:
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_table(page: str) -> str:
    """The page with the table that follows from the registry.

    Raises:
        ValueError: if it has no table whose first column is "name".
    """
    found, count = _TABLE.subn(lambda _: preset_table(), page)
    if count != 1:
        raise ValueError(f"Expected one table with the column name. Received: {count}")
    return found


def preset_table() -> str:
    """A row for each preset: its name, model, corpus with what that is, licence, bytes and score."""
    rows = []
    for name, entry in saving.presets().items():
        titles = "; ".join(origin.title for origin in named_corpora.origins(entry.corpus))
        model = f"`{entry.model}`, {entry.parameters / 1e6:.1f} M parameters, {entry.dtype}"
        corpus = f"`{entry.corpus}`: {titles} ({entry.licence})"
        rows.append(
            [f"`{name}`", model, corpus, f"{entry.size / 1e6:.1f} MB", _METRICS[entry.metric].format(entry.score)]
        )
    return table(["name", "model", "trained on", "bytes", "score"], rows)


if __name__ == "__main__":
    sys.exit(main())
