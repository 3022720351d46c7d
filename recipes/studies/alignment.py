"""Alignment error rate against gold links, for which section 5.2.1 of Bahdanau 2015 has only pictures.

    python -m recipes.studies.alignment --data DATA                 # the gold in DATA/word-align or DATA/data/word-align

Trains RNNsearch, Luong's global attention (general score) with an encoder of one direction and of both, his local-p,
and the Transformer on English and French text cut into words as that of the gold is (`recipes.corpora.hansards`), all with one
pair of tokenizers, sizes within 5 % of each other, and equally many updates. Each is then given the gold sentences with
their translations (`Translator.score`), its alignments are merged from pieces into words, and each French word is
linked to the English word that it attends to most, or to none where that is the end of the sentence. Error rates are
those of `keras_attn.evaluation.alignment_error_rate`; beside them stand the diagonal and IBM Model 1 (`recipes.studies.ibm1`), trained on the same pairs,
once without and once with the gold's sentences (not its links) added, as is customary for aligners.

Row t of an alignment is how the model looked back when it wrote word t, in all of these models: with attention before
the cell (Bahdanau) from the state s_{t-1}, after it (Luong) from s_t, which has read word t-1 and not word t, and in
the Transformer from the place that has read word t-1. So a row may tell of the word that is to come or of the one just
read. A word's own row and the next one are both scored, and every layer of the Transformer. Which of them a system is
judged by is chosen on the first sentences of the gold, its development part; the error rates are those of the others.

Measured (`recipes/README.md`): all are worse than IBM Model 1, whose one task this is, and RNNsearch is worse than the
diagonal too, though it translates as well as Luong's. That its encoder reads both ways is not the reason: with such an
encoder Luong's model is the best of the five (42.0, for 44.8 with one direction). What is left are the additive score,
GRUs for LSTMs, and, the likely one, the order: RNNsearch's s_{t-1} has not read word t-1, so that it has to guess where
the sentence has got to, and spreads its weight; Luong's s_t and the Transformer know that word.
"""

import argparse
import os
import sys
from collections.abc import Sequence, Set
from pathlib import Path

from keras_attn.cli import command
from recipes.studies import study as studies
from recipes.studies.study import Run, Study

CORPUS = "tatoeba-en-fr+news-en-fr"
UPDATES = 4800
DEVELOPMENT = 47  # of 447 sentences
LINES = 500  # of each corpus' val and test split that are kept: they only choose an epoch and tell the BLEU
ITERATIONS = 5  # of EM
_SHARED = (
    "source_vocabulary_size=4000",
    "target_vocabulary_size=4000",
    "batch_size=96",
    "longest=60",
    "average_decay=0.998",
    "curriculum_epochs=1",
)
_RECURRENT = (
    "embedding_dropout=0.2",
    "memory_dropout=0.1",
    "output_dropout=0.2",
    "warmup_steps=200",
    "scale_embeddings=true",  # as the Transformer's are
)
_RNNSEARCH = ("units=192", "attention_units=192", "decoder_units=256", "embedding_size=192", "readout_size=192")
_LUONG = ("embedding_size=192", "readout_size=192", "layer_dropout=0.1")
_TRANSFORMER = ("units=176", "num_layers=3", "feed_forward_units=192", "dropout=0.1")
SYSTEMS = {
    "rnnsearch": ("rnnsearch", (*_RNNSEARCH, *_RECURRENT)),
    "luong-general": ("luong", ("units=190", *_LUONG, *_RECURRENT)),
    "luong-local-p": ("luong", ("units=190", *_LUONG, *_RECURRENT, "local=p")),
    "luong-both-ways": ("luong", ("units=202", *_LUONG, *_RECURRENT, "bidirectional=true")),
    "transformer": ("transformer", _TRANSFORMER),
}


def main(argv=None) -> int:
    parser = command.Parser("recipes.studies.alignment", description=__doc__.splitlines()[0])
    studies.add_options(parser, CORPUS)
    parser.add_argument("--gold", type=Path, help="folder of enfr.gold.gz and enfr.src-tgt.gz (default: see --data)")
    parser.add_argument("--development", type=int, default=DEVELOPMENT, help="sentences (default: %(default)s)")
    return command.run(study, parser, argv)


def study(arguments: argparse.Namespace) -> None:
    if (arguments.source or "en", arguments.target or "fr") != ("en", "fr"):
        raise ValueError("Expected English to French: the gold has no other languages.")
    arguments.source, arguments.target = "en", "fr"
    changes = studies.changes(arguments, *{recipe for recipe, _ in SYSTEMS.values()})
    updates = arguments.updates or UPDATES
    runs = [
        Run(name, recipe, (f"updates={updates}", *_SHARED, *own, *changes[recipe]))
        for name, (recipe, own) in SYSTEMS.items()
    ]

    from recipes import corpora
    from recipes.corpora import hansards

    gold = hansards.read_gold(arguments.gold or _gold_folder(arguments.data))
    if not 0 < arguments.development < len(gold.links):
        raise ValueError(f"Expected --development from 1 to {len(gold.links) - 1}. Received: {arguments.development}")
    with Study(arguments, "alignment_study", runs, updates=updates, development=arguments.development).opened() as held:
        text = held.out / "text"
        if not text.exists():
            _write_text(corpora.load(arguments.corpus, "en", "fr", data=arguments.data), text)
        arguments.corpus = str(text)  # what the runs are trained on
        corpus = corpora.load(text, "en", "fr")
        if len(held.reports()) < len(runs):
            held.check_sizes(corpus, runs)
        held.work({run.name: [held.train_step(run)] for run in runs})
        write(held, corpus, gold)


def _gold_folder(data: str | None) -> Path:
    from recipes import corpora

    folder = corpora.find("word-align", data)
    if folder is None:
        raise FileNotFoundError(
            "Expected --gold, the folder of enfr.gold.gz and enfr.src-tgt.gz (github.com/neulab/awesome-align, "
            "examples), or a folder word-align below --data or $KERAS_ATTN_DATA. Their licence is not stated, "
            "so they are not downloaded."
        )
    return folder


def _write_text(corpus, folder: Path) -> None:
    """The corpus cut into words as the gold is, as a corpus of its own; a part's order is kept."""
    from recipes.corpora import hansards

    partial = folder.with_name(".tmp-text")
    partial.mkdir(exist_ok=True)
    for split, sides in corpus.splits.items():
        pairs = zip(map(hansards.english, sides[0]), map(hansards.french, sides[1]), strict=True)
        pairs = [pair for pair in pairs if all(pair)]
        if split != "train":
            # From both ends, so that of two corpora joined both are there.
            pairs = pairs if len(pairs) <= 2 * LINES else [*pairs[:LINES], *pairs[-LINES:]]
        for language, lines in zip(("en", "fr"), zip(*pairs, strict=True), strict=True):
            (partial / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.replace(partial, folder)


def write(held: Study, corpus, gold) -> None:
    """Writes `report.json` and `alignment.svg`, and, not to be published with the gold's text, `examples.svg`.

    The report has, beside what every study's has, the numbers of sentences and links of the gold, and two lists,
    "baselines" and "systems". An entry of either has "test" and "all", AER, precision and recall on the sentences after
    the development part and on all; a system also its "attention" and "row" and every "candidate" among these, with
    the AER of its development part, by which it was chosen.
    """
    from recipes.studies import figures

    scored = _Scored(gold.links, held.arguments.development)
    baselines = _baselines(corpus, gold, scored)
    systems, drawn = [], []
    for run in held.runs:
        row, panels = _system(held, run, gold, scored)
        systems.append(row)
        drawn.append((run.name, panels))
    counts = {"sentences": len(gold.links), "development": held.arguments.development}
    counts |= {name: sum(len(getattr(one, name)) for one in gold.links) for name in ("sure", "possible")}
    found = held.write_report(
        corpus=held.settings["corpus"],
        gold=counts,
        training_pairs=len(corpus.splits["train"][0]),
        baselines=baselines,
        systems=systems,
    )
    figures.alignment(found, held.out / "alignment.svg")
    chosen = _crossing(gold, held.arguments.development)
    rows = [(name, [panels[n] for n in chosen]) for name, panels in drawn]
    figures.gold_alignments(rows, [gold.links[n] for n in chosen], held.out / "examples.svg")
    for row in [*baselines, *systems]:
        rates = ", ".join(f"{name} {row['test'][name]:.2f}" for name in ("aer", "precision", "recall"))
        print(f"{row['name']:>28}  {rates}")
    print(f"The study is in {held.out}: report.json, alignment.svg and examples.svg.")


class _Scored:
    """Scores of links: AER alone on the development part, all on the rest and on the whole."""

    def __init__(self, gold: Sequence, development: int):
        self.gold, self.development = gold, development

    def __call__(self, links: Sequence[Set]) -> dict:
        from keras_attn.evaluation import alignment_error_rate

        n = self.development
        parts = {"development": slice(n), "test": slice(n, None), "all": slice(None)}
        found = {name: alignment_error_rate(links[part], self.gold[part]).to_dict() for name, part in parts.items()}
        rounded = {name: {key: round(value, 2) for key, value in one.items()} for name, one in found.items()}
        return rounded | {"development": rounded["development"]["aer"]}


def _system(held: Study, run: Run, gold, scored: _Scored) -> tuple[dict, list]:
    """A system's entry in the report, and its panels in the way that it is judged by."""
    from keras_attn.translator import Translator
    from recipes.studies import attention_links as linking

    with command.quietly():
        translator = Translator.from_preset(held.folder(run))
    panels = linking.candidates(translator, gold.sources, gold.targets)
    found = {key: scored(list(map(linking.links, many))) for key, many in panels.items()}
    best = min(found, key=lambda key: found[key]["development"])
    candidates = [{"attention": key[0], "row": key[1]} | one for key, one in found.items()]
    names = "recipe parameters updates epochs train_seconds target_tokens_per_second bleu command"
    trained = held.reports()[run.name]
    told = {"name": run.name} | {name: trained[name] for name in names.split()}
    told |= {"attention": best[0], "row": best[1]} | found[best]
    return told | {"candidates": candidates}, panels[best]


def _baselines(corpus, gold, scored: _Scored) -> list[dict]:
    from recipes import corpora
    from recipes.studies import attention_links as linking
    from recipes.studies import ibm1

    pairs = list(zip(gold.sources, gold.targets, strict=True))
    found = [{"name": "diagonal"} | scored([linking.diagonal(*pair) for pair in pairs])]
    sources, targets = corpora.of_at_most(60, corpus.splits["train"])
    for name, more in (("IBM Model 1", ([], [])), ("IBM Model 1, gold text added", (gold.sources, gold.targets))):
        model = ibm1.Model1([*sources, *more[0]], [*targets, *more[1]], iterations=ITERATIONS)
        links = [model.links(*pair) for pair in pairs]
        found.append({"name": name, "iterations": ITERATIONS} | scored(links))
    return found


def _crossing(gold, first: int, count: int = 2) -> list[int]:
    """The sentences of moderate length, after the first ones, with the most pairs of sure links that cross."""

    def crossings(number: int) -> int:
        links = sorted(gold.links[number].sure)
        return sum(a[0] < b[0] and a[1] > b[1] for n, a in enumerate(links) for b in links[n + 1 :])

    lengths = [(len(s.split()), len(t.split())) for s, t in zip(gold.sources, gold.targets, strict=True)]
    moderate = [n for n in range(first, len(lengths)) if all(6 <= length <= 14 for length in lengths[n])]
    return sorted(moderate or range(first, len(lengths)), key=lambda n: (-crossings(n), n))[:count]


def section(name: str, report: dict) -> list[str]:
    """What the results page says of the study, in Markdown; its report and figure are `reports/<name>.json`, `.svg`."""
    gold, hardware = report["gold"], report["hardware"]
    rows = []
    for row in sorted([*report["baselines"], *report["systems"]], key=lambda row: row["test"]["aer"]):
        is_system = "attention" in row
        test = " | ".join(f"{row['test'][key]:.2f}" for key in ("aer", "precision", "recall"))
        where = f"{row['attention']}, {row['row']} row" if is_system else ""
        bleu = f"{row['bleu']['score']:.2f}" if is_system else ""
        rows.append(f"\n| {row['name']} | {where} | {test} | {row['all']['aer']:.2f} | {bleu} |")
    others = [
        f"{system['name']}: "
        + ", ".join(f"{one['attention']}, {one['row']} row {one['test']['aer']:.1f}" for one in system["candidates"])
        for system in report["systems"]
    ]
    return [
        f"Links of the Hansards (NAACL 2003): {gold['sure']:,} sure and {gold['possible']:,} possible ones, the sure "
        f"included, in {gold['sentences']} sentences. The first {gold['development']} chose each system's attention, "
        "and whether a word has its own row, that of writing it, or the next, which has read it. AER (Och & Ney 2003, "
        "section 5), precision and recall are of the other sentences. Trained on "
        f"{report['training_pairs']:,} pairs, {report['systems'][0]['updates']:,} updates each, "
        f"{report['minutes']:.0f} minutes in all, {report['jobs']} side by side on {hardware['cores']} cores; IBM "
        "Model 1 on the same pairs, and with the gold's sentences, not its links, added.",
        f"![Alignment error rates](reports/{name}.svg)",
        f"| aligner | links from | AER | precision | recall | AER of all | BLEU |\n|{' --- |' * 7}" + "".join(rows),
        f"AER of every choice: {'; '.join(others)}.",
    ]


if __name__ == "__main__":
    sys.exit(main())
