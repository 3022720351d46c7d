"""Tags put into a translation by its alignment."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from keras_attn.markup.tree import Node, Tree
from keras_attn.markup.unit import Unit
from keras_attn.markup.words import is_unspaced


class TargetWord(NamedTuple):
    """A word of a translation, as `with_tags` takes it, with the word of the source that it is aligned to.

    Words are those of `words_of`: a sign of punctuation is one.

    Example:
        >>> TargetWord("chien", source=2, blank=" ", sentence=-1).text  # the third word of "the black dog"
        'chien'
    """

    text: str  # its characters
    source: int  # the number of the unit's word that it is aligned to; -1 for none
    blank: str  # the blanks before it; "" for the first of a sentence
    sentence: int  # the number of the unit's word with which its sentence begins, for the first of one; -1 for others


def with_tags(unit: Unit, target: Sequence[TargetWord], escape: Callable[[str], str]) -> str:
    """Returns a translation with the tags of its source.

    * An element that covers source words covers the shortest run of target words that are aligned to them (see
      `Tree.place`). One whose words have no translation is empty. Elements contain each other as in the source.
    * A point keeps its place at the start or at the end of its element. Else it follows the translation of what is
      before it; or, if it is attached to what comes after it alone, precedes the translation of that.
    * A word that is copied has its tags where the source has them, and the characters written as there.
    * Between words that follow each other on both sides, tags and blanks are written as there.

    So every tag of the source occurs once and byte for byte, and the copy of the source is the source, but for a bare
    "<" or "&", and for references to two characters, or to none.

    Args:
        unit: The source.
        target: The words of the translation, of all sentences of the unit.
        escape: Returns a text as it is written.

    Returns:
        The translation with the tags.

    Example:
        >>> document = keras_attn.markup.read_html("the <b>black</b> dog")
        >>> target = [TargetWord("le", 0, "", 0), TargetWord("chien", 2, " ", -1), TargetWord("noir", 1, " ", -1)]
        >>> keras_attn.markup.with_tags(document.units[0], target, document.escape)
        'le chien <b>noir</b>'
    """
    atoms = _atoms(unit, target, escape)
    if not atoms:
        return _blanks(unit, 0) + "".join(tag.written for tag in unit.tags) + _blanks(unit, len(unit.atoms))
    tree = Tree(unit)
    tree.place([source for _, source, _, _ in atoms])
    known = {0: 0, len(atoms): len(unit.atoms)}  # gaps whose source gap is known without the alignment
    known |= {place: unit.first_atoms[start] for place, (*_, start) in enumerate(atoms) if start > 0 and place}
    gaps = _tags_of_gaps(tree, _Points(unit, atoms, known))
    written = [text for text, *_ in atoms] + [""]
    return "".join(_gap(unit, place, gaps[place], atoms, known) + written[place] for place in range(len(gaps)))


def _atoms(unit: Unit, target: Sequence[TargetWord], escape: Callable) -> list[TargetWord]:
    """Returns of each target atom how it is written, its source atom, the blank before it and `sentence`."""
    atoms = []
    for word in target:
        if word.source < 0:
            atoms.append((escape(word.text), -1, word.blank, word.sentence))
            continue
        numbers = range(unit.first_atoms[word.source], unit.first_atoms[word.source + 1])
        start, end = unit.words[word.source]
        if unit.text[start:end] != word.text:
            longest = max(numbers, key=lambda number: unit.atoms[number][1] - unit.atoms[number][0])
            atoms.append((escape(word.text), longest, word.blank, word.sentence))
            continue
        for n, number in enumerate(numbers):
            written = "".join(unit.written[slice(*unit.atoms[number])])
            atoms.append((written, number, "" if n else word.blank, -1 if n else word.sentence))
    return atoms


class _Points:
    """Finds the place of what has no target atoms."""

    def __init__(self, unit: Unit, atoms: Sequence[TargetWord], known: dict[int, int]):
        self.unit, self.count = unit, len(atoms)
        self.known = {gap: place for place, gap in known.items()}
        first, last = [self.count] * len(unit.atoms), [-1] * len(unit.atoms)
        for place, (_, source, _, _) in enumerate(atoms):
            if source >= 0:
                first[source], last[source] = min(first[source], place), max(last[source], place)
        self.after = [0]  # of each gap: after the nearest atom on its left that has a translation
        for place in last:
            self.after.append(place + 1 if place >= 0 else self.after[-1])
        self.before = [self.count]
        for place in reversed(first):
            self.before.append(place if place < self.count else self.before[-1])
        self.before.reverse()
        self.word_ends = _word_ends(atoms)

    def place(self, node: Node, parent: Node) -> int:
        """Returns the gap of the target in which a point or an empty element is, within its parent."""
        if node.first == parent.first:
            return parent.low
        if node.first == parent.last:
            return parent.high
        opening, closing = self.unit.tags[node.opening], self.unit.tags[node.closing]
        if node.first in self.known:
            place = self.known[node.first]
        else:
            is_attached = opening.blank_before and not closing.blank_after
            place = (self.before if is_attached else self.after)[node.first]
            if not is_attached and closing.blank_after:
                place = self.word_ends[place]
        return min(max(place, parent.low), parent.high)


def _word_ends(atoms: Sequence[TargetWord]) -> list[int]:
    """Returns for each gap the next one at which nothing is torn: before a blank, or the signs that end a word."""
    ends, is_end = [len(atoms)], True  # is_end: whether only signs come before the next blank
    for place in range(len(atoms) - 1, -1, -1):
        text, _, _, start = atoms[place]
        is_end = is_end and not any(map(str.isalnum, text))
        follows_blank = place == 0 or start >= 0 or bool(atoms[place][2])
        ends.append(place if is_end or follows_blank else ends[-1])
        is_end = is_end or follows_blank
    ends.reverse()
    return ends


def _tags_of_gaps(tree: Tree, points: _Points) -> list[list[int]]:
    """Returns the numbers of the tags in each gap of the target."""
    gaps = [[] for _ in range(points.count + 1)]
    place = 0
    stack = [(tree.nodes[0], _placed(tree.nodes[0], points))]
    while stack:
        node, children = stack[-1]
        child = next(children, None)
        if child is not None:
            place = max(place, child.low)
            gaps[place].append(child.opening)
            if child.closing != child.opening:
                stack.append((child, _placed(child, points)))
            continue
        stack.pop()
        place = max(place, node.high)
        if node.closing >= 0:
            gaps[place].append(node.closing)
    return gaps


def _placed(node: Node, points: _Points):
    """Returns the children of a node in the order of the target, the empty ones and points with a place of theirs."""
    for child in node.children:
        if child.is_empty:
            child.low = child.high = points.place(child, node)
    return iter(sorted(node.children, key=lambda child: (child.low, child.number)))


def _gap(unit: Unit, place: int, numbers: list[int], atoms: Sequence[TargetWord], known: dict) -> str:
    """Returns what is written in a gap of the target that has these tags."""
    is_first, is_last = place == 0, place == len(atoms)
    blank = "" if is_last else atoms[place][2]
    gap = known.get(place)
    if gap is None:
        source, following = atoms[place - 1][1], atoms[place][1]
        follows = source >= 0 and following == source + 1 and blank == " " * bool(_blanks(unit, following))
        gap = following if follows else None
    elif not (is_first or is_last):
        blank = _blanks(unit, gap)
        if not blank and is_unspaced(unit.text[unit.atoms[gap][0]]) and not is_unspaced(atoms[place][0][0]):
            return _arranged(unit, numbers, " ", " ", " ")
    if gap is not None and numbers == [item for item in unit.gaps[gap] if not isinstance(item, str)]:
        return "".join(item if isinstance(item, str) else unit.tags[item].written for item in unit.gaps[gap])
    if is_first or is_last:
        inner = _arranged(unit, numbers, "", "" if is_first else " ", "" if is_last else " ")
        return (_blanks(unit, 0) if is_first else "") + inner + (_blanks(unit, len(unit.atoms)) if is_last else "")
    return _arranged(unit, numbers, blank, blank or " ", blank)


def _blanks(unit: Unit, gap: int) -> str:
    return "".join(item for item in unit.gaps[gap] if isinstance(item, str))


def _arranged(unit: Unit, numbers: list[int], blank: str, before: str, after: str) -> str:
    """Returns tags with the blanks between them.

    Args:
        unit: Has the tags.
        numbers: The tags.
        blank: The blanks of the gap, which come after closing tags and before opening ones.
        before, after: The blanks at the side of a point that has some at this side in the source.
    """
    parts, due, is_apart, present = [], "", False, set(numbers)  # is_apart: whether the blanks are written
    for number in numbers:
        tag = unit.tags[number]
        is_point, is_opening = tag.partner == number, tag.partner > number and tag.partner not in present
        if (is_point or is_opening) and due:
            parts.append(due)
            due, is_apart = "", True
        elif not is_apart and (is_opening or (is_point and tag.blank_before)):
            parts.append(blank if is_opening else before)
            is_apart = True
        parts.append(tag.written)
        if is_point and tag.blank_after:
            due = after
    return "".join([*parts, due or ("" if is_apart else blank)])
