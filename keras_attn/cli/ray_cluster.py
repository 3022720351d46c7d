"""Workers of a Ray cluster, or of this machine, that call a class for each row of a table."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence

from keras_attn.cli.command import quietly

_HTTP2, _SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", bytes(3) + b"\x04" + bytes(5)  # RFC 9113, 3.4 and 6.5
_STORE = 1 << 28  # bytes of shared memory on this machine: rows and results are small
_PATIENCE = 5  # seconds in which an address must answer
_MOST_TASKS = 10_000  # rows beyond are handed out several at a time


@contextlib.contextmanager
def connected(address: str | None, workers: int | None, gpus: float) -> Iterator[int]:
    """Connects to a cluster, or starts Ray on this machine, until the end of the block.

    Args:
        address: "host:port" of a cluster, "auto" for the one that this machine is part of; None: this machine alone.
        workers: How many; None: one for each CPU or, with `gpus`, as many as the GPUs are enough for.
        gpus: GPUs of a worker; 0.5: two workers share one.

    Yields:
        The number of workers.

    Raises:
        ValueError: If there are fewer CPUs or GPUs than the workers need.
        ConnectionError: If no cluster answers.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if address is None:
        _check("CPUs", workers, 1, cores)
    elif address != "auto":
        _check_answers(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what goes wrong is raised, too
    with quietly():
        import ray
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # its errors are raised, too
        ray.data.DataContext.get_current().enable_progress_bars = False
        options = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            options |= {"num_cpus": cores, "include_dashboard": False, "object_store_memory": _STORE}
        try:
            ray.init(address or "local", **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if address is None:
                raise ConnectionError(f"Expected Ray to start on this machine. Received: {error}") from None
            raise ConnectionError(
                f"Expected a Ray cluster at {address!r}. Received: {error}. If it authenticates by token, set "
                "RAY_AUTH_MODE=token."
            ) from None
    try:
        resources = ray.cluster_resources()
        cpus = int(resources.get("CPU", 0))
        workers = workers or max(1, min(cpus, int(resources.get("GPU", 0) / gpus)) if gpus else cpus)
        _check("CPUs", workers, 1, cpus)
        if gpus:
            _check("GPUs", workers, gpus, resources.get("GPU", 0))
        yield workers
    finally:
        ray.shutdown()


def once(worker: type, arguments: tuple, method: str, gpus: float):
    """Makes a worker of a class, somewhere in the cluster, and returns what its method returns.

    Raises:
        Exception: What the constructor or the method raises.
    """
    import ray

    def call():
        return getattr(worker(*arguments), method)()

    try:
        return ray.get(ray.remote(call).options(num_cpus=1, num_gpus=gpus).remote())
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


def mapped(worker: type, arguments: tuple, rows: Sequence[dict], workers: int, gpus: float) -> Iterator[dict]:
    """Calls workers for rows, each at least once, and yields what they return, in no order.

    A worker that dies is replaced, and its row is tried again, any number of times.

    Args:
        worker: A class whose instances are called with a row.
        arguments: Of its constructor.
        rows: At least one.
        workers: How many.
        gpus: GPUs of a worker.

    Raises:
        RuntimeError: If a worker raises something, or the cluster is lost.
    """
    import ray
    import ray.data

    table = ray.data.from_items(rows, override_num_blocks=min(len(rows), _MOST_TASKS))
    results = table.map(
        worker,
        fn_constructor_args=arguments,
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=1,
        num_gpus=gpus or None,
    )
    try:
        yield from results.iter_rows()
    except ray.exceptions.RayError as error:
        raise RuntimeError(f"Expected workers that answer. Received: {error}") from None


def _check(what: str, workers: int | None, each: float, available: float) -> None:
    if workers and workers * each > available:
        raise ValueError(
            f"Expected --workers of at most {int(available / each):,}, for there are {available:g} {what}. "
            f"Received: {workers:,}"
        )


def _check_answers(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError(f'Expected --address to be HOST:PORT, or "auto". Received: {address!r}')
    try:
        with socket.create_connection((host, int(port)), timeout=_PATIENCE) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            # Ray waits for minutes for an answer of what is no Ray. Any gRPC server begins with its settings.
            connection.sendall(_HTTP2 + _SETTINGS)
            answer = connection.recv(len(_SETTINGS), socket.MSG_WAITALL)
    except OSError as error:
        raise ConnectionError(f"Expected a Ray cluster at {address!r}. Nobody answers there: {error}") from None
    if answer[3:4] != _SETTINGS[3:4]:
        raise ConnectionError(f"Expected a Ray cluster at {address!r}. Something else answers there.")
