"""Noun phrases, times and verb groups of the corpus `phrases`: every function writes English and French side
by side.

French is written before `recipes.corpora.phrases.lexicon.sandhi` (`de le`, `la actrice`). A `Scene` carries what a pronoun
may refer to; it is updated in the order of the English words, so that a reader of the English alone can
resolve every pronoun: `it` and `them` (of things) are the direct object of the clause before, `they` agrees
with the last plural person that was a subject (masculine without one), `you` is the person addressed at the
start of the sentence.
"""

import datetime
import random
from functools import cache
from typing import Any, NamedTuple

from recipes.corpora.phrases import lexicon
from recipes.corpora.phrases.lexicon import Noun, Verb, conjugate, participle


class Draw:
    """Seeded choices from `random.Random.random` alone, the one method whose stream Python promises to
    keep."""

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
    """What pronouns may refer to at this point of the English sentence."""

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


# --- numbers and times


@cache
def number(value: int, language: str, ordinal: bool = False) -> str:
    from num2words import num2words

    words = num2words(value, lang=language, to="ordinal" if ordinal else "cardinal")
    return words.replace(",", "")


@cache
def amount(cents: int, currency: str) -> tuple[str, str]:
    """An amount of money, `(English, French)`; currency is "EUR" or "USD"."""
    from num2words import num2words

    if cents % 100:
        english = num2words(cents / 100, lang="en", to="currency", currency=currency, separator=" and")
        french = num2words(cents / 100, lang="fr", to="currency", currency=currency)
        return english.replace(",", "").replace("euro ", "euros "), french
    name = {"EUR": "euros", "USD": "dollars"}[currency]
    return f"{number(cents // 100, 'en')} {name}", f"{number(cents // 100, 'fr')} {name}"


NUMBERS = (*range(2, 21), 21, 22, 30, 31, 40, 50, 60, 61, 70, 71, 80, 81, 90, 91)  # each form of French once


def price(draw: Draw) -> tuple[str, str]:
    scale = draw.weighted(small=4, hundreds=3, thousands=2, cents=2)
    value = {
        "small": draw.pick(NUMBERS),
        "hundreds": 100 * (2 + draw.below(8)) + 10 * draw.below(10),
        "thousands": 1000 * (1 + draw.below(9)) + 100 * draw.below(10),
        "cents": draw.pick(NUMBERS),
    }[scale]
    return amount(100 * value + (10 * (1 + draw.below(9)) if scale == "cents" else 0), draw.pick(("EUR", "USD")))


@cache
def date(day: datetime.date, style: str) -> tuple[str, str]:
    """A date in a phrase, `(English, French)`, names and order by Babel (CLDR), save that French writes
    `1er`."""
    from babel.dates import format_date

    preposition, american, british, french, article = {
        "long": ("on", "long", "", "long", "le "),
        "british": ("on", "", "long", "long", "le "),
        "full": ("on", "full", "", "full", "le "),
        "day": ("on", "MMMM d", "", "d MMMM", "le "),
        "weekday": ("on", "EEEE", "", "EEEE", ""),
        "month": ("in", "MMMM y", "", "MMMM y", "en "),
        "year": ("in", "y", "", "y", "en "),
    }[style]
    english = format_date(day, american or british, locale="en_US" if american else "en_GB")
    words = format_date(day, french, locale="fr_FR").split()
    return f"{preposition} {english}", article + " ".join("1er" if word == "1" else word for word in words)


def a_date(draw: Draw, tense: str) -> tuple[str, str]:
    style = draw.weighted(long=4, british=2, full=2, day=3, weekday=3, month=2, year=2)
    year = (2030 if tense == "future" else 2000) + draw.below(5 if tense == "future" else 15)
    return date(datetime.date(year, 1, 1) + datetime.timedelta(days=draw.below(365)), style)


def clock(draw: Draw) -> tuple[str, str]:
    hour = 1 + draw.below(11)
    english = number(hour, "en")
    french = "à une heure" if hour == 1 else f"à {number(hour, 'fr')} heures"
    return draw.pick(
        (
            (f"at {english} o'clock", french),
            (f"at half past {english}", f"{french} et demie"),
            (f"at a quarter past {english}", f"{french} et quart"),
            (f"at a quarter to {english}", f"{french} moins le quart"),
            (f"at ten past {english}", f"{french} dix"),
            (f"at twenty to {english}", f"{french} moins vingt"),
        )
    )


# --- noun phrases

_THE = {("m", False): "le", ("f", False): "la", ("m", True): "les", ("f", True): "les"}
_A = {("m", False): "un", ("f", False): "une", ("m", True): "des", ("f", True): "des"}
_THIS = {("m", False): "ce", ("f", False): "cette", ("m", True): "ces", ("f", True): "ces"}


def _possessive(english: str, scene: Scene, gender: str, plural: bool) -> str:
    if english == "your":
        english = "thy" if scene.address.person == 1 else "your"
    one = {"my": "m", "his": "s", "her": "s", "thy": "t"}.get(english)
    if one:
        return one + ("es" if plural else "on" if gender == "m" else "a")
    single, many = {"our": ("notre", "nos"), "their": ("leur", "leurs"), "your": ("votre", "vos")}[english]
    return many if plural else single


def _adjectives(draw: Draw, kind: str, gender: str, plural: bool, depth: int) -> tuple[str, str, str]:
    """English adjectives, French ones before the noun and French ones after it, each with its blanks."""
    choice = lexicon.OF_THINGS if kind == "thing" else lexicon.OF_PERSONS
    chosen = [draw.pick(choice) for _ in range(1 + depth) if draw.chance(0.25)]
    if len(chosen) == 2 and chosen[0].before == chosen[1].before:
        chosen.pop()
    chosen.sort(key=lambda adjective: not adjective.before)
    english = "".join(adjective.english + " " for adjective in chosen)
    before = after = ""
    for adjective in chosen:
        form = adjective.forms[gender, plural]
        if not adjective.before:
            after = " " + form
        else:
            before = form + ("~ " if form in ("beau", "nouveau", "vieux") and not plural else " ")
    return english, before, after


def _determiner(draw: Draw, style: str, scene: Scene, noun: Noun, plural: bool, begins: bool) -> tuple[str, str]:
    key = noun.gender, plural
    if style == "a":
        return ("", "de" if begins else "des") if plural else ("a", _A[key])
    if style == "this":
        return ("these" if plural else "this"), _THIS[key]
    if style == "possessive":
        english = draw.pick(("my", "his", "her", "our", "their") + (("your",) * 3 if scene.address else ()))
        return english, _possessive(english, scene, noun.gender, plural)
    if style == "number":
        value = draw.pick(NUMBERS)
        french = number(value, "fr")
        return number(value, "en"), french + "e" if noun.gender == "f" and french.endswith("un") else french
    if style == "ordinal":
        value = 1 + draw.below(10)
        french = "première" if (value, noun.gender) == (1, "f") else number(value, "fr", True)
        return f"the {number(value, 'en', True)}", f"{_THE[key]} {french}"
    return "the", _THE[key]


_STYLES = {"the": 4.0, "a": 2.5, "this": 1.0, "possessive": 2.0}


def noun_phrase(
    draw: Draw, scene: Scene, kind: str, depth: int = 0, *, bare: bool = True, indefinite: bool = False
) -> Phrase:
    """A noun phrase; kind is "thing" or "person". `bare=False` leaves out bare plurals and numbers (`her old
    letters` would be read as a possessive, `sold her two letters` as well); `indefinite` leaves in nothing
    else."""
    noun = draw.pick(lexicon.THINGS if kind == "thing" else lexicon.PERSONS)
    if indefinite:
        style = draw.weighted(a=3, number=1)
    else:
        style = draw.weighted(**_STYLES, number=1.2 * bare, ordinal=0.5 * (kind == "thing"), owner=2 * bool(depth))
    plural = style == "number" or (style != "ordinal" and (bare or style != "a") and draw.chance(0.3))
    words, before, after = _adjectives(draw, kind, noun.gender, plural, depth)
    english = words + (noun.english_plural if plural else noun.english)
    french = before + (noun.french_plural if plural else noun.french) + after
    if style == "owner":
        owner = person(draw, scene)
        ending = "'" if owner.english.endswith("s") and owner.plural else "'s"
        article = _THE[noun.gender, plural]
        return Phrase(
            f"{owner.english}{ending} {english}", f"{article} {french} de {owner.french}", noun.gender, plural
        )
    first, article = _determiner(draw, style, scene, noun, plural, bool(before))
    tail = ("", "")
    if style == "the" and depth and draw.chance(0.35):
        tail = _relative(draw, scene, kind, noun.gender, plural)
    negated = f"de {french}" if style == "a" else ""
    return Phrase(
        f"{first} {english}{tail[0]}".strip(), f"{article} {french}{tail[1]}", noun.gender, plural, 2, negated
    )


def person(draw: Draw, scene: Scene) -> Phrase:
    """A person by name or by a short noun phrase that is no indefinite plural."""
    if draw.chance(0.45):
        name, gender = draw.pick(lexicon.NAMES)
        return Phrase(name, name, gender)
    return noun_phrase(draw, scene, "person", 0, bare=False)


def _relative(draw: Draw, scene: Scene, kind: str, gender: str, plural: bool) -> tuple[str, str]:
    """` that Anna found` -> ` que Anna a trouvée`; ` who found the key` -> ` qui a trouvé la clé`."""
    if kind == "thing":
        other, verb = person(draw, scene), draw.pick(lexicon.HANDLING + lexicon.GIVING)
        french = french_group(verb, other, "past", agreement=(gender, plural))
        return f" that {other.english} {verb.past}", f" que {other.french} {french}"
    verb, found = draw.pick(lexicon.HANDLING), noun_phrase(draw, scene, "thing", 0, bare=False)
    french = french_group(verb, Phrase("", "", gender, plural), "past")
    return f" who {verb.past} {found.english}", f" qui {french} {found.french}"


# --- verbs

NEGATIONS = {"not": "pas", "never": "jamais", "no longer": "plus"}
ADVERBS = {"often": "souvent", "always": "toujours", "also": "aussi", "quickly": "rapidement"}
_REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")


def english_group(verb: Verb, subject: Phrase, tense: str, negation: str = "", adverb: str = "") -> str:
    """`did not sell`, `will often sell`, `no longer sells`."""
    middle = adverb or negation
    if tense == "future":
        return " ".join(f"will {middle} {verb.base}".split())
    if negation == "not":
        return f"{'did' if tense == 'past' else 'does' if subject.third else 'do'} not {verb.base}"
    finite = verb.past if tense == "past" else verb.third if subject.third else verb.base
    return f"{middle} {finite}".strip()


def french_group(
    verb: Verb,
    subject: Phrase,
    tense: str,
    negation: str = "",
    adverb: str = "",
    clitics: str = "",
    agreement: tuple[str | None, bool] = (None, False),
    inverted: str = "",
) -> str:
    """`ne la leur a pas vendue`: clitics and negation around the finite verb, the participle agreeing."""
    tense = "future" if tense == "pending" else tense
    if verb.auxiliary == "se":
        clitics = f"{_REFLEXIVE[subject.form]} {clitics}"
    after = ""
    if tense == "past":
        if verb.auxiliary != "avoir":
            agreement = subject.gender, subject.plural
        finite = conjugate("avoir" if verb.auxiliary == "avoir" else "être", "present", subject.form)
        after = participle(verb.infinitive, *agreement)
    else:
        finite = conjugate(verb.infinitive, tense, subject.form)
    if inverted:
        finite += ("-t-" if finite[-1] in "ae" and inverted[0] in "ie" else "-") + inverted
    early = NEGATIONS.get(negation, "") + ("" if adverb == "quickly" else ADVERBS.get(adverb, ""))
    late = ADVERBS["quickly"] if adverb == "quickly" else ""
    return " ".join(f"{'ne' if negation else ''} {clitics} {finite} {early} {after} {late}".split())
