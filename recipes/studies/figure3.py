"""Figure 3 of Bahdanau, Cho, Bengio (ICLR 2015): the alignments of its four sentences, by a run of the alignment study.

    python -m recipes.studies.figure3 runs/alignment_study-tatoeba-en-fr+news-en-fr/nematus
    python -m recipes.studies.figure3 RUN --row next-word        # of nematus-aligner, whose rows are of the last word
    python -m recipes.studies.figure3 RUN --own-translations     # instead of those that the paper's figure has

Draws the heat maps with English at the top and French on the left, 0 black and 1 white, as the paper does, and writes
`figure3.svg` into the run's folder. The sentences are tokenized as the study's text is (`recipes.studies.hansards`).
"""

import argparse
import sys
from pathlib import Path

from keras_attn.cli import command
from keras_attn.training import read_report

SENTENCES = (  # source, and the translation by RNNsearch-50 in the paper's figure
    (
        "The agreement on the European Economic Area was signed in August 1992.",
        "L'accord sur la zone économique européenne a été signé en août 1992.",
    ),
    (
        "It should be noted that the marine environment is the least known of environments.",
        "Il convient de noter que l'environnement marin est le moins connu de l'environnement.",
    ),
    (
        "Destruction of the equipment means that Syria can no longer produce new chemical weapons.",
        "La destruction de l'équipement signifie que la Syrie ne peut plus produire de nouvelles armes chimiques.",
    ),
    (
        '"This will change my future with my family," the man said.',
        '"Cela va changer mon avenir avec ma famille", a dit l\'homme.',
    ),
)


def main(argv=None) -> int:
    parser = command.Parser("recipes.studies.figure3", description=__doc__)
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run from English to French")
    parser.add_argument("--row", default="own", choices=("own", "next", "next-word"), help="default: %(default)s")
    parser.add_argument("--own-translations", action="store_true", help="of the run, with a beam of 5")
    parser.add_argument("--output", type=Path, metavar="FILE", help=".svg, .png or .pdf (default: RUN/figure3.svg)")
    return command.run(draw, parser, argv)


def draw(arguments: argparse.Namespace) -> None:
    from keras_attn import Translator, plots
    from keras_attn.plots.plot_style import check_ending
    from recipes.studies import aligners, hansards

    path = arguments.output or arguments.run / "figure3.svg"
    check_ending(path)
    if arguments.output and path.exists():
        raise FileExistsError(f"Expected {str(path)!r} to be a new file.")
    trained = read_report(arguments.run)
    if (trained["source"], trained["target"]) != ("en", "fr"):
        received = f"{trained['source']} to {trained['target']}" if trained["source"] else "no report.json"
        raise ValueError(f"Expected RUN to be a run from en to fr. {str(arguments.run)!r} has {received}.")
    with command.quietly():
        translator = Translator.from_preset(arguments.run)
    translator.model.check_attention()
    sources, targets = zip(*SENTENCES, strict=True)
    sources, targets = list(map(hansards.english, sources)), list(map(hansards.french, targets))
    if arguments.own_translations:
        targets = [one.text for one in translator.generate(sources, beam_size=5)]
    panels = aligners.candidates(translator, sources, targets)["all", arguments.row]
    plots.alignments(panels, path=path)
    print(f"The figure is in {path}.")


if __name__ == "__main__":
    sys.exit(main())
