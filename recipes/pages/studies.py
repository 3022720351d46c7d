"""The studies on the results page: a paragraph and figures for each, from its report alone."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from recipes.studies import figures


class Kind(NamedTuple):
    """A kind of study: its title, sentences on what was measured and what was found, and the function of its figure."""

    title: str
    measured: Callable[[dict], str]
    found: Callable[[dict], str]
    figure: Callable | None = None


def section(name: str, report: dict) -> list[str]:
    """Returns the paragraph of a study, whose report is `reports/<name>.json`, and its figure."""
    kind = STUDIES[report["study"]]
    title = kind.title + (", fine-tuned" if report.get("starts") else "")
    minutes = sum(one["minutes"] or 0 for one in (report, *report.get("earlier", ())) if "minutes" in one)
    cost = f" {minutes:.0f} minutes." if minutes else ""
    page = f", [sentences](reports/{name}.html)" if report["study"] in ("heads", "showcase") else ""
    text = f"**{title}.** {kind.measured(report)} {kind.found(report)}.{cost} [Report](reports/{name}.json){page}."
    return [f"{text}\n![{kind.found(report)}](reports/{name}.svg)"] if kind.figure else [text]


def draw(report: dict, stem: Path) -> None:
    """Draws the study's figures: `<stem>.svg`, and for some `<stem>-narrow.svg`, as wide as a phone.

    The study of heads has one for each sentence, `<stem>-1.svg`, and `<stem>-each.svg` for each head; that of their
    roles has `<stem>-removed.svg`, that of the lecture `<stem>-heads.svg` and `<stem>-transformer.svg`, that of
    pronouns `<stem>-1.svg` to `<stem>-4.svg`, the encoder's and the decoder's rows in two sentences, too.
    """

    def path(ending: str) -> Path:
        return stem.with_name(f"{stem.name}{ending}.svg")

    if figure := STUDIES[report["study"]].figure:
        figure(report, path(""))
    if figure in (figures.length, figures.attention, figures.alignment):
        figure(report, path("-narrow"), narrow=True)
    if report["study"] == "lecture":
        for of in ("heads", "transformer"):
            figures.lecture_attentions(report, of, path(f"-{of}"))
    if report["study"] == "relations":
        for n in range(len(report["runs"][0]["per_mille"])):
            figures.pronoun_rows(report, n, path(f"-{n + 1}"))
    if report["study"] == "head_roles":
        figures.pruned_heads(report, path("-removed"))
    if report["study"] == "heads":
        for n in range(len(report["sentences"])):
            figures.heads(report, n, path(f"-{n + 1}"))
        for system in report["systems"]:
            if len(system["attentions"]) > 1:
                figures.heads(report, n, path("-each"), of=system["name"])


def _length(report: dict) -> str:
    ends = []
    for recipe in ("rnnsearch", "rnnencdec"):
        system = max(
            (one for one in report["systems"] if one["recipe"] == recipe), key=lambda one: one["bins"][-1]["bleu"]
        )
        first, last = (system["bins"][n]["bleu"] for n in (0, -1))
        ends.append(f"{system['name']} has {first} for the shortest sentences and {last} for the longest")
    direction = f"{report['corpus']}, {report['source']} to {report['target']}"
    return f"BLEU against source length on {direction}: {'; '.join(ends)}"


def _scores(report: dict) -> str:
    rows = sorted(report["scores"], key=lambda row: -row["bleu"]["score"])
    best, worst = rows[0], rows[-1]
    flat = max(report["scores"], key=lambda row: row["sharpness"]["entropy"])
    return (
        f"BLEU, perplexity and entropy of {len(rows)} score functions: {best['name']} has the best BLEU, "
        f"{best['bleu']['score']:.1f}, {worst['name']} the worst, {worst['bleu']['score']:.1f}; the flattest "
        f"alignments are those of {flat['name']}"
    )


def _aligners(report: dict) -> str:
    rows = sorted([*report["systems"], *report["baselines"]], key=lambda row: row["test"]["aer"])
    shown = [f"{row['name']} with {row['test']['aer']:.1f} %" for row in (rows[0], rows[-1])]
    return f"Alignment error rates of {len(rows)} aligners, from {' to '.join(shown)}"


def _ingredients(report: dict) -> str:
    rows = sorted(report["ingredients"][1:], key=lambda row: -row["difference"])
    shown = [f"{row['name']} with {row['difference']:+.2f}" for row in (rows[0], rows[-1])]
    return f"Differences in BLEU of {len(rows)} ingredients, from {' to '.join(shown)}"


def _low_resource(report: dict) -> str:
    gains = [f"{row['difference']:+.2f} with {row['size']:,}" for row in report["gains"]]
    return f"BLEU against training pairs, of the plain and the adapted system, whose difference is {', '.join(gains)}"


def _languages(report: dict) -> str:
    means = []
    for one in report["means"]:
        best = min(one["scores"], key=lambda score: score["wer"]["mean"])
        means.append(f"{best['name']} has {best['wer']['mean']:.1f} % and the baseline {one['baseline']:.1f} %")
    return f"Word error rates of {len(report['languages'])} languages; on average {', '.join(means)}"


def _ensembles(report: dict) -> str:
    bleu = report["single"]["bleu"]
    gains = [f"{row['gain']:+.2f} with {row['models']}" for row in report["ensembles"]]
    return f"One model has {bleu['mean']:.2f} ± {bleu['interval']:.2f} BLEU; ΔBLEU is {', '.join(gains)} models"


def _heads(report: dict) -> str:
    parts = []
    for system in report["systems"]:
        mean, *heads = system["attentions"]
        text = f"{system['name']} {system['bleu']['score']:.1f} BLEU, {mean['largest_weight']:.2f}"
        if system is not report["systems"][0]:
            text += f", {mean['same_word']:.0f} %"
        if heads:
            low, *_, high = sorted(one["same_word"] for one in heads)
            text += f", single heads {low:.0f} to {high:.0f} %"
        parts.append(text)
    return "; ".join(parts)


def _head_roles(report: dict) -> str:
    heads = [row for row in report["rows"] if "bleu" in row]
    worst, half = min(heads, key=lambda row: row["bleu"]), report["pruned"][len(heads) // 2 - 1]
    return (
        f"Without its most important head, {worst['name']}, {worst['bleu']:.1f} of {report['complete']['score']:.1f} "
        f"BLEU are left, without the less important half of the {len(heads)} heads {half['bleu']:.1f}"
    )


def _lecture(report: dict) -> str:
    rows = []
    for task in (name for name in report["scores"][0] if name != "name"):
        names = [row["name"] for row in report["scores"] if row[task] > 95]
        rows.append(f"“{task}” by {', '.join(names)}")
    return f"Tasks that a score function solves in more than 95 % of the steps: {'; '.join(rows)}"


def _relations(report: dict) -> str:
    parts = []
    for run in report["runs"]:
        best = max(run["rows"], key=lambda row: row["it: right"] - row["it: other"])
        nouns = f"{best['it: right']:.1f} % on the noun that is meant and {best['it: other']:.1f} on the other"
        parts.append(f"{run['pronouns']:.1f} % with seed {run['seed']}, where {best['name']} has {nouns}")
    return f"Right pronouns: {'; '.join(parts)}"


def _showcase(report: dict) -> str:
    halves = [f"{one['name']} {one['first']:.1f} and {one['second']:.1f}" for one in report["systems"]]
    return f"chrF of the first and the second half: {', '.join(halves)}"


def _marian(report: dict) -> str:
    counts = [
        f"{sum(search[kind] for kind in ('equal', 'ties'))} of {report['test_sentences']:,} with {name}"
        for name, search in zip(
            ("greedy search", f"beam {report['beam_size']}"), report["searches"].values(), strict=True
        )
    ]
    return f"Read by `keras_attn`, its model gives equal strings or ties for {' and '.join(counts)}"


def _peers(report: dict) -> str:
    rows = sorted(report["systems"], key=lambda one: one["wer"]["score"])
    parts = {"wer_without_stress": "without stress", "wer_of_stress": "of stress alone"}
    own = [[f"{one[name]['score']:.2f} {what}" for name, what in parts.items() if name in one] for one in rows]
    return ", ".join(
        f"{one['name']} {one['wer']['score']:.2f}{' (' * bool(more)}{'; '.join(more)}{')' * bool(more)}"
        for one, more in zip(rows, own, strict=True)
    )


def _sweep(report: dict) -> str:
    best = max(report["rows"], key=lambda row: row["bleu"]["score"])
    greedy = next(row for row in report["rows"] if row["beam_size"] == 1)
    return (
        f"Greedy search has {greedy['bleu']['score']:.2f} BLEU, the best of {len(report['rows'])} searches "
        f"{best['bleu']['score']:.2f} (beam {best['beam_size']}, α {best['length_penalty']:g})"
    )


def _seeds(report: dict) -> str:
    return "One seed." if report["seeds"] == 1 else f"Up to {report['seeds']} seeds."


STUDIES = {
    "length_study": Kind(
        "Sentence length",
        lambda _: "As in figure 2 of Bahdanau 2015; the number in a name is the longest sentence of its training.",
        _length,
        figures.length,
    ),
    "attention_study": Kind(
        "Score functions",
        lambda report: f"In the same `LuongSeq2Seq`, {report['max_steps']:,} updates each.",
        _scores,
        figures.attention,
    ),
    "alignment_study": Kind(
        "Alignment",
        lambda report: (
            f"Trained on {report['corpus']}, against links of {report['gold']['sentences']} sentences of the Hansards "
            f"(NAACL 2003), the first {report['gold']['development']} of which selected each system's attention and "
            "row; models that translate are blue."
        ),
        _aligners,
        figures.alignment,
    ),
    "ingredients_study": Kind(
        "Ingredients",
        lambda report: f"Each run differs from `nematus` by one ingredient. {_seeds(report)}",
        _ingredients,
        figures.ingredients,
    ),
    "low_resource_study": Kind(
        "Few training pairs",
        lambda report: f"With what Sennrich & Zhang (ACL 2019) find to matter, and without. {_seeds(report)}",
        _low_resource,
        figures.low_resource,
    ),
    "ensembles_study": Kind(
        "Ensembles",
        lambda report: f"`{report['recipe']}` with {report['seeds']} seeds, {report['single']['updates']:,} updates.",
        _ensembles,
    ),
    "g2p_study": Kind(
        "Languages",
        lambda report: f"Beside the second SIGMORPHON shared task's baseline (Ashby et al. 2021). {_seeds(report)}",
        _languages,
        figures.g2p,
    ),
    "pronunciation_peers": Kind(
        "Beside other programs",
        lambda report: f"Word error rate on {report['test_words']:,} words of {report['corpus']}:",
        _peers,
    ),
    "heads": Kind(
        "Each head",
        lambda report: (
            f"{report['measured']} sentences of at most {report['max_words']} words, references teacher-forced; BLEU, "
            f"the mean largest weight of a row, and rows with the same word as {report['systems'][0]['name']}:"
        ),
        _heads,
    ),
    "head_roles": Kind(
        "Roles of heads",
        lambda report: (
            f"Shares of the weights of each head of `{report['run']['recipe']}`, and BLEU of greedy search without it, "
            f"on {report['measured']} sentences of at most {report['max_words']} words."
        ),
        _head_roles,
        figures.head_roles,
    ),
    "lecture": Kind(
        "Score functions on generated tasks",
        lambda report: (
            "The value of a key, asked for by the key, by the key in another code, by the position, or by a key near "
            f"the step; one attention each, {report['items']:,} generated sentences."
        ),
        _lecture,
        figures.lecture,
    ),
    "relations": Kind(
        "Pronouns",
        lambda report: (
            "A small Transformer has to find the noun of “it” by its adjective; on "
            f"{report['runs'][0]['test_sentences']} sentences with pairs of noun and adjective that are new to it."
        ),
        _relations,
        figures.relations,
    ),
    "showcase": Kind(
        "The second half of long sentences",
        lambda report: (
            f"Of {report['sentences']:,} sentences of at least {report['min_words']} words "
            f"{report['systems'][0]['name']} translates the second half worse than the first in {report['lost']:,} "
            f"where {report['systems'][1]['name']} is better."
        ),
        _showcase,
    ),
    "marian": Kind(
        "Marian",
        lambda report: f"{report['system']}, {report['updates']:,} updates with {report['threads']} core.",
        _marian,
    ),
    "sweep": Kind("Beam and length penalty", lambda report: f"`{report['recipe']}`.", _sweep),
}
