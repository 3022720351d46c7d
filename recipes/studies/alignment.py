"""Alignment error rate against gold links, for which section 5.2.1 of Bahdanau 2015 has only pictures.

    python -m recipes.studies.alignment --data DATA                # the gold in DATA/word-align or DATA/data/word-align

Trains RNNsearch, Luong's global attention (general score) with a unidirectional and a bidirectional encoder, Luong's
local-p, the Transformer and the conditional GRU of Nematus on English and French text that is tokenized as the gold is
(`recipes.studies.hansards`), with the same tokenizers, sizes within 5 % of each other, and as many updates. Each then
scores the gold sentences with their translations (`Translator.score`), its alignments are merged from pieces into
words, and each French word is linked to the English word with the largest weight, or to none if that is the end of the
sentence. Error rates are those of `keras_attn.evaluation.alignment_error_rate`.

Three more systems are Nematus with guided alignment (Chen et al. 2016): by the links of IBM Model 1, by those of
eflomal, and as an aligner only: eflomal's links of a word train the row after it, which has read the word, so that
attention serves the word before and not the prediction (`shift_alignment`). eflomal is optional: `pip install eflomal`.

The baselines are the diagonal; IBM Model 1 (`keras_attn.evaluation.Model1`), trained on the same pairs, once without
and once with the gold's sentences (not its links) added, as is customary for aligners; and eflomal with these added.
Links of both directions are symmetrised by intersection and by grow-diag-final-and: those of the baselines, and with
`--both-ways` those of systems, which are then trained from French to English too.

    --systems nematus,nematus-aligner              # these only; others can be added later
    --both-ways nematus-aligner                    # some of them in both directions
    --earlier REPORT.json                          # the rows of an earlier report, for the systems not named
    --systems none --earlier REPORT.json           # the baselines alone are computed again

In all of these models row t of an alignment belongs to the prediction of word t. Its query is, with attention before
the cell (Bahdanau), the state s_{t-1}; after the cell (Luong), s_t, computed from word t-1 and not word t; in the
Transformer, the position of word t-1. So a row may align the word that is predicted or the one that was just read. A
word's own row, the next one, and that of the next word are all scored, and every layer of the Transformer. The choice
among them is made on the first sentences of the gold, the development part; the error rates are those of the other
sentences.

Results (`recipes/README.md`), first without guidance: all are worse than IBM Model 1, which was made for this task, and
RNNsearch (59.2) is worse than the diagonal too, although its BLEU is about that of Luong's models. Its bidirectional
encoder is not the reason: with such an encoder Luong's model is the best of them (42.0, against 44.8 with a
unidirectional one). It is the order: RNNsearch's s_{t-1} is computed without word t-1, so that it must guess how much
of the sentence is translated, and spreads its weight. The conditional GRU, which has read that word and shares the
additive score and the bidirectional GRU, had 43.3; with normalised layers it has 40.9, and together with one from
French to English (46.0) 37.9 by grow-diag-final-and.

No order knows word t when it predicts it. The aligner does, and its links train it: 16.6. Without normalised layers,
and without the end of the source for words that have no links, it had 23.3: it linked every word. Its guided row after
the last word, the one of the end of the sentence, matters too: without it, and with half the weight, 28.1, for it found
4 % of the links of last words and 81 % of the others. From French to English 19.0, the intersection of both 14.6,
eflomal's 8.1. After 1,500 updates it has 40.7, with a weight of 10 instead of 2 43.4.
"""

import argparse
import sys
from pathlib import Path

from keras_attn.cli import command
from recipes.studies.options import changes_by_recipe, chosen, folder_of, study_parser
from recipes.studies.study import Run, Study, merge_earlier, read_earlier, write_corpus

CORPUS = "tatoeba-en-fr+news-en-fr"
MAX_STEPS = 4800
DEVELOPMENT = 47  # of 447 sentences
LINES = 500  # kept of each corpus' val and test split, which only select an epoch and measure BLEU
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
_NEMATUS = ("units=200", "attention_units=192", "embedding_size=192", "layer_normalization=true", *_RECURRENT)
_GUIDED = (*_NEMATUS, "guided_alignment=0.5")
_TRANSFORMER = ("units=176", "num_layers=3", "feed_forward_units=192", "dropout=0.1")
SYSTEMS = {
    "rnnsearch": ("rnnsearch", (*_RNNSEARCH, *_RECURRENT)),
    "luong-general": ("luong", ("units=190", *_LUONG, *_RECURRENT)),
    "luong-local-p": ("luong", ("units=190", *_LUONG, *_RECURRENT, "attention=local_p")),
    "luong-both-ways": ("luong", ("units=202", *_LUONG, *_RECURRENT, "bidirectional=true")),
    "transformer": ("transformer", _TRANSFORMER),
    "nematus": ("nematus", _NEMATUS),
    "nematus-guided-by-model-1": ("nematus", _GUIDED),
    "nematus-guided-by-eflomal": ("nematus", _GUIDED),
    "nematus-aligner": ("nematus", (*_NEMATUS, "guided_alignment=2.0", "shift_alignment=true")),
}
EFLOMAL = "nematus-guided-by-eflomal", "nematus-aligner"  # whose links guide them
GUIDED = "recipes.studies.guided_nematus"  # the recipe of these
NONE, BACKWARD = "none", "-backward"


def main(argv=None) -> int:
    parser = study_parser("alignment", __doc__, CORPUS)
    parser.add_argument("--gold", type=Path, help="folder of enfr.gold.gz and enfr.src-tgt.gz (default: see --data)")
    parser.add_argument("--development", type=int, default=DEVELOPMENT, help="sentences (default: %(default)s)")
    parser.add_argument("--systems", metavar="NAME,...", help=f"or {NONE} (default: {','.join(SYSTEMS)})")
    parser.add_argument("--both-ways", metavar="NAME,...", help="systems trained from French to English too")
    parser.add_argument("--earlier", type=Path, metavar="REPORT", help="report.json that has the other systems' rows")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    if (arguments.source or "en", arguments.target or "fr") != ("en", "fr"):
        raise ValueError("Expected English to French, the languages of the gold.")
    arguments.source, arguments.target = "en", "fr"
    max_steps = arguments.max_steps or MAX_STEPS
    out = folder_of(arguments, "alignment_study")
    runs = _runs(arguments, max_steps, out)

    from keras_attn.training import corpora
    from recipes.studies import aligners, hansards

    gold = hansards.read_gold(arguments.gold or _gold_folder(arguments.data))
    if not 0 < arguments.development < len(gold.links):
        raise ValueError(f"Expected --development from 1 to {len(gold.links) - 1}. Received: {arguments.development}")
    if is_guided := any(run.name in EFLOMAL for run in runs):
        aligners.check_eflomal(out)
    study = Study(arguments, "alignment_study", runs, max_steps=max_steps, development=arguments.development)
    settings = study.settings | {"gold": _counts(gold, arguments.development)}
    earlier = read_earlier(arguments, settings, ("baselines", "systems"))
    with study.opened():
        text = study.out / "text"
        if not text.exists():
            _write_text(corpora.load(arguments.corpus, "en", "fr", data=arguments.data), text)
        arguments.corpus = str(text)  # the text that the runs are trained on
        corpus = corpora.load(text, "en", "fr")
        if len(study.reports()) < len(runs):
            sizes = {row["name"]: row["parameters"] for row in earlier["systems"] if "parameters" in row}
            study.check_sizes(corpus, [run for run in runs if not run.name.endswith(BACKWARD)], earlier=sizes)
        if is_guided:
            aligners.eflomal(study.out, corpus, gold)
        study.work({run.name: [study.train_step(run)] for run in runs})
        write(study, corpus, gold, earlier)


def _runs(arguments: argparse.Namespace, max_steps: int, out: Path) -> list[Run]:
    """The runs of the systems that were chosen, and those from French to English.

    Raises:
        ValueError: for an unknown system, or one of --both-ways that is not among --systems.
    """
    from recipes.studies import aligners

    changes = changes_by_recipe(arguments, *{recipe for recipe, _ in SYSTEMS.values()})
    names = [] if arguments.systems == NONE else list(SYSTEMS)
    if arguments.systems not in (None, NONE):
        names = chosen("--systems", arguments.systems, SYSTEMS)
    backward = chosen("--both-ways", arguments.both_ways, names) if arguments.both_ways else []
    runs = []
    for name in names:
        recipe, own = SYSTEMS[name]
        for suffix, languages in [("", ("en", "fr")), (BACKWARD, ("fr", "en"))][: 1 + (name in backward)]:
            settings = [f"max_steps={max_steps}", *_SHARED, *own, *changes[recipe]]
            if name in EFLOMAL:
                settings.append(f"alignment_links={aligners.guide(out, languages)}")
            module = GUIDED if name in EFLOMAL else recipe
            runs.append(Run(name + suffix, module, tuple(settings), languages=languages))
    return runs


def _counts(gold, development: int) -> dict[str, int]:
    counts = {"sentences": len(gold.links), "development": development}
    return counts | {name: sum(len(getattr(one, name)) for one in gold.links) for name in ("sure", "possible")}


def _gold_folder(data: str | None) -> Path:
    from recipes import named_corpora

    folder = named_corpora.find("word-align", data)
    if folder is None:
        raise FileNotFoundError(
            "Expected --gold, the folder of enfr.gold.gz and enfr.src-tgt.gz (github.com/neulab/awesome-align, "
            "examples), or a folder word-align below --data or $KERAS_ATTN_DATA. Their licence is not stated, "
            "so they are not downloaded."
        )
    return folder


def _write_text(corpus, folder: Path) -> None:
    """Writes the corpus, tokenized as the gold is, as a corpus of its own, in the same order."""
    from recipes.studies import hansards

    splits = {}
    for split, sides in corpus.splits.items():
        pairs = zip(map(hansards.english, sides[0]), map(hansards.french, sides[1]), strict=True)
        pairs = [pair for pair in pairs if all(pair)]
        if split != "train":
            # From both ends, so that both of two joined corpora are represented.
            pairs = pairs if len(pairs) <= 2 * LINES else [*pairs[:LINES], *pairs[-LINES:]]
        splits[split] = list(zip(*pairs, strict=True))
    write_corpus(folder, ("en", "fr"), splits)


def write(study: Study, corpus, gold, earlier: dict) -> None:
    """Writes `report.json` and `alignment.svg`.

    In addition to what every study's report has, this one has the numbers of sentences and links of the gold, and two
    lists, "baselines" and "systems". An entry of either has AER, precision and recall on the sentences after the
    development part ("test") and on all of them ("all"); a system also has its "attention" and "row", and "candidates",
    all choices of these two with their AER on the development part, by which the best was selected. The rows of both
    directions of a system have none of these.

    Args:
        study: The study, whose runs are finished.
        corpus: The text that they were trained on.
        gold: The gold links.
        earlier: A report, whose rows the new ones of the same names replace.
    """
    from recipes.studies import aligners

    scorer = aligners.Scorer(gold.links, study.arguments.development)
    baselines = aligners.baselines(study.out, corpus, gold, scorer)
    systems, links = [], {}
    for run in study.runs:
        row, links[run.name] = _system(study, run, gold, scorer)
        systems.append(row)
    for name in links:
        if name + BACKWARD in links:
            systems += scorer.symmetrised(name, links[name], aligners.turned(links[name + BACKWARD]))
    report = study.write_report(
        corpus=study.settings["corpus"],
        gold=_counts(gold, study.arguments.development),
        training_pairs=len(corpus.splits["train"][0]),
        **merge_earlier(earlier, baselines=baselines, systems=systems),
    )
    for row in [*report["baselines"], *report["systems"]]:
        rates = ", ".join(f"{name} {row['test'][name]:.2f}" for name in ("aer", "precision", "recall"))
        print(f"{row['name']:>46}  {rates}")


def _system(study: Study, run: Run, gold, scorer) -> tuple[dict, list]:
    """A system's entry in the report, and its links with the attention and row selected."""
    from keras_attn import Translator
    from recipes.studies import aligners

    with command.quietly():
        translator = Translator.from_preset(study.folder(run))
    is_backward = run.name.endswith(BACKWARD)
    turn = aligners.turned if is_backward else list
    text = (gold.targets, gold.sources) if is_backward else (gold.sources, gold.targets)
    panels = aligners.candidates(translator, *text)
    links = {key: list(map(aligners.links, many)) for key, many in panels.items()}
    scores = {key: scorer(turn(many)) for key, many in links.items()}
    best = min(scores, key=lambda key: scores[key]["development"])
    candidates = [{"attention": key[0], "row": key[1]} | one for key, one in scores.items()]
    names = "recipe parameters updates epochs train_seconds target_tokens_per_second bleu command"
    trained = study.reports()[run.name]
    system = {"name": run.name} | {name: trained[name] for name in names.split()}
    system["command"] = system["command"].replace(f"{study.out}/", "")  # no folder of this machine
    system |= {"attention": best[0], "row": best[1]} | scores[best]
    return system | {"candidates": candidates}, links[best]


if __name__ == "__main__":
    sys.exit(main())
