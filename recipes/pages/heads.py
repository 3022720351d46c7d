"""What the results page and the gallery say of the attention of several models and of each head."""

from collections import Counter
from pathlib import Path

from recipes.pages.markdown import frame, grid, table
from recipes.studies.heads import named, weights

TITLE = "The attention of each head"
WORDS = "leur", "ne"  # of the gallery's sentences, the word whose attention it describes
MODEL = "transformer"  # whose heads it shows


def section(name: str, report: dict) -> list[str]:
    """The paragraphs and the table of `recipes.studies.heads` on the results page."""
    first, limit = report["systems"][0]["name"], report["max_words"]
    rows = [
        [
            system["name"],
            one["name"],
            f"{system['bleu']['score']:.2f}",
            f"{one['largest_weight']:.2f}",
            f"{one['same_word']:.1f}",
            "" if n else f"`{system['command']}`",
        ]
        for system in report["systems"]
        for n, one in enumerate(system["attentions"])
    ]
    return [
        f"On the {report['measured']:,} {report['split']} sentences{f' of at most {limit} words' if limit else ''}: "
        f"BLEU with a beam of {report['beam_size']}, and the attention of the references, teacher-forced: the largest "
        "weight of a row of words, averaged, and the percentage of words whose largest weight is on the same source "
        f"word as with the first model, {first}. [The page](reports/{name}.html) shows sentences with all alignments. "
        f"Signature: `{report['systems'][0]['bleu']['signature']}`.",
        table(["model", "attention", "BLEU", "largest weight", "same word", "command"], rows),
    ]


def draw(report: dict, folder: Path) -> None:
    """Draws the gallery's figures: the models' alignments of each sentence, and the heads' of the last."""
    from recipes.studies import figures

    for n in range(len(WORDS)):
        figures.heads(report, n, folder / f"models-{n + 1}.svg")
    figures.heads(report, len(WORDS) - 1, folder / "heads.svg", of=MODEL)


def in_gallery(name: str, report: dict) -> list[str]:
    """The paragraphs and the figures of the gallery; `reports/<name>.html` is the study's page."""
    images = [
        (f"“{_text(report, n)}”, {len(report['systems'])} models: {_by_model(report, n)}", f"models-{n + 1}")
        for n in range(len(WORDS))
    ]
    last = len(WORDS) - 1
    (system,) = (system for system in report["systems"] if system["name"] == MODEL)
    heads = system["attentions"][1:]
    counts = Counter(_attended(report, one, last) for one in heads).most_common()
    divided = " and ".join(f"{count} to “{word}”" for word, count in counts).replace(" to ", " attend most to ", 1)
    alt = f"“{_text(report, last)}”, {len(heads)} heads: before “{WORDS[last]}” {divided}, which their mean mixes"
    short = " and ".join(
        one["name"] for one in report["systems"] if f"max_words={report['max_words']}" in one["command"]
    )
    anchor = f"{TITLE}: {report['corpus']}, {report['source']} to {report['target']}".lower().replace(" ", "-")
    return [
        "### One translation, several models",
        "Every model was given the same French sentence, word by word, so that the rows are the same. BLEU and weights "
        f"are of the {report['measured']:,} {report['split']} sentences of at most {report['max_words']} words "
        f"([table and commands](../recipes/README.md#{anchor.replace(':', '').replace(',', '')})); {short} were "
        "trained on such sentences alone:",
        "\n".join(f"- **{named(one)}:** {_figures(one, report['systems'][0])}." for one in report["systems"]),
        grid(images),
        "### The attention of each head",
        f"Search and heat maps have the mean of the heads. The heads differ: before “{WORDS[last]}” of the second "
        f"sentence, {divided}. `translator.score(sources, targets, "
        "each_head=True)` returns them all.",
        grid([(alt, "heads")]),
        frame(f"../recipes/reports/{name}.html", f"../reports/{name}.html", "Each model and each head"),
    ]


def _figures(system: dict, first: dict) -> str:
    mean, *heads = system["attentions"]
    parts = [f"{system['bleu']['score']:.1f} BLEU", f"largest weight {mean['largest_weight']:.2f}"]
    if system is not first:
        parts.append(f"on the same source word as {first['name']} in {mean['same_word']:.0f} % of the rows")
    if heads:
        low, *_, high = sorted(one["same_word"] for one in heads)
        parts.append(f"single heads in {low:.0f} to {high:.0f} %")
    return ", ".join(parts)


def _by_model(report: dict, sentence: int) -> str:
    """What the sentence's word attends to most in each model."""
    models: dict[str, list[str]] = {}
    for system in report["systems"]:
        models.setdefault(_attended(report, system["attentions"][0], sentence), []).append(system["name"])
    parts = [f"“{word}” in {', '.join(names)}" for word, names in models.items()]
    return f"“{WORDS[sentence]}” attends most to {'; to '.join(parts)}"


def _attended(report: dict, attention: dict, sentence: int) -> str:
    """The source word that the sentence's word attends to most, without its full stop."""
    words = report["sentences"][sentence]
    row = weights(attention, sentence)[words["target"].index(WORDS[sentence])]
    return words["source"][row.index(max(row))].rstrip(".")


def _text(report: dict, sentence: int) -> str:
    return " ".join(report["sentences"][sentence]["source"][:-1])  # without the end
