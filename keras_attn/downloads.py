"""Downloads: files of a known SHA-256 that continue where they were interrupted; and the cache that holds them."""

import http
import http.client
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from keras_attn import files

_SCHEMES = ("http", "https", "file")
_SECONDS = 30  # without a byte
_BLOCK = 1 << 16
_LARGEST = 1 << 31  # bytes of a file whose size is not known


def cache_folder() -> Path:
    """Returns the folder in Keras' cache of what is downloaded, or made of large corpora."""
    return Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "keras_attn"


def download(address: str, path: Path, *, sha256: str | None = None, size: int | None = None) -> Path:
    """Downloads a file. It has another name, `<name>.part`, until it is complete and has been checked.

    What an earlier attempt left in that file is kept, and the rest is asked for. A connection that breaks is opened
    again as long as each attempt brings something. One process may write in the folder: see `keras_attn.files.locked`.

    Args:
        address: Of http, https or file.
        path: The new file, in a folder that exists.
        sha256: Its SHA-256 in hexadecimal; None: it is not checked.
        size: Its size in bytes, of which no more are read; None: any size up to 2 GiB.

    Returns:
        `path`.

    Raises:
        FileNotFoundError: if the address does not answer with the whole file. What arrived is kept.
        ValueError: if the file has another size or SHA-256. What arrived is removed.
        OSError: if it cannot be written, or the disk is full.
    """
    if urllib.parse.urlsplit(address).scheme not in _SCHEMES:
        raise ValueError(f"Expected an address of {', '.join(_SCHEMES)}. Received: {address!r}")
    part = path.with_name(f"{path.name}.part")
    was_begun = part.exists()
    limit = _LARGEST if size is None else size
    _receive(address, part, limit, is_exact=size is not None)
    if fault := _fault(part, sha256, size, limit):
        part.unlink()
        if was_begun:  # the beginning may be that of another version
            return download(address, path, sha256=sha256, size=size)
        raise ValueError(f"Expected {address} to have {fault}. What arrived was deleted.")
    os.replace(part, path)
    return path


class _Broken(Exception):
    """The connection has failed; the cause says how. An error of the disk is none of these."""


def _receive(address: str, part: Path, limit: int, is_exact: bool) -> None:
    """Appends what is missing, and at most one block more than the limit."""
    with files.needs_room(part.parent), part.open("ab") as file:
        while not (is_exact and file.tell() == limit):
            begin = file.tell()
            try:
                for start, block in _blocks(address, begin):
                    if start < file.tell():  # the server sends the file from its beginning
                        file.truncate(start)
                        file.seek(start)
                    file.write(block)
                    if file.tell() > limit:
                        return
                return
            except _Broken as broken:
                if file.tell() <= begin:
                    reason = getattr(broken.__cause__, "reason", None) or broken.__cause__
                    raise FileNotFoundError(f"Could not download {address} ({reason}).") from None


def _blocks(address: str, begin: int) -> Iterator[tuple[int, bytes]]:
    """Yields the file from the byte `begin`, or from its first if the server knows no ranges: a place and the bytes."""
    request = urllib.request.Request(address, headers={"Range": f"bytes={begin}-"} if begin else {})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            has_range = (response.headers.get("Content-Range") or "").startswith(f"bytes {begin}-")
            place = begin if has_range else 0
            end = place + int(response.headers.get("Content-Length") or 0)
            while block := response.read(_BLOCK):
                yield place, block
                place += len(block)
        if place < end:
            raise ConnectionError(f"it ended after {place:,} of {end:,} bytes")
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # the file may be here already, as a whole
            raise _Broken from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # a ValueError: no such address
        raise _Broken from error


def _fault(part: Path, sha256: str | None, size: int | None, limit: int) -> str | None:
    """What a file should have and does not have."""
    received = part.stat().st_size
    if size is not None and received != size:
        return f"{size:,} bytes. Received: {'more' if received > size else f'{received:,}'}"
    if received > limit:
        return f"at most {limit:,} bytes"
    if sha256 is not None and (digest := files.sha256(part)) != sha256:
        return f"the SHA-256 {sha256}. Received: {digest}"
    return None
