"""The card of a preset: a README.md with what Hugging Face reads at its beginning, and what a user asks first."""

import json
import re
from collections.abc import Mapping
from typing import Any

CARD = "README.md"
_METRICS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "wer": "WER", "per": "PER"}
_METRICS |= {"wer_without_stress": "WER without stress", "wer_of_stress": "WER of stress alone"}
_TAGS = {"target": "target language", "corpus": "corpus"}
_LANGUAGE = re.compile(r"[a-z]{2,3}")  # ISO 639; "letters" and "phones" are no languages
# The licences of the Hub's list that corpora have; the others are "other", by their name.
_LICENCES = ("apache-2.0", "bsd-2-clause", "cc-by-2.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "mit")


def task_of(report: Mapping[str, Any]) -> str:
    """Returns "pronunciation" for a run that is scored by its word error rate, else "translation".

    Args:
        report: The run's report, which may have its `config`.
    """
    return "pronunciation" if report.get("config", {}).get("metric") == "wer" else "translation"


def model_card(
    name: str,
    *,
    model: str,
    parameters: int,
    dtype: str,
    report: Mapping[str, Any],
    is_registered: bool = False,
    reads_text: bool = True,
) -> str:
    """Returns the text of a card.

    Args:
        name: The preset's name.
        model: The class of its model.
        parameters: The number of its weights.
        dtype: In what its matrices are stored.
        report: The run's `report.json`, or some of it: `source`, `target`, `corpus`, `command`, `beam_size`, scores
            such as `bleu`, each with `score` and `signature`, and `corpora`, a list of what the corpus consists of,
            each with `title`, `licence`, `address` and `note`, `example`, a source sentence, `from_preset` (its `name`
            and `digest`) and `tags`.
            What is missing, the card leaves out.
        is_registered: Whether `from_preset` takes the name.
        reads_text: Whether the source is text, not the arrays of a model of images or sounds.
    """
    scores = {key: report[key] for key in _METRICS if isinstance(report.get(key), Mapping)}
    languages = [report[side] for side in ("source", "target") if report.get(side)]
    example = json.dumps(report.get("example", "..."), ensure_ascii=False) if reads_text else "source"
    lines = [
        "---",
        *(f"{key}: {json.dumps(value)}" for key, value in _metadata(name, model, report, scores).items()),
        "---",
        "",
        f"# {name}",
        "",
        f"`{model}` of keras_attn, {parameters:,} parameters, matrices stored in {dtype}. "
        + (f"Task: {task_of(report)}, from {languages[0]} to {languages[1]}." if len(languages) == 2 else ""),
        "",
        "```python",
        "import keras_attn",
        "",
        f'translator = keras_attn.Translator.from_preset("{name if is_registered else f"path/of/{name}"}")',
        f"print(translator.generate({example}){'' if reads_text else '[0]'}.text)",
        "```",
        "",
        f"`from_preset` takes {'this name, ' if is_registered else ''}the folder that this file is in, or hf://USER/NAME"
        " if it is at Hugging Face.",
    ]
    if report.get("corpus"):
        lines += ["", "## Data", "", f"Corpus `{report['corpus']}`."]
        for corpus in report.get("corpora", []):
            licence = f"Licence: {corpus['licence']}." if corpus["licence"] else "No licence is stated."
            address = [f"From {corpus['address']}."] if corpus["address"] else []
            lines += [" ".join([f"{corpus['title']}.", licence, *address, corpus["note"]])]
    if scores:
        beam = f", beam {report['beam_size']}" if "beam_size" in report else ""
        lines += ["", "## Scores", "", f"On the corpus' test split{beam}.", "", "| metric | score | signature |"]
        lines += ["| --- | --- | --- |"]
        for key, score in scores.items():
            signature = score["signature"].replace("|", "\\|")
            lines += [f"| {_METRICS[key]} | {score['score']} | `{signature}` |"]
    if report.get("command"):
        lines += ["", "## Training", "", "```", report["command"], "```"]
    if begun := report.get("from_preset"):
        lines += ["", f"Training began from `{begun['name']}` (SHA-256 of its manifest: {begun['digest']})."]
    if report.get("tags"):
        lines += ["", "A source line begins with a tag such as `<2fr>`, of its " + _TAGS[report["tags"]] + "."]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _metadata(name: str, model: str, report: Mapping[str, Any], scores: Mapping[str, Any]) -> dict[str, Any]:
    sides = "+".join(report.get(side) or "" for side in ("source", "target"))
    languages = dict.fromkeys(sides.split("+"))
    licences = sorted({corpus["licence"] for corpus in report.get("corpora", []) if corpus["licence"]})
    metadata: dict[str, Any] = {"library_name": "keras", "tags": ["keras_attn", model]}
    if found := [language for language in languages if _LANGUAGE.fullmatch(language)]:
        metadata["language"] = found
    if task_of(report) == "translation":
        metadata["pipeline_tag"] = "translation"
    if len(licences) == 1 and licences[0] in _LICENCES:
        metadata["license"] = licences[0]
    elif licences:
        metadata |= {"license": "other", "license_name": " and ".join(licences)}
    if scores:
        metadata["metrics"] = list(scores)
        corpus = report.get("corpus") or "a test set"
        metrics = [
            {"type": key, "name": f"{_METRICS[key]} ({score['signature']})", "value": score["score"]}
            for key, score in scores.items()
        ]
        task = {"type": task_of(report), "name": task_of(report)}
        result = {"task": task, "dataset": {"type": corpus, "name": corpus, "split": "test"}, "metrics": metrics}
        metadata["model-index"] = [{"name": name, "results": [result]}]
    return metadata
