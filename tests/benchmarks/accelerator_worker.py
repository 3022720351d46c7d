"""A process of one backend that measures cases for `tests.benchmarks.accelerator`, seen from the outside."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading

# Processes follow each other, so JAX may take what torch has given back.
ENVIRONMENT = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92", "TF_CPP_MIN_LOG_LEVEL": "3"}
PROGRAM = (sys.executable, "-m", "tests.benchmarks.accelerator_cases")


class Worker:
    """`tests.benchmarks.accelerator_cases` on `backend`; messages go to standard error.

    Args:
        backend: "jax" or "torch".
        seconds: Time to start, at most.
        program: The command line.

    Attributes:
        facts: What it says about its device; None if it did not start.
    """

    def __init__(self, backend: str, seconds: float, program: tuple[str, ...] = PROGRAM):
        environment = ENVIRONMENT | dict(os.environ) | {"KERAS_BACKEND": backend}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(program, text=True, env=environment, **pipes)
        self.lines = queue.Queue()
        self.killed = False  # for the time it took
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.facts = self._next(seconds)

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)  # the process has ended

    def _next(self, seconds: float) -> dict | None:
        """The next line; None if it does not come in time or the process ends. Either way the process is gone then."""
        try:
            found = self.lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            found = None
            self.killed = True
            self.process.kill()
        if found is None:
            self.process.wait()
        return found

    def alive(self) -> bool:
        return self.process.poll() is None

    def measure(self, case: dict, settings: dict, seconds: float) -> dict | None:
        """The case with its result. None: it took too long, and the process was killed.

        A case during which the process dies, or before which it did not start, has the status "failed".
        """
        try:
            print(json.dumps({"case": case, "settings": settings}), file=self.process.stdin, flush=True)
            found = self._next(seconds)
        except BrokenPipeError:  # it ended before
            self.process.wait()
            found = None
        if found or self.killed:
            return found
        return case | {"status": "failed", "error": f"the process ended with status {self.process.returncode}"}

    def close(self) -> None:
        """Ends the process; one that does not end by itself within seconds is killed."""
        with contextlib.suppress(BrokenPipeError):  # a process that has ended
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        self.process.stdout.close()
