"""The rows of a study's earlier report, for a study that trains only the systems that it lacks."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

_PAST = ("command", "minutes", "jobs", "backend", "versions", "hardware")


def read(arguments: argparse.Namespace, settings: dict[str, Any], lists: Sequence[str]) -> dict:
    """The report that `--earlier` names, or one whose lists are empty. The argument becomes the file's name.

    Args:
        arguments: Of the command.
        settings: Figures that the report must have, too, except for the backend and `bfloat16_products`, which are how
            it was computed.
        lists: Names of its lists of rows.

    Raises:
        ValueError: if it is another study's, or none.
    """
    if arguments.earlier is None:
        return dict.fromkeys(lists, ())
    try:
        report = dict(json.loads(arguments.earlier.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise ValueError(f"Expected --earlier to be a report.json. Received: {str(arguments.earlier)!r}") from None
    expected, found = ({**one, "changes": _changes(one), "backend": None} for one in (settings, report))
    different = [name for name in settings if found.get(name) != expected[name]]
    if missing := [name for name in (*lists, *_PAST) if name not in report]:
        different += missing
    if different:
        raise ValueError(f"Expected --earlier to be a report of this study. It has another {', '.join(different)}.")
    arguments.earlier = arguments.earlier.name
    return report


def _changes(settings: dict[str, Any]) -> list[str]:
    return [change for change in settings.get("changes", ()) if "bfloat16_products=" not in change]


def merged(earlier: dict, **rows: Sequence[dict]) -> dict[str, list[dict]]:
    """The earlier report's lists, in which new rows replace those of the same name, and the commands that made it."""
    past = [{name: earlier[name] for name in _PAST}] if "command" in earlier else []
    lists = {}
    for name, new in rows.items():
        lists[name] = list(({row["name"]: row for row in earlier[name]} | {row["name"]: row for row in new}).values())
    return lists | {"earlier": [*earlier.get("earlier", []), *past]}
