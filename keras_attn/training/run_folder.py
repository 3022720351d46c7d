"""The folder of a run: whether training may begin in it, and run.json, which identifies an unfinished run."""

import json
import shutil
from pathlib import Path

from keras_attn import files


def refuse_taken(out: Path, resume: bool) -> None:
    """Raises FileExistsError if the folder has other files or a finished run, before any work."""
    unfinished = (out / "run.json").exists()
    if (out / "report.json").exists() and resume and not unfinished:
        raise FileExistsError(f"The run in {str(out)!r} is finished: there is nothing to resume.")
    taken = not files.is_empty(out)
    if taken and not resume:
        raise FileExistsError(
            f"Expected --out to be a new or empty folder. {str(out)!r} already holds a run or other files; "
            f"choose another, or continue an unfinished run with --resume."
        )
    if taken and not unfinished:
        raise FileExistsError(f"Expected a run to resume in {str(out)!r}. It has other files and no run.json.")


def open_run(out: Path, settings: dict, resume: bool) -> None:
    """Writes the settings into run.json or, to resume, checks that they are those of the unfinished run."""
    path = out / "run.json"
    if resume and path.exists():
        begun = read_settings(path)
        same_recipe, config = begun.get("recipe") == settings["recipe"], begun.get("config")
        if same_recipe and not (isinstance(config, dict) and config.keys() == settings["config"].keys()):
            raise ValueError(
                f"Expected a run of this version in {str(out)!r}. It was begun by another, whose settings have other "
                "names: train it again in a new folder."
            )
        different = [name for name in settings if begun.get(name) != settings[name]]
        if different:
            raise ValueError(
                f"Expected the same run as in {str(out)!r}. It was begun with another {', '.join(different)}."
            )
        if not (out / "translator.json").exists():  # killed while the preset was moved into place
            (out / "model.keras").unlink(missing_ok=True)
            for name in ("source_tokenizer", "target_tokenizer"):
                shutil.rmtree(out / name, ignore_errors=True)
        return
    with files.replacing(path) as partial:
        partial.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def read_settings(path: Path) -> dict:
    """Reads the settings of an unfinished run or study.

    Raises:
        ValueError: if the file is truncated or changed.
    """
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ValueError(
            f"Expected {str(path)!r} to have the settings with which this folder was begun. It is truncated or "
            "changed: begin again in a new folder."
        ) from None
