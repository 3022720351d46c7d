"""How much memory of a process is resident, as Linux counts it."""

from pathlib import Path


def resident_kb(name: str = "VmRSS", process: int | str = "self") -> int:
    """Kilobytes: VmRSS, what is resident now; VmHWM, the most so far.

    `ru_maxrss` is not the process' own: it begins with the peak of the process that started it.

    Raises:
        OSError: on another system than Linux, or without such a process.
    """
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{name}:")))
