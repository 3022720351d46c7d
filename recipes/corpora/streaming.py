"""Large corpora: a training split that stays in its files, from which tokenizers take a sample."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from keras_attn.text import corpus_paths, iterate_lines

LARGE = 64_000_000  # bytes of both sides of the training split, beyond which they stay in their files
_EXPANSION = 3  # of compressed text


class TextFiles:
    """The lines of some files, one file after the other. Each iteration reads them anew.

    Args:
        paths: The files, plain, `.gz`, `.xz` or `.bz2`.
    """

    def __init__(self, paths: Sequence[Path]):
        self.paths = list(paths)

    def __iter__(self) -> Iterator[str]:
        for path in self.paths:
            yield from iterate_lines(path)


def training_files(folder: Path, source: str, target: str) -> tuple[TextFiles, TextFiles]:
    """Both sides of the training split of a folder.

    Raises:
        FileNotFoundError: If one is missing.
    """
    return tuple(TextFiles(corpus_paths(folder, "train", language)) for language in (source, target))


def is_large(folders: Sequence[Path], source: str | None, target: str | None) -> bool:
    """Whether the training split of some folders together has more than `LARGE` bytes."""
    size = 0
    for folder in folders:
        for language in (source, target):
            try:
                paths = corpus_paths(folder, "train", language or "")
            except FileNotFoundError:  # of a part without that split, or of a wrong language, which `load` refuses
                continue
            packed = [_EXPANSION if path.suffix in (".gz", ".xz", ".bz2") else 1 for path in paths]
            size += sum(path.stat().st_size * times for path, times in zip(paths, packed, strict=True))
    return size > LARGE
