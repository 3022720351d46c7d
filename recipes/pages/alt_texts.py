"""Alternative texts of figures, each from a report alone: what one sees, and what follows from it."""


def of_study(report: dict) -> str:
    """What the figure of a study shows, and what follows from it, in a sentence."""
    kind = report["study"]
    if kind == "length_study":
        ends = [_ends(report, recipe) for recipe in ("rnnsearch", "rnnencdec")]
        direction = f"{report['corpus']}, {report['source']} to {report['target']}"
        return f"BLEU against source length on {direction}: {'; '.join(ends)}"
    if kind == "attention_study":
        rows = sorted(report["scores"], key=lambda row: -row["bleu"]["score"])
        best, worst = rows[0], rows[-1]
        flat = max(report["scores"], key=lambda row: row["sharpness"]["entropy"])
        return (
            f"BLEU, perplexity and entropy of {len(report['scores'])} score functions: {best['name']} has the best "
            f"BLEU, {best['bleu']['score']:.1f}, {worst['name']} the worst, {worst['bleu']['score']:.1f}; the flattest "
            f"alignments are those of {flat['name']}"
        )
    if kind == "alignment_study":
        rows = sorted([*report["systems"], *report["baselines"]], key=lambda row: row["test"]["aer"])
        shown = [f"{row['name']} with {row['test']['aer']:.1f} %" for row in (rows[0], rows[-1])]
        return f"Alignment error rates of {len(rows)} aligners, from {' to '.join(shown)}"
    if kind == "ingredients_study":
        rows = sorted(report["ingredients"][1:], key=lambda row: -row["difference"])
        shown = [f"{row['name']} with {row['difference']:+.2f}" for row in (rows[0], rows[-1])]
        return f"Differences in BLEU of {len(rows)} ingredients, from {' to '.join(shown)}"
    if kind == "g2p_study":
        means = []
        for one in report["means"]:
            best = min(one["scores"], key=lambda score: score["wer"]["mean"])
            means.append(f"{best['name']} has {best['wer']['mean']:.1f} % and the baseline {one['baseline']:.1f} %")
        return f"Word error rates of {len(report['languages'])} languages; on average {', '.join(means)}"
    gains = [f"{row['difference']:+.2f} with {row['size']:,}" for row in report["gains"]]
    return f"BLEU against training pairs, of the plain and the adapted system, whose difference is {', '.join(gains)}"


def of_curve(report: dict, name: str) -> str:
    """What the curves of a run's history show, in a sentence; `name` is loss, bleu or wer."""
    first, last = (report["history"][f"val_{name}"][n] for n in (0, -1))
    title = {"loss": "Loss", "bleu": "BLEU", "wer": "Word error rate"}[name]
    ends = f"{first:.2f} after the first epoch, {last:.2f} after the last"
    return f"{title} against epochs, on the validation split {ends}"


def _ends(report: dict, recipe: str) -> str:
    """The scores of a recipe's best system for the shortest and for the longest sentences."""
    systems = (one for one in report["systems"] if one["recipe"] == recipe)
    system = max(systems, key=lambda one: one["bins"][-1]["bleu"])
    first, last = (system["bins"][n]["bleu"] for n in (0, -1))
    return f"{system['name']} has {first} for the shortest sentences and {last} for the longest"
