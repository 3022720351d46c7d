"""What the sections of the results page are made of."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def plus_minus(text: str, interval: float | None) -> str:
    """A number with half of its interval, if there is one."""
    return text if interval is None else f"{text} ± {interval:.2f}"


def cost(report: dict) -> str:
    """What a study took with its earlier parts, as a sentence."""
    minutes = sum(one["minutes"] for one in (report, *report.get("earlier", ())))
    parallel = f", {report['jobs']} runs in parallel" if report["jobs"] > 1 else ""
    return f"The study took {minutes:.0f} minutes on {report['hardware']['cores']} cores{parallel}."


def grid(images: list[tuple[str, str]]) -> str:
    """Figures, in two columns where there is room."""
    lines = [f"![{alt}](gallery/{name}.svg)" for alt, name in images]
    return "\n\n".join(['<div class="gallery" markdown>', *lines, "</div>"])


def frame(path: str, address: str, title: str) -> str:
    """A page within the page, and a link to it. A frame's address is relative to the page on the site, gallery/."""
    frame = f'<iframe src="{address}" title="{title}" loading="lazy"></iframe>'
    return f"{frame}\n\n[{title}, on a page of its own]({path})"
