"""The studies' sections of the results page, each written from the study's report alone."""

from collections.abc import Callable, Sequence
from pathlib import Path

from recipes.pages import ensembles, heads, pronunciation
from recipes.pages.alt_texts import of_study
from recipes.pages.markdown import cost, plus_minus, table


def section(name: str, report: dict) -> str:
    """The section of one study, whose report is `reports/<name>.json`, in Markdown."""
    title, write = _SECTIONS[report["study"]]
    title += ", fine-tuned" if report.get("starts") else ""
    direction = f"{report['corpus']}, {report['source']} to {report['target']}"
    parts = [f"## {title}: {direction}", f"```\n{report['command']}\n```", *write(name, report)]
    return "\n\n".join([*parts, f"Report: [{name}](reports/{name}.json)."])


def draw(report: dict, stem: Path) -> None:
    """Draws the study's figure, if it has one, as `<stem>.svg`."""
    from recipes.studies import figures

    kinds = {
        "length_study": figures.length,
        "attention_study": figures.attention,
        "alignment_study": figures.alignment,
        "ingredients_study": figures.ingredients,
        "low_resource_study": figures.low_resource,
        "g2p_study": figures.pronunciation,
    }
    if kind := kinds.get(report["study"]):
        kind(report, stem.with_name(f"{stem.name}.svg"))


def is_known(report: dict) -> bool:
    """Whether this study has a section here."""
    return report["study"] in _SECTIONS


def _length(name: str, report: dict) -> list[str]:
    bins, systems = report["bins"], report["systems"]
    head = ["source words", "sentences", *(system["name"] for system in systems)]
    rows = [
        [f"{one['words'][0]} to {one['words'][1]}", f"{one['sentences']:,}"]
        + [_interval(system["bins"][n], system["bins"][n]["bleu"]) for system in systems]
        for n, one in enumerate(bins)
    ]
    runs = [
        [
            system["name"],
            f"{system['parameters']:,}",
            f"{system['training_pairs']:,}",
            f"{system['updates']:,}",
            f"{system['train_seconds'] / 60:.1f}",
            f"{system['target_tokens_per_second']:,}",
            f"`{system['command']}`",
        ]
        for system in systems
    ]
    left_out = f" {report['overlong']:,} longer sentences are left out." if report["overlong"] else ""
    return [
        "BLEU by the length of the source, as in figure 2 of Bahdanau 2015. The number in a system's name is the "
        f"maximum number of words of a training sentence. Beam {report['beam_size']}; in brackets {_resampled(report)}."
        f"{left_out} Signature: `{report['signature']}`. {cost(report)}",
        f"![{of_study(report)}](reports/{name}.svg)",
        table(head, rows),
        table(["system", "parameters", "pairs", "updates", "minutes", "target tokens/s", "command"], runs),
    ]


def _attention(name: str, report: dict) -> list[str]:
    rows = [
        [
            row["name"],
            f"{row['parameters']:,}",
            _interval(row["bleu"], row["bleu"]["score"]),
            f"{row['chrf']['score']:.2f}",
            f"{row['perplexity']:.2f}",
            f"{row['sharpness']['entropy']:.2f}",
            f"{row['sharpness']['largest_weight']:.2f}",
            f"{row['train_seconds']:.0f}",
            f"{row['decode_seconds']:.0f}",
        ]
        for row in sorted(report["scores"], key=lambda row: -row["bleu"]["score"])
    ]
    head = ["score", "parameters", "BLEU", "chrF", "perplexity", "entropy", "largest weight", "seconds", "decoding"]
    first = report["scores"][0]
    return [
        f"Every score function in `LuongSeq2Seq`, {report['max_steps']:,} updates each. BLEU, chrF and perplexity on "
        f"the test split; beam {report['beam_size']}; in brackets {_resampled(report)}. Entropy (nats) and largest "
        "weight of the alignments' rows, averaged over the target tokens of the references, teacher-forced; uniform "
        f"rows would have {first['sharpness']['uniform_entropy']:.2f} nats. Seconds of training, validation "
        "included, and of translating the test split. Additive and concat compute the same function from weights "
        f"that are initialised differently. Signatures: `{first['bleu']['signature']}`, "
        f"`{first['chrf']['signature']}`. {cost(report)}",
        f"![{of_study(report)}](reports/{name}.svg)",
        table(head, rows),
        table(["score", "command"], [[row["name"], f"`{row['command']}`"] for row in report["scores"]]),
    ]


def _alignment(name: str, report: dict) -> list[str]:
    gold, hardware = report["gold"], report["hardware"]
    rows = []
    for row in sorted([*report["baselines"], *report["systems"]], key=lambda row: row["test"]["aer"]):
        is_system = "attention" in row
        test = [f"{row['test'][key]:.2f}" for key in ("aer", "precision", "recall")]
        where = f"{row['attention']}, {row['row']} row" if is_system else "both directions" * ("symmetrised" in row)
        bleu = f"{row['bleu']['score']:.2f}" if is_system else ""
        rows.append([row["name"], where, *test, f"{row['all']['aer']:.2f}", bleu])
    choices = [choice for system in report["systems"] for choice in system.get("candidates", [])]
    read = list(dict.fromkeys(choice["row"] for choice in choices))
    others = []
    for system in report["systems"]:
        by_attention: dict[str, dict[str, float]] = {}
        for one in system.get("candidates", []):
            by_attention.setdefault(one["attention"], {})[one["row"]] = one["test"]["aer"]
        for attention, aer in by_attention.items():
            others.append([system["name"], attention, *(f"{aer[row]:.1f}" if row in aer else "" for row in read)])
    earlier = report.get("earlier", [])
    minutes = sum(one["minutes"] for one in (report, *earlier))
    return [
        *_earlier_commands(report),
        f"Links of the Hansards (NAACL 2003): {gold['sure']:,} sure and {gold['possible']:,} possible ones, the sure "
        f"included, in {gold['sentences']} sentences. The first {gold['development']} selected each system's attention "
        "and row: a word's own row, which predicts it, the next row, which has read its first piece, or the row of the "
        "next word. AER (Och & Ney 2003, section 5), precision and recall are of the other sentences. Trained on "
        f"{report['training_pairs']:,} pairs, {report['max_steps']:,} updates each, "
        f"{minutes:.0f} minutes in all, {report['jobs']} runs in parallel on {hardware['cores']} cores; IBM "
        "Model 1 on the same pairs, and with the gold's sentences, not its links, added; eflomal, where it is listed, "
        "with these added. Both directions are made one by intersection or grow-diag-final-and.",
        f"![{of_study(report)}](reports/{name}.svg)",
        table(["aligner", "links from", "AER", "precision", "recall", "AER of all", "BLEU"], rows),
        "AER of every choice:",
        table(["aligner", "attention", *(f"{row} row" for row in read)], others),
    ]


def _earlier_commands(report: dict) -> list[str]:
    commands = [f"```\n{one['command']}\n```" for one in report.get("earlier", [])]
    return ["Other rows of the table were measured by:", *commands] if commands else []


def _ingredients(name: str, report: dict) -> list[str]:
    base, *others = report["ingredients"]
    rows = [
        [
            row["what"],
            f"{row['bleu']['mean']:.2f}",
            "" if row is base else plus_minus(f"{row['difference']:+.2f}", row["interval"]),
            _each(row),
            f"{row['chrf']:.2f}",
            f"{row['parameters']:,}",
            f"{row['train_seconds'] / 60:.1f}",
        ]
        for row in (base, *sorted(others, key=lambda row: -row["difference"]))
    ]
    head = ["ingredient", "BLEU", "difference", "single seeds", "chrF", "parameters", "minutes"]
    return [
        *_earlier_commands(report),
        f"Each run differs from the base by one ingredient. {_seeds(report, report['ingredients'])} Beam "
        f"{report['beam_size']}, {report['max_steps']:,} updates each. Signature: `{base['bleu']['signature']}`. "
        f"{cost(report)}",
        f"![{of_study(report)}](reports/{name}.svg)",
        table(head, rows),
        table(["ingredient", "command"], [[row["name"], f"`{row['command']}`"] for row in report["ingredients"]]),
    ]


def _low_resource(name: str, report: dict) -> list[str]:
    rows = []
    for gain in report["gains"]:
        plain, adapted = (
            next(row for row in report["systems"] if (row["size"], row["kind"]) == (gain["size"], kind))
            for kind in ("plain", "adapted")
        )
        cells = [plus_minus(f"{row['bleu']['mean']:.2f}", row["bleu"]["interval"]) for row in (plain, adapted)]
        gained = plus_minus(f"{gain['difference']:+.2f}", gain["interval"])
        rows.append([f"{gain['size']:,}", *cells, gained, _each(plain), _each(adapted)])
    head = ["pairs", "plain", "adapted", "difference", "plain, single seeds", "adapted, single seeds"]
    commands = [[row["name"], f"{row['train_seconds'] / 60:.1f}", f"`{row['command']}`"] for row in report["systems"]]
    return [
        "BLEU of the recipe as it is for the whole corpus, and with what Sennrich & Zhang (ACL 2019) find to matter "
        f"where text is scarce. {_seeds(report, report['systems'])} Beam {report['beam_size']}. Signature: "
        f"`{report['systems'][0]['bleu']['signature']}`. {cost(report)}",
        f"![{of_study(report)}](reports/{name}.svg)",
        table(head, rows),
        table(["system", "minutes", "command"], commands),
    ]


def _seeds(report: dict, rows: Sequence[dict]) -> str:
    counts = {len(row["bleu"]["scores"]) for row in rows}
    if counts == {1}:
        return "One seed: differences of less than 1 BLEU say nothing."
    several = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    return (
        f"Means of {several} seeds, with {report['confidence']:.0%} intervals over seeds (Student's, with the "
        "standard deviation pooled over all rows)."
    )


def _each(row: dict) -> str:
    return ", ".join(f"{score:.2f}" for score in row["bleu"]["scores"])


def _showcase(name: str, report: dict) -> list[str]:
    fixed, attention = report["systems"]
    rows = [
        [f"{one['name']} (`{one['command']}`)", f"{one['first']:.1f}", f"{one['second']:.1f}"]
        for one in (fixed, attention)
    ]
    examples = [
        [one["heading"], one["source"], one["reference"] or "", *(t["translation"] for t in one["translations"])]
        for one in report["examples"][:3]
    ]
    return [
        f"Of {report['sentences']:,} {report['split']} sentences of at least {report['min_words']} words "
        f"{fixed['name']} translates the second half worse than the first in {report['lost']:,} where "
        f"{attention['name']} is better. [The page](reports/{name}.html) shows those with the largest difference, "
        "with interactive alignments; here are the first. chrF of halves, each sentence split in the middle of its "
        "words, averaged over all of these sentences:",
        table(["system", "first half", "second half"], rows),
        table(["sentence", "source", "reference", fixed["name"], attention["name"]], examples),
    ]


def _marian(name: str, report: dict) -> list[str]:
    rows, shown = [], []
    for title, search in zip(("greedy", f"beam {report['beam_size']}"), report["searches"].values(), strict=True):
        rates = search["sentences_per_second"]
        counts = [f"{search[kind]:,}" for kind in ("equal", "ties", "better", "cut", "worse")]
        rows.append(
            [title, *counts, f"{search['largest_difference']:.0e}", f"{rates['marian']:g}", f"{rates['here']:g}"]
        )
        shown += [
            [title, other["source"], other["marian"], other["here"], f"{other['gain']:+.0e}"]
            for other in search["others"]
            if other["kind"] == "ties"
        ]
    head = ["search", "equal", "ties", "better", "cut", "worse", "largest difference", "Marian, sentences/s", "here"]
    ties = table(["tie", "source", "Marian", "here", "difference"], shown[:10])
    return [
        f"{report['system']} trained a model on the same text for {report['train_seconds'] / 60:.1f} minutes with "
        f"{report['threads']} of {report['hardware']['cores']} cores ({report['updates']:,} updates, the last in epoch "
        f"{report['epochs']}), with the options `{report['options']}`. **{report['bleu']['score']:.2f} BLEU** with "
        f"beam {report['beam_size']} (greedy: {report['greedy_bleu']['score']:.2f}), `{report['bleu']['signature']}`. "
        f"Read by `keras_attn` ({report['backend']}), it has {report['bleu_here']['score']:.2f} BLEU.",
        f"{report['test_sentences']:,} sentences in both systems: the log-probabilities of the references differ by at "
        f"most {report['largest_difference']:.0e}. Translations are equal strings, or ties (the scores differ by less "
        "than 1e-4), or have a better or a worse score here. Marian's beam is narrower by each hypothesis that has "
        "ended. Those that are cut reach the limit of three times the source's length; Marian's is that of the longest "
        "source of the batch. The largest difference is that of the scores of equal strings.",
        table(head, rows),
        *([ties] if shown else []),
    ]


def _interval(bounds: dict, score: float) -> str:
    return f"{score:.2f} [{bounds['low']:.1f}, {bounds['high']:.1f}]"


def _resampled(report: dict) -> str:
    return f"{report['confidence']:.0%} of {report['samples']:,} resampled test sets"


_SECTIONS: dict[str, tuple[str, Callable[[str, dict], list[str]]]] = {
    "length_study": ("Sentence length", _length),
    "attention_study": ("Score functions", _attention),
    "alignment_study": ("Alignment error rate", _alignment),
    "ingredients_study": ("What each ingredient is worth", _ingredients),
    "low_resource_study": ("Few training pairs", _low_resource),
    "ensembles_study": ("Ensembles", ensembles.section),
    "g2p_study": ("Pronunciation in many languages", pronunciation.section),
    "pronunciation_peers": ("Pronunciation beside other programs", pronunciation.peers),
    "heads": (heads.TITLE, heads.section),
    "showcase": ("The second half of long sentences", _showcase),
    "marian": ("Marian", _marian),
}
