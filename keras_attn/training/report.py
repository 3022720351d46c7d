"""The report of a run, `report.json`: written with scores, translations and a picture, and read by other commands.

Importing this module imports neither Keras nor Matplotlib.
"""

import importlib.metadata
import itertools
import json
import math
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from keras_attn import files, plots
from keras_attn.training.recipes import named_corpora

SENTENCES = 64  # of the run's test split, from which warm-up records are made
# The entries that commands read, and the settings among them.
_TYPES = {"config": dict, "from_preset": (dict, NoneType)}
_TYPES |= dict.fromkeys(("corpus", "source", "target", "tags"), (str, NoneType))
_TYPES_OF_SETTINGS = {"length_penalty": (int, float), "metric": str, "tokenize": str}


def read_report(run: Path) -> dict:
    """Returns the run's `report.json`; for a preset without one, the same keys with no corpus and an empty config.

    Raises:
        ValueError: If the file is truncated or changed.
    """
    path = run / "report.json"
    report = {"corpus": None, "source": None, "target": None, "config": {}}
    if not path.is_file():
        return report
    try:
        report |= dict(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ValueError(f"Expected {str(path)!r} to be a run's report. It is truncated or changed.") from None
    wrong = [name for name, kind in _TYPES.items() if not isinstance(report.get(name), kind)]
    if not wrong:
        own = {name: kind for name, kind in _TYPES_OF_SETTINGS.items() if name in report["config"]}
        wrong = [name for name, kind in own.items() if not isinstance(report["config"][name], kind)]
        if report.get("from_preset") and not {"name", "digest", "corpus"} <= report["from_preset"].keys():
            wrong.append("from_preset")
    if wrong:
        raise ValueError(f"Expected {str(path)!r} to be a run's report. Changed: {', '.join(wrong)}")
    return report


def read_settings(path: Path) -> dict:
    """Reads the settings of an unfinished run or study.

    Raises:
        ValueError: if the file is truncated or changed.
    """
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ValueError(
            f"Expected {str(path)!r} to have the settings with which this folder was begun. It is truncated or "
            "changed: begin again in a new folder."
        ) from None


def length_penalty(run: Path, chosen: float | None) -> float:
    """Returns the chosen length penalty; if None, the one in the run's report, else 1."""
    return read_report(run)["config"].get("length_penalty", 1.0) if chosen is None else chosen


def export_arguments(run: Path) -> dict:
    """Returns `report` and `sentences` for an export: the run's report and some of its test sentences, if there are."""
    report, path = read_report(run), run / "translations.txt"
    sentences = []
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            sources = (line.removeprefix("source:").strip() for line in file if line.startswith("source:"))
            sentences = list(itertools.islice(sources, SENTENCES))
    return {"report": report, "sentences": sentences}


def surroundings() -> dict[str, Any]:
    """Returns backend, versions and machine: what a number depends on besides the code."""
    import keras

    backend = keras.backend.backend()
    packages = ("keras", backend, "numpy", "sacrebleu", "sentencepiece", "keras-attn")
    return {
        "backend": backend,
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in packages},
        "hardware": {"system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count()},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def memory_mb(name: str = "VmRSS") -> float:
    """Megabytes of this process by Linux: VmRSS, resident now; VmHWM, the most so far.

    Raises:
        OSError: on another system.
    """
    figures = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(figures[name].split()[0]) * 1024 / 1e6


def peak_memory_mb() -> float:
    """The most memory of this process that was resident.

    Where it is not Linux this begins with the peak of the process that started it (`ru_maxrss`).
    """
    if sys.platform == "linux":
        return memory_mb("VmHWM")
    import resource  # which Windows lacks

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def translate(translator, sources: Sequence[str], **options) -> tuple[list, float]:
    """Translations, and the seconds that they took, compilation included."""
    started = time.monotonic()
    translations = translator.generate(sources, **options)
    return translations, time.monotonic() - started


def write_translations(path: Path, sources, references, translations) -> None:
    """Writes a block of three lines for each sentence: source, reference and translation, a blank for each newline."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for source, reference, translation in zip(sources, references, translations, strict=True):
            lines = [text.replace("\n", " ") for text in (source, reference, translation.text)]
            file.write("source:      {}\nreference:   {}\ntranslation: {}\n\n".format(*lines))


def read_translations(path: Path) -> list[tuple[str, str, str]]:
    """Reads what `write_translations` wrote: source, reference and translation of each sentence.

    Raises:
        ValueError: If the file is truncated or changed.
    """
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            texts = [line[len("translation: ") :].removesuffix("\n") for line in file]
        return list(zip(texts[0::4], texts[1::4], texts[2::4], strict=True))
    except ValueError:  # UnicodeDecodeError is one
        raise ValueError(f"Expected {str(path)!r} to have a run's translations. It is truncated or changed.") from None


def draw_reordering(path: Path, translator, translations, references) -> None:
    """Draws the sentence with the most reordering, a correctly translated one if possible."""
    best, best_rank = None, ()
    for translation, reference in zip(translations, references, strict=True):
        if not translation.token_ids:
            continue
        words = plots.align_words(translation, translator.source_tokenizer, translator.target_tokenizer)
        alignment, sources, targets = words
        moderate = 7 <= len(sources) <= 18 and 7 <= len(targets) <= 22
        positions = alignment.argmax(axis=1)  # (T,)
        rank = moderate, translation.text == reference, int((positions[1:] < positions[:-1]).sum())
        if best is None or rank > best_rank:
            best, best_rank = words, rank
    if best:
        plots.alignment(*best, path=path)


def training_figures(training, updates: int, budget, history: list[dict], config) -> dict:
    """The training's part of the report."""
    data = training.report()
    passes = updates * config.accumulation_steps / data["batches"]
    return {
        "updates": updates,
        "epochs": len(history),
        "train_seconds": round(budget.seconds, 1),
        "target_tokens_per_second": round(passes * data["target_tokens"] / budget.training_seconds),
        "training_pairs": data["pairs"],
        "padding": round(data["padding"], 4),
        "data": data,
        "history": {name: [_rounded(row[name]) for row in history] for name in history[0]},
    }


def _rounded(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None  # a perplexity; JSON has no infinity


def write_results(translator, corpus, config, report: dict, out: Path, greedy, translations) -> None:
    """Scores the translations of the test split, then writes them, a picture, the preset and, last, the report."""
    from keras_attn.evaluation import by_metric

    sources, references = corpus.splits["test"]
    test = config.metric, sources, references
    results = by_metric.all_scores(*test, [t.text for t in translations], config.tokenize)
    # Without TER, whose search for shifts takes minutes if translations are poor.
    greedy_results = by_metric.all_scores(*test, [t.text for t in greedy], config.tokenize, main_only=True)
    write_translations(out / "translations.txt", sources, references, translations)
    origins = named_corpora().origins(corpus.name, report["from_preset"])
    draw_reordering(out / "alignment.png", translator, translations, references)
    plots.training_curves(out / "history.csv", out / "curves.png")
    if not (out / "translator.json").exists():
        about = {"corpora": [one._asdict() for one in origins], "example": next(filter(str.strip, sources))}
        translator.save_to_preset(out, report=report | results | about)
    figures = {
        "test_sentences": len(sources),
        **results,
        **({"by_corpus": _by_corpus(corpus, config, translations)} if len(corpus.parts) > 1 else {}),
        f"greedy_{config.metric}": greedy_results[config.metric],
        "peak_memory_mb": round(peak_memory_mb()),
    }
    if config.metric == "wer":
        figures["test_sources_in_training"] = len({*sources} & {*corpus.splits["train"][0]})
    write(out / "report.json", report | figures | surroundings())
    for name, result in results.items():
        print(f"{name} {result['score']:.2f}  {result['signature']}")
    for part in figures.get("by_corpus", []):
        print(f"{part['corpus']}  {config.metric} {part[config.metric]['score']:.2f}")
    print(f"The run is in {out}.")


def _by_corpus(corpus, config, translations) -> list[dict]:
    """BLEU, or both error rates, on the test split of each of several corpora."""
    from keras_attn.evaluation import by_metric

    lines = [*corpus.splits["test"], [translation.text for translation in translations]]
    scores, start = [], 0
    for name, size in corpus.parts:
        stop = start + size
        sources, references, texts = (side[start:stop] for side in lines)
        if any(sources):
            test = config.metric, sources, references, texts, config.tokenize
            own = by_metric.all_scores(*test, main_only=config.metric == "bleu")
            scores.append({"corpus": name, "test_sentences": stop - start} | own)
        start = stop
    return scores


def write(path: Path, report: dict) -> None:
    """Writes a report atomically."""
    with files.replacing(path) as partial:
        partial.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
