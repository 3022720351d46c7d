"""What every construction of the corpus `phrases` works with: random choices, phrases, clauses, and the scene.

A phrase or a clause is built in English and French side by side; its French is not yet processed by
`recipes.corpora.phrases.french.sandhi` ("de le", "la actrice").
"""

import random
from typing import Any, NamedTuple


class Draw:
    """Seeded choices by `random.Random.random` alone, the one method whose sequence Python guarantees to keep."""

    def __init__(self, seed: int):
        self.uniform = random.Random(seed).random  # in [0, 1)

    def chance(self, probability: float) -> bool:
        return self.uniform() < probability

    def below(self, number: int) -> int:
        return int(self.uniform() * number)

    def pick(self, items: Any) -> Any:
        return items[self.below(len(items))]

    def weighted(self, **weights: float) -> str:
        rest = self.uniform() * sum(weights.values())
        for name, weight in weights.items():
            rest -= weight
            if rest < 0:
                return name
        return name


class Phrase(NamedTuple):
    english: str
    french: str
    gender: str | None = "m"  # None: English does not say (I, we)
    plural: bool = False
    person: int = 2  # 0 je, 1 tu, 2 il, 3 nous, 4 vous
    negated: str = ""  # French as the object of a negated verb: `un livre` -> `de livre`

    @property
    def form(self) -> int:
        return 5 if self.person == 2 and self.plural else self.person

    @property
    def third(self) -> bool:
        return self.person == 2 and not self.plural


class Scene:
    """What pronouns may refer to at this point of the English sentence.

    It is updated in the order of the English words, so that a reader of the English alone can resolve every pronoun:
    `it` and `them` (of things) are the direct object of the clause before, `they` agrees with the last plural person
    that was a subject (masculine without one), `you` is the person addressed at the start of the sentence.
    """

    def __init__(self, address: Phrase | None = None):
        self.address = address  # "you"
        self.plural_gender = "m"  # of "they"
        self.subject: Phrase | None = None
        self.object: Phrase | None = None  # "it", "them"


class Clause(NamedTuple):
    english: str
    french: str
    tense: str  # "past", "present", "future", or "pending": English present, French future (after "when")
    roomy: bool = True  # takes places and times
