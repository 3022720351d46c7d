"""The elements of a unit as a tree, and the target atoms that belong to each."""

import bisect
import itertools
from collections.abc import Sequence

from keras_attn.markup.unit import Unit


class Node:
    """An element, a point or the whole unit.

    Attributes:
        opening, closing: The numbers of its tags; equal for a point, -1 for the whole unit.
        first, last: The gaps of its tags: it has the source atoms from `first` to `last`, without that.
        number: Its place among all nodes in the order of their opening tags.
        low, high: The same as `first` and `last` in the target, once `Tree.place` has found them.
        is_empty: Whether no target atom belongs to it.
    """

    def __init__(self, opening: int, closing: int, first: int, last: int, number: int):
        self.opening, self.closing, self.first, self.last = opening, closing, first, last
        self.number, self.children = number, []
        self.low = self.high = self.total = 0
        self.is_empty = True


class Tree:
    """The elements of a unit. `nodes[0]` is the whole, and all are in the order of their opening tags."""

    def __init__(self, unit: Unit):
        self.nodes = [Node(-1, -1, 0, len(unit.atoms), 0)]
        self.homes: list[Node] = []  # of each source atom, the innermost element around it
        stack = [self.nodes[0]]
        for gap, items in enumerate(unit.gaps):
            for number in (item for item in items if not isinstance(item, str)):
                if unit.tags[number].partner < number:
                    stack.pop()
                    continue
                partner = unit.tags[number].partner
                node = Node(number, partner, gap, unit.tags[partner].gap, len(self.nodes))
                stack[-1].children.append(node)
                self.nodes.append(node)
                if partner > number:
                    stack.append(node)
            self.homes.append(stack[-1])
        self.homes.pop()  # there is a gap more than atoms

    def place(self, sources: Sequence[int]) -> None:
        """Finds the target atoms of each element: the shortest run that has all those aligned to its source atoms.

        Elements side by side in the source stay so: where the runs of two would overlap, each has the longest part of
        its own that no atom of another interrupts.

        Args:
            sources: The source atom of each target atom; -1 for none.
        """
        members = [atom for atom, source in enumerate(sources) if source >= 0]
        for atom in members:
            self.homes[sources[atom]].total += 1
        for node in reversed(self.nodes):
            node.total += sum(child.total for child in node.children)
        root = self.nodes[0]
        root.high, root.is_empty = len(sources), False
        waiting = [(root, members)]
        while waiting:
            node, members = waiting.pop()
            for child, run in self._runs(node, members, sources):
                child.low, child.high, child.is_empty = run[0], run[-1] + 1, False
                waiting.append((child, run))

    def _runs(self, node: Node, members: list[int], sources: Sequence[int]) -> list[tuple[Node, list[int]]]:
        """Returns the children of a node that have any of the target atoms `members` of the node, with these."""
        for child in node.children:
            if child.total == node.total:  # the same atoms: elements one in another take no time for each atom
                return [(child, members)] if members else []
        first = [child.number for child in node.children]
        inner = [(self.homes[sources[atom]].number, atom) for atom in members]
        labelled = [(bisect.bisect_right(first, home) - 1, atom) for home, atom in inner if home != node.number]
        longest: dict[int, list[int]] = {}
        for place, run in itertools.groupby(labelled, lambda pair: pair[0]):
            atoms = [atom for _, atom in run]
            if len(atoms) > len(longest.get(place, ())):
                longest[place] = atoms
        return [(node.children[place], atoms) for place, atoms in sorted(longest.items())]
