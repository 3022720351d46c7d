"""What the studies that compare runs in the same sentences have in common."""

from collections.abc import Sequence
from pathlib import Path

from keras_attn.training import read_report


def compared(runs: Sequence[Path], corpus: str | None, data: str | None, of: int = 0):
    """The reports of runs, by folder, and the corpus whose sentences all of them translate, with the runs' tags.

    Args:
        runs: Their folders.
        corpus: A name or a folder; None: that of a run.
        data: The folder of corpora.
        of: The place of that run.

    Raises:
        ValueError: if a run is given twice, has no report, or another direction or other tags than the others.
    """
    reports = {run: read_report(run) for run in runs}
    directions = {(one["source"], one["target"]) for one in reports.values()}
    if len(reports) < len(runs) or len(directions) > 1 or (None, None) in directions:
        raise ValueError(
            "Expected the folders of different runs with a report.json, from one language into one other. Received: "
            + ", ".join(f"{str(run)!r} ({reports[run]['source']} to {reports[run]['target']})" for run in runs)
        )
    if len(tags := {one.get("tags") for one in reports.values()}) > 1:
        raise ValueError("Expected runs with the same --tags. Received: runs with others")
    ((source, target),) = directions

    from keras_attn import Tokenizer
    from keras_attn.training import corpora, starting_point

    name = corpus or reports[runs[of]]["corpus"]
    found = corpora.load(name, source, target, data=data, tags=tags.pop())
    for run in reports:
        starting_point.check_tags(found, Tokenizer.load(run / "source_tokenizer"))
    return reports, found
