"""Makes a registered preset of a run: `python -m recipes.publish RUN NAME [--dtype float16|int8] [--lexicon FILE]`.

Stores the run's weights in fewer bits, and of a model that reads letters a tokenizer that cuts words. Scores what
is stored on the test split of the run's corpus, with the beam and the length penalty of its report, and writes
`saved_models/presets/NAME/`: the preset, `report.json`, the card and the lexicon, if there is one. Then it writes the
entry, with the SHA-256 of each file, into the registry (keras_attn/saving/registry.json). A corpus whose licence does
not allow that is refused: see recipes/named_corpora.py.
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

from keras_attn import files
from keras_attn.cli import command
from keras_attn.pronunciation import read_lexicon
from keras_attn.saving import LEXICON, PresetEntry, add_preset, model_card, presets, task_of
from keras_attn.training import read_report

PRESETS = Path(__file__).parents[1] / "saved_models" / "presets"
LARGEST = 40_000_000  # bytes of all presets
_COPIED = ("recipe", "corpus", "source", "target", "seed", "minutes", "config", "command", "parameters", "updates")
_COPIED += ("tags", "from_preset")


def main(argv=None) -> int:
    parser = command.Parser("recipes.publish", description=__doc__)
    option = parser.add_argument
    option("run", metavar="RUN", type=Path, help="folder of a finished run")
    option("name", metavar="NAME", help="of the preset: lower-case letters, digits and _")
    option("--dtype", choices=("float16", "int8"), help="store matrices in fewer bits (default: as they are)")
    option("--lexicon", metavar="FILE", type=Path, help="of pronunciations, packed by xz, for G2P")
    option("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    return command.run(publish, parser, argv)


def publish(arguments: argparse.Namespace) -> None:
    """Writes the preset and its entry.

    Raises:
        ValueError: if the name has other characters, the corpus may not be shipped, or the presets become too large.
        FileNotFoundError: if there is no finished run.
        FileExistsError: if there is a preset of this name. A folder without an entry, of a run that was killed, is
            replaced.
    """
    name, run = arguments.name, arguments.run
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"Expected a name of lower-case letters, digits and _. Received: {name!r}")
    if not (run / "report.json").is_file():
        raise FileNotFoundError(f"Expected a finished run. There is no report.json in {str(run)!r}.")
    if name in presets():
        raise FileExistsError(f"Expected a new preset. Received one that is registered: {name!r}")

    from keras_attn import Translator
    from keras_attn.training import report as run_report
    from recipes import named_corpora

    trained = read_report(run)
    origins = named_corpora.origins(trained["corpus"], trained.get("from_preset"))
    if unshippable := [origin.name for origin in origins if origin.licence is None]:
        raise ValueError(
            "Expected a corpus whose licence allows to ship what was trained on it. Received: "
            f"{', '.join(unshippable)} (recipes/named_corpora.py)"
        )
    with files.staging(PRESETS) as folder:
        preset = folder / name
        translator = Translator.from_preset(run)
        letters, phones = translator.source_tokenizer, translator.target_tokenizer
        if trained["config"]["metric"] == "wer" and letters.level == "symbol":
            translator = Translator(translator.model, letters.with_letters(), phones, **translator.length_arguments)
        translator.save_to_preset(preset, dtype=arguments.dtype)
        if arguments.lexicon:
            shutil.copyfile(arguments.lexicon, preset / LEXICON)
            read_lexicon(preset / LEXICON)  # refuses what is none, or packed otherwise
        stored = Translator.from_preset(preset)
        scores = _scores(stored, trained, arguments.data)
        report = {key: trained[key] for key in _COPIED if key in trained}
        report |= {"corpora": [origin._asdict() for origin in origins], "dtype": arguments.dtype or stored.model.dtype}
        report |= {"beam_size": trained["beam_size"], **scores, "versions": trained.get("versions", {})}
        run_report.write(preset / "report.json", report)
        sizes = {"model": type(stored.model).__name__, "parameters": stored.model.count_params()}
        card = model_card(name, **sizes, dtype=report["dtype"], report=report, is_registered=True)
        (preset / "README.md").write_text(card, encoding="utf-8")
        entry = _entry(report, sizes, files.digests(preset))
        total = entry.size + sum(other.size for key, other in presets().items() if key != name)
        if total > LARGEST:
            raise ValueError(f"Expected presets of at most {LARGEST:,} bytes together. Received: {total:,}")
        shutil.rmtree(PRESETS / name, ignore_errors=True)
        if not files.publish(preset, PRESETS / name):
            raise FileExistsError(f"Expected no other writer of {str(PRESETS / name)!r}. It exists again")
    add_preset(name, entry)
    print(f"The preset is in {PRESETS / name}: {entry.size:,} bytes, {entry.metric} {entry.score}.")


def _scores(translator, trained: dict, data: str | None) -> dict:
    """The scores of the test split, and the number of its lines."""
    from keras_attn.evaluation import by_metric
    from keras_attn.training import corpora
    from keras_attn.training import report as run_report

    config = trained["config"]
    sides = trained["source"], trained["target"]
    corpus = corpora.load(trained["corpus"], *sides, data=data, tags=trained.get("tags"))
    sources, references = corpus.splits["test"]
    options = {"beam_size": trained["beam_size"], "length_penalty": config["length_penalty"], "batch_size": 64}
    translations, _ = run_report.translate(translator, sources, return_alignments=False, **options)
    texts = [translation.text for translation in translations]
    scores = by_metric.all_scores(config["metric"], sources, references, texts, config["tokenize"])
    return {"test_sentences": len(sources), **scores}


def _entry(report: dict, sizes: dict, digests: dict) -> PresetEntry:
    metric = report["config"]["metric"]
    return PresetEntry(
        task=task_of(report),
        source=report["source"],
        target=report["target"],
        **sizes,
        dtype=report["dtype"],
        corpus=report["corpus"],
        licence=" and ".join(sorted({corpus["licence"] for corpus in report["corpora"]})),
        metric=metric,
        **report[metric],
        files=digests,
    )


if __name__ == "__main__":
    sys.exit(main())
