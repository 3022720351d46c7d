"""The embedded corpus: French read by hand, exact references, lengths, splits, reproducibility."""

import datetime
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from recipes.corpora.phrases import clauses, generator, lexicon
from recipes.corpora.phrases.constituents import french_group
from recipes.corpora.phrases.french import conjugate, participle, sandhi
from recipes.corpora.phrases.numbers_and_dates import amount, date, number
from recipes.corpora.phrases.scene import Draw, Phrase, Scene

pytestmark = pytest.mark.once

LETTERS = Phrase("the letters", "les lettres", "f", True)
VERBS = {
    verb.infinitive: verb
    for verb in lexicon.GIVING + lexicon.HANDLING + lexicon.MEETING + lexicon.ANSWERING + lexicon.BEING
}


@pytest.mark.parametrize(
    ("raw", "french"),
    [
        ("à le hôtel de la actrice", "à l'hôtel de l'actrice"),
        ("de le roi à le homme", "du roi à l'homme"),
        ("les clés de les garçons à les reines", "les clés des garçons aux reines"),
        ("je ne le ai pas", "je ne l'ai pas"),
        ("il ne la leur a pas vendue", "il ne la leur a pas vendue"),
        ("il ne y a pas de arbre", "il n'y a pas d'arbre"),
        ("parce que elle aime que Oscar se endorme", "parce qu'elle aime qu'Oscar s'endorme"),
        ("si il part, si elle part, si ils partent", "s'il part, si elle part, s'ils partent"),
        ("ma écharpe, ta orange, sa horreur, sa amie", "mon écharpe, ton orange, sa horreur, son amie"),
        ("ce homme, ce arbre, ce roi, est-ce que Anna", "cet homme, cet arbre, ce roi, est-ce qu'Anna"),
        (
            "un beau~ arbre, un vieux~ homme, un nouveau~ oiseau",
            "un bel arbre, un vieil homme, un nouvel oiseau",
        ),
        ("un beau~ roi, un vieux~ chien", "un beau roi, un vieux chien"),
        ("le onzième de onze et de huit", "le onzième de onze et de huit"),
        ("de une année, chaque année, le 11 avril", "d'une année, chaque année, le 11 avril"),
    ],
)
def test_sandhi(raw: str, french: str) -> None:
    assert sandhi(raw) == french


@pytest.mark.parametrize(
    ("infinitive", "present", "future", "past"),
    [
        ("vendre", "vends vends vend vendons vendez vendent", "vendrai", "vendue"),
        ("envoyer", "envoie envoies envoie envoyons envoyez envoient", "enverrai", "envoyée"),
        ("acheter", "achète achètes achète achetons achetez achètent", "achèterai", "achetée"),
        ("choisir", "choisis choisis choisit choisissons choisissez choisissent", "choisirai", "choisie"),
        ("prendre", "prends prends prend prenons prenez prennent", "prendrai", "prise"),
        ("peindre", "peins peins peint peignons peignez peignent", "peindrai", "peinte"),
        ("dormir", "dors dors dort dormons dormez dorment", "dormirai", "dormie"),
        ("revenir", "reviens reviens revient revenons revenez reviennent", "reviendrai", "revenue"),
        ("rire", "ris ris rit rions riez rient", "rirai", "rie"),
        ("payer", "paie paies paie payons payez paient", "paierai", "payée"),
        ("espérer", "espère espères espère espérons espérez espèrent", "espérerai", "espérée"),
        ("oublier", "oublie oublies oublie oublions oubliez oublient", "oublierai", "oubliée"),
        ("être", "suis es est sommes êtes sont", "serai", ""),
        ("avoir", "ai as a avons avez ont", "aurai", ""),
    ],
)
def test_conjugation(infinitive: str, present: str, future: str, past: str) -> None:
    assert [conjugate(infinitive, "present", person) for person in range(6)] == present.split()
    assert conjugate(infinitive, "future", 0) == future
    if past:
        assert participle(infinitive, "f") == past


def test_participles_and_adjectives_agree() -> None:
    assert [participle("prendre", g, p) for g, p in (("m", False), ("m", True), ("f", True))] == [
        "pris",
        "pris",
        "prises",
    ]
    assert participle("vendre") == "vendu"
    forms = {adjective.english: adjective.forms for adjective in lexicon.OF_THINGS + lexicon.OF_PERSONS}
    assert list(forms["old"].values()) == ["vieux", "vieux", "vieille", "vieilles"]
    assert list(forms["beautiful"].values()) == ["beau", "beaux", "belle", "belles"]
    assert list(forms["red"].values()) == ["rouge", "rouges", "rouge", "rouges"]
    assert list(forms["white"].values()) == ["blanc", "blancs", "blanche", "blanches"]
    assert list(forms["happy"].values()) == ["heureux", "heureux", "heureuse", "heureuses"]
    assert list(forms["expensive"].values()) == ["cher", "chers", "chère", "chères"]


def test_verb_groups() -> None:
    he, they = Phrase("he", "il", "m"), Phrase("they", "elles", "f", True)
    you = Phrase("you", "tu", "f", False, 1)
    sell, rest = VERBS["vendre"], VERBS["reposer"]
    assert french_group(sell, he, "past", "never", "", "la leur", ("f", False)) == "ne la leur a jamais vendue"
    assert french_group(sell, they, "past", clitics="les", inverted="elles", agreement=("m", True)) == (
        "les ont-elles vendus"
    )
    assert french_group(sell, he, "future", inverted="il") == "vendra-t-il"
    assert french_group(sell, he, "present", inverted="il") == "vend-il"
    assert french_group(rest, they, "past", "not") == "ne se sont pas reposées"
    assert french_group(rest, you, "past") == "te es reposée"  # before sandhi
    assert french_group(VERBS["partir"], they, "pending") == "partiront"
    assert french_group(sell, he, "present", "no longer") == "ne vend plus"
    assert french_group(sell, he, "past", "", "quickly") == "a vendu rapidement"
    assert french_group(sell, he, "past", "", "often") == "a souvent vendu"


def test_numbers_amounts_and_dates() -> None:
    assert (number(81, "en"), number(81, "fr")) == ("eighty-one", "quatre-vingt-un")
    assert amount(230_000, "EUR") == ("two thousand three hundred euros", "deux mille trois cents euros")
    assert amount(1250, "USD") == ("twelve dollars and fifty cents", "douze dollars et cinquante cents")
    assert amount(8010, "EUR") == ("eighty euros and ten cents", "quatre-vingts euros et dix centimes")
    day = datetime.date(2014, 3, 1)
    assert date(day, "full") == ("on Saturday, March 1, 2014", "le samedi 1er mars 2014")
    assert date(day, "long") == ("on March 1, 2014", "le 1er mars 2014")
    assert date(day, "british") == ("on 1 March 2014", "le 1er mars 2014")
    assert date(day, "day") == ("on March 1", "le 1er mars")
    assert date(day, "weekday") == ("on Saturday", "samedi")
    assert date(day, "month") == ("in March 2014", "en mars 2014")
    assert date(day, "year") == ("in 2014", "en 2014")


# Written down from the generator and then read, one by one, as French.
CLAUSES = [
    ("giving", 1, "past", None, "Julien showed a man her old watch", "Julien a montré sa vieille montre à un homme"),
    ("giving", 3, "future", None, "Alice will give them the useful letter", "Alice leur donnera la lettre utile"),
    ("giving", 5, "past", LETTERS, "my actor always sent them to me", "mon acteur me les a toujours envoyées"),
    (
        "handling",
        3,
        "future",
        None,
        "Alice will keep the paintings that my brother looked for",
        "Alice gardera les tableaux que mon frère a cherchés",
    ),
    ("handling", 2, "present", LETTERS, "they look for them", "ils les cherchent"),
    ("meeting", 1, "past", None, "Julien waited for our happy aunts", "Julien a attendu nos tantes heureuses"),
    ("meeting", 2, "present", None, "they listen to the aunt", "ils écoutent la tante"),
    ("meeting", 3, "future", None, "Alice will help me", "Alice m'aidera"),
    ("answering", 1, "past", None, "Julien phoned him", "Julien lui a téléphoné"),
    ("answering", 2, "present", None, "they phone them", "ils leur téléphonent"),
    ("being", 1, "past", None, "she left", "elle est partie"),
    ("being", 5, "past", None, "she also woke up", "elle s'est aussi réveillée"),
    ("describing", 1, "past", None, "our lamps were not small", "nos lampes n'étaient pas petites"),
    ("describing", 5, "past", None, "she was no longer sad", "elle n'était plus triste"),
    (
        "comparing",
        1,
        "past",
        None,
        "our lamps were more expensive than the letter that Emma kept",
        "nos lampes étaient plus chères que la lettre qu'Emma a gardée",
    ),
    (
        "paying",
        1,
        "past",
        None,
        "Julien paid six thousand seven hundred euros for a red lamp",
        "Julien a payé une lampe rouge six mille sept cents euros",
    ),
    (
        "costing",
        1,
        "past",
        None,
        "Emma's car does not cost four thousand seven hundred euros",
        "la voiture d'Emma ne coûte pas quatre mille sept cents euros",
    ),
    ("suffering", 5, "past", None, "the tenth ring was kept by Oscar", "la dixième bague a été gardée par Oscar"),
    (
        "existing",
        5,
        "past",
        None,
        "there were eighty-one rings in front of the school",
        "il y avait quatre-vingt-une bagues devant l'école",
    ),
    ("existing", 2, "present", None, "there are oranges in Germany", "il y a des oranges en Allemagne"),
    ("ageing", 1, "past", None, "Julien was sixty years old", "Julien avait soixante ans"),
    ("ageing", 3, "future", None, "Alice will be fourteen years old", "Alice aura quatorze ans"),
    ("birth", 3, "future", None, "Alice was born on Monday, August 17, 2009", "Alice est née le lundi 17 août 2009"),
]


@pytest.mark.parametrize(("name", "seed", "tense", "before", "english", "french"), CLAUSES)
def test_every_construction_read_by_hand(name, seed, tense, before, english, french) -> None:
    scene = Scene()
    scene.object = before
    result = clauses.CONSTRUCTIONS[name](Draw(seed), scene, tense, seed % 2)
    assert (result.english, sandhi(result.french)) == (english, french)


def test_every_construction_is_read() -> None:
    assert {case[0] for case in CLAUSES} == set(clauses.WEIGHTS)


TU, MADAME = Phrase("you", "tu", "m", False, 1), Phrase("you", "vous", "f", False, 4)
UNITS = [
    (
        "plain",
        4,
        None,
        "the boy did not lend our actresses the useful keys on July 4",
        "le garçon n'a pas prêté les clés utiles à nos actrices le 4 juillet",
    ),
    ("plain", 5, MADAME, "you are not ready", "vous n'êtes pas prête"),
    ("plain", 5, TU, "you are not ready", "tu n'es pas prêt"),
    (
        "plain",
        6,
        TU,
        "he will pay thirty dollars for a ring near the bridge in November 2033",
        "il paiera une bague trente dollars près du pont en novembre 2033",
    ),
    (
        "because",
        3,
        None,
        "a old uncle phoned them last month because she will never answer me",
        "le mois dernier, un vieil oncle leur a téléphoné parce qu'elle ne me répondra jamais",
    ),
    (
        "because",
        2,
        None,
        "there will be thirty-one letters in the garden because a boy no longer woke up",
        "il y aura trente et une lettres dans le jardin parce qu'un garçon ne s'est plus réveillé",
    ),
    (
        "fronted",
        1,
        None,
        "when a watch is not small, I will show Paul the bird",
        "je montrerai l'oiseau à Paul quand une montre ne sera pas petite",
    ),
    (
        "fronted",
        4,
        None,
        "when Paul quickly kept the ring at the station, Marie was richer than our actresses",
        "Marie était plus riche que nos actrices quand Paul a gardé rapidement la bague à la gare",
    ),
    (
        "fronted",
        6,
        TU,
        "because Emma did not forget the ring, we will never give it to you with a small actress",
        "nous ne te la donnerons jamais avec une petite actrice parce qu'Emma n'a pas oublié la bague",
    ),
    (
        "fronted",
        7,
        MADAME,
        "when they arrived with a old man, your uncle often sold the blue car to a old queen",
        "votre oncle a souvent vendu la voiture bleue à une vieille reine quand ils sont arrivés avec un vieil homme",
    ),
    (
        "reported",
        1,
        None,
        "Julien hopes that these happy aunts did not help Victor in the garden",
        "Julien espère que ces tantes heureuses n'ont pas aidé Victor dans le jardin",
    ),
    (
        "reported",
        5,
        TU,
        "you say that there will be a scarf under the table",
        "tu dis qu'il y aura une écharpe sous la table",
    ),
    ("question", 1, None, "will Julien find the trees?", "est-ce que Julien trouvera les arbres ?"),
    ("question", 2, None, "will they paint the bird?", "est-ce qu'ils peindront l'oiseau ?"),
    ("question", 3, None, "where did Alice not arrive?", "où Alice n'est-elle pas arrivée ?"),
    ("question", 6, TU, "where will you sell her watch?", "où vendras-tu sa montre ?"),
    ("question", 7, MADAME, "why did Paul show a orange?", "pourquoi Paul a-t-il montré une orange ?"),
]


@pytest.mark.parametrize(("name", "seed", "address", "english", "french"), UNITS)
def test_every_unit_read_by_hand(name, seed, address, english, french) -> None:
    result = generator._UNITS[name](Draw(seed), Scene(address), 0, 0.3)
    assert (result[0], sandhi(result[1])) == (english, french)


def test_every_unit_is_read() -> None:
    assert {case[0] for case in UNITS} == set(generator._UNITS)


def test_how_many_agrees_with_what_was_counted() -> None:
    pattern = re.compile(r"Combien d(?:e |').* (?:a-t-|ont-)\S+ (\S+) \?")
    result = [f for e, f in generator.generate(1500, 3, max_words=9) if e.startswith("How many")]
    participles = {match[1] for match in map(pattern.match, result) if match}
    assert len(participles) > 3
    assert all(word.endswith(("s", "es")) for word in participles)  # the counted thing is plural and comes first


def test_sentences_are_written_as_sentences() -> None:
    vowel = re.compile(r"\b(?:[ljmtsnd]e|la|que) (?!onz|oui|huit)[aeiouéêâôœ]")
    for english, french in generator.generate(1500, 4):
        assert english[0].isupper()
        assert french[0].isupper()
        assert english.endswith((".", "?"))
        assert french.endswith(" ?" if english.endswith("?") else ".")
        assert "  " not in english + french
        assert "~" not in french
        assert not vowel.search(french.lower()), french
        assert not re.search(r"\b[Aa] [aeio]", english), english
        assert not re.search(r"\b(?:de les?|à les?)\b(?!')", french), french


def test_the_same_english_has_the_same_french() -> None:
    known: dict[str, str] = {}
    repeated = 0
    for seed in range(3):
        draw = Draw(seed)
        for trial in range(3000):
            pair = generator.sentence(draw, 3 + trial % 4)
            if pair is not None:
                repeated += pair[0] in known
                assert known.setdefault(*pair) == pair[1]
    assert repeated > 1000  # so that the test can fail


def test_short_and_long_sentences_are_well_represented() -> None:
    lengths = Counter(len(english.split()) for english, _ in generator.generate(2000, 1))
    assert min(lengths) == 3
    assert max(lengths) == 60
    thirds = [sum(lengths[n] for n in range(low, high)) for low, high in ((3, 10), (10, 24), (24, 61))]
    assert min(thirds) > 0.75 * max(thirds)
    assert sum(lengths[n] for n in range(51, 61)) > 100
    assert all(5 <= len(english.split()) <= 7 for english, _ in generator.generate(50, 1, min_words=5, max_words=7))


def test_splits_are_disjoint_and_reproducible() -> None:
    result = generator.splits(5, 300, 31, 37)
    assert {name: len(sides[0]) for name, sides in result.items()} == {"train": 300, "val": 31, "test": 37}
    assert all(len(source) == len(target) for source, target in result.values())
    assert sum(len(set(source)) for source, _ in result.values()) == 368
    assert len({line for source, _ in result.values() for line in source}) == 368
    assert generator.splits(5, 500, 31, 37)["test"] == result["test"]
    assert generator.splits(6, 300, 31, 37)["test"] != result["test"]


def test_every_process_generates_the_same() -> None:
    code = "from recipes.corpora.phrases import generator; print(generator.generate(30, 11))"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONIOENCODING": "utf-8"}
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env=environment,
        cwd=Path(generator.__file__).parents[3],
    )
    assert out.stdout.decode("utf-8").strip() == repr(generator.generate(30, 11))


def test_held_out_words_are_trained_on() -> None:
    words = lambda lines: {word for line in lines for word in re.findall(r"\w+", line)}  # noqa: E731
    result = generator.splits(0, 2000, 100, 100)
    for side in (0, 1):
        unseen = words(result["test"][side]) - words(result["train"][side])
        assert len(unseen) < 0.01 * len(words(result["train"][side]))


def test_impossible_requests_are_sentences() -> None:
    with pytest.raises(ValueError, match=r"Expected 3 <= min_words <= max_words\. Received: min_words=9"):
        generator.generate(1, 0, min_words=9, max_words=8)
    with pytest.raises(ValueError, match=r"Expected 3 <= min_words"):
        generator.generate(1, 0, min_words=2)
    with pytest.raises(ValueError, match=r"count of at least 0\. Received: -1"):
        generator.generate(-1, 0)
    assert generator.generate(0, 0) == []
