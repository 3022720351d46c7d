"""What a finished run leaves in its folder: scores, translations, a picture and `report.json`."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_attn import Translator, files, plots
from keras_attn.evaluation import by_metric
from keras_attn.training.memory import peak_memory_mb
from keras_attn.training.origins import origins
from keras_attn.training.run_report import surroundings
from keras_attn.translation import Translation


def translate(translator: Translator, sources: Sequence[str], **options) -> tuple[list[Translation], float]:
    """Translations, and the seconds that they took, compilation included."""
    started = time.monotonic()
    translations = translator.generate(sources, **options)
    return translations, time.monotonic() - started


def write_translations(path: Path, sources, references, translations: Sequence[Translation]) -> None:
    """Writes a block of three lines for each sentence: source, reference and translation."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for source, reference, translation in zip(sources, references, translations, strict=True):
            file.write(f"source:      {source}\nreference:   {reference}\ntranslation: {translation.text}\n\n")


def read_translations(path: Path) -> list[tuple[str, str, str]]:
    """Reads what `write_translations` wrote: source, reference and translation of each sentence."""
    with path.open(encoding="utf-8", newline="\n") as file:
        texts = [line[len("translation: ") :].removesuffix("\n") for line in file]
    return list(zip(texts[0::4], texts[1::4], texts[2::4], strict=True))


def draw_reordering(path: Path, translator: Translator, translations, references) -> None:
    """Draws the sentence with the most reordering, a correctly translated one if possible."""
    best, best_rank = None, ()
    for translation, reference in zip(translations, references, strict=True):
        if not translation.token_ids:
            continue
        words = plots.align_words(translation, translator.source_tokenizer, translator.target_tokenizer)
        alignment, sources, targets = words
        moderate = 7 <= len(sources) <= 18 and 7 <= len(targets) <= 22
        rank = moderate, translation.text == reference, _inversions(alignment)
        if best is None or rank > best_rank:
            best, best_rank = words, rank
    if best:
        plots.alignment(*best, path=path)


def _inversions(alignment: np.ndarray) -> float:
    """Share of pairs of target words whose source words are in the opposite order; 0 is monotone."""
    if len(alignment) < 2:
        return 0.0
    positions = alignment.argmax(axis=1)
    earlier, later = np.triu_indices(len(positions), 1)
    return float((positions[earlier] > positions[later]).mean())


def training_figures(training, updates: int, budget, history: list[dict], config) -> dict:
    """What the report says of the training."""
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
        "history": {name: [round(row[name], 4) for row in history] for name in history[0]},
    }


def write_results(translator, corpus, config, report: dict, out: Path, greedy, translations) -> None:
    """Scores the translations of the test split, then writes them, a picture, the preset and, last, the report."""
    sources, references = corpus.splits["test"]
    test = config.metric, sources, references
    results = by_metric.all_scores(*test, [t.text for t in translations], config.tokenize)
    # Without TER, whose search for shifts takes minutes if translations are poor.
    greedy_results = by_metric.all_scores(*test, [t.text for t in greedy], config.tokenize, main_only=True)
    write_translations(out / "translations.txt", sources, references, translations)
    sources_of_text = {"corpora": [origin._asdict() for origin in origins(corpus.name, report["from_preset"])]}
    draw_reordering(out / "alignment.png", translator, translations, references)
    if not (out / "translator.json").exists():
        translator.save_to_preset(out, report=report | results | sources_of_text)
    figures = {
        "test_sentences": len(sources),
        **results,
        **({"by_corpus": _by_corpus(corpus, config, translations)} if len(corpus.parts) > 1 else {}),
        f"greedy_{config.metric}": greedy_results[config.metric],
        **({} if config.metric == "bleu" else {"test_sources_in_training": _repeated_sources(corpus)}),
        "peak_memory_mb": round(peak_memory_mb()),
    }
    write(out / "report.json", report | figures | surroundings())
    for name, result in results.items():
        print(f"{name} {result['score']:.2f}  {result['signature']}")
    for part in figures.get("by_corpus", []):
        print(f"{part['corpus']}  {config.metric} {part[config.metric]['score']:.2f}")
    print(f"The run is in {out}.")


def _by_corpus(corpus, config, translations: Sequence[Translation]) -> list[dict]:
    """The main score on the test split of each of several corpora."""
    lines = [*corpus.splits["test"], [translation.text for translation in translations]]
    scores, start = [], 0
    for name, sizes in corpus.parts:
        stop = start + sizes.get("test", 0)
        sources, references, texts = (side[start:stop] for side in lines)
        if any(sources):
            score = by_metric.all_scores(config.metric, sources, references, texts, config.tokenize, main_only=True)
            scores.append({"corpus": name, "test_sentences": stop - start} | score)
        start = stop
    return scores


def _repeated_sources(corpus) -> int:
    """How many distinct source lines of the test split are in the training split too."""
    return len(set(corpus.splits["test"][0]).intersection(corpus.splits["train"][0]))


def write(path: Path, report: dict) -> None:
    """Writes a report atomically."""
    with files.replacing(path) as partial:
        partial.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
