"""A folder of runs, trained in parallel, that survives a kill; and the rows of an earlier report of the same study.

A run is trained by `recipes.train` in a process of its own, with the command line that its report has. Finished runs
are never repeated: a study that is started again continues.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attn import files
from keras_attn.cli import train
from keras_attn.training import TrainingConfig, plan, report, surroundings
from recipes.studies.options import corpus_name, folder_of

_SETTINGS_FILE = "study.json"
_OPTIONS = ("source", "target", "max_steps", "beam", "development", "seed", "seeds", "scores", "systems", "both_ways")
_OPTIONS += ("earlier", "recipe", "ingredients", "sizes", "size_tolerance", "languages", "minutes")  # of the command
_PAST = ("command", "minutes", "jobs", "backend", "versions", "hardware")  # of an earlier report
_TEXT_SETTINGS = (
    "level",
    "source_vocabulary_size",
    "target_vocabulary_size",
    "min_frequency",
    "lowercase",
    "shared_vocabulary",
)


@dataclasses.dataclass(frozen=True)
class Step:
    """One command of a run, such as `recipes.train`, and the file that exists once it has succeeded."""

    module: str
    options: Sequence[str]
    output: Path

    def is_done(self) -> bool:
        """True for a run that has succeeded and left nothing to do for --resume."""
        return self.output.exists() and not self.output.with_name("run.json").exists()


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run: its name, which is also its folder's, the recipe, and the settings changed.

    Corpus, languages and seed are the study's unless it has its own; `options` are further ones of `recipes.train`.
    """

    name: str
    recipe: str
    changes: tuple[str, ...]
    corpus: Path | str | None = None
    languages: tuple[str, str] | None = None
    seed: int | None = None
    options: tuple[str, ...] = ()


class Study:
    """A study's folder. Its `study.json` has the settings, so that no other study continues in it, and the seconds.

    Args:
        arguments: of the command, of `study_parser`.
        name: name of the study, such as "length_study".
        runs: its runs.
        settings: whatever else determines the outcome.
    """

    def __init__(self, arguments, name: str, runs: Sequence[Run], **settings: Any):
        import keras  # late, because `command.run` imports it quietly

        self.arguments, self.runs = arguments, runs
        self.out = folder_of(arguments, name)
        self.settings = {
            "study": name,
            "corpus": corpus_name(arguments),
            "source": arguments.source,
            "target": arguments.target,
        }
        self.settings |= {"seed": arguments.seed, "beam_size": arguments.beam, "changes": arguments.changes}
        self.settings |= {"backend": keras.backend.backend()} | settings
        self.module = name.removesuffix("_study")  # which is also its figure's name
        self.seconds = 0.0

    def folder(self, run: Run) -> Path:
        return self.out / run.name

    def training(self, run: Run) -> list[str]:
        """The options of `recipes.train` for this run, without its folder."""
        arguments, options = self.arguments, [run.recipe, *self._where(run)]
        seed = arguments.seed if run.seed is None else run.seed
        options += ["--seed", str(seed), "--beam", str(arguments.beam)]
        minutes = getattr(arguments, "minutes", None)
        options += ["--minutes", str(minutes)] if minutes is not None else []
        return [*options, *run.options, "--no-export", *(["--set", *run.changes] if run.changes else [])]

    def train_step(self, run: Run) -> Step:
        folder = self.folder(run)
        options = [*self.training(run), "--out", str(folder)]
        options += ["--data", self.arguments.data] if self.arguments.data else []
        return Step("recipes.train", options + ["--resume"] * (folder / "run.json").exists(), folder / "report.json")

    def ensemble_step(self, runs: Sequence[Run], output: Path, *options: str) -> Step:
        """The command that scores an ensemble of runs on the corpus of the first."""
        output.with_name(f"{output.name}.part").unlink(missing_ok=True)  # of a study that was killed
        first, *others = (str(self.folder(run)) for run in runs)
        line = [first, "--ensemble", *others, "--beam", str(self.arguments.beam), "--output", str(output), *options]
        line += self._where(runs[0])
        line += ["--data", self.arguments.data] if self.arguments.data else []
        return Step("keras_attn.cli.evaluate", line, output)

    def _where(self, run: Run) -> list[str]:
        """The options for a run's corpus and languages."""
        languages = run.languages or (self.arguments.source, self.arguments.target)
        pairs = zip(("--source", "--target"), languages, strict=True)
        named = [part for flag, value in pairs if value for part in (flag, value)]
        return ["--corpus", str(run.corpus or self.arguments.corpus), *named]

    def reports(self) -> dict[str, dict]:
        """The reports of the finished runs, by name."""
        paths = {run.name: self.folder(run) / "report.json" for run in self.runs}
        return {name: json.loads(path.read_text("utf-8")) for name, path in paths.items() if path.exists()}

    def configs(self, runs: Sequence[Run]) -> dict[str, TrainingConfig]:
        """The configuration of each run, by name.

        Raises:
            ValueError: for an unknown setting, or a value outside its range.
        """
        parse = train.parser().parse_args
        return {run.name: plan.make_plan(**vars(parse(self.training(run)))).config for run in runs}

    def check_sizes(
        self, corpus, runs: Sequence[Run], tolerance: float = 0.05, earlier: Mapping[str, int] | None = None
    ) -> None:
        """Checks, before hours of training, that these runs are about equal in size and have the same text settings.

        Args:
            corpus: From whose training split the tokenizers learn.
            runs: The runs.
            tolerance: By how much the largest may exceed the smallest.
            earlier: The parameters of systems of an earlier report, by name.

        Raises:
            ValueError: if they are or have not.
        """
        from keras_attn.training import fitting

        configs = self.configs(runs)
        texts = {tuple(getattr(config, name) for name in _TEXT_SETTINGS) for config in configs.values()}
        if len(texts) > 1:
            raise ValueError(f"Expected the same {', '.join(_TEXT_SETTINGS)} in all runs. Received: {sorted(texts)}")
        tokenizers = fitting.train_tokenizers(next(iter(configs.values())), *corpus.splits["train"])
        sizes = [tokenizer.vocabulary_size for tokenizer in tokenizers]
        counts = {
            run.name: plan.load_recipe(run.recipe).build(configs[run.name], *sizes).count_params() for run in runs
        }
        counts |= earlier or {}
        if max(counts.values()) > (1 + tolerance) * min(counts.values()):
            received = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            raise ValueError(f"Expected runs of equal size, within {tolerance:.0%}. Received parameters: {received}")

    @contextlib.contextmanager
    def opened(self) -> Iterator["Study"]:
        """Locks the folder for this process, and counts the seconds; each run locks its own.

        Raises:
            FileExistsError: if the folder has other files, or another process works in it.
            ValueError: if it is another study's.
        """
        path = self.out / _SETTINGS_FILE
        with files.locked(self.out):
            if not files.is_empty(self.out) and not path.exists():
                raise FileExistsError(f"Expected --out to be a new or empty folder, or a study's: {str(self.out)!r}")
            if path.exists():
                begun = report.read_settings(path)
                self.seconds = float(begun.pop("seconds", 0))
                if different := [name for name in self.settings if begun.get(name) != self.settings[name]]:
                    raise ValueError(
                        f"Expected the same study as in {str(self.out)!r}. It was begun with another "
                        f"{', '.join(different)}."
                    )
            self._ticked = time.monotonic()
            self._tick()
            yield self
            self._tick()

    def work(self, chains: dict[str, list[Step]]) -> None:
        """Runs the steps of each chain in order, and `jobs` chains in parallel.

        Raises:
            RuntimeError: if a command fails, with the last line of its output. The others are terminated, and can be
                continued later.
        """
        todo = {name: [step for step in steps if not step.is_done()] for name, steps in chains.items()}
        waiting = [(name, steps) for name, steps in todo.items() if steps]
        running: list[tuple[str, list[Step], subprocess.Popen, float]] = []
        try:
            while waiting or running:
                while waiting and len(running) < self.arguments.jobs:
                    running.append(self._start(*waiting.pop(0)))
                time.sleep(0.1)
                for job in [job for job in running if job[2].poll() is not None]:
                    running.remove(job)
                    if rest := self._ended(*job):
                        waiting.insert(0, (job[0], rest))
                if time.monotonic() - self._ticked > 10:
                    self._tick()
        finally:
            for _, _, process, _ in running:
                process.terminate()
                process.wait()

    def _start(self, name: str, steps: list[Step]) -> tuple[str, list[Step], subprocess.Popen, float]:
        line = [sys.executable, "-m", steps[0].module, *steps[0].options]
        print(f"{name}: {steps[0].module} ...", flush=True)
        with (self.out / f"{name}.log").open("ab") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(line, env=self._environment(), **options)
        return name, steps, process, time.monotonic()

    def _ended(self, name: str, steps: list[Step], process: subprocess.Popen, started: float) -> list[Step]:
        """The remaining steps."""
        if process.returncode or not steps[0].is_done():
            log = self.out / f"{name}.log"
            last_line = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
            raise RuntimeError(f"{steps[0].module} failed for {name}: {last_line or process.returncode} (see {log})")
        print(f"{name}: {steps[0].module} took {(time.monotonic() - started) / 60:.1f} minutes", flush=True)
        return steps[1:]

    def _environment(self) -> dict[str, str]:
        """In parallel, each run gets a part of the cores: if all share all cores, each waits for the others."""
        if self.arguments.jobs == 1:
            return dict(os.environ)
        threads = str(max(1, (os.cpu_count() or 1) // self.arguments.jobs))
        return os.environ | dict.fromkeys(
            ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), threads
        )

    def _tick(self) -> None:
        now = time.monotonic()
        self.seconds += now - self._ticked
        self._ticked = now
        report.write(self.out / _SETTINGS_FILE, self.settings | {"seconds": round(self.seconds, 1)})

    def write_report(self, **figures: Any) -> dict:
        """Writes `report.json`, the study's figures and what they depend on, and draws it. Returns it."""
        from recipes.studies import figures as drawings

        self._tick()
        first = next(iter(self.reports().values()), self.settings)
        contents = self.settings | {name: first[name] for name in ("corpus", "source", "target")}
        contents |= {"command": self._command(), "minutes": round(self.seconds / 60, 1), "jobs": self.arguments.jobs}
        contents |= figures | surroundings()
        report.write(self.out / "report.json", contents)
        print(f"The study is in {self.out}.")
        if draw := getattr(drawings, self.module, None):
            draw(contents, self.out / f"{self.module}.svg")
        return contents

    def _command(self) -> str:
        """The command line, without the folders of this machine."""
        parts = [f"python -m recipes.studies.{self.module} --corpus {self.settings['corpus']}"]
        for name in _OPTIONS:
            value = getattr(self.arguments, name, None)
            parts += [f"--{name.replace('_', '-')} {value}"] if value is not None else []
        lists = {"--from": self.settings.get("starts") or (), "--adapted": getattr(self.arguments, "adapted", ())}
        for flag, values in (lists | {"--set": self.arguments.changes}).items():
            parts += [flag, *values] if values else []
        return " ".join(parts)


def write_corpus(folder: Path, languages: Sequence[str], splits: Mapping[str, Sequence[Sequence[str]]]) -> None:
    """Writes the sides of each split as a corpus of its own, unless the folder exists."""
    if folder.exists():
        return
    with files.staging(folder.parent) as temporary:
        new = temporary / folder.name
        new.mkdir()
        for split, sides in splits.items():
            for language, lines in zip(languages, sides, strict=True):
                (new / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        files.publish(new, folder)


def read_earlier(arguments, settings: dict[str, Any], lists: Sequence[str]) -> dict:
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


def merge_earlier(earlier: dict, **rows: Sequence[dict]) -> dict[str, list[dict]]:
    """The earlier report's lists, in which new rows replace those of the same name, and the commands that made it."""
    past = [{name: earlier[name] for name in _PAST}] if "command" in earlier else []
    lists = {}
    for name, new in rows.items():
        lists[name] = list(({row["name"]: row for row in earlier[name]} | {row["name"]: row for row in new}).values())
    return lists | {"earlier": [*earlier.get("earlier", []), *past]}
