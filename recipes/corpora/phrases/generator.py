"""`phrases`, the embedded English -> French corpus: generated, unlimited, with exact references and no
download.

Sentences are clauses (`recipes.corpora.phrases.clauses`) joined until the chosen length is reached. Of lengths from 3
to 60 words, about a third are below 10, a third below 24 and a third above (n + 4 is log-uniform). Were they uniform,
most of an epoch would be long sentences, from which a model learns to align several times more slowly. For a
study of lengths generate each class separately: `generate(500, 1, min_words=51)`. The reorderings:

    adjectives and owners     Anna's old red car -> la vieille voiture rouge d'Anna
    pronouns                  he never sold it to them -> il ne la leur a jamais vendue
    two objects               gave the king the letter -> a donné la lettre au roi
    prices                    paid fifty euros for the coat -> a payé le manteau cinquante euros
    dates and hours           at six o'clock on March 5 -> le 5 mars à six heures
    days                      ... sold the car yesterday -> Hier, ... a vendu la voiture
    whole clauses             When the king arrived, Anna left -> Anna est partie quand le roi est arrivé
    questions                 Why did Anna sell them -> Pourquoi Anna les a-t-elle vendus

**English determines French**: the same English always has the same French. "You" is tu after a first name and vous
after Sir or Madam; "it", "them" and "they" have their antecedent in the sentence
(`recipes.corpora.phrases.scene.Scene`), and "they" without one is masculine. Where French leaves a choice, the style is
fixed (a past state is an imperfect, any other past a perfect).
"""

import copy
from functools import cache

from recipes.corpora.phrases import lexicon
from recipes.corpora.phrases.clauses import clause, with_times
from recipes.corpora.phrases.constituents import english_group, french_group, noun_phrase
from recipes.corpora.phrases.french import sandhi
from recipes.corpora.phrases.scene import Draw, Phrase, Scene
from recipes.corpora.phrases.verbal_clauses import subject

_JOINS = {"and": "et", "but": "mais", "so": "donc"}
_ADDRESSES = [
    *((f"{name}, ", f"{name}, ", Phrase("you", "tu", gender, person=1)) for name, gender in lexicon.NAMES),
    *((("Sir, ", "Monsieur, ", Phrase("you", "vous", "m", person=4)),) * 4),
    *((("Madam, ", "Madame, ", Phrase("you", "vous", "f", person=4)),) * 4),
]
_FRONTED = {"when": "quand", "as soon as": "dès que", "if": "si", "because": "parce que"}
_WHY = {"why": "pourquoi", "when": "quand", "where": "où"}
_INVERTED = {("m", False): "il", ("f", False): "elle", ("m", True): "ils", ("f", True): "elles"}

Pair = tuple[str, str]


def _tense(draw: Draw) -> str:
    return draw.weighted(past=5, present=2.5, future=2.5)


def _plain(draw: Draw, scene: Scene, depth: int, share: float) -> Pair:
    core = clause(draw, scene, _tense(draw), depth, brief=not share)
    whole = with_times(draw, scene, core, share, days=True, dates=True)
    return whole.english, whole.french


def _because(draw: Draw, scene: Scene, depth: int, share: float) -> Pair:
    english, french = _plain(draw, scene, depth, share)
    reason = clause(draw, scene, _tense(draw), depth)
    reason = with_times(draw, scene, reason, share / 2, days=False, dates=False)
    return f"{english} because {reason.english}", f"{french} parce que {reason.french}"


def _fronted(draw: Draw, scene: Scene, depth: int, share: float) -> Pair:
    """`When S, M` -> `M quand S`: the longest jumps of the corpus."""
    word = draw.weighted(**{"when": 3, "as soon as": 1.5, "if": 2, "because": 2})
    if word == "because":
        tense, first_tense = _tense(draw), _tense(draw)
    elif word == "if":
        tense, first_tense = "future", "present"
    else:
        tense = draw.pick(("past", "future"))
        first_tense = "past" if tense == "past" else "pending"
    first = clause(draw, scene, first_tense, depth, own_tense=word == "because")
    first = with_times(draw, scene, first, share, days=False, dates=False)
    main = clause(draw, scene, tense, depth, own_tense=word == "because")
    main = with_times(draw, scene, main, share, days=False, dates=False)
    return f"{word} {first.english}, {main.english}", f"{main.french} {_FRONTED[word]} {first.french}"


def _reported(draw: Draw, scene: Scene, depth: int, share: float) -> Pair:
    who, verb = subject(draw, scene, 0), draw.pick(lexicon.SAYING)
    english = f"{who.english} {english_group(verb, who, 'present')}"
    french = f"{who.french} {french_group(verb, who, 'present')}"
    scene.object = None
    said = with_times(draw, scene, clause(draw, scene, _tense(draw), depth), share, days=False, dates=False)
    return f"{english} that {said.english}", f"{french} que {said.french}"


def _asker(draw: Draw, scene: Scene) -> Phrase:
    who = subject(draw, scene, 0, gendered=True)
    while who.negated:  # an indefinite subject does not go with inversion
        who = subject(draw, scene, 0, gendered=True)
    return who


def _question(draw: Draw, scene: Scene, depth: int, share: float) -> Pair:
    """`Why did Anna sell it?` -> `Pourquoi Anna l'a-t-elle vendue ?`; `Did ...?` -> `Est-ce que ... ?`"""
    before, who, tense = scene.object, _asker(draw, scene), _tense(draw)
    kind = draw.weighted(yes=2, why=3, many=1)
    verb = draw.pick(lexicon.GIVING + lexicon.HANDLING if kind == "many" or draw.chance(0.6) else lexicon.BEING)
    aux = {"past": "did", "present": "does" if who.third else "do", "future": "will"}[tense]
    negation = "not" if kind != "many" and draw.chance(0.15) else ""
    tail, words, clitics, agreement = "", "", "", (None, False)
    scene.object = None
    if kind != "many" and verb not in lexicon.BEING:
        if before and draw.chance(0.6):
            tail = "them" if before.plural else "it"
            clitics = "les" if before.plural else "le" if before.gender == "m" else "la"
            agreement = before.gender, before.plural
        else:
            thing = scene.object = noun_phrase(draw, scene, "thing", depth)
            tail, words = thing.english, (negation and thing.negated) or thing.french
    wh, quoi, name = "", "est-ce que", who.french
    pronoun = who.french if who.person in (1, 4) else _INVERTED[who.gender, who.plural]
    if kind == "many":
        while not (thing := noun_phrase(draw, scene, "thing", indefinite=True)).plural or not thing.negated:
            pass
        wh, quoi, agreement = f"how many {thing.english}", f"combien {thing.negated}", (thing.gender, True)
    elif kind == "why":
        wh = draw.pick((*_WHY,))
        quoi = _WHY[wh]
    inverted = pronoun if kind != "yes" else ""
    if inverted and who.english in ("he", "she", "they", "you"):
        name = ""
    group = french_group(verb, who, tense, negation, "", clitics, agreement, inverted)
    english = f"{wh} {aux} {who.english} {negation} {verb.base} {tail}?"
    return " ".join(english.replace(" ?", "?").split()), " ".join(f"{quoi} {name} {group} {words} ?".split())


_UNITS = {
    "plain": _plain,
    "because": _because,
    "fronted": _fronted,
    "reported": _reported,
    "question": _question,
}


def _unit(draw: Draw, scene: Scene, room: int) -> Pair:
    """A clause or a pair of clauses of about `room` words, so simple if `room` is small that most of them fit."""
    style = draw.weighted(
        plain=4,
        because=1.5 * (room > 11),
        fronted=2.5 * (room > 11) + 1.0 * (8 < room < 12),
        reported=0.8 * (room > 6),
        question=1.2 * (4 < room < 13),  # it ends the sentence
    )
    depth = int(room > 12 and draw.chance(0.5))
    share = 0.3 if room > 13 else 0.15 if room > 7 else 0.05 if room > 5 else 0
    return _UNITS[style](draw, scene, depth, share)


def _finish(english: str, french: str) -> Pair:
    french = sandhi(french)
    if not english.endswith("?"):
        english, french = english + ".", french + "."
    english = _articles(english)
    return english[0].upper() + english[1:], french[0].upper() + french[1:]


def _articles(english: str) -> str:
    """Writes "an" for "a" before a vowel; the u of "useful", the lexicon's only such word, is none."""
    words = english.split(" ")
    for index in range(len(words) - 1):
        if words[index] == "a" and words[index + 1][0] in "aeiou" and not words[index + 1].startswith("use"):
            words[index] = "an"
    return " ".join(words)


def sentence(draw: Draw, words: int) -> Pair | None:
    """A pair whose English has `words` words, or one or two fewer; None if the clauses chosen do not fit."""
    english = french = ""
    address = draw.pick(_ADDRESSES) if words > 3 and draw.chance(0.12) else None
    scene = Scene(address[2] if address else None)
    if address:
        english, french = address[:2]
    room = words - bool(address)
    while True:
        for _ in range(6):
            after = copy.copy(scene)
            pair = _unit(draw, after, room if room < 16 else 10 + draw.below(8))
            rest = room - len(pair[0].split())
            if 0 <= rest <= 2 or (rest >= 5 and not pair[0].endswith("?")):
                break
        else:
            return None
        scene, room, english, french = after, rest, english + pair[0], french + pair[1]
        if room <= 2:
            return _finish(english, french)
        join = draw.weighted(**{"and": 5, "but": 2.5, "so": 2})
        english, french, room = f"{english}, {join} ", f"{french}, {_JOINS[join]} ", room - 1


def generate(count: int, seed: int, *, min_words: int = 3, max_words: int = 60) -> list[Pair]:
    """`count` pairs `(English, French)`, no English twice, their lengths uniform on a logarithmic scale.

    A pure function of its arguments, the same on every Python version.

    Args:
        count: number of pairs.
        seed: any integer.
        min_words, max_words: bounds of the English length in words (split on blanks), both included.

    Raises:
        ValueError: for impossible bounds, or more sentences than there are of such lengths.
    """
    if not 3 <= min_words <= max_words:
        raise ValueError(
            f"Expected 3 <= min_words <= max_words. Received: min_words={min_words}, max_words={max_words}"
        )
    if count < 0:
        raise ValueError(f"Expected a count of at least 0. Received: {count}")
    draw, pairs = Draw(seed), {}
    misses = 0
    while len(pairs) < count:
        # n + 4 is log-uniform; a sentence may fall short by two words
        scale = (max_words + 7) / (min_words + 4)
        wanted = int((min_words + 4) * scale ** draw.uniform()) - 4
        pair = None
        for _ in range(100):
            pair = sentence(draw, wanted)
            if pair and pair[0] not in pairs and min_words <= len(pair[0].split()) <= max_words:
                break
            pair = None
        if pair is None:
            misses += 1
            if misses > 200 + count // 10:
                raise ValueError(
                    f"Expected {count} different sentences of {min_words} to {max_words} words. "
                    f"The generator has only {len(pairs)}: choose fewer or longer ones."
                )
        else:
            pairs[pair[0]] = pair[1]
    return list(pairs.items())


@cache
def splits(
    seed: int = 0,
    train: int = 20000,
    val: int = 1000,
    test: int = 1000,
    *,
    min_words: int = 3,
    max_words: int = 60,
) -> dict[str, tuple[list[str], list[str]]]:
    """The splits `train`, `val` and `test` as `(English lines, French lines)`; no English sentence is in two of them.

    Val and test are generated first, so that they do not change with the number of training pairs.
    """
    pairs = generate(train + val + test, seed, min_words=min_words, max_words=max_words)
    bounds = {"val": (0, val), "test": (val, val + test), "train": (val + test, len(pairs))}
    return {
        name: (
            [pair[0] for pair in pairs[slice(*bounds[name])]],
            [pair[1] for pair in pairs[slice(*bounds[name])]],
        )
        for name in ("train", "val", "test")
    }
