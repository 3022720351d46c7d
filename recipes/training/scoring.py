"""What a report says of runs that are scored by error rates: repeated items, and a part of the results page."""

from collections.abc import Mapping


def repeated(metric: str, splits: Mapping[str, tuple[list[str], list[str]]]) -> dict[str, int]:
    """Of items that are right or wrong as a whole: how many of the test were seen in training."""
    if metric == "bleu":
        return {}
    return {"test_sources_in_training": len(set(splits["test"][0]) & set(splits["train"][0]))}


def details(name: str, report: dict) -> str:
    """A run scored by errors, as a part of the results page in Markdown."""
    curve = ", ".join(f"{rate:.1f}" for rate in report["history"]["val_wer"])
    wer, per, greedy = (report[key]["score"] for key in ("wer", "per", "greedy_wer"))
    return (
        f"Word error rate **{wer:.2f} %**, phoneme error rate {per:.2f} % (beam {report['beam_size']}; "
        f"`{report['wer']['signature']}`: any of a word's pronunciations is right, and each word counts once); greedy "
        f"word error rate {greedy:.2f} %. {report['test_sources_in_training']} words of the test stand in the training "
        f"split. [{name}](reports/{name}.json): {report['parameters'] / 1e6:.1f} M parameters, {report['epochs']} "
        f"epochs, {report['train_seconds'] / 60:.1f} minutes on {report['hardware']['cores']} cores "
        f"({report['backend']}), {report['target_tokens_per_second']:,} target tokens/s, seed {report['seed']}. "
        f"Validation word error rate (greedy) after each epoch: {curve}.\n\n![Training curves](reports/{name}.svg)"
    )
