"""The words of the corpus `phrases` and the morphology of French that joins them.

Three things live here: the bilingual tables (nouns, adjectives, verbs, places), the inflection of French
adjectives and verbs, and `sandhi`, the last step of writing French, where neighbours change each other:
elision (l', d', qu', j'), contraction (du, au, des, aux), `mon` before a vowel, `cet`, `bel`.
`recipes.corpora.phrases.generator` builds sentences of them.

Words are chosen so that English decides all of French: no past tense equals its present (no `put`, `cut`,
`read`), every person has a gender, no name begins with h, and verbs of things and verbs of persons are
disjoint (so that `them` is clear).
"""

import re
from functools import cache
from typing import NamedTuple


class Noun(NamedTuple):
    english: str
    english_plural: str
    french: str
    french_plural: str
    gender: str  # "m" or "f"


class Adjective(NamedTuple):
    english: str
    comparative: str
    forms: dict[tuple[str, bool], str]  # (gender, plural) -> French
    before: bool  # before the French noun; in English always


class Verb(NamedTuple):
    base: str
    third: str
    past: str
    participle: str
    infinitive: str
    auxiliary: str  # "avoir", "être", or "se" (reflexive)


def _table(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]


def _noun(english: str, french: str, gender: str, english_plural: str = "", french_plural: str = "") -> Noun:
    return Noun(english, english_plural or english + "s", french, french_plural or french + "s", gender)


THINGS = [
    _noun(*row)
    for row in _table("""
    book | livre | m
    letter | lettre | f
    car | voiture | f
    house | maison | f
    key | clé | f
    ticket | billet | m
    coat | manteau | m || manteaux
    hat | chapeau | m || chapeaux
    watch | montre | f | watches
    newspaper | journal | m || journaux
    horse | cheval | m || chevaux
    painting | tableau | m || tableaux
    bird | oiseau | m || oiseaux
    ring | bague | f
    tree | arbre | m
    lamp | lampe | f
    scarf | écharpe | f | scarves
    orange | orange | f
    """)
]
PERSONS = [
    _noun(*row)
    for row in _table("""
    man | homme | m | men
    woman | femme | f | women
    boy | garçon | m
    girl | fille | f
    king | roi | m
    queen | reine | f
    brother | frère | m
    sister | sœur | f
    uncle | oncle | m
    aunt | tante | f
    actor | acteur | m
    actress | actrice | f | actresses
    waiter | serveur | m
    waitress | serveuse | f | waitresses
    """)
]
NAMES = [("Paul", "m"), ("Anna", "f"), ("Marie", "f"), ("Oscar", "m")]
NAMES += [("Alice", "f"), ("Emma", "f"), ("Julien", "m"), ("Victor", "m")]


def _adjective(english: str, comparative: str, masculine: str, feminine: str = "", place: str = "") -> Adjective:
    feminine = feminine or (masculine if masculine.endswith("e") else masculine + "e")
    plural = masculine + ("x" if masculine.endswith("eau") else "" if masculine[-1] in "sx" else "s")
    forms = {
        ("m", False): masculine,
        ("m", True): plural,
        ("f", False): feminine,
        ("f", True): feminine + "s",
    }
    return Adjective(english, comparative, forms, place == "before")


BOTH = [
    _adjective(*row)
    for row in _table("""
    old | older | vieux | vieille | before
    small | smaller | petit || before
    big | bigger | grand || before
    beautiful | more beautiful | beau | belle | before
    """)
]
OF_THINGS = BOTH + [
    _adjective(*row)
    for row in _table("""
    new | newer | nouveau | nouvelle | before
    red || rouge
    green || vert
    blue || bleu
    white || blanc | blanche
    black || noir
    heavy | heavier | lourd
    expensive | more expensive | cher | chère
    useful | more useful | utile
    """)
]
OF_PERSONS = BOTH + [
    _adjective(*row)
    for row in _table("""
    young | younger | jeune || before
    rich | richer | riche
    happy | happier | heureux | heureuse
    famous | more famous | célèbre
    """)
]
STATES = [  # only after "to be", of persons
    _adjective(*row)
    for row in _table("""
    tired || fatigué
    sad || triste
    ill || malade
    ready || prêt
    proud || fier | fière
    """)
]


def _verbs(text: str) -> list[Verb]:
    return [Verb(*row[:5], row[5] if len(row) > 5 else "avoir") for row in _table(text)]


GIVING = _verbs("""
    sell | sells | sold | sold | vendre
    give | gives | gave | given | donner
    send | sends | sent | sent | envoyer
    show | shows | showed | shown | montrer
    lend | lends | lent | lent | prêter
    """)
HANDLING = _verbs("""
    buy | buys | bought | bought | acheter
    find | finds | found | found | trouver
    lose | loses | lost | lost | perdre
    keep | keeps | kept | kept | garder
    forget | forgets | forgot | forgotten | oublier
    choose | chooses | chose | chosen | choisir
    paint | paints | painted | painted | peindre
    take | takes | took | taken | prendre
    look for | looks for | looked for || chercher
    """)
MEETING = _verbs("""
    meet | meets | met | met | rencontrer
    thank | thanks | thanked | thanked | remercier
    help | helps | helped | helped | aider
    invite | invites | invited | invited | inviter
    wait for | waits for | waited for || attendre
    listen to | listens to | listened to || écouter
    """)
ANSWERING = _verbs("""
    answer | answers | answered || répondre
    phone | phones | phoned || téléphoner
    """)  # a direct object in English, an indirect one in French
BEING = _verbs("""
    arrive | arrives | arrived || arriver | être
    leave | leaves | left || partir | être
    go out | goes out | went out || sortir | être
    come back | comes back | came back || revenir | être
    stay | stays | stayed || rester | être
    rest | rests | rested || reposer | se
    wake up | wakes up | woke up || réveiller | se
    sleep | sleeps | slept || dormir
    work | works | worked || travailler
    sing | sings | sang || chanter
    laugh | laughs | laughed || rire
    """)
PAY, COST = _verbs("""
    pay | pays | paid | paid | payer
    cost | costs ||| coûter
    """)  # "cost" has no past here: it would equal the plural present
SAYING = _verbs("""
    know | knows ||| savoir
    think | thinks ||| penser
    say | says ||| dire
    hope | hopes ||| espérer
    """)  # present only: no sequence of tenses

PLACES = [
    tuple(row)
    for row in _table("""
    in the garden | dans le jardin
    in the street | dans la rue
    at the station | à la gare
    at the market | à le marché
    at the hotel | à le hôtel
    near the church | près de la église
    near the bridge | près de le pont
    in front of the school | devant la école
    under the table | sous la table
    in Paris | à Paris
    in London | à Londres
    in Germany | en Allemagne
    """)
]
DAYS = {  # adverbs of day by tense; English says them last, our French first
    "past": [
        ("yesterday", "hier"),
        ("last week", "la semaine dernière"),
        ("last month", "le mois dernier"),
        ("last year", "la année dernière"),
    ],
    "present": [("today", "aujourd'hui"), ("every day", "chaque jour"), ("every week", "chaque semaine")],
    "future": [
        ("tomorrow", "demain"),
        ("next week", "la semaine prochaine"),
        ("next month", "le mois prochain"),
        ("next year", "la année prochaine"),
    ],
}

# --- French verbs: six persons are 0..5 = je, tu, il, nous, vous, ils

_PRESENT = {
    "avoir": "ai as a avons avez ont",
    "être": "suis es est sommes êtes sont",
    "prendre": "prends prends prend prenons prenez prennent",
    "peindre": "peins peins peint peignons peignez peignent",
    "dormir": "dors dors dort dormons dormez dorment",
    "partir": "pars pars part partons partez partent",
    "sortir": "sors sors sort sortons sortez sortent",
    "revenir": "reviens reviens revient revenons revenez reviennent",
    "rire": "ris ris rit rions riez rient",
    "savoir": "sais sais sait savons savez savent",
    "dire": "dis dis dit disons dites disent",
}
_IMPERFECT = {
    "avoir": "avais avais avait avions aviez avaient",
    "être": "étais étais était étions étiez étaient",
}
_FUTURE_STEM = {
    "avoir": "aur",
    "être": "ser",
    "envoyer": "enverr",
    "revenir": "reviendr",
    "acheter": "achèter",
    "payer": "paier",
}
_PARTICIPLE = {
    "prendre": "pris",
    "peindre": "peint",
    "revenir": "revenu",
    "rire": "ri",
    "naître": "né",
}
# the stem of the forms with a silent ending
_STRONG_STEM = {"acheter": "achèt", "espérer": "espèr"}


@cache
def conjugate(infinitive: str, tense: str, person: int) -> str:
    """The finite form; tense is "present", "imperfect" (avoir, être) or "future", person 0..5."""
    if tense == "imperfect":
        return _IMPERFECT[infinitive].split()[person]
    if tense == "future":
        stem = _FUTURE_STEM.get(infinitive, infinitive.removesuffix("e"))
        return stem + ("ai", "as", "a", "ons", "ez", "ont")[person]
    if infinitive in _PRESENT:
        return _PRESENT[infinitive].split()[person]
    stem, ending = infinitive[:-2], infinitive[-2:]
    if ending == "er":
        strong = _STRONG_STEM.get(infinitive, re.sub("y$", "i", stem))
        return (stem if person in (3, 4) else strong) + ("e", "es", "e", "ons", "ez", "ent")[person]
    if ending == "re":
        return stem + ("s", "s", "", "ons", "ez", "ent")[person]
    return stem + ("is", "is", "it", "issons", "issez", "issent")[person]


def participle(infinitive: str, gender: str | None = None, plural: bool = False) -> str:
    """The past participle, agreeing with `gender` and `plural` (None: no agreement)."""
    ending = {"er": "é", "ir": "i", "re": "u"}[infinitive[-2:]]
    form = _PARTICIPLE.get(infinitive, infinitive[:-2] + ending)
    form += "e" if gender == "f" else ""
    return form + "s" if gender and plural and not form.endswith("s") else form


# --- sandhi

_VOWEL = r"(?=(?!onz|oui)(?:[aeiouâàéèêëîïôûœAEIOUÉÊ]|y\b|hom|hôt|heur))"
_SANDHI = [
    (re.compile(rf"\bbeau~ {_VOWEL}"), "bel "),
    (re.compile(rf"\bnouveau~ {_VOWEL}"), "nouvel "),
    (re.compile(rf"\bvieux~ {_VOWEL}"), "vieil "),
    (re.compile("~"), ""),
    (re.compile(rf"\b([mts])a {_VOWEL}"), r"\1on "),
    (re.compile(rf"(?<!-)\bce {_VOWEL}"), "cet "),
    (re.compile(rf"\b(l|j|m|t|s|n|d|qu)[ea] {_VOWEL}"), r"\1'"),
    (re.compile(r"\bsi (?=ils?\b)"), "s'"),
    (re.compile(r"\bde le\b(?!')"), "du"),
    (re.compile(r"\bde les\b"), "des"),
    (re.compile(r"\bà le\b(?!')"), "au"),
    (re.compile(r"\bà les\b"), "aux"),
]


def sandhi(text: str) -> str:
    """Elide and contract: `à le hôtel de la actrice` -> `à l'hôtel de l'actrice`. `~` marks beau, nouveau,
    vieux before a noun."""
    for pattern, replacement in _SANDHI:
        text = pattern.sub(replacement, text)
    return text
