"""The words of the corpus `phrases`: English and French nouns, adjectives, verbs and places.

Words are chosen so that English determines all of French: no past tense equals its present (no "put", "cut",
"read"), every person has a gender, no name begins with h, and verbs of things and verbs of persons are
disjoint (so that "them" is clear).
"""

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
