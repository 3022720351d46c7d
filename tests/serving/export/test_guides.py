"""The README of a model's folder: its commands are right for any sentence, and its sentences are the model's own."""

import ast
import json
import re
import subprocess

import pytest

from keras_attn.serving.export.guides import example_sentences, write_guides
from keras_attn.text import Tokenizer
from tests.serving.conftest import SENTENCES

pytestmark = pytest.mark.once

HARD = 'it\'s "5 $HOME" `ls` \\n!\t%s {NAME} INSTANCES 😀'


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(SENTENCES, level="word")


def bodies(readme: str, folder) -> list[dict]:
    """What the README's `curl` commands send, as a shell reads them."""
    commands = [line for line in readme.splitlines() if line.startswith("curl -d ")]
    script = 'curl() { printf "%s\\n" "$2"; }\n' + "\n".join(commands)
    printed = subprocess.run(["sh"], input=script, capture_output=True, text=True, cwd=folder, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.parametrize(
    "sentences", [["zwei Hunde", "ein Haus"], [HARD], ["", " ", "x" * 999, "'", "\u2028\x00\x7f\ud800"]]
)
def test_commands_send_the_sentences(tmp_path, tokenizer, sentences):
    (tmp_path / "de-fr").mkdir()
    config, readme = write_guides(tmp_path / "de-fr", sentences, tokenizer)
    assert 'base_path: "/models/de-fr"' in config.read_text()
    text = readme.read_text(encoding="utf-8")
    first, second = example_sentences(sentences, tokenizer)
    assert {first, second} <= {sentence.strip() for sentence in sentences} - {""}
    with_options = {"signature_name": "translate_with_options", "inputs": {"text": [first], "max_length": 7}}
    assert bodies(text, tmp_path) == [{"instances": [first, second]}, with_options]
    (python,) = re.findall(r"make_tensor_proto\((.*)\)\)$", text, re.M)
    assert ast.literal_eval(python) == [first, second]
    assert "NAME" not in text.replace(HARD, "").replace(json.dumps(HARD, ensure_ascii=False), "") or HARD in sentences
    assert "--model_config_file=/models/de-fr/models.config\ncurl" in text
    (tmp_path / "compiled").mkdir()
    _, readme = write_guides(tmp_path / "compiled", sentences, tokenizer, jit_compile=True)
    assert "models.config --xla_cpu_compilation_enabled\ncurl" in readme.read_text(encoding="utf-8")
    assert write_guides(tmp_path / "de-fr", ["other"], tokenizer) == [], "they may be the user's own by now"


def test_a_sentence_of_moderate_length_is_chosen(tokenizer):
    sentences = ["zwei", "x" * 500, "zwei Hunde spielen im Gras .", "drei Kinder laufen durch den Wald"]
    assert set(example_sentences(sentences, tokenizer)) == set(sentences[2:])


@pytest.mark.parametrize("level", ["word", "bpe", "character"])
def test_a_bare_preset_gives_words_of_its_vocabulary(level):
    options = {"vocabulary_size": 320} if level == "bpe" else {"level": level}
    tokenizer = Tokenizer.train(SENTENCES, **options)
    for text in example_sentences([], tokenizer):
        assert text.replace(" ", "").isalpha()
        ids = tokenizer.encode(text)
        assert ids
        assert tokenizer.decode(ids) == text


def test_a_vocabulary_without_letters_still_gives_a_text():
    tokenizer = Tokenizer.train(["1 2 3 . ,"], level="word")
    assert all(example_sentences([], tokenizer))
