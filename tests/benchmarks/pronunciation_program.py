"""Pronounces words: the part of `pronunciation_peers` that is timed, in an environment of its own.

    python pronunciation_program.py keras_attn WORDS RUN BEAM
    python pronunciation_program.py g2p-en WORDS

WORDS has a word a line, its letters with blanks between. The last line printed is JSON: `phones`, one text for each
word, and `seconds`, without loading the model.
"""

import json
import re
import sys
import time
from pathlib import Path


def ours(words: list[str], run: str, beam: str) -> tuple[list[str], float]:
    """A preset of keras_attn. The first call, which compiles, is not counted."""
    from keras_attn import Translator
    from keras_attn.training import length_penalty

    translator = Translator.from_preset(run)
    options = {"beam_size": int(beam), "return_alignments": False, "length_penalty": length_penalty(Path(run), None)}
    translator.generate(words, **options)
    begin = time.perf_counter()
    found = translator.generate(words, **options)
    return [one.text for one in found], time.perf_counter() - begin


def g2p_en(words: list[str]) -> tuple[list[str], float]:
    """g2p-en's network, which is greedy; stress is left out.

    `G2p()` looks a word up in its dictionary first, and needs NLTK's data for that: here the network answers alone.
    """
    import nltk

    nltk.download = lambda *_: False  # importing g2p_en asks for it
    nltk.corpus.cmudict.dict = dict  # an empty dictionary
    from g2p_en import G2p

    network = G2p()
    begin = time.perf_counter()
    found = [network.predict(word.replace(" ", "")) for word in words]
    seconds = time.perf_counter() - begin
    return [" ".join(re.sub("[0-9]", "", phone) for phone in phones) for phones in found], seconds


if __name__ == "__main__":
    system, path, *rest = sys.argv[1:]
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    phones, seconds = {"keras_attn": ours, "g2p-en": g2p_en}[system](lines, *rest)
    print(json.dumps({"phones": phones, "seconds": seconds}))
