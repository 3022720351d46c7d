"""The embedded corpus: English and French sentences in a file of the package, which training reads without a download.

`phrases_en_fr.tsv.bz2` has a line "split, English, French" for each pair, separated by tabs: the splits `train`, `val`
and `test`, and `lengths`, test sentences of which each class of ten lengths up to 60 words has 200. docs/commands.md
describes how it was made.
"""

from pathlib import Path

from keras_attn import files
from keras_attn.text import read_lines

PATH = Path(__file__).with_name("phrases_en_fr.tsv.bz2")
SHA256 = "02546519ef2fa49acae4d6073023ab2cbbd6c11c001b010bfa99e603a2d2ecf0"


def splits() -> dict[str, tuple[list[str], list[str]]]:
    """Returns the English and the French lines of each split.

    Raises:
        ValueError: If the file is not the one that belongs to this package.
    """
    if (received := files.sha256(PATH)) != SHA256:
        raise ValueError(
            f"Expected {PATH} to have the SHA-256 {SHA256}. Received: {received}. Install the package again."
        )
    sides: dict[str, tuple[list[str], list[str]]] = {}
    for line in read_lines(PATH):
        split, english, french = line.split("\t")
        sides.setdefault(split, ([], []))
        sides[split][0].append(english)
        sides[split][1].append(french)
    return sides
