"""`keras-attn serve` under load on loopback: answers, errors, refusals, latency and memory.

    python -m tests.benchmarks.serving_load --preset RUN [--clients 20] [--seconds 60] [--data DIR] [--attack]

Two processes export the run into one folder at the same time, which must make two versions. The newer one is served,
and `--clients` clients translate the run's own test sentences for `--seconds`, half of them over REST and half over
gRPC, with 1 to 4 sentences a request; each sends its next request when it has the answer. Then the server is killed
with SIGKILL while it works, and started again for 5 seconds with room for 4 requests, so that it must refuse some.
Every answer is compared with that of `Translator.generate`; a different string of nearly the same score (1e-4) counts
as a tie. No request is repeated. With `--attack`, the clients of `tests.attack.hostile` attack during the first part.
The last line is JSON; the exit status is 1 after any error or wrong answer, or if a version has changed.
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from keras_attn import Translator
from keras_attn.serving.client import Client
from keras_attn.training import corpora, length_penalty, read_report
from keras_attn.training.memory import memory_mb
from recipes.pages.results import name_of_run
from tests.attack.hostile import Hostile, Target, attacks

BEAM, TIE, ROOM = 5, 1e-4, 4


def export_twice(run: Path, folder: Path) -> float:
    command = [sys.executable, "-m", "keras_attn", "export", str(run), str(folder), "--beam", str(BEAM)]
    begin = time.perf_counter()
    exports = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    if any([export.wait() for export in exports]):
        raise RuntimeError(f"Expected {' '.join(command)} to succeed.")
    return time.perf_counter() - begin


def digests(folder: Path) -> dict[str, str]:
    """Returns a hash of the files of each version."""
    hashes = {}
    for version in sorted(path for path in folder.iterdir() if path.name.isdigit()):
        content = hashlib.sha256()
        for path in sorted(path for path in version.rglob("*") if path.is_file()):
            content.update(str(path.relative_to(version)).encode() + path.read_bytes())
        hashes[version.name] = content.hexdigest()
    return hashes


@contextlib.contextmanager
def serving(folder: Path, *flags: str):
    """Starts a server; yields the process, its addresses, and the seconds until it accepted requests."""
    command = [
        sys.executable,
        "-m",
        "keras_attn",
        "serve",
        str(folder),
        "--name",
        "m",
        "--port",
        "0",
        "--grpc-port",
        "0",
    ]
    begin = time.perf_counter()
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            ready = re.match(r"m is served on (http://\S+) .* (grpc://\S+)\. ", process.stdout.readline())
            if ready is None:
                raise RuntimeError(f"Expected {' '.join(command)} to serve.")
            yield process, ready.groups(), time.perf_counter() - begin
        finally:
            process.kill()


class Load:
    """Clients that translate until `stop` is called, and the outcomes of their requests."""

    def __init__(self, addresses, expected: dict[str, tuple[str, float]], clients: int):
        self.counts, self.latencies, self.faults = Counter(), [], []
        self._expected, self._sentences = expected, list(expected)
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(clients)
        self._running = [self._pool.submit(self._translate, n, addresses[n % 2]) for n in range(clients)]

    def stop(self) -> None:
        self._stop.set()
        for client in self._running:
            client.result()

    def _translate(self, number: int, address: str) -> None:
        choose = random.Random(number)
        with Client(address, "m", retries=0, timeout=120) as client:
            while not self._stop.is_set():
                texts = choose.choices(self._sentences, k=choose.randint(1, 4))
                begin = time.perf_counter()
                try:
                    translations = client.translate(texts)
                except (ValueError, RuntimeError, OSError) as error:
                    self._count_failure(error)
                    continue
                with self._lock:
                    self.latencies.append(time.perf_counter() - begin)
                    self.counts["sentences"] += len(texts)
                    for text, translation in zip(texts, translations, strict=True):
                        self._check(text, translation)

    def _count_failure(self, error: Exception) -> None:
        refused = re.search("status 429|RESOURCE_EXHAUSTED", str(error))
        with self._lock:
            self.counts["refused" if refused else "errors"] += 1
            if not refused:
                self.faults.append(str(error))
        time.sleep(0.01)

    def _check(self, text: str, translation) -> None:
        expected, score = self._expected[text]
        if translation.text != expected:
            kind = "ties" if abs(translation.score - score) < TIE else "wrong"
            self.counts[kind] += 1
            self.faults += [f"{text!r} gave {translation.text!r}, not {expected!r}"] * (kind == "wrong")


def warm_up(addresses, expected) -> None:
    """Sends one request, because the first one after a start may take seconds."""
    with Client(addresses[0], "m", timeout=120) as client:
        client.translate(list(expected)[:64])


def measure(folder: Path, expected, clients: int, seconds: float, attack: bool) -> dict:
    with serving(folder) as (process, addresses, start_seconds):
        warm_up(addresses, expected)
        target = Target("m", *addresses, process.pid, folder)
        start, begin = memory_mb(process=process.pid), time.perf_counter()
        with Hostile(*attacks(target)) if attack else contextlib.nullcontext():
            load = Load(addresses, expected, clients)
            time.sleep(seconds / 2)
            half = memory_mb(process=process.pid)
            time.sleep(seconds / 2)
            load.stop()
        seconds, end, peak = (
            time.perf_counter() - begin,
            memory_mb(process=process.pid),
            memory_mb("VmHWM", process.pid),
        )
        # Killed while it works; the requests of this time are lost and not counted.
        lost = Load(addresses, expected, clients)
        time.sleep(0.5)
        process.kill()
        process.wait()
        lost.stop()
    milliseconds = 1000 * np.array(load.latencies)
    names = ("sentences", "errors", "wrong", "ties", "refused")
    figures = {"requests": len(milliseconds)} | {name: load.counts[name] for name in names}
    figures["sentences_per_second"] = round(load.counts["sentences"] / seconds, 1)
    figures["requests_per_second"] = round(len(milliseconds) / seconds, 1)
    percentiles = zip(("p50", "p90", "p99", "max"), np.percentile(milliseconds, (50, 90, 99, 100)), strict=True)
    figures["latency_ms"] = {name: round(float(value), 1) for name, value in percentiles}
    figures["resident_mb"] = {"start": round(start), "half": round(half), "end": round(end), "peak": round(peak)}
    figures["start_seconds"] = round(start_seconds, 1)
    print(*load.faults[:10], sep="\n")
    return figures


def overload(folder: Path, expected, clients: int) -> dict:
    """Serves again after the kill, with too little room for the clients."""
    with serving(folder, "--max-requests", str(ROOM)) as (_, addresses, _):
        warm_up(addresses, expected)
        load = Load(addresses, expected, clients)
        time.sleep(5)
        load.stop()
    print(*load.faults[:10], sep="\n")
    counts = {name: load.counts[name] for name in ("errors", "wrong", "refused")}
    return {"max_requests": ROOM, "answered": len(load.latencies)} | counts


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", required=True, type=Path, help="folder of a run")
    parser.add_argument("--data", default=os.environ.get("KERAS_ATTN_DATA"))
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--attack", action="store_true", help="with hostile clients beside them")
    parser.add_argument("--sentences", type=int, default=300, help="of the run's test split (default: %(default)s)")
    arguments = parser.parse_args(argv)
    report = read_report(arguments.preset)
    sources, _ = corpora.load(report["corpus"], report["source"], report["target"], data=arguments.data).splits["test"]
    sources = list(dict.fromkeys(sources))[: arguments.sentences]
    penalty = length_penalty(arguments.preset, None)
    options = {"beam_size": BEAM, "length_penalty": penalty, "return_alignments": False}
    translations = Translator.from_preset(arguments.preset).generate(sources, **options)
    expected = {text: (t.text, t.score) for text, t in zip(sources, translations, strict=True)}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        export_seconds = export_twice(arguments.preset, folder)
        versions = digests(folder)
        figures = measure(folder, expected, arguments.clients, arguments.seconds, arguments.attack)
        full = overload(folder, expected, arguments.clients)
        kept = digests(folder) == versions and sorted(versions) == ["1", "2"]
    result = {
        "benchmark": "serving_load",
        "run": name_of_run(arguments.preset),
        "clients": arguments.clients,
        "seconds": arguments.seconds,
        "attack": arguments.attack,
        **figures,
    }
    result |= {"overload": full, "versions": sorted(versions), "kept_after_kill": kept}
    result["two_exports_seconds"] = round(export_seconds, 1)
    print(json.dumps(result))
    faults = sum(counts[name] for counts in (figures, full) for name in ("errors", "wrong"))
    return int(faults > 0 or not kept or not full["refused"])


if __name__ == "__main__":
    sys.exit(main())
