"""The JavaScript of playground and lecture gives ids, strings and alignments of the Python programs, in node."""

import gzip
import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from keras_attn import Translator
from keras_attn.pronunciation import G2P, read_lexicon
from keras_attn.runtime import OnnxTranslator
from keras_attn.text import Tokenizer
from keras_attn.training import corpora
from tests.export.small import READ, SENTENCES
from tests.translation.test_pronunciation import odd_words

ROOT = Path(__file__).parents[2]
FILES = ROOT / "build" / "playground"  # of .ci/playground.py
RUNTIME = ROOT / "build" / "npm" / "node_modules" / "onnxruntime-web" / "dist" / "ort.node.min.mjs"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="no node on the PATH")


def asked(call: str, **request):
    """The answer of tests/unit/playground.mjs."""
    program = ["node", Path(__file__).with_name("playground.mjs")]
    request = json.dumps({"call": call, **request}, default=str)
    return json.loads(subprocess.run(program, input=request, capture_output=True, text=True, check=True).stdout)


def test_tokenizers_give_the_same_ids_and_texts(tmp_path):
    lines = [*SENTENCES, "<2fr> zwei"]
    tokenizers = {
        "bpe": Tokenizer.train(lines, vocabulary_size=320),
        "tags": Tokenizer.train([line.lower() for line in lines], vocabulary_size=330, lowercase=True, tags=["<2fr>"]),
        "unknown": Tokenizer.train(lines, vocabulary_size=60, byte_fallback=False),
        "word": Tokenizer.train(lines, level="word", lowercase=True),
        "character": Tokenizer.train(lines, level="character", min_frequency=2),
        "letter": Tokenizer.train([" ".join("zweihundfrälstß'"), "<2fr>"], level="symbol").with_letters(),
    }
    for name, tokenizer in tokenizers.items():
        tokenizer.save(tmp_path / name)
    texts = [*READ, "<2fr> zwei", "a<2fr>b", "<2Fr>", "Z\u0308wei’ don´t"]
    rows = np.random.default_rng(1).integers(0, min(t.vocabulary_size for t in tokenizers.values()), (50, 9)).tolist()
    rows += [[4 + byte for byte in "aé€😀".encode()[n:m]] for n in range(10) for m in range(n, 11)]  # bytes of "bpe"
    for name, tokenizer in tokenizers.items():
        known = [[i for i in row if i < tokenizer.vocabulary_size] for row in rows]
        ((encoded, decoded),) = asked("tokenize", folder=tmp_path, names=[name], texts=texts, rows=known)
        assert encoded == tokenizer.encode_batch(texts), name
        assert decoded == [tokenizer.decode(row) for row in known], name


SENTENCES_OF_WORDS = ["Hello, Bahdanau!", "read U.S.A x-ray café don’t DON'T", "naïve bahda9 42 😀", " "]
SENTENCES_OF_WORDS += ["She's goin' home, give \u2018em hell'' 'Cause 'hello' 'n' the boys' 'Bahdanau'"]
SENTENCES_OF_WORDS += [
    "\ufb01sh na\u0308h Łódź hel\u00adlo ｈｅｌｌｏ \u202bx\u0301y\u202c don`t e\u2011mail straße ½ -- हिन्दी ❤️"
]


REFUSED = [
    (7, {}, "a text to be a string. Received: number"),
    (None, {}, "a text to be a string. Received: object"),
    ("a", {"max_length": 3, "beamsize": 2}, "options among beamSize, .*maxLength. Received: max_length, beamsize"),
    ("a", {"beamSize": 2, "nBest": 3}, "whole numbers with 1 <= nBest <= beamSize. Received: nBest 3, beamSize 2"),
    ("a", {"beamSize": 1.5}, "whole numbers with 1 <= nBest <= beamSize. Received: nBest 1, beamSize 1.5"),
    ("a", {"beamSize": "5"}, "whole numbers with 1 <= nBest <= beamSize. Received: nBest 1, beamSize 5"),
    ("a", {"normalization": "toString"}, "normalization to be gnmt, average or none. Received: toString"),
    ("a", {"normalization": ["gnmt"]}, "normalization to be gnmt, average or none. Received: gnmt"),
    ("a", {"lengthPenalty": -0.5}, "lengthPenalty of at least 0. Received: -0.5"),
    ("a", {"lengthPenalty": "1"}, "lengthPenalty of at least 0. Received: 1"),
    ("a", {"lengthPenalty": None}, "lengthPenalty of at least 0. Received: null"),
    ("a", {"lengthPenalty": 100, "maxLength": 50}, "lengthPenalty with finite norms in float32. Received: 100"),
    *(
        ("a", {"maxLength": length}, f"maxLength to be a whole number from 1 to 100000. Received: {length}")
        for length in (0, -1, 1.5, "3", 100_001)
    ),
]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """What node made of the texts of each job, by one process, which takes seconds to load its WebAssembly."""
    if not RUNTIME.exists():
        pytest.skip("python .ci/playground.py has not been run")
    lexicon = tmp_path_factory.mktemp("lexicon") / "lexicon.dict"
    lexicon.write_bytes(gzip.decompress((FILES / "g2p_en_us.dict.gz").read_bytes()))
    words = random.Random(3).sample(sorted(read_lexicon(lexicon)), 200)
    lines = sorted(corpora.load("phrases").splits["test"][0][:100], key=len)[:50]
    asked_for = [
        ("g2p_en_us", words, {"nBest": 5}),
        ("phrases_en_fr", lines, {"nBest": 2}),
        ("phrases_en_fr", [*lines[:9], " \t", "Ω😀 Zwei"], {"beamSize": 2, "nBest": 2, "normalization": "average"}),
        ("phrases_en_fr", lines[:9], {"beamSize": 3, "nBest": 3, "lengthPenalty": 0.3, "maxLength": 7}),
        ("g2p_en_us", SENTENCES_OF_WORDS, {}),
    ]
    made = [{"folder": FILES / name, "texts": texts, "options": options} for name, texts, options in asked_for]
    made[-1]["lexicon"] = lexicon
    made.append({"folder": made[1]["folder"], "texts": [], "refused": [row[:2] for row in REFUSED]})
    answers = asked("run", runtime=RUNTIME, jobs=made)
    return [{**job, "answers": found} for job, found in zip(made, answers, strict=True)]


@pytest.mark.parametrize("number", range(4), ids=["words", "sentences", "ranked otherwise", "limited"])
def test_hypotheses_are_those_of_the_runtime(jobs, number):
    job = jobs[number]
    snake = {"beamSize": "beam_size", "nBest": "n_best", "lengthPenalty": "length_penalty", "maxLength": "max_length"}
    options = {snake.get(name, name): value for name, value in job["options"].items()}
    expected = OnnxTranslator(job["folder"], threads=1).generate(job["texts"], **options)
    for one, other in zip(job["answers"], expected, strict=True):
        assert [hypothesis["text"] for hypothesis in one["nBest"]] == [found.text for found in other.n_best]
        tokens = [*other.tokens], [*other.source_tokens]
        assert (one["text"], one["tokens"], one["sourceTokens"]) == (other.text, *tokens)
        np.testing.assert_allclose(one["score"], other.score, rtol=1e-4, atol=1e-4)
        if other.alignment is not None:
            np.testing.assert_allclose(one["alignment"], other.alignment, atol=1e-4)
            np.testing.assert_allclose(one["logProbs"], other.token_log_probs, rtol=1e-3, atol=1e-4)


def test_wrong_texts_and_options_are_refused(jobs):
    for found, (_, options, expected) in zip(jobs[-1]["answers"], REFUSED, strict=True):
        assert re.match(f"Expected {expected}$", found), options


def test_sentences_are_pronounced_as_in_python(jobs):
    job = jobs[-2]
    g2p = G2P(OnnxTranslator(job["folder"], threads=1), [job["lexicon"]])
    with pytest.warns(UserWarning, match="letter"):
        assert job["answers"] == g2p(SENTENCES_OF_WORDS)


def test_odd_words_are_read_and_looked_up_as_in_python(tmp_path):
    if not (FILES / "g2p_en_us.dict.gz").exists():
        pytest.skip("python .ci/playground.py has not been run")
    lexicon = tmp_path / "lexicon.dict"
    lexicon.write_bytes(gzip.decompress((FILES / "g2p_en_us.dict.gz").read_bytes()))
    rows = list(odd_words())
    found = asked("look", folder=FILES / "g2p_en_us", lexicon=lexicon, words=[row["text"] for row in rows])
    for row, (letters, entries) in zip(rows, found, strict=True):
        assert row["lexicon"] or "".join(letters) == row["letters"], row
        assert entries == [one for one in row["lexicon"].split(" | ") if one], row


def test_the_lectures_model_is_that_of_keras():
    """Greedily as it was trained, but for the half precision of its vectors; and with even weights."""
    if not (FILES / "phrases_en_fr" / "weights.f16").exists():
        pytest.skip("python .ci/playground.py has not been run")
    translator = Translator.from_preset("phrases_en_fr")
    expected = translator.generate(corpora.load("phrases").splits["test"][0][:6], beam_size=1)
    rows = [one.source_token_ids for one in expected]
    asked_for = {"folder": FILES / "phrases_en_fr", "rows": rows}
    asked_for["limits"] = {"start": 2, "end": 3, "excluded": [0, 2], "longest": 100}
    for found, one in zip(asked("translate", **asked_for), expected, strict=True):
        assert [step["id"] for step in found] == list(one.token_ids)
        np.testing.assert_allclose([step["weights"] for step in found], one.alignment, atol=2e-3)
    even = asked("translate", **asked_for | {"rows": rows[:1]}, settings={"score": "even", "temperature": 1})
    for ids, found in zip(rows, even, strict=False):
        np.testing.assert_allclose([step["weights"] for step in found], 1 / len(ids))
