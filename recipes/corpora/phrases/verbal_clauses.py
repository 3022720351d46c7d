"""Clauses of the corpus `phrases` with a full verb: a function for each construction, each with its own reordering.

The arguments of a construction are those in `recipes.corpora.phrases.clauses`.
"""

from recipes.corpora.phrases import lexicon
from recipes.corpora.phrases.constituents import ADVERBS, english_group, french_group, noun_phrase, person
from recipes.corpora.phrases.lexicon import Verb
from recipes.corpora.phrases.numbers_and_dates import price
from recipes.corpora.phrases.scene import Clause, Draw, Phrase, Scene

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
    """A person as subject; `gendered` leaves out "I" and "we", whose gender is not visible in English."""
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
        who = Phrase(name, name, gender)
    else:
        who = noun_phrase(draw, scene, "person", depth, bare=False)
    scene.subject = who
    if who.plural:
        scene.plural_gender = who.gender
    return who


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
    """`we invited her` -> `nous l'avons invitée`; "me" and "us" not in the past, where French shows a gender."""
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


def paying(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`Anna paid fifty euros for the red coat` -> `Anna a payé le manteau rouge cinquante euros`."""
    who, sum_ = subject(draw, scene, depth), price(draw)
    thing = scene.object = noun_phrase(draw, scene, "thing", depth, bare=False)
    return _verbal(who, lexicon.PAY, tense, ("", ""), (f"{sum_[0]} for {thing.english}", f"{thing.french} {sum_[1]}"))


def costing(draw: Draw, scene: Scene, tense: str, depth: int) -> Clause:
    """`the coats cost fifty euros` -> `les manteaux coûtent cinquante euros`; present for past (see `COST`)."""
    scene.object = None
    tense = "present" if tense == "past" else tense
    thing, sum_ = noun_phrase(draw, scene, "thing", depth, bare=False), price(draw)
    clause = _verbal(thing, lexicon.COST, tense, _manner(draw, ("often", "always")), sum_)
    return clause._replace(roomy=False)
