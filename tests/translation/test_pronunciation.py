"""`G2P`: the lexicon first, the model for the rest; sentences, alphabets, files. Its model is a shipped preset."""

import io
import sys
import types

import numpy as np
import pytest

import keras_attn
from keras_attn.cli.main import main
from keras_attn.pronunciation import converted, read_lexicon
from tests.saving.test_model_file import EXAMPLES


@pytest.fixture(scope="module")
def g2p():
    return keras_attn.G2P.from_preset("g2p_en_us", [{"Keras": "K EH1 R AH0 S", "tf": ["T IY EH F", "F"]}])


def test_words_of_a_lexicon_come_first_and_the_users_before_the_presets(g2p):
    assert g2p("hello") == g2p(" HELLO ").strip() == "HH AH0 L OW1"  # CMUdict's entry
    assert g2p(["Keras", "tf"]) == ["K EH1 R AH0 S", "T IY EH F"]
    assert [(one.text, one.origin) for one in g2p.pronounce("read")] == [("R EH1 D", "lexicon"), ("R IY1 D", "lexicon")]
    assert g2p.pronounce(["tf", ""], n_best=3)[1] == []


def test_the_model_has_the_rest(g2p):
    (best, *others), (capital, *_) = g2p.pronounce(["bahdanau", "Bahdanau"], n_best=3)
    (found,) = g2p.translator.generate(["b a h d a n a u"], n_best=3)
    assert [one.text for one in (best, *others)] == [one.text for one in found.n_best]
    assert best.text == capital.text
    np.testing.assert_allclose(best.probability, np.exp(found.token_log_probs.sum()), rtol=1e-5)
    assert 1 > best.probability > others[0].probability > others[1].probability > 0
    assert best.alignment.shape == (len(best.text.split()) + 1, len("bahdanau") + 1)


def test_a_model_without_stress_leaves_out_that_of_a_lexicon(g2p):
    letters, phones = g2p.translator.source_tokenizer, keras_attn.Tokenizer.train(["HH AH NG K"], level="symbol")
    plain = types.SimpleNamespace(source_tokenizer=letters, target_tokenizer=phones)  # which no word of a lexicon asks
    assert keras_attn.G2P(plain, [{"hello": "HH AH0 L OW1"}])("hello") == "HH AH L OW"


def test_sentences_keep_what_is_no_word(g2p):
    assert g2p("Hello, Keras! \U0001f600") == "HH AH0 L OW1, K EH1 R AH0 S! \U0001f600"
    spelled = keras_attn.G2P(g2p.translator, g2p.lexicons, normalize=lambda text: text.replace("2", "two"))
    assert spelled("2 don’ts.") == f"{g2p('two')} {g2p(chr(39).join(['don', 'ts']))}."


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of torch, which warns() shows
def test_letters_that_the_model_has_not_seen_are_named(g2p):
    with pytest.warns(UserWarning, match=r"letters that the model has seen. Received 1 texts with others: 9"):
        (found,) = g2p.pronounce("bahda9")
    assert found.unknown == ("9",)
    assert repr(found).endswith("unknown 9>")
    with pytest.warns(UserWarning, match=r"with a letter that the model has seen. Received 1 without: 42"):
        assert g2p("42 Keras") == "42 K EH1 R AH0 S"


def test_another_alphabet_and_a_language_of_several(g2p):
    for alphabet, text in (("ipa", "k ˈɛ ɹ ə s"), ("x-sampa", 'k "E r\\ @ s'), ("arpabet", "K EH1 R AH0 S")):
        assert keras_attn.G2P(g2p.translator, [{"keras": "K EH1 R AH0 S"}], alphabet=alphabet)("keras") == text
    with pytest.raises(ValueError, match=r"Expected no tag for a model of one language. Received: tag='<2it>'"):
        keras_attn.G2P(g2p.translator, tag="<2it>")
    with pytest.raises(ValueError, match=r"Expected an alphabet among: arpabet, ipa, x-sampa. Received: 'sampa'"):
        keras_attn.G2P(g2p.translator, alphabet="sampa")
    source, target = EXAMPLES["g2p_multilingual"]
    tag, _, letters = source.partition(" ")
    icelandic = keras_attn.G2P.from_preset("g2p_multilingual", tag=tag)
    (found,) = icelandic.pronounce(letters.replace(" ", "").upper())
    assert (found.text, found.alignment.shape) == (target, (len(target.split()) + 1, len(letters.split()) + 1))
    with pytest.raises(ValueError, match=r"Expected tag to be one of <2ady>, "):
        keras_attn.G2P(icelandic.translator)
    with pytest.raises(ValueError, match=r"for a language other than English"):
        keras_attn.G2P(icelandic.translator, tag=tag, alphabet="arpabet")


def test_the_command_writes_words_and_lexicons(tmp_path, monkeypatch, capsys):
    (tmp_path / "in").write_text("Hello, tf!\nread tf\n")
    (tmp_path / "own.tsv").write_text(";;; mine\nTF\tT IY EH1 F\n")
    line = ["g2p", "g2p_en_us", str(tmp_path / "in"), "--lexicon", str(tmp_path / "own.tsv")]
    assert main(line) == 0
    assert capsys.readouterr().out == "HH AH0 L OW1, T IY EH1 F!\nR EH1 D T IY EH1 F\n"
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(b"tf\r\nt\xff"))))
    assert main([*line[:2], *line[3:], "--max-characters", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("T IY EH1 F\n")
    assert "1 of 2 lines contained bytes that are not UTF-8" in printed.err
    assert main([*line, "--format", "dict"]) == 0
    entries = capsys.readouterr().out
    assert entries == "Hello HH AH0 L OW1\nHello(2) HH EH0 L OW1\ntf T IY EH1 F\nread R EH1 D\nread(2) R IY1 D\n"
    (tmp_path / "again").write_text(entries)
    assert read_lexicon(tmp_path / "again")["read"] == ("R EH1 D", "R IY1 D")
    assert main([*line, "--format", "tsv"]) == 0
    assert "tf\tT IY EH1 F\tlexicon\t1.000\n" in capsys.readouterr().out
    (tmp_path / "own.tsv").write_text("a\tb\nalone\n")
    assert main(line) == 2
    assert "Expected a word and its phones in line 2 of" in capsys.readouterr().err


def test_alphabets_by_hand():
    """The X-SAMPA of Wells (1995); stress before its vowel."""
    assert converted(["AH0", "B", "AW1", "T"], "arpabet", "ipa") == ["ə", "b", "ˈaʊ", "t"]
    assert converted(["M", "ER1", "D", "ER0"], "arpabet", "x-sampa") == ["m", '"3`', "d", "@`"]
    assert converted(["ɲ", "ɔ̃", "tʰ", "t͡ʃ", "øː", "?"], "ipa", "x-sampa") == ["J", "O_~", "t_h", "t_S", "2:", "?"]
