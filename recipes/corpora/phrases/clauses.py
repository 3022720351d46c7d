"""Clauses of the corpus `phrases`: one builder a construction, each with its own reordering between English
and French.

A builder takes `(draw, scene, tense, depth)` and returns a `Clause`; tense is "past", "present", "future" or
"pending" (present in English, future in French, as after `when`). `depth` 1 allows owners, relatives and more
adjectives.
"""

from collections.abc import Callable

from recipes.corpora.phrases import lexicon
from recipes.corpora.phrases.constituents import (
    ADVERBS,
    NEGATIONS,
    NUMBERS,
    Clause,
    Draw,
    Phrase,
    Scene,
    a_date,
    clock,
    english_group,
    french_group,
    noun_phrase,
    number,
    person,
    price,
)
from recipes.corpora.phrases.lexicon import Verb, conjugate, participle

_PRONOUNS = {
    "he": Phrase("he", "il", "m"),
    "she": Phrase("she", "elle", "f"),
    "I": Phrase("I", "je", None, False, 0),
    "we": Phrase("we", "nous", None, True, 3),
}
_THEY = {"m": Phrase("they", "ils", "m", True), "f": Phrase("they", "elles", "f", True)}
_TO_WHOM = {"me": "me", "us": "nous", "him": "lui", "her": "lui", "them": "leur"}
_WHOM = {"him": ("le", "m", False), "her": ("la", "f", False), "them": ("les", "m", True)}
_OWN = {0: "me", 3: "us"}  # not an object of its own subject


def subject(draw: Draw, scene: Scene, depth: int, gendered: bool = False) -> Phrase:
    """A person as subject; `gendered` leaves out I and we, whose gender English hides."""
    style = draw.weighted(name=3, noun=4, pronoun=2, we=1.2 * (not gendered), they=0.8, you=7 * bool(scene.address))
    if style == "you":
        return Phrase("you", scene.address.french, scene.address.gender, False, scene.address.person)
    if style == "they":
        return _THEY[scene.plural_gender]
    if style in ("pronoun", "we"):
        before = scene.subject
        if style == "pronoun" and before and before.plural and draw.chance(0.7):
            return _THEY[scene.plural_gender]
        return _PRONOUNS[draw.pick(("he", "she") if style == "pronoun" else ("I", "we"))]
    if style == "name":
        name, gender = draw.pick(lexicon.NAMES)
        found = Phrase(name, name, gender)
    else:
        found = noun_phrase(draw, scene, "person", depth, bare=False)
    scene.subject = found
    if found.plural:
        scene.plural_gender = found.gender
    return found


def _manner(draw: Draw, adverbs: tuple[str, ...] = ("often", "always", "also")) -> tuple[str, str]:
    """A negation or an adverb, or neither: `(negation, adverb)`."""
    style = draw.weighted(plain=6, negation=2, adverb=1.5)
    if style == "negation":
        return draw.weighted(**{"not": 4, "never": 2, "no longer": 1}), ""
    return "", draw.pick(adverbs) if style == "adverb" else ""


def _verbal(who: Phrase, verb: Verb, tense: str, manner: tuple[str, str], tails: tuple[str, str], **group) -> Clause:
    english = f"{who.english} {english_group(verb, who, tense, *manner)} {tails[0]}"
    french = f"{who.french} {french_group(verb, who, tense, *manner, **group)} {tails[1]}"
    return Clause(english.strip(), french.strip(), tense)


def _object(thing: Phrase, manner: tuple[str, str]) -> str:
    return thing.negated if manner[0] and thing.negated else thing.french


def _receiver(draw: Draw, scene: Scene, who: Phrase) -> tuple[str, str]:
    """An indirect object pronoun, `(English, French clitic)`."""
    if scene.address and who.person not in (1, 4) and draw.chance(0.4):
        return "you", "te" if scene.address.person == 1 else "vous"
    english = draw.pick([word for word in _TO_WHOM if word != _OWN.get(who.person)])
    return english, _TO_WHOM[english]


def _clitics(direct: str, indirect: str) -> str:
    """French order: me te nous vous, then le la les, then lui leur."""
    return f"{direct} {indirect}" if indirect in ("lui", "leur") else f"{indirect} {direct}"


def _pronoun_of(thing: Phrase) -> tuple[str, str]:
    return ("them", "les") if thing.plural else ("it", "le" if thing.gender == "m" else "la")


def giving(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`Anna sold the king the old car` -> `Anna a vendu la vieille voiture au roi`; `he sold it to them` ->
    `il la leur a vendue`."""
    before = scene.object
    who, verb, manner = subject(draw, scene, depth), draw.pick(lexicon.GIVING), _manner(draw)
    style = draw.weighted(
        to=3, double=2, double_pronoun=2, to_pronoun=1.5, it=3 * bool(before), it_pronoun=5 * bool(before)
    )
    if style in ("it", "it_pronoun"):
        english, clitic = _pronoun_of(before)
        agreement = before.gender, before.plural
        if style == "it":
            whom = person(draw, scene)
            tails, clitics = (f"{english} to {whom.english}", f"à {whom.french}"), clitic
        else:
            to_whom, indirect = _receiver(draw, scene, who)
            tails, clitics = (f"{english} to {to_whom}", ""), _clitics(clitic, indirect)
        return _verbal(who, verb, tense, manner, tails, clitics=clitics, agreement=agreement)
    thing = scene.object = noun_phrase(draw, scene, "thing", depth, bare=not style.startswith("double"))
    french = _object(thing, manner)
    if style.endswith("pronoun"):
        to_whom, clitic = _receiver(draw, scene, who)
        english = f"{to_whom} {thing.english}" if style == "double_pronoun" else f"{thing.english} to {to_whom}"
        return _verbal(who, verb, tense, manner, (english, french), clitics=clitic)
    whom = person(draw, scene)
    english = f"{whom.english} {thing.english}" if style == "double" else f"{thing.english} to {whom.english}"
    return _verbal(who, verb, tense, manner, (english, f"{french} à {whom.french}"))


def handling(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`Anna did not buy a red car` -> `Anna n'a pas acheté de voiture rouge`; `she found it` -> `elle l'a
    trouvée`."""
    before = scene.object
    who, verb = subject(draw, scene, depth), draw.pick(lexicon.HANDLING)
    manner = _manner(draw, (*ADVERBS,))
    if before and draw.chance(0.5):
        english, clitic = _pronoun_of(before)
        group = {"clitics": clitic, "agreement": (before.gender, before.plural)}
        return _verbal(who, verb, tense, manner, (english, ""), **group)
    thing = scene.object = noun_phrase(draw, scene, "thing", depth)
    return _verbal(who, verb, tense, manner, (thing.english, _object(thing, manner)))


def meeting(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`we invited her` -> `nous l'avons invitée`; me and us stay out of the past, where their gender would
    show."""
    scene.object = None
    who, verb, manner = subject(draw, scene, depth), draw.pick(lexicon.MEETING), _manner(draw)
    if draw.chance(0.5):
        whom = noun_phrase(draw, scene, "person", depth, bare=False) if draw.chance(0.6) else person(draw, scene)
        return _verbal(who, verb, tense, manner, (whom.english, _object(whom, manner)))
    if tense != "past" and draw.chance(0.4):
        english, clitic = _receiver(draw, scene, who)
        if clitic in ("me", "nous", "te", "vous"):
            return _verbal(who, verb, tense, manner, (english, ""), clitics=clitic)
    english = draw.pick((*_WHOM,))
    clitic, gender, plural = _WHOM[english]
    return _verbal(who, verb, tense, manner, (english, ""), clitics=clitic, agreement=(gender, plural))


def answering(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`she answered the boy` -> `elle a répondu au garçon`; `they phone her` -> `ils lui téléphonent`."""
    scene.object = None
    who, verb, manner = subject(draw, scene, depth), draw.pick(lexicon.ANSWERING), _manner(draw)
    if draw.chance(0.5):
        english, clitic = _receiver(draw, scene, who)
        return _verbal(who, verb, tense, manner, (english, ""), clitics=clitic)
    whom = person(draw, scene)
    return _verbal(who, verb, tense, manner, (whom.english, f"à {whom.french}"))


def being(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`the queens woke up` -> `les reines se sont réveillées`."""
    scene.object = None
    verb = draw.pick(lexicon.BEING)
    who = subject(draw, scene, depth, gendered=verb.auxiliary != "avoir")
    return _verbal(who, verb, tense, _manner(draw), ("", ""))


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


def paying(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`Anna paid fifty euros for the red coat` -> `Anna a payé le manteau rouge cinquante euros`."""
    who, sum_ = subject(draw, scene, depth), price(draw)
    thing = scene.object = noun_phrase(draw, scene, "thing", depth, bare=False)
    return _verbal(who, lexicon.PAY, tense, ("", ""), (f"{sum_[0]} for {thing.english}", f"{thing.french} {sum_[1]}"))


def costing(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`the coats cost fifty euros` -> `les manteaux coûtent cinquante euros`; a past is a present here (see
    `COST`)."""
    scene.object = None
    tense = "present" if tense == "past" else tense
    thing, sum_ = noun_phrase(draw, scene, "thing", depth, bare=False), price(draw)
    clause = _verbal(thing, lexicon.COST, tense, _manner(draw, ("often", "always")), sum_)
    return clause._replace(roomy=False)


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
    """`the boys were born on May 5, 2014` -> `les garçons sont nés le 5 mai 2014`: past whatever the tense
    asked for."""
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
_ALL = (giving, handling, meeting, answering, being, describing, comparing, paying, costing, suffering)
BUILDERS: dict[str, Callable[[Draw, Scene, str, int], Clause]] = {
    builder.__name__: builder for builder in (*_ALL, existing, ageing, birth)
}
_OWN_TENSE = {"costing", "birth"}  # they choose their own tense: not after when, as soon as and if
_SHORT = ("being", "handling", "meeting", "answering", "describing")
_TENSED = {name: weight for name, weight in WEIGHTS.items() if name not in _OWN_TENSE}
_BRIEF = {name: WEIGHTS[name] for name in _SHORT}


def clause(draw: Draw, scene: Scene, tense: str, depth: int, *, own_tense: bool = True, brief: bool = False) -> Clause:
    """Any clause; `brief` keeps to constructions that may have three words."""
    weights = _BRIEF if brief else WEIGHTS if own_tense else _TENSED
    return BUILDERS[draw.weighted(**weights)](draw, scene, tense, depth)


def with_times(draw: Draw, scene: Scene, core: Clause, share: float, *, days: bool, dates: bool) -> Clause:
    """Companion, place, hour and date. English ends `hour date` or begins with the date, French ends `date
    hour`; an adverb of day ends the English clause and begins the French one, in main clauses alone
    (`days`)."""
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
