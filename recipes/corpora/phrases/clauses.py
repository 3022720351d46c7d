"""Clauses of the corpus `phrases`: any construction, with a place, an hour and a date.

A construction is a function `(draw, scene, tense, depth) -> Clause`; tense is "past", "present", "future" or
"pending" (present in English, future in French, as after "when"), and depth 1 allows owners, relative clauses and more
adjectives.
"""

from collections.abc import Callable

from recipes.corpora.phrases import lexicon, state_clauses, verbal_clauses
from recipes.corpora.phrases.constituents import person
from recipes.corpora.phrases.numbers_and_dates import a_date, clock
from recipes.corpora.phrases.scene import Clause, Draw, Scene

WEIGHTS = {
    "giving": 5,
    "handling": 5,
    "meeting": 2.5,
    "answering": 1.2,
    "being": 2.5,
    "describing": 2.5,
    "comparing": 1,
    "paying": 1.2,
    "costing": 0.8,
    "suffering": 1.2,
    "existing": 0.8,
    "ageing": 0.6,
    "birth": 0.7,
}
CONSTRUCTIONS: dict[str, Callable[[Draw, Scene, str, int], Clause]] = {
    name: getattr(verbal_clauses, name, None) or getattr(state_clauses, name) for name in WEIGHTS
}
_OWN_TENSE = {"costing", "birth"}  # they choose their own tense, so they do not follow "when", "as soon as" and "if"
_SHORT = ("being", "handling", "meeting", "answering", "describing")
_TENSED = {name: weight for name, weight in WEIGHTS.items() if name not in _OWN_TENSE}
_BRIEF = {name: WEIGHTS[name] for name in _SHORT}


def clause(draw: Draw, scene: Scene, tense: str, depth: int, *, own_tense: bool = True, brief: bool = False) -> Clause:
    """A clause of a random construction; with `brief` of one that can have three words."""
    weights = _BRIEF if brief else WEIGHTS if own_tense else _TENSED
    return CONSTRUCTIONS[draw.weighted(**weights)](draw, scene, tense, depth)


def with_times(draw: Draw, scene: Scene, core: Clause, share: float, *, days: bool, dates: bool) -> Clause:
    """The clause with a companion, a place, an hour and a date, each with a probability of about `share`.

    English ends with the hour and the date, or begins with the date; French ends with the date and the hour. An adverb
    of day ends the English clause and begins the French one; only main clauses have it (`days`).
    """
    english, french = [core.english], [core.french]
    hour, fronted = ("", ""), ""
    if core.roomy:
        if draw.chance(0.5 * share):
            friend = person(draw, scene)
            english.append(f"with {friend.english}")
            french.append(f"avec {friend.french}")
        if draw.chance(share):
            place = draw.pick(lexicon.PLACES)
            english.append(place[0])
            french.append(place[1])
        if draw.chance(0.6 * share):
            hour = clock(draw)
            english.append(hour[0])
        if dates and core.tense in ("past", "future") and draw.chance(share):
            day = a_date(draw, core.tense)
            french.append(day[1])
            if draw.chance(0.5):
                english.append(day[0])
            else:
                fronted = day[0] + ", "
        elif days and core.tense in lexicon.DAYS and draw.chance(share):
            day = draw.pick(lexicon.DAYS[core.tense])
            english.append(day[0])
            french.insert(0, day[1] + ",")
        french.append(hour[1])
    return core._replace(english=fronted + " ".join(english), french=" ".join(french).strip())
