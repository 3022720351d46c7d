"""The page of a run: one HTML file, without scripts, with scores, curves, translations, data and command."""

import base64
import dataclasses
import html
import math
import string
import tempfile
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from keras_attn import plots
from keras_attn.training.report import read_report, read_translations

_SCORES = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "wer": "Word error rate", "per": "Phoneme error rate"}
_SCORES |= {"wer_without_stress": "Word error rate without stress", "wer_of_stress": "Word error rate of stress alone"}
_SCORES |= {"greedy_bleu": "BLEU, greedy search", "greedy_wer": "Word error rate, greedy search"}
_CURVES = ("loss", "perplexity", "accuracy", "bleu", "wer")
_FIGURES = {
    "training_pairs": "pairs",
    "source_vocabulary_size": "source tokens known",
    "target_vocabulary_size": "target tokens known",
    "updates": "updates",
    "epochs": "epochs",
    "best_epoch": "best epoch",
    "train_seconds": "seconds of training",
    "target_tokens_per_second": "target tokens a second",
    "peak_memory_mb": "MB of memory at most",
}


def run_page(run: Path, translator, count: int = 5) -> str:
    """Returns the page of a finished run.

    Args:
        run: The run's folder.
        translator: Its `keras_attn.Translator`, which translates the samples again, for their alignments.
        count: Number of samples, which are spread evenly over the test split.

    Raises:
        FileNotFoundError: If the run has no report or no translations.
        ValueError: If the report is truncated or changed.
    """
    for name in ("report.json", "translations.txt"):
        if not (run / name).is_file():
            raise FileNotFoundError(f"Expected a finished run. Received: {str(run)!r}, without {name}")
    report, lines = read_report(run), read_translations(run / "translations.txt")
    chosen = [lines[len(lines) * n // count] for n in range(min(count, len(lines)))]
    options = {"length_penalty": report["config"].get("length_penalty", 1.0), "beam_size": report["beam_size"]}
    found = translator.generate([source for source, *_ in chosen], **options)
    samples = [_sample(translator, *texts) for texts in zip(chosen, found, strict=True)]
    figures = {label: f"{report[name]:,}" for name, label in _FIGURES.items() if name in report}
    data = report["data"]
    lengths = " and ".join(f"{data[f'{side}_tokens'] / data['pairs']:.1f}" for side in ("source", "target"))
    dropped = f"{data['dropped_blank']:,} blank pairs, {data['dropped_too_long']:,} too long ones"
    figures |= {"left out": dropped, "mean length, in tokens": lengths}
    figures |= {"backend": report["backend"], "versions": _joined(report["versions"])}
    figures |= {"hardware": _joined(report["hardware"])}
    scores = [
        f"<tr><th>{label}</th><td><b>{report[name]['score']:.2f}</b></td><td>{_text(report[name]['signature'])}</td></tr>"
        for name, label in _SCORES.items()
        if name in report
    ]
    kind, count_of_weights = type(translator.model).__name__, report["parameters"]
    page = string.Template(files("keras_attn.training").joinpath("report_page.html").read_text(encoding="utf-8"))
    return page.substitute(
        title=_text(run.resolve().name),
        summary=_text(
            f"{kind} of {count_of_weights:,} parameters, {report['source']} to {report['target']}, trained on "
            f"{report['corpus']} with seed {report['seed']}."
        ),
        scores=f'<table class="figures">{"".join(scores)}</table>',
        curves="".join(_curves(report["history"])),
        note=f"{len(chosen)} of the {len(lines):,} sentences of the test split, beam {report['beam_size']}. A row of "
        "squares for each word of the translation shows at which words of the source the model looked.",
        samples="".join(samples),
        data=_table(figures.items()),
        command=_text(report["command"]),
        settings=_table(report["config"].items()),
    )


def _sample(translator, lines: tuple[str, str, str], translation) -> str:
    source, reference, _ = lines
    words = plots.align_words(translation, translator.source_tokenizer, translator.target_tokenizer, source)
    by_word = {"source_tokens": words.source_tokens, "tokens": words.target_tokens, "alignment": words.alignment}
    texts = "".join(
        f'<p dir="auto"><span class="label">{label}</span> {_text(text)}</p>'
        for label, text in (("source", source), ("reference", reference))
    )
    return (
        f'<article>{texts}<div tabindex="0">{dataclasses.replace(translation, **by_word)._repr_html_()}</div></article>'
    )


def _curves(history: dict[str, list[float]]) -> Iterable[str]:
    """Yields a picture of each measure, so that a narrow screen has them below each other."""
    for name in _CURVES:
        own = {key: history[key] for key in (name, f"val_{name}") if key in history}
        own = {key: [math.inf if one is None else one for one in values] for key, values in own.items()}
        if not own:
            continue
        with tempfile.TemporaryDirectory() as folder:
            plots.training_curves(own, path=(path := Path(folder, "curve.svg")))
            data = base64.b64encode(path.read_bytes()).decode()
        last = ", ".join(f"{key.replace('val_', 'validation ')} {values[-1]:.4g}" for key, values in own.items())
        yield f'<img alt="{_text(name)} by epoch; at the end: {_text(last)}" src="data:image/svg+xml;base64,{data}">'


def _joined(values: dict) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _table(rows: Iterable[tuple[str, object]]) -> str:
    cells = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in rows)
    return f'<table class="figures">{cells}</table>'


def _text(value: object) -> str:
    return html.escape(str(value))
