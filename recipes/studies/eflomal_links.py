"""Links by eflomal, an aligner of words by Gibbs sampling: Östling & Tiedemann, Efficient Word Alignment with Markov
Chain Monte Carlo, The Prague Bulletin of Mathematical Linguistics 106, 2016.

It is no dependency of this project: `pip install eflomal`. It takes its random numbers from the system, so that
its links differ a little from run to run; a study makes them once.
"""

from collections.abc import Sequence
from pathlib import Path

from keras_attn import files
from keras_attn.evaluation import Link, grow_diag_final_and, parse_links
from keras_attn.requirements import is_installed
from keras_attn.text import read_lines

_FOLDER = "eflomal"
_SIDES = "forward", "backward"


def check(out: Path) -> None:
    """Raises ModuleNotFoundError if eflomal is not installed, unless the study's folder has its links."""
    if not (out / _FOLDER).exists() and not is_installed("eflomal"):
        raise ModuleNotFoundError(
            "Expected eflomal to be installed, whose links guide a system (pip install eflomal). Without it choose "
            "the other systems by --systems.",
            name="eflomal",
        )


def guide(out: Path, languages: tuple[str, str]) -> Path:
    """The file in a study's folder that has the links of the training pairs in this direction."""
    return out / _FOLDER / f"{'-'.join(languages)}.links"


def align(
    out: Path, languages: tuple[str, str], training: Sequence[Sequence[str]], more: Sequence[Sequence[str]]
) -> tuple[list[set[Link]], list[set[Link]]]:
    """Aligns text, once for each folder, and writes the files of `guide`.

    Args:
        out: The study's folder.
        languages: Of source and target.
        training: The sources and targets whose links, symmetrised by grow-diag-final-and, the files of `guide` get.
        more: Sources and targets that are aligned with them.

    Returns:
        The links (source word, target word) of `more`, forward and backward.
    """
    folder = out / _FOLDER
    if not folder.exists():
        import eflomal

        sides = [[*side, *added] for side, added in zip(training, more, strict=True)]
        with files.staging(out) as temporary:
            new = temporary / _FOLDER
            new.mkdir()
            paths = [str(new / f"{side}.links") for side in _SIDES]
            eflomal.Aligner().align(*sides, links_filename_fwd=paths[0], links_filename_rev=paths[1])
            links = [grow_diag_final_and(*pair) for pair in zip(*map(_read, paths), strict=True)]
            own = links[: len(training[0])]
            _write(guide(temporary, languages), own)
            _write(guide(temporary, languages[::-1]), [{(j, i) for i, j in one} for one in own])
            files.publish(new, folder)
    forward, backward = (_read(folder / f"{side}.links")[len(training[0]) :] for side in _SIDES)
    return forward, backward


def _read(path: str | Path) -> list[set[Link]]:
    return [set(parse_links(line).sure) for line in read_lines(Path(path))]


def _write(path: Path, links: Sequence[set[Link]]) -> None:
    lines = (" ".join(f"{i}-{j}" for i, j in sorted(one)) for one in links)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
