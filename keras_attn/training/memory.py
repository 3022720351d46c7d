"""How much memory of a process is resident, in megabytes of 10^6 bytes."""

import resource
import sys
from pathlib import Path


def memory_mb(name: str = "VmRSS", process: int | str = "self") -> float:
    """What Linux counts: VmRSS, resident now; VmHWM, the most so far.

    Raises:
        OSError: on another system, or if there is no such process any more.
    """
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(f"Expected a process that runs. Received: {process}")


def peak_memory_mb() -> float:
    """The most memory of this process that was resident.

    Where it is not Linux this begins with the peak of the process that started it (`ru_maxrss`).
    """
    if sys.platform == "linux":
        return memory_mb("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
