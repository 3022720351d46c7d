"""Alignment error rate against gold links, for which section 5.2.1 of Bahdanau 2015 has only pictures.

    python -m recipes.studies.alignment --data DATA                # the gold in DATA/word-align or DATA/data/word-align

Trains RNNsearch, Luong's global attention (general score) with a unidirectional and a bidirectional encoder, Luong's
local-p, and the Transformer on English and French text that is tokenized as the gold is (`recipes.corpora.hansards`),
with the same tokenizers, sizes within 5 % of each other, and as many updates. Each then scores the gold sentences with
their translations (`Translator.score`), its alignments are merged from pieces into words, and each French word is
linked to the English word with the largest weight, or to none if that is the end of the sentence. Error rates are
those of `keras_attn.evaluation.alignment_error_rate`. The baselines are the diagonal and IBM Model 1
(`keras_attn.evaluation.Model1`), trained on the same pairs, once without and once with the gold's sentences (not its
links) added, as is customary for aligners.

In all of these models row t of an alignment belongs to the prediction of word t. Its query is, with attention before
the cell (Bahdanau), the state s_{t-1}; after the cell (Luong), s_t, computed from word t-1 and not word t; in the
Transformer, the position of word t-1. So a row may align the word that is predicted or the one that was just read. A
word's own row and the next one are both scored, and every layer of the Transformer. The choice among them is made on
the first sentences of the gold, the development part; the error rates are those of the other sentences.

Results (`recipes/README.md`): all are worse than IBM Model 1, which was made for this task, and RNNsearch is worse than
the diagonal too, although its BLEU is about that of Luong's models. Its bidirectional encoder is not the reason: with
such an encoder Luong's model is the best of the five (42.0, against 44.8 with a unidirectional one). What remains are
the additive score, GRUs instead of LSTMs, and, most likely, the order: RNNsearch's s_{t-1} is computed without word
t-1, so that it must guess how much of the sentence is translated, and spreads its weight; Luong's s_t and the
Transformer know that word.
"""

import argparse
import sys
from collections.abc import Sequence, Set
from pathlib import Path

from keras_attn import files
from keras_attn.cli import command
from recipes.studies.study import Run, Study, add_options, changes_by_recipe

CORPUS = "tatoeba-en-fr+news-en-fr"
MAX_STEPS = 4800
DEVELOPMENT = 47  # of 447 sentences
LINES = 500  # kept of each corpus' val and test split, which only select an epoch and measure BLEU
ITERATIONS = 5  # of EM
_SHARED = (
    "source_vocabulary_size=4000",
    "target_vocabulary_size=4000",
    "batch_size=96",
    "max_tokens=60",
    "ema_decay=0.998",
    "curriculum_epochs=1",
)
_RECURRENT = (
    "embedding_dropout=0.2",
    "memory_dropout=0.1",
    "output_dropout=0.2",
    "warmup_steps=200",
    "scale_embeddings=true",  # as in the Transformer
)
_RNNSEARCH = ("units=192", "attention_units=192", "decoder_units=256", "embedding_size=192", "readout_size=192")
_LUONG = ("embedding_size=192", "readout_size=192", "layer_dropout=0.1")
_TRANSFORMER = ("units=176", "num_layers=3", "feed_forward_units=192", "dropout=0.1")
SYSTEMS = {
    "rnnsearch": ("rnnsearch", (*_RNNSEARCH, *_RECURRENT)),
    "luong-general": ("luong", ("units=190", *_LUONG, *_RECURRENT)),
    "luong-local-p": ("luong", ("units=190", *_LUONG, *_RECURRENT, "attention=local_p")),
    "luong-both-ways": ("luong", ("units=202", *_LUONG, *_RECURRENT, "bidirectional=true")),
    "transformer": ("transformer", _TRANSFORMER),
}


def main(argv=None) -> int:
    parser = command.Parser("recipes.studies.alignment", description=__doc__.splitlines()[0])
    add_options(parser, CORPUS)
    parser.add_argument("--gold", type=Path, help="folder of enfr.gold.gz and enfr.src-tgt.gz (default: see --data)")
    parser.add_argument("--development", type=int, default=DEVELOPMENT, help="sentences (default: %(default)s)")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    if (arguments.source or "en", arguments.target or "fr") != ("en", "fr"):
        raise ValueError("Expected English to French, the languages of the gold.")
    arguments.source, arguments.target = "en", "fr"
    changes = changes_by_recipe(arguments, *{recipe for recipe, _ in SYSTEMS.values()})
    max_steps = arguments.max_steps or MAX_STEPS
    runs = [
        Run(name, recipe, (f"max_steps={max_steps}", *_SHARED, *own, *changes[recipe]))
        for name, (recipe, own) in SYSTEMS.items()
    ]

    from recipes import corpora
    from recipes.corpora import hansards

    gold = hansards.read_gold(arguments.gold or _gold_folder(arguments.data))
    if not 0 < arguments.development < len(gold.links):
        raise ValueError(f"Expected --development from 1 to {len(gold.links) - 1}. Received: {arguments.development}")
    with Study(
        arguments, "alignment_study", runs, max_steps=max_steps, development=arguments.development
    ).opened() as study:
        text = study.out / "text"
        if not text.exists():
            _write_text(corpora.load(arguments.corpus, "en", "fr", data=arguments.data), text)
        arguments.corpus = str(text)  # the text that the runs are trained on
        corpus = corpora.load(text, "en", "fr")
        if len(study.reports()) < len(runs):
            study.check_sizes(corpus, runs)
        study.work({run.name: [study.train_step(run)] for run in runs})
        write(study, corpus, gold)


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
    """Writes the corpus, tokenized as the gold is, as a corpus of its own, in the same order."""
    from recipes.corpora import hansards

    with files.staging(folder.parent) as temporary:
        new = temporary / "text"
        new.mkdir()
        for split, sides in corpus.splits.items():
            pairs = zip(map(hansards.english, sides[0]), map(hansards.french, sides[1]), strict=True)
            pairs = [pair for pair in pairs if all(pair)]
            if split != "train":
                # From both ends, so that both of two joined corpora are represented.
                pairs = pairs if len(pairs) <= 2 * LINES else [*pairs[:LINES], *pairs[-LINES:]]
            for language, lines in zip(("en", "fr"), zip(*pairs, strict=True), strict=True):
                (new / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        files.publish(new, folder)


def write(study: Study, corpus, gold) -> None:
    """Writes `report.json` and `alignment.svg`, and `examples.svg`, which has the gold's text and is not published.

    In addition to what every study's report has, this one has the numbers of sentences and links of the gold, and two
    lists, "baselines" and "systems". An entry of either has AER, precision and recall on the sentences after the
    development part ("test") and on all of them ("all"); a system also has its "attention" and "row", and "candidates",
    all choices of these two with their AER on the development part, by which the best was selected.
    """
    from recipes.studies import figures

    scorer = _Scorer(gold.links, study.arguments.development)
    baselines = _baselines(corpus, gold, scorer)
    systems, alignments = [], []
    for run in study.runs:
        row, panels = _system(study, run, gold, scorer)
        systems.append(row)
        alignments.append((run.name, panels))
    counts = {"sentences": len(gold.links), "development": study.arguments.development}
    counts |= {name: sum(len(getattr(one, name)) for one in gold.links) for name in ("sure", "possible")}
    report = study.write_report(
        corpus=study.settings["corpus"],
        gold=counts,
        training_pairs=len(corpus.splits["train"][0]),
        baselines=baselines,
        systems=systems,
    )
    figures.alignment(report, study.out / "alignment.svg")
    chosen = _crossing(gold, study.arguments.development)
    rows = [(name, [panels[n] for n in chosen]) for name, panels in alignments]
    figures.gold_alignments(rows, [gold.links[n] for n in chosen], study.out / "examples.svg")
    for row in [*baselines, *systems]:
        rates = ", ".join(f"{name} {row['test'][name]:.2f}" for name in ("aer", "precision", "recall"))
        print(f"{row['name']:>28}  {rates}")
    print(f"The study is in {study.out}: report.json, alignment.svg and examples.svg.")


class _Scorer:
    """Scores links: by AER on the development part, by AER, precision and recall on the others and on all."""

    def __init__(self, gold: Sequence, development: int):
        self.gold, self.development = gold, development

    def __call__(self, links: Sequence[Set]) -> dict:
        from keras_attn.evaluation import alignment_error_rate

        n = self.development
        parts = {"development": slice(n), "test": slice(n, None), "all": slice(None)}
        scores = {name: alignment_error_rate(links[part], self.gold[part]).to_dict() for name, part in parts.items()}
        rounded = {name: {key: round(value, 2) for key, value in one.items()} for name, one in scores.items()}
        return rounded | {"development": rounded["development"]["aer"]}


def _system(study: Study, run: Run, gold, scorer: _Scorer) -> tuple[dict, list]:
    """A system's entry in the report, and its alignments with the attention and row selected."""
    from keras_attn import Translator
    from recipes.studies import attention_links

    with command.quietly():
        translator = Translator.from_preset(study.folder(run))
    panels = attention_links.candidates(translator, gold.sources, gold.targets)
    scores = {key: scorer(list(map(attention_links.links, many))) for key, many in panels.items()}
    best = min(scores, key=lambda key: scores[key]["development"])
    candidates = [{"attention": key[0], "row": key[1]} | one for key, one in scores.items()]
    names = "recipe parameters updates epochs train_seconds target_tokens_per_second bleu command"
    trained = study.reports()[run.name]
    system = {"name": run.name} | {name: trained[name] for name in names.split()}
    system |= {"attention": best[0], "row": best[1]} | scores[best]
    return system | {"candidates": candidates}, panels[best]


def _baselines(corpus, gold, scorer: _Scorer) -> list[dict]:
    from keras_attn.evaluation import Model1
    from recipes import corpora
    from recipes.studies import attention_links

    pairs = list(zip(gold.sources, gold.targets, strict=True))
    baselines = [{"name": "diagonal"} | scorer([attention_links.diagonal(*pair) for pair in pairs])]
    sources, targets = corpora.pairs_up_to(60, corpus.splits["train"])
    for name, more in (("IBM Model 1", ([], [])), ("IBM Model 1, gold text added", (gold.sources, gold.targets))):
        model = Model1([*sources, *more[0]], [*targets, *more[1]], iterations=ITERATIONS)
        links = [model.links(*pair) for pair in pairs]
        baselines.append({"name": name, "iterations": ITERATIONS} | scorer(links))
    return baselines


def _crossing(gold, first: int, count: int = 2) -> list[int]:
    """The sentences of moderate length, from number `first` on, with the most pairs of sure links that cross."""

    def crossings(number: int) -> int:
        links = sorted(gold.links[number].sure)
        return sum(a[0] < b[0] and a[1] > b[1] for n, a in enumerate(links) for b in links[n + 1 :])

    lengths = [(len(s.split()), len(t.split())) for s, t in zip(gold.sources, gold.targets, strict=True)]
    moderate = [n for n in range(first, len(lengths)) if all(6 <= length <= 14 for length in lengths[n])]
    return sorted(moderate or range(first, len(lengths)), key=lambda n: (-crossings(n), n))[:count]


if __name__ == "__main__":
    sys.exit(main())
