"""Scores a run with several beam sizes and length penalties: `python -m recipes.sweep RUN [--beams 1,2,5,10]`.

Prints a table and, with `--output FILE`, writes it as JSON. `python -m recipes.pages.results` puts it on the results
page if the file is `recipes/reports/sweep-<name of the run's report>.json`. A beam of one is greedy search, without
a length penalty.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path

from keras_attn.cli import command, line_streaming
from keras_attn.training import read_report, surroundings
from recipes.studies.options import numbers


def main(argv=None) -> int:
    parser = command.Parser("recipes.sweep", description=__doc__)
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run")
    parser.add_argument("--beams", default="1,2,5,10", help="default: %(default)s")
    parser.add_argument("--penalties", default="0,0.5,1,1.5", help="exponents of GNMT's norm (default: %(default)s)")
    parser.add_argument("--split", default="test", choices=("val", "test"))
    parser.add_argument("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    parser.add_argument("--output", metavar="FILE", type=Path, help="a new JSON file")
    return command.run(sweep, parser, argv)


def sweep(arguments: argparse.Namespace) -> None:
    beams = numbers("--beams", arguments.beams, int, 1, 1000)
    penalties = numbers("--penalties", arguments.penalties, float, 0, 1000)
    trained = read_report(arguments.run)
    if trained["corpus"] is None:
        raise ValueError(f"Expected a run with a report.json. There is none in {str(arguments.run)!r}.")
    if (metric := trained["config"].get("metric", "bleu")) != "bleu":
        raise ValueError(f"Expected a run scored by BLEU. The one in {str(arguments.run)!r} is scored by {metric}.")

    from keras_attn import Translator
    from keras_attn.training import corpora, starting_point

    options = {"data": arguments.data, "stream": None, "tags": trained.get("tags")}
    corpus = corpora.load(trained["corpus"], trained["source"], trained["target"], **options)
    lines = [list(side) for side in corpus.splits[arguments.split]]
    with command.quietly():
        translator = Translator.from_preset(arguments.run)
    starting_point.check_tags(corpus, translator.source_tokenizer)
    with line_streaming.new_file(arguments.output) if arguments.output else contextlib.nullcontext() as file:
        searches = [(beam, penalty) for beam in beams for penalty in (penalties if beam > 1 else [1.0])]
        shared = {"batch_size": 128, "return_alignments": False}
        rows = [_row(translator, *lines, trained["config"]["tokenize"], shared, *chosen) for chosen in searches]
        print(f"BLEU: {rows[0]['bleu']['signature']}")
        if file:
            result = {name: trained[name] for name in ("recipe", "corpus", "source", "target")}
            result |= {"split": arguments.split, "rows": rows} | surroundings()
            file.write((json.dumps(result, indent=2) + "\n").encode())


def _row(translator, sources, references, tokenize: str, shared: dict, beam: int, penalty: float) -> dict:
    from keras_attn.evaluation import by_metric
    from keras_attn.training import report

    translations, seconds = report.translate(translator, sources, beam_size=beam, length_penalty=penalty, **shared)
    scores = by_metric.all_scores("bleu", sources, references, [t.text for t in translations], tokenize)
    words = sum(len(t.text.split()) for t in translations) / sum(len(line.split()) for line in references)
    print(
        f"beam {beam}, penalty {penalty:g}: BLEU {scores['bleu']['score']:.2f}, chrF {scores['chrf']['score']:.2f}, "
        f"{words:.3f} times the references' words, {seconds:.1f} s",
        flush=True,
    )
    figures = {"beam_size": beam, "length_penalty": penalty, "length_ratio": round(words, 3)}
    return figures | {"seconds": round(seconds, 1)} | scores


if __name__ == "__main__":
    sys.exit(main())
