"""A server for exported models, for development: `keras-attn serve`.

It has the REST and gRPC interfaces of the stock `tensorflow_model_server`, so that a client can be tried where the
stock server's binary is not available. It does not replace it: it serves one model, and only its newest version; it is
a single Python process without accelerators; it has no TLS, no authentication, no limit on connections, no Classify,
Regress or MultiInference, no version labels, and no configuration at run time. For production, see
saved_models/README.md; for its limits and what they protect from, SECURITY.md.
"""

import asyncio
import contextlib
import ctypes
import functools
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
from aiohttp import web

from keras_attn.serving.dev_server import rest, rpc
from keras_attn.serving.dev_server.batching import Batcher
from keras_attn.serving.dev_server.metrics import Metrics
from keras_attn.serving.dev_server.saved_model import SavedModel
from keras_attn.serving.dev_server.service import Service
from keras_attn.serving.dev_server.settings import Settings
from keras_attn.serving.dev_server.versions import Versions


def serve(directory: Path, name: str, settings: Settings, ready: Callable[[str, str], None]) -> None:
    """Serves until SIGTERM or SIGINT, then refuses new requests, answers those it has, and returns.

    If the last step takes longer than `drain_seconds`, the process ends with status 1. A second signal ends it at once.
    XLA is disabled in this process from then on, as in the stock server, unless the settings enable it.

    Args:
        directory: The model's folder, with a folder for each version.
        name: The model's name in requests.
        settings: Addresses and limits.
        ready: Called with the REST and the gRPC address when they accept requests.

    Raises:
        FileNotFoundError, ValueError: if there is no version, or the newest does not load.
        OSError: if a port is in use.
    """
    # The two kinds of workers, and the warm-up of a new version.
    versions = Versions(name, directory, functools.partial(SavedModel, runs=2 * settings.workers + 1))
    if not asyncio.run(_serve(versions, settings, ready)):
        os._exit(1)  # at exit, Python would wait for the threads that still run


async def _serve(versions: Versions, settings: Settings, ready: Callable[[str, str], None]) -> bool:
    """Serves; returns whether all requests were answered at the end."""
    metrics = Metrics()
    batcher = Batcher(
        max_batch_size=settings.max_batch_size,
        delay=settings.batch_delay,
        max_requests=settings.max_requests,
        workers=settings.workers,
        observe=metrics.batch,
    )
    metrics.watch(versions, batcher)
    service = Service(versions, batcher, metrics, settings)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(batcher.close)
        bound = stack.enter_context(_bound(settings.host, settings.port))
        server = rpc.server(service)
        grpc_port = _add_port(server, settings.host, settings.grpc_port)
        await asyncio.to_thread(_load, versions, settings)  # takes seconds, so the ports are bound before it

        # A request is cancelled when its client disconnects. The time that a connection may be idle is also that in
        # which the headers of its first request must arrive.
        app = rest.application(service, _own_names(bound, settings))
        options = {"handler_cancellation": True, "keepalive_timeout": settings.transfer_seconds}
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, **options)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.SockSite(runner, bound).start()
        await server.start()
        stack.push_async_callback(server.stop, grace=1.0)
        watching = asyncio.create_task(versions.watch(settings.poll_seconds))
        stack.callback(watching.cancel)
        stopped = _stopped()
        ready(
            f"http://{_written(settings.host, bound.getsockname()[1])}", f"grpc://{_written(settings.host, grpc_port)}"
        )
        await stopped.wait()
        logging.warning("Shutting down: %d requests are answered first, new ones refused.", batcher.present)
        is_drained = await batcher.drain(settings.drain_seconds)
        if not is_drained:
            logging.warning("%d requests took longer than %g s, and are left.", batcher.present, settings.drain_seconds)
            await batcher.close()  # while they are still connected, so that they get an error
    return is_drained


def _load(versions: Versions, settings: Settings) -> None:
    if not settings.xla_cpu_compilation_enabled:
        library = Path(tf.__file__).with_name(
            "libtensorflow_cc.2.dylib" if sys.platform == "darwin" else "libtensorflow_cc.so.2"
        )
        # A C++ symbol, which the stock server's main calls too.
        ctypes.CDLL(str(library))._ZN10tensorflow21DisableXlaCompilationEv()
    versions.load()


def _own_names(bound: socket.socket, settings: Settings) -> set[str] | None:
    """Returns the names that a Host header may have; None: any, because the address is not only for this machine."""
    if not ipaddress.ip_address(bound.getsockname()[0]).is_loopback and not settings.allow_hosts:
        return None
    return {name.lower() for name in ("localhost", "127.0.0.1", "::1", settings.host, *settings.allow_hosts)}


def _bound(host: str, port: int) -> socket.socket:
    """Returns a bound socket that does not listen yet."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise _taken("port", host, port, error.strerror or error) from None
    return bound


def _add_port(server, host: str, port: int) -> int:
    try:
        return server.add_insecure_port(_written(host, port))
    except RuntimeError as error:
        raise _taken("grpc-port", host, port, error) from None


def _taken(flag: str, host: str, port: int, why) -> OSError:
    return OSError(
        f"Expected to listen on {_written(host, port)}. It is taken, or not this machine's ({why}). "
        f"Choose another --{flag}."
    )


def _written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _stopped() -> asyncio.Event:
    """Returns an event that SIGTERM and SIGINT set. A second signal ends the process at once."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def stop():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)  # not KeyboardInterrupt, which would wait for what runs
        event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return event
