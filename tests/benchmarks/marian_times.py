"""Times Marian's translations of lines, in the environment that `tests.benchmarks.marian_program` makes.

Reads JSON from standard input: `options` of Marian's decoder, the `lines`, how many `singles` of them to translate one
at a time, and in how many `rounds` to translate all of them, `batch` at a time. The last line is JSON: milliseconds of
each single and sentences a second of each round, both after a pass that is not timed, and the translations.
"""

import json
import sys
import time

from pymarian import Translator


def timed(translator: Translator, lines: list[str]) -> tuple[float, list[str]]:
    begin = time.perf_counter()
    found = translator.translate(lines)
    return time.perf_counter() - begin, found


def main() -> None:
    asked = json.load(sys.stdin)
    lines = asked["lines"]
    one = Translator(f"{asked['options']} --mini-batch 1")
    for _ in range(2):
        single = [1000 * timed(one, [line])[0] for line in lines[: asked["singles"]]]
    many = Translator(f"{asked['options']} --mini-batch {asked['batch']} --maxi-batch 100 --maxi-batch-sort src")
    rounds = [timed(many, lines) for _ in range(1 + asked["rounds"])]
    rates = [len(lines) / seconds for seconds, _ in rounds[1:]]
    print(json.dumps({"single_sentence_ms": single, "sentences_per_second": rates, "translations": rounds[-1][1]}))


if __name__ == "__main__":
    main()
