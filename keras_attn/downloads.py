"""Downloads of files of a known SHA-256, and the cache that holds them."""

import os
import shutil
import sys
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from keras_attn import files

_SCHEMES = ("http", "https", "file")
_SECONDS = 30  # without a byte
_BLOCK = 1 << 16
_LARGEST = 1 << 31  # bytes of a file whose size is not known


def cache_folder() -> Path:
    """Returns the folder in Keras' cache of what is downloaded, or made of large corpora."""
    return Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "keras_attn"


def download(address: str, path: Path, *, sha256: str | None = None, size: int | None = None) -> Path:
    """Downloads a file by `pooch`, under another name until it is complete and has been checked.

    On a terminal the bytes that have arrived are counted on stderr.

    Args:
        address: Of http, https or file.
        path: The new file, in a folder that exists.
        sha256: Its SHA-256 in hexadecimal; None: it is not checked.
        size: Its size in bytes; None: any size up to 2 GiB.

    Returns:
        `path`.

    Raises:
        FileNotFoundError: if the address does not answer with the whole file.
        ValueError: if the file is larger, or has another size or SHA-256.
        OSError: if it cannot be written, or the disk is full.
    """
    scheme = urlsplit(address).scheme
    if scheme not in _SCHEMES:
        raise ValueError(f"Expected an address of {', '.join(_SCHEMES)}. Received: {address!r}")
    from urllib.error import URLError  # slow to import, as are the others
    from urllib.request import urlopen

    import pooch
    import requests

    def receive(address: str, part: str, _) -> None:
        with open(part, "wb") as file:
            arriving = _Arriving(file, address, _LARGEST if size is None else size)
            if scheme == "file":
                with urlopen(address) as source:
                    shutil.copyfileobj(source, arriving)
            else:  # bytes as they are stored: requests would unpack what a server packs for the way
                identity = {"Accept-Encoding": "identity"}
                pooch.HTTPDownloader(chunk_size=_BLOCK, timeout=_SECONDS, headers=identity)(address, arriving, None)
            arriving.end(is_exact=size is not None)

    pooch.get_logger().setLevel("WARNING")
    known_hash = None if sha256 is None else f"sha256:{sha256}"
    try:
        with files.needs_room(path.parent):
            pooch.retrieve(address, known_hash, path.name, path.parent, downloader=receive)
    except requests.RequestException as error:
        raise FileNotFoundError(f"Could not download {address} ({error}).") from None
    except URLError as error:
        raise FileNotFoundError(f"Could not download {address} ({error.reason}).") from None
    except _WrongSizeError:
        raise
    except ValueError as error:
        raise ValueError(f"Expected {address} to have the SHA-256 {sha256}. What arrived was deleted.") from error
    return path


class _WrongSizeError(ValueError):
    """A file that is larger or smaller than it should be."""


class _Arriving:
    """A file that counts what is written on a terminal's stderr, and takes no more than `limit` bytes."""

    def __init__(self, file: BinaryIO, address: str, limit: int):
        self._file, self._address, self._limit, self._size = file, address, limit, 0

    def write(self, block: bytes) -> None:
        self._size += len(block)
        if self._size > self._limit:
            raise _WrongSizeError(f"Expected {self._address} to have {self._limit:,} bytes. Received: more.")
        self._file.write(block)
        if sys.stderr.isatty():
            print(f"\r{self._address}: {self._size:,} bytes", end="", file=sys.stderr, flush=True)

    def flush(self) -> None:
        self._file.flush()

    def end(self, is_exact: bool) -> None:
        if sys.stderr.isatty():
            print(file=sys.stderr)
        if is_exact and self._size != self._limit:
            raise _WrongSizeError(
                f"Expected {self._address} to have {self._limit:,} bytes. Received: {self._size:,}, which were deleted."
            )
