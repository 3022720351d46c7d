"""Noun phrases and verb groups of the corpus `phrases`, each in English and French.

The French is not yet processed by `recipes.corpora.phrases.french.sandhi` ("de le", "la actrice").
"""

from recipes.corpora.phrases import lexicon
from recipes.corpora.phrases.french import conjugate, participle
from recipes.corpora.phrases.lexicon import Noun, Verb
from recipes.corpora.phrases.numbers_and_dates import NUMBERS, number
from recipes.corpora.phrases.scene import Draw, Phrase, Scene

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
    """A noun phrase about a "thing" or a "person".

    With `bare=False` it is neither a plural without an article nor a number ("sold her old letters" would be read as a
    possessive, "sold her two letters" too); with `indefinite` it is one of these, or has an indefinite article.
    """
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
    """A person by name or by a short noun phrase, which is not an indefinite plural."""
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
    verb, thing = draw.pick(lexicon.HANDLING), noun_phrase(draw, scene, "thing", 0, bare=False)
    french = french_group(verb, Phrase("", "", gender, plural), "past")
    return f" who {verb.past} {thing.english}", f" qui {french} {thing.french}"


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
