"""Clauses of the corpus `phrases` with "to be": states, comparisons, the passive, existence, age and birth.

The arguments of a construction are those in `recipes.corpora.phrases.clauses`.
"""

from recipes.corpora.phrases import lexicon
from recipes.corpora.phrases.constituents import NEGATIONS, noun_phrase, person
from recipes.corpora.phrases.french import conjugate, participle
from recipes.corpora.phrases.numbers_and_dates import NUMBERS, a_date, number
from recipes.corpora.phrases.scene import Clause, Draw, Phrase, Scene
from recipes.corpora.phrases.verbal_clauses import subject


def _be(who: Phrase, tense: str, negation: str = "", verb: str = "être") -> tuple[str, str]:
    """`to be` in both languages; a past state is an imperfect. verb="avoir" for ages."""
    french_tense = {"past": "imperfect", "pending": "future"}.get(tense, tense)
    finite = conjugate(verb, french_tense, who.form)
    french = f"ne {finite} {NEGATIONS[negation]}" if negation else finite
    if tense == "future":
        return " ".join(f"will {negation} be".split()), french
    many = who.plural or who.person in (1, 4)
    english = ("were" if many else "was") if tense == "past" else ("are" if many else "is")
    return f"{english} {negation}".strip(), french


def _state(draw: Draw, scene: Scene, depth: int) -> tuple[Phrase, list]:
    before, scene.object = scene.object, None
    if before and not before.plural and draw.chance(0.6):
        return Phrase("it", "il" if before.gender == "m" else "elle", before.gender), lexicon.OF_THINGS
    if draw.chance(0.5):
        return noun_phrase(draw, scene, "thing", depth, bare=False), lexicon.OF_THINGS
    return subject(draw, scene, depth, gendered=True), lexicon.OF_PERSONS + lexicon.STATES


def describing(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`the letters were not very old` -> `les lettres n'étaient pas très vieilles`."""
    who, choice = _state(draw, scene, depth)
    negation = draw.weighted(plain=5, **{"not": 2, "no longer": 1})
    english, french = _be(who, tense, "" if negation == "plain" else negation)
    degree = draw.weighted(plain=5, very=1.5, too=1) if negation == "plain" else "plain"
    words = {"plain": ("", ""), "very": ("very ", "très "), "too": ("too ", "trop ")}[degree]
    adjective = draw.pick(choice)
    form = adjective.forms[who.gender, who.plural]
    return Clause(
        f"{who.english} {english} {words[0]}{adjective.english}",
        f"{who.french} {french} {words[1]}{form}",
        tense,
        roomy=False,
    )


def comparing(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`the house is older than the car` -> `la maison est plus vieille que la voiture`."""
    who, choice = _state(draw, scene, depth)
    thing = choice is lexicon.OF_THINGS
    adjective = draw.pick([word for word in choice if word.comparative])
    other = noun_phrase(draw, scene, "thing", depth, bare=False) if thing else person(draw, scene)
    english, french = _be(who, tense)
    form = adjective.forms[who.gender, who.plural]
    return Clause(
        f"{who.english} {english} {adjective.comparative} than {other.english}",
        f"{who.french} {french} plus {form} que {other.french}",
        tense,
        roomy=False,
    )


def suffering(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """The passive: `the letter was found by the boy` -> `la lettre a été trouvée par le garçon`."""
    scene.object = None
    verb = draw.pick([verb for verb in lexicon.GIVING + lexicon.HANDLING if verb.participle])
    thing, agent = noun_phrase(draw, scene, "thing", depth, bare=False), person(draw, scene)
    negation = "not" if draw.chance(0.2) else ""
    form = participle(verb.infinitive, thing.gender, thing.plural)
    english, french = _be(thing, tense, negation)
    if tense == "past":
        finite = conjugate("avoir", "present", thing.form)
        french = f"ne {finite} pas été" if negation else f"{finite} été"
    return Clause(
        f"{thing.english} {english} {verb.participle} by {agent.english}",
        f"{thing.french} {french} {form} par {agent.french}",
        tense,
    )


def existing(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`there is no red car in the street` -> `il n'y a pas de voiture rouge dans la rue`."""
    scene.object = None
    place = draw.pick(lexicon.PLACES)
    thing = noun_phrase(draw, scene, "thing", depth, indefinite=True)
    english, _ = _be(thing, tense)
    french = {"past": "y avait", "present": "y a"}.get(tense, "y aura")
    what, words = thing.english, f"il {french} {thing.french}"
    if thing.negated and draw.chance(0.3):
        what = "no " + what.removeprefix("a ")
        words = f"il ne {french} pas {thing.negated}"
    return Clause(f"there {english} {what} {place[0]}", f"{words} {place[1]}", tense, roomy=False)


def ageing(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`Anna is twenty-one years old` -> `Anna a vingt et un ans`."""
    scene.object = None
    who, years = subject(draw, scene, depth, gendered=True), draw.pick(NUMBERS)
    english, french = _be(who, tense, verb="avoir")
    return Clause(
        f"{who.english} {english} {number(years, 'en')} years old",
        f"{who.french} {french} {number(years, 'fr')} ans",
        tense,
        roomy=False,
    )


def birth(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`the boys were born on May 5, 2014` -> `les garçons sont nés le 5 mai 2014`: always in the past tense."""
    scene.object = None
    who, day = subject(draw, scene, depth, gendered=True), a_date(draw, "past")
    english, _ = _be(who, "past")
    born = participle("naître", who.gender, who.plural)
    return Clause(
        f"{who.english} {english} born {day[0]}",
        f"{who.french} {conjugate('être', 'present', who.form)} {born} {day[1]}",
        "past",
        roomy=False,
    )
