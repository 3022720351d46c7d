"""The section of the results page on ensembles."""

from recipes.pages.markdown import cost, plus_minus, table


def section(name: str, report: dict) -> list[str]:
    """The paragraphs on the ensembles of `recipes.studies.ensembles`."""
    single, bleu = report["single"], report["single"]["bleu"]
    alone = ", ".join(f"{score:.2f}" for score in bleu["scores"])
    rows = [["1", plus_minus(f"{bleu['mean']:.2f}", bleu["interval"]), "", f"{single['chrf']:.2f}", ""]]
    for row in report["ensembles"]:
        figures = f"{row['bleu']:.2f}", f"{row['gain']:+.2f}", f"{row['chrf']:.2f}", f"{row['seconds']:.0f}"
        rows.append([str(row["models"]), *figures])
    return [
        f"The recipe `{report['recipe']}`, {single['parameters'] / 1e6:.1f} M parameters, with {report['seeds']} "
        f"seeds: {single['updates']:,} updates and {single['train_seconds'] / 60:.1f} minutes a model. The score of "
        f"one model is the mean of {alone}, with its {report['confidence']:.0%} interval over seeds (Student's). An "
        "ensemble chooses each token by the mean of its models' probabilities. Beam "
        f"{report['beam_size']}. Signature: `{bleu['signature']}`. {cost(report)}",
        table(["models", "BLEU", "more than one model", "chrF", "seconds of translation"], rows),
        f"The first model's command: `{single['command']}`.",
    ]
