"""Training on several processes and devices of JAX, on a CPU: how much faster two processes are, and equal losses.

    python -m tests.benchmarks.distributed [--out FILE.json] [--figure FILE.png] [--rounds 5] [--updates 12]

Strong scaling: one process on one core against two processes on a core each (gloo), with the same global batches of
random pairs as long as those of Multi30k. All stay alive; after the updates that compile they train the same epoch in
turn, and the rate of a round is that of the slower process. `ratio` is the median over the rounds, whose goal is 1.6;
quiet cores are needed. Then 1, 2, 4 and 8 virtual devices in one process each (`XLA_FLAGS`). Virtual devices share the
cores, so that their rates say nothing about accelerators. The losses of the first updates are those of one device: the
exit status is 1 if one differs by more than a relative 1e-5, or if a process fails. The model is an `RNNSearch`
without dropout. The last line is JSON. Linux only.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import queue
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from keras_attn.cli import command, environment
from keras_attn.training import surroundings
from tests.benchmarks.distributed_process import Job
from tests.data_parallel import ROOT, free_port

DEVICES = (1, 2, 4, 8)
COMPARED, TOLERANCE, GOAL = 4, 1e-5, 1.6
GREETING = re.compile(r"I\d{4} |WARNING: All log messages before absl")  # when Keras imports TensorFlow
NAMES = {"one_process": "one process", "two_processes": "two processes"}


class Team:
    """Processes that train one model together, each in a process group of its own; a context manager that kills them.

    Args:
        name: Opens the sentences about failures.
        jobs: What each process does.
    """

    def __init__(self, name: str, jobs: list[Job]):
        self._name, self._jobs, self._limit = name, jobs, jobs[0].seconds
        self._lines: queue.Queue[tuple[int, str | None]] = queue.Queue()
        self._errors, self._processes = [], []

    def __enter__(self) -> "Team":
        self._deadline = time.monotonic() + self._limit
        with contextlib.ExitStack() as stack:
            for rank, job in enumerate(self._jobs):
                self._errors.append(stack.enter_context(tempfile.TemporaryFile("w+")))
                self._processes.append(_start(job, self._errors[-1]))
                stack.callback(_kill, self._processes[-1])
                threading.Thread(target=self._read, args=(rank,), daemon=True).start()
            self._close = stack.pop_all().close
        return self

    def __exit__(self, *_) -> None:
        self._close()

    def epoch(self) -> float:
        """Trains an epoch and returns the seconds of the slowest process."""
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):  # it has ended, as its output says, too
                process.stdin.write("epoch\n")
                process.stdin.flush()
        return max(answer["seconds"] for answer in self.answers())

    def answers(self) -> list[dict]:
        """The next answer of every process, by rank.

        Raises:
            RuntimeError: if one ends before, or time is up.
        """
        found = {}
        while len(found) < len(self._processes):
            try:
                rank, line = self._lines.get(timeout=max(0, self._deadline - time.monotonic()))
            except queue.Empty:
                raise RuntimeError(
                    f"Expected {self._name} to end within {self._limit} seconds (--seconds). It was killed."
                ) from None
            if line is None:
                raise RuntimeError(self._failure(rank))
            if line.startswith("{"):  # gloo prints, too
                found[rank] = json.loads(line)
        return [found[rank] for rank in sorted(found)]

    def _read(self, rank: int) -> None:
        for line in self._processes[rank].stdout:
            self._lines.put((rank, line))
        self._lines.put((rank, None))

    def _failure(self, rank: int) -> str:
        status = self._processes[rank].wait()
        self._errors[rank].seek(0)
        lines = [line.strip() for line in self._errors[rank] if line.strip()]
        last = [line for line in lines if not GREETING.match(line)][-3:]
        who = f"{self._name}, rank {rank}," if len(self._processes) > 1 else self._name
        return f"Expected {who} to train. It ended with status {status}: {' | '.join(last)[-800:] or 'no message'}"


def _start(job: Job, errors) -> subprocess.Popen:
    own = {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "JAX_TRACEBACK_FILTERING": "off",  # which puts lines of its own after the message of an error
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={job.devices}",
    }
    line = [sys.executable, "-m", "tests.benchmarks.distributed_process", json.dumps(dataclasses.asdict(job))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
    return subprocess.Popen(line, text=True, cwd=ROOT, start_new_session=True, env=os.environ | own, **pipes)


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def two_cores() -> list[int]:
    """Two cores that this process may use, not two threads of one if there are others.

    Raises:
        ValueError: if there is only one.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise ValueError(f"Expected two cores, one for each process. Received: {len(allowed)}")
    first, *others = allowed
    return [first, next((core for core in others if core not in _threads(first)), others[0])]


def _threads(core: int) -> set[int]:
    """The logical cores that share this one's physical core; empty if the system does not say."""
    path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    if not path.exists():
        return set()
    ends = [[int(end) for end in part.split("-")] for part in path.read_text().strip().split(",")]
    return {one for part in ends for one in range(part[0], part[-1] + 1)}


def largest_difference(losses: list[list[float]]) -> float:
    """The largest relative difference between the first list and the others."""
    first, *others = losses
    return max(abs(one - own) / abs(own) for other in others for one, own in zip(other, first, strict=True))


def strong_scaling(job: Job, rounds: int) -> tuple[dict, dict]:
    """One process against two; returns the figures and what the model and the data are."""
    cores = two_cores()
    pair = {"count": 2, "address": f"127.0.0.1:{free_port()}"}
    jobs = {
        "one_process": [dataclasses.replace(job, cores=cores[:1])],
        "two_processes": [dataclasses.replace(job, cores=[core], rank=n, **pair) for n, core in enumerate(cores)],
    }
    with contextlib.ExitStack() as stack:
        teams = {name: stack.enter_context(Team(NAMES[name], jobs[name])) for name in jobs}
        first = {name: team.answers()[0] for name, team in teams.items()}
        rates = {name: [] for name in teams}
        for number in range(rounds):
            for name in list(teams)[:: -1 if number % 2 else 1]:
                rates[name].append(round(first[name]["target_tokens"] / teams[name].epoch(), 1))
            print(f"round {number + 1}: " + ", ".join(f"{NAMES[n]} {r[-1]:,.0f}" for n, r in rates.items()), flush=True)
    ratios = [two / one for one, two in zip(*rates.values(), strict=True)]
    losses = {name: answer.pop("losses") for name, answer in first.items()}
    figures = {
        "cores": cores,
        "share_a_physical_core": cores[1] in _threads(cores[0]),
        "target_tokens_per_second": {name: statistics.median(values) for name, values in rates.items()},
        "rounds": rates,
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(one, 3) for one in ratios],
        "goal": GOAL,
        "losses": losses,
        "largest_relative_difference": largest_difference(list(losses.values())),
    }
    return figures, first["one_process"]


def virtual_devices(job: Job) -> dict:
    """The same updates on 1, 2, 4 and 8 devices of one process."""
    losses, rates = {}, {}
    for count in DEVICES:
        with Team(f"the process with virtual devices ({count})", [dataclasses.replace(job, devices=count)]) as team:
            (answer,) = team.answers()
            rates[str(count)] = round(answer["target_tokens"] / team.epoch(), 1)
            losses[str(count)] = answer["losses"]
        print(f"{count} virtual devices: losses {', '.join(f'{one:.6f}' for one in losses[str(count)])}", flush=True)
    return {
        "losses": losses,
        "largest_relative_difference": largest_difference(list(losses.values())),
        "target_tokens_per_second": rates,
        "note": "the devices share the cores of this machine: their rates say nothing about accelerators",
    }


def draw(result: dict, path: Path) -> None:
    """Two panels: the rates of the rounds, and the losses of the first updates, which coincide."""
    import matplotlib

    from keras_attn.plots import plot_style
    from keras_attn.plots.plot_style import BLUE, GREY, INK, ORANGE

    scaling, devices = result["strong_scaling"], result["virtual_devices"]
    medians, rounds = scaling["target_tokens_per_second"], scaling["rounds"]
    with matplotlib.rc_context(plot_style.STYLE):
        figure = plot_style.new_figure(figsize=(8.4, 3.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        for place, (name, colour) in enumerate(zip(NAMES, (GREY, BLUE), strict=True)):
            left.bar(place, medians[name], color=colour, width=0.55, alpha=0.35)
            left.plot([place] * len(rounds[name]), rounds[name], "o", color=colour, markersize=4)
        goal = scaling["goal"] * medians["one_process"]
        left.axhline(goal, color=ORANGE, linewidth=1.0, linestyle="--")
        label = {"xycoords": left.get_yaxis_transform(), "xytext": (0, 3), "textcoords": "offset points"}
        left.annotate(f"{scaling['goal']:g} times one", (0.98, goal), ha="right", fontsize=8.5, color=ORANGE, **label)
        left.margins(y=0.1)
        left.set_xticks(
            range(len(NAMES)), [f"{name}, {n} core{'s' * (n > 1)}" for n, name in enumerate(NAMES.values(), 1)]
        )
        left.set_title(f"Target tokens/s: {scaling['ratio']:.2f} times", loc="left", fontsize=10.5, color=INK, pad=9)
        looks = zip(devices["losses"].items(), (12, 9, 6, 3), (GREY, ORANGE, BLUE, INK), strict=True)
        for (count, losses), size, colour in looks:  # one inside the other
            updates = range(1, len(losses) + 1)
            right.plot(updates, losses, "o-", color=colour, markersize=size, linewidth=size / 3, label=count)
        right.legend(frameon=False, fontsize=8.5, labelcolor=INK, title="virtual devices", title_fontsize=8.5)
        right.set_xticks(updates)
        right.set_xlabel("update", fontsize=9, color=INK)
        title = f"Loss: differences up to {devices['largest_relative_difference']:.0e}"
        right.set_title(title, loc="left", fontsize=10.5, color=INK, pad=9)
        for axes in (left, right):
            plot_style.plain_axes(axes)
    plot_style.save(figure, path)


def measure(options: argparse.Namespace) -> None:
    """Measures, writes the files, and prints the JSON."""
    from keras_attn.plots.plot_style import check_ending
    from keras_attn.training import report

    check_ending(options.figure)
    for path in (options.out, options.figure):
        if path and not path.absolute().parent.is_dir():
            raise FileNotFoundError(f"Expected a folder to write {path.name} to. There is no {path.parent}.")
    if options.batch_size % max(DEVICES):
        raise ValueError(
            f"Expected --batch-size to divide among {max(DEVICES)} devices. Received: {options.batch_size}"
        )
    load = [round(one, 2) for one in os.getloadavg()]
    names = ("units", "vocabulary_size", "batch_size", "updates", "seconds")
    job = Job(compared=COMPARED, **{name: getattr(options, name) for name in names})
    scaling, made = strong_scaling(job, options.rounds)
    model = {"units": job.units, "vocabulary_size": job.vocabulary_size, "parameters": made["parameters"]}
    result = {
        "benchmark": "distributed",
        "model": model,
        "batch_size": job.batch_size,
        "updates_of_a_round": made["updates"],
        "target_tokens_of_a_round": made["target_tokens"],
        "strong_scaling": scaling,
        "virtual_devices": virtual_devices(job),
        "load": load,
        **surroundings(),
    }
    if options.figure:
        draw(result, options.figure)
    if options.out:
        report.write(options.out, result)
    print(json.dumps(result))
    for name in ("strong_scaling", "virtual_devices"):
        if not (difference := result[name]["largest_relative_difference"]) <= TOLERANCE:  # NaN is not
            raise RuntimeError(
                f"Expected equal losses ({name}), to a relative {TOLERANCE:g}. They differ by {difference:.1e}."
            )


def main(argv=None) -> int:
    parser = command.Parser("tests.benchmarks.distributed", description=__doc__.splitlines()[0])
    option, most = parser.add_argument, 1_000_000
    option("--out", type=Path, metavar="FILE.json")
    option("--figure", type=Path, metavar="FILE.png")
    option("--rounds", type=command.between(int, 1, most), default=5, help="default: %(default)s")
    option("--updates", type=command.between(int, COMPARED, most), default=12, help="of a round (default: %(default)s)")
    option("--batch-size", type=command.between(int, 8, most), default=128, help="default: %(default)s")
    option("--units", type=command.between(int, 2, most), default=512, help="default: %(default)s")
    option("--vocabulary-size", type=command.between(int, 5, most), default=8000, help="default: %(default)s")
    option("--seconds", type=command.between(int, 1, most), default=900, help="limit of each process (default: 900)")
    return command.run(measure, parser, argv, prepare=lambda: environment.prepare("jax"))


if __name__ == "__main__":
    sys.exit(main())
