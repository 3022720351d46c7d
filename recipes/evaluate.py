"""Scores a run on a split: `python -m recipes.evaluate RUN [--corpus NAME|DIR] [--split test] [--beam 5]`.

Prints BLEU, chrF and TER with their sacreBLEU signatures or, for a run whose `metric` is "wer", word and phoneme error
rate, any of a word's answers being right. With `--hypotheses FILE` the lines of a file are
scored, instead of what RUN translates now. With `--against` a second system, a run or such a file, is scored
too, and sacreBLEU's paired bootstrap, of error rates McNemar's exact test, says whether it differs from the first by
more than chance.
"""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from keras_attn.cli import command
from keras_attn.cli import line_streaming as streams
from keras_attn.cli.environment import surroundings
from keras_attn.cli.search_flags import add_search, load, read_report, search
from keras_attn.cli.translate import generator, in_chunks


def main(argv=None) -> int:
    parser = command.Parser("recipes.evaluate", description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("run", metavar="RUN", type=Path, help="folder of a run, or any preset")
    option("--corpus", help="a name or a folder (default: the run's)")
    option("--source", help="language of the source side (default: the run's)")
    option("--target", help="language of the target side")
    option("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    option("--split", default="test", help="default: %(default)s")
    option("--hypotheses", metavar="FILE", type=Path, help="score these lines, not what RUN translates")
    option("--against", metavar="RUN2|FILE", type=Path, help="a second system, compared with the first")
    option("--tokenize", help="sacreBLEU's tokenizer (default: the run's, else 13a)")
    option("--output", metavar="FILE", type=Path, help="a new file for all of this, as JSON")
    add_search(parser)
    return command.run(evaluate, parser, argv)


def evaluate(arguments: argparse.Namespace) -> None:
    told = read_report(arguments.run)
    first, second = arguments.hypotheses or arguments.run, arguments.against
    if first == second:
        raise ValueError(f"Expected --against to be another system. Received: {str(second)!r} twice")
    corpus, tokenize = _corpus(arguments, told), arguments.tokenize or told["config"].get("tokenize", "13a")
    if arguments.split not in corpus.splits:
        raise ValueError(f"Expected --split among: {', '.join(corpus.splits)}. Received: {arguments.split!r}")
    sources, references = corpus.splits[arguments.split]
    metric = told["config"].get("metric", "bleu")

    from keras_attn import evaluation

    evaluation.bleu(["a"], ["a"], tokenize=tokenize)  # refuses an unknown tokenizer before minutes of translation
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(streams.new_file(arguments.output)) if arguments.output else None
        # Both are opened before either is translated: a bad one is refused while nothing is lost.
        systems = [System(path, arguments, len(sources)) for path in (first, second) if path]
        print(f"{corpus.name} {arguments.split}, {corpus.source} to {corpus.target}, {len(sources):,} sentences")
        found = {
            "corpus": corpus.name,
            "split": arguments.split,
            "source": corpus.source,
            "target": corpus.target,
            "sentences": len(sources),
            "systems": [_score(system, sources, references, metric, tokenize) for system in systems],
            **(_compare(systems, sources, references, metric, tokenize) if second else {}),
            **surroundings(),
        }
        if output:
            output.write((json.dumps(found, indent=2, ensure_ascii=False) + "\n").encode())


class System:
    """What translates, or has translated: a run, or a file with a line for each sentence.

    `texts` are its translations, once it has translated.
    """

    def __init__(self, path: Path, arguments: argparse.Namespace, sentences: int):
        self.name = str(path)
        self.texts, self.translator, self.figures = None, None, {}
        if path.is_file() or path == arguments.hypotheses:
            from keras_attn.text import read_lines

            self.texts = read_lines(path)
            if len(self.texts) != sentences:
                raise ValueError(
                    f"Expected {self.name!r} to have {sentences:,} lines, one for each sentence of the split. "
                    f"Received: {len(self.texts):,}"
                )
            return

        alone = argparse.Namespace(**vars(arguments) | {"ensemble": []})
        self.translator = load(arguments if path == arguments.run else alone, path)
        self.chosen = search(arguments, path) | {"return_alignments": False}
        self.translator.generate([], **self.chosen)  # refuses bad options

    def translate(self, sources: Sequence[str]) -> None:
        if self.texts is None:
            started = time.monotonic()
            with streams.Progress(True, len(sources)) as progress:
                numbers, sizes = range(len(sources)), [1] * len(sources)
                generate, batch_size = generator(self.translator, self.chosen), self.chosen["batch_size"]
                found = in_chunks(generate, sources, numbers, batch_size, progress, sizes)
            self.texts = [translation.text for translation in found]
            self.figures = {"search": self.chosen, "seconds": round(time.monotonic() - started, 2)}


def _score(system: System, sources, references, metric: str, tokenize: str) -> dict:
    from keras_attn.evaluation import by_metric

    system.translate(sources)
    scores = by_metric.all_scores(metric, sources, references, system.texts, tokenize)
    beam = f", beam {system.chosen['beam_size']}" if system.translator else ""
    print(f"{system.name}{beam}")
    for name, result in scores.items():
        print(f"  {name} {result['score']:.2f}  {result['signature']}")
    return {"system": system.name} | system.figures | scores


def _compare(systems: Sequence[System], sources, references, metric: str, tokenize: str) -> dict:
    from keras_attn import evaluation
    from keras_attn.evaluation import by_metric

    if metric == "wer":
        found = by_metric.mcnemar_test(sources, references, *(one.texts for one in systems))
        print(
            f"McNemar's exact test: only {systems[0].name} is right {found['only_first_right']:,} times, only "
            f"{systems[1].name} {found['only_second_right']:,} times, p = {found['p_value']:.4f}"
        )
        return {"mcnemar": found}
    print("Paired bootstrap: mean ± half of the 95 % interval, and p, the chance of so large a difference by luck")
    compared = evaluation.paired_bootstrap({one.name: one.texts for one in systems}, references, tokenize=tokenize)
    for one in compared:
        chance = "the baseline" if one.p_value is None else f"p = {one.p_value:.4f}"
        print(f"  {one.score.name} {one.mean:.2f} ± {one.half_width:.2f}  {one.system}, {chance}")
        if one.p_value is not None:
            print(f"    {one.score.signature}")
    return {"paired_bootstrap": [one.to_dict() for one in compared]}


def _corpus(arguments, told: dict):
    from recipes import corpora

    name = arguments.corpus or told["corpus"]
    if name is None:
        raise ValueError(f"Expected --corpus, for {str(arguments.run)!r} has no report.json to name one.")
    same = name == told["corpus"]
    source = arguments.source or (told["source"] if same else None)
    target = arguments.target or (told["target"] if same else None)
    return corpora.load(name, source, target, data=arguments.data)


if __name__ == "__main__":
    sys.exit(main())
