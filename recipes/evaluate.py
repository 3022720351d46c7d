"""Scores a run on a split: `python -m recipes.evaluate RUN [--corpus NAME|DIR] [--split test] [--beam 5]`.

Prints BLEU, chrF and TER with their sacreBLEU signatures. With `--against RUN2` both runs translate the
split, and a paired bootstrap says whether the second differs from the first by more than chance.
"""

import argparse
import json
import sys
from pathlib import Path

from recipes import command
from recipes.translate import length_penalty


def main(argv=None) -> int:
    parser = command.Parser("recipes.evaluate", description=__doc__.splitlines()[0])
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run, or any preset")
    parser.add_argument("--corpus", help="a name or a folder (default: the run's)")
    parser.add_argument("--source", help="language of the source side (default: the run's)")
    parser.add_argument("--target", help="language of the target side")
    parser.add_argument("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    parser.add_argument("--split", default="test", help="default: %(default)s")
    parser.add_argument("--beam", type=int, default=5, help="beam size; 1 is greedy (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences at once (default: %(default)s)")
    parser.add_argument("--length-penalty", type=float, help="default: the run's")
    parser.add_argument("--against", metavar="RUN2", type=Path, help="a second run, compared with the first")
    parser.add_argument("--tokenize", help="sacreBLEU's tokenizer (default: the run's, else 13a)")
    return command.run(evaluate, parser, argv)


def evaluate(arguments: argparse.Namespace) -> None:
    from keras_attn.translator import Translator

    told = _report(arguments.run)
    runs = [arguments.run, *([arguments.against] if arguments.against else [])]
    translators = {run: Translator.from_preset(run) for run in runs}
    corpus, tokenize = _corpus(arguments, told), arguments.tokenize or told["config"]["tokenize"]
    if arguments.split not in corpus.splits:
        raise ValueError(f"Expected --split among: {', '.join(corpus.splits)}. Received: {arguments.split!r}")
    sources, references = corpus.splits[arguments.split]

    from recipes import report

    systems = {str(run): _translate(translators[run], run, sources, arguments) for run in runs}
    for name, texts in systems.items():
        print(f"{name}: {corpus.name} {arguments.split}, {len(sources):,} sentences, beam {arguments.beam}")
        for metric, result in report.scores(texts, references, tokenize).items():
            print(f"  {metric} {result['score']:.2f}  {result['signature']}")
    if arguments.against:
        _compare(systems, references, tokenize)


def _compare(systems: dict[str, list[str]], references, tokenize: str) -> None:
    from keras_attn import metrics

    print("Paired bootstrap, 1,000 samples; the mean, half of its 95 % interval, and p against the first:")
    for one in metrics.paired_bootstrap(systems, references, tokenize=tokenize):
        chance = "" if one.p_value is None else f"  p = {one.p_value:.4f}"
        print(f"  {one.score.name} {one.mean:.2f} ± {one.half_width:.2f}  {one.system}{chance}")


def _translate(translator, run: Path, sources, arguments) -> list[str]:
    found = translator.generate(
        sources,
        beam_size=arguments.beam,
        batch_size=arguments.batch_size,
        length_penalty=length_penalty(run, arguments.length_penalty),
        return_alignments=False,
    )
    return [translation.text for translation in found]


def _report(run: Path) -> dict:
    """The run's report; a preset without one says nothing about its corpus."""
    path = run / "report.json"
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    return {"corpus": None, "source": None, "target": None, "config": {"tokenize": "13a"}}


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
