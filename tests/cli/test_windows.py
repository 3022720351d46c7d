"""`keras-attn translate` on each backend: the texts of the library, whatever the windows."""

from keras_attn.cli import translate
from keras_attn.translation import Translator
from tests.unit.cli.conftest import tiny_translator

LINES = ["eins", "", "zwei drei", "eins zwei drei", "   ", "vier", "drei zwei", "zwei eins vier", "vier vier"]


def test_windows_change_no_translation(tmp_path, capfdbinary):
    tiny_translator(6).save_to_preset(tmp_path / "preset")
    translator, source = Translator.from_preset(tmp_path / "preset"), tmp_path / "source"
    found = translator.generate(LINES, beam_size=3, batch_size=4, return_alignments=False)
    texts = "".join(f"{translation.text}\n" for translation in found)
    assert len({*texts.split("\n")}) > 4, "the model must not say the same of everything"
    source.write_text("".join(f"{line}\n" for line in LINES))
    for window in (1, 4096):
        line = [tmp_path / "preset", source, "--beam", 3, "--window", window, "--batch-size", 4]
        assert translate.main([*map(str, line)]) == 0
        assert capfdbinary.readouterr().out.decode() == texts
