"""Addresses and limits of a server."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
    """Addresses and limits of a server; `keras-attn serve --help` explains each. Port 0 stands for any free port."""

    host: str = "127.0.0.1"
    port: int = 8501
    grpc_port: int = 8500
    allow_hosts: tuple[str, ...] = ()
    max_batch_size: int = 64
    batch_delay: float = 0.005
    workers: int = 1
    max_requests: int = 128
    max_request_bytes: int = 2**22
    max_answer_bytes: int = 2**26
    transfer_seconds: float = 30.0
    request_seconds: float = 60.0
    poll_seconds: float = 1.0
    drain_seconds: float = 30.0
    xla_cpu_compilation_enabled: bool = False
