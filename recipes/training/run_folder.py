"""The folder of a run: what it may hold before training begins, and the file that says which run it is."""

import json
import shutil
from pathlib import Path


def refuse_taken(out: Path, resume: bool) -> None:
    """Before any work: a folder that holds something else, or a finished run, is left alone."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"Expected --out to be a folder. Received a file: {str(out)!r}")
    if (out / "report.json").exists() and resume:
        raise FileExistsError(f"The run in {str(out)!r} is finished: there is nothing to resume.")
    taken = out.exists() and any(out.iterdir())
    if taken and not resume:
        raise FileExistsError(
            f"Expected --out to be a new or empty folder. {str(out)!r} already holds a run or other files; "
            f"choose another, or go on with an unfinished run by --resume."
        )
    if taken and not (out / "run.json").exists():
        raise FileExistsError(f"Expected a run to resume in {str(out)!r}. It holds other files and no run.json.")


def open_run(out: Path, settings: dict, resume: bool) -> None:
    """Writes down what the run is, or sees that it is the one to resume."""
    path = out / "run.json"
    if resume and path.exists():
        begun = json.loads(path.read_text(encoding="utf-8"))
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
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
