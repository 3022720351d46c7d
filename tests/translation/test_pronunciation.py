"""`G2P`: the lexicon first, the model for the rest; sentences, alphabets, files. Its model is a shipped preset."""

import csv
import io
import sys
import types
import unicodedata
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import keras_attn
from keras_attn.cli.main import main
from keras_attn.pronunciation import converted, read_lexicon
from keras_attn.text import visible_name
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


def test_apostrophes_around_a_word_belong_to_it_where_a_lexicon_has_it_so(g2p):
    assert g2p("Goin', give \u2018em 'hello'") == "G OW1 AH0 N, G IH1 V AH0 M 'HH AH0 L OW1'"
    assert g2p.words("the boys' 'keras' don't bahdanaus'") == ["the", "boys'", "keras", "don't", "bahdanaus"]
    own = keras_attn.G2P(g2p.translator, [{" rockin' ": "R AA1 K AH0 N"}])
    assert own("rockin\u2019!") == "R AA1 K AH0 N!"


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of torch, which warns() shows
def test_letters_that_the_model_has_not_seen_are_named(g2p):
    with pytest.warns(UserWarning, match=r"letters that the model has seen. Received 1 texts with others: 9"):
        (found,) = g2p.pronounce("bahda9")
    assert found.unknown == ("9",)
    assert repr(found).endswith("unknown 9>")
    with pytest.warns(UserWarning, match=r"with a letter that the model has seen. Received 1 without: 42"):
        assert g2p("42 Keras") == "42 K EH1 R AH0 S"


def odd_words():
    """The rows of odd_words.tsv: group, text, letters read, unknown ones by name, entries of the lexicon."""
    with (Path(__file__).with_name("odd_words.tsv")).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            for name in ("text", "letters"):
                row[name] = row[name].encode("ascii", "backslashreplace").decode("unicode_escape")
            yield row | {"is_spoken": any(c.isascii() and c.isalpha() for c in row["letters"].replace("<2ita>", ""))}


def test_odd_words_are_read_as_the_list_has_them_and_nothing_is_dropped_in_silence(g2p):
    rows = list(odd_words())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = g2p.pronounce([row["text"] for row in rows], beam_size=1)
    silent, several, strange = (str(one.message) for one in caught if "Expected" in str(one.message))
    assert len(rows) >= 300
    for row, several_of_word in zip(rows, found, strict=True):
        text, entries = row["text"], [one for one in row["lexicon"].split(" | ") if one]
        if not row["letters"]:
            assert several_of_word == []
            continue
        (one, *_) = several_of_word
        assert ("".join(one.letters), " ".join(map(visible_name, one.unknown))) == (row["letters"], row["unknown"]), (
            text
        )
        assert [x.text for x in several_of_word if x.origin == "lexicon"] == entries, text
        seen = unicodedata.normalize("NFKD", "".join(filter(str.isalpha, text))).lower()
        assert {c for c in seen if c.isascii() and c.isalpha()} <= {*row["letters"]}, text
        assert (one.text != "") == row["is_spoken"], text
        assert entries or one.alignment is None or one.alignment.shape[1] == len(one.letters) + 1, text
    of_model = [row for row in rows if row["letters"] and not row["lexicon"]]
    spoken = [row for row in of_model if row["is_spoken"]]
    unseen = sum(row["unknown"] != "" for row in spoken)
    assert f"Received {len(of_model) - len(spoken)} without: 42 0 007 9-11" in silent
    assert f"Received {unseen} texts with others: " in strange
    assert f"Received {sum(len(row['text'].split()) > 1 for row in spoken)} with blanks inside" in several


def test_sentences_keep_marks_and_leave_invisible_characters_out(g2p):
    odd = "nai\u0308ve cafe\u0301 hel\u00adlo \ufb01sh \u202bhello\u202c don`t U.S.A."
    assert g2p(odd) == g2p("naive cafe hello fish \u202bhello\u202c don't U.S.A.")


def test_what_is_no_text_is_refused(g2p):
    for wrong in (None, 1, b"hello"):
        for call in (g2p, g2p.pronounce):
            with pytest.raises(ValueError, match=r"Expected a str, or a list of str. Received: "):
                call(wrong)
    for wrong in ([None], ["hello", ["hello"]], [b"hello"], "a\ud800"):
        for call in (g2p, g2p.pronounce):
            with pytest.raises(ValueError, match="Expected text"):
                call(wrong)
    for options in ({"n_best": "3"}, {"n_best": 0}, {"beam_size": 0}):
        with pytest.raises(ValueError, match="to be a whole number of at least 1"):
            g2p.pronounce("hello", **options)
    with pytest.raises(ValueError, match="Expected text"):
        keras_attn.G2P(g2p.translator, normalize=lambda text: None)("hello")
    with pytest.raises(ValueError, match="Expected a list of lexicons"):
        keras_attn.G2P(g2p.translator, {"hello": "HH"})
    with pytest.raises(ValueError, match=r"Expected `normalize` to be a function of a sentence. Received: 'upper'"):
        keras_attn.G2P(g2p.translator, normalize="upper")
    with pytest.raises(ValueError, match=r"Expected a preset: .* Received: None"):
        keras_attn.G2P.from_preset(None)
    words = ["hello", "Keras"]
    for given in (tuple(words), iter(words), np.array(words), dict.fromkeys(words)):
        assert [one[0].text for one in g2p.pronounce(given)] == ["HH AH0 L OW1", "K EH1 R AH0 S"]
    assert g2p(np.str_("hello")) == g2p.pronounce(np.str_("hello"))[0].text


def test_a_hundred_threads_give_the_answers_of_one(g2p):
    words = ["hello", "bahdanau", "attention", "read"]  # the second is not in the lexicon
    expected = [g2p(word) for word in words]
    with ThreadPoolExecutor(100) as threads:
        for n, found in enumerate(threads.map(g2p, words * 25)):
            assert found == expected[n % 4]


def test_another_alphabet_and_a_language_of_several(g2p):
    for alphabet, text in (("ipa", "k ˈɛ ɹ ə s"), ("x-sampa", 'k "E r\\ @ s'), ("arpabet", "K EH1 R AH0 S")):
        assert keras_attn.G2P(g2p.translator, [{"keras": "K EH1 R AH0 S"}], alphabet=alphabet)("keras") == text
    with pytest.raises(ValueError, match=r"Expected no tag for a model of one language. Received: tag='<2it>'"):
        keras_attn.G2P(g2p.translator, tag="<2it>")
    for alphabet in ("sampa", ""):
        message = f"Expected an alphabet among: arpabet, ipa, x-sampa. Received: {alphabet!r}"
        with pytest.raises(ValueError, match=message):
            keras_attn.G2P(g2p.translator, alphabet=alphabet)
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
    assert main([*line, "--n-best", "2"]) == 2
    assert "Expected --n-best with --format tsv, dict or lexicon" in capsys.readouterr().err
    commented = "# mine\nTF\tT F\t# short\nfoo F UW1 ;;; old\n#sharp-sign SH AA1\n"
    (tmp_path / "again").write_text(commented)
    assert read_lexicon(tmp_path / "again") == {"tf": ("T F",), "foo": ("F UW1",), "#sharp-sign": ("SH AA1",)}
    for wrong in ("alone", "New York\t", "\tHH AH", "tf\tT IY EH1 F\tlexicon\t1.000"):
        (tmp_path / "own.tsv").write_text(f"a\tb\n{wrong}\n")
        assert main(line) == 2
        assert "Expected a word and its phones in line 2 of" in capsys.readouterr().err
    assert main([*line[:3], "--lexicon", str(tmp_path)]) == 2
    assert "Received: no regular file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "texts"), [("a", ""), ("a", []), (" ", "X"), ("a", None), (1, "X"), ("a", ["X", " "])]
)
def test_a_lexicon_without_words_or_phones_is_refused(word, texts):
    with pytest.raises(ValueError, match=r"Expected a word and its phones in a lexicon\. Received: "):
        read_lexicon({word: texts})


def test_alphabets_by_hand():
    """The X-SAMPA of Wells (1995); stress before its vowel."""
    assert converted(["AH0", "B", "AW1", "T"], "arpabet", "ipa") == ["ə", "b", "ˈaʊ", "t"]
    assert converted(["M", "ER1", "D", "ER0"], "arpabet", "x-sampa") == ["m", '"3`', "d", "@`"]
    assert converted(["ɲ", "ɔ̃", "tʰ", "t͡ʃ", "øː", "?"], "ipa", "x-sampa") == ["J", "O_~", "t_h", "t_S", "2:", "?"]
    assert converted(["ʘ", "ǀ", "ǁ", "ǃ", "ǂ", "d̼"], "ipa", "x-sampa") == ["O\\", "|\\", "|\\|\\", "!\\", "=\\", "d_N"]
    assert converted(["ẽ̞", "ç", "c\u0327", "á", "‿"], "ipa", "x-sampa") == ["e_~_o", "C", "C", "a_H", "-\\"]
    with pytest.raises(ValueError, match=r"Expected an origin among: arpabet, ipa\. Received: 'x-sampa'"):
        converted(["S"], "x-sampa", "ipa")
