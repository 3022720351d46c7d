"""Scores a run with several beams and length penalties: `python -m recipes.sweep RUN [--beams 1,2,5,10]`.

Prints a table and, with `--output FILE`, keeps it as JSON, which `python -m recipes.pages.results` puts on the results page
if it stands in `recipes/reports/` as `sweep-<name of the run's report>.json`. A beam of one has no penalty: it is
greedy search.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path

from keras_attn.cli import command
from keras_attn.cli import line_streaming as streams
from keras_attn.cli.environment import surroundings
from keras_attn.cli.run_report import read_report


def main(argv=None) -> int:
    parser = command.Parser("recipes.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run")
    parser.add_argument("--beams", default="1,2,5,10", help="default: %(default)s")
    parser.add_argument("--penalties", default="0,0.5,1,1.5", help="exponents of GNMT's norm (default: %(default)s)")
    parser.add_argument("--split", default="test", choices=("val", "test"))
    parser.add_argument("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--output", metavar="FILE", type=Path, help="a new JSON file")
    return command.run(sweep, parser, argv)


def sweep(arguments: argparse.Namespace) -> None:
    beams = _numbers("--beams", arguments.beams, int)
    penalties = _numbers("--penalties", arguments.penalties, float)
    told = read_report(arguments.run)
    if told["corpus"] is None:
        raise ValueError(f"Expected a run with a report.json. There is none in {str(arguments.run)!r}.")
    if (metric := told["config"].get("metric", "bleu")) != "bleu":
        raise ValueError(f"Expected a run that is scored by BLEU. That in {str(arguments.run)!r} is by {metric}.")

    from keras_attn.translator import Translator
    from recipes import corpora

    corpus = corpora.load(told["corpus"], told["source"], told["target"], data=arguments.data)
    with command.quietly():
        translator = Translator.from_preset(arguments.run)
    with streams.new_file(arguments.output) if arguments.output else contextlib.nullcontext() as file:
        searches = [(beam, penalty) for beam in beams for penalty in (penalties if beam > 1 else [1.0])]
        shared = {"batch_size": arguments.batch_size, "return_alignments": False}
        rows = [
            _row(translator, *corpus.splits[arguments.split], told["config"]["tokenize"], shared, *chosen)
            for chosen in searches
        ]
        print(f"BLEU: {rows[0]['bleu']['signature']}")
        if file:
            kept = {name: told[name] for name in ("recipe", "corpus", "source", "target")}
            kept |= {"split": arguments.split, "rows": rows} | surroundings()
            file.write((json.dumps(kept, indent=2) + "\n").encode())


def _row(translator, sources, references, tokenize: str, shared: dict, beam: int, penalty: float) -> dict:
    from keras_attn.evaluation import by_metric
    from recipes.training import report

    found, seconds = report.translate(translator, sources, beam_size=beam, length_penalty=penalty, **shared)
    scores = by_metric.all_scores("bleu", sources, references, [t.text for t in found], tokenize)
    words = sum(len(t.text.split()) for t in found) / sum(len(line.split()) for line in references)
    print(
        f"beam {beam}, penalty {penalty:g}: BLEU {scores['bleu']['score']:.2f}, chrF {scores['chrf']['score']:.2f}, "
        f"{words:.3f} times the references' words, {seconds:.1f} s",
        flush=True,
    )
    figures = {"beam_size": beam, "length_penalty": penalty, "length_ratio": round(words, 3)}
    return figures | {"seconds": round(seconds, 1)} | scores


def _numbers(flag: str, text: str, kind: type) -> list:
    """Numbers with commas between, each once.

    Raises:
        ValueError: for what is no such list, or out of range.
    """
    try:
        numbers = sorted({kind(part) for part in text.split(",")})
    except ValueError:
        numbers = [-1]
    if numbers[0] < (1 if kind is int else 0) or numbers[-1] > 1000:
        raise ValueError(f"Expected {flag} to be numbers up to 1,000 with commas between. Received: {text!r}")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
