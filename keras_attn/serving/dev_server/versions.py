"""The versions of one model. The newest in a folder is served, as by the stock server's default policy."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from keras_attn.serving.dev_server.errors import RequestError

AVAILABLE, END = "AVAILABLE", "END"
_LAST = 2**63 - 1  # numbers of versions are int64 in both interfaces


class Versions:
    """Loads a folder's newest version, and each newer one that appears, before it releases the old one.

    A version that does not load is skipped, and tried again when its files change; the version before is still served.
    Requests that run on an old version are completed on it.

    Args:
        name: The model's name in requests.
        directory: The folder with a folder for each version.
        load: Loads the model in a version's folder, or raises a ValueError; runs in a thread.

    Attributes:
        current: The model that is served.
        failures: The versions that did not load, with the reasons.

    Raises:
        FileNotFoundError: if the folder does not exist or has no version.
    """

    def __init__(self, name: str, directory: Path, load: Callable):
        self.name = name
        self.directory = directory
        self.current = None
        self.failures: dict[int, str] = {}
        self._failed_files: dict[int, frozenset] = {}
        self._load = load
        if not directory.is_dir():
            raise FileNotFoundError(f"Expected a folder with versions of a model. There is no {str(directory)!r}.")
        if not self._folders():
            hint = "Export one: keras-attn export RUN DIRECTORY."
            if (directory / "saved_model.pb").is_file():
                hint = f"It is a version itself: serve the folder above it, {str(directory.absolute().parent)!r}."
            raise FileNotFoundError(f"Expected a version, such as 1/, in {str(directory)!r}. There is none. {hint}")

    def load(self) -> None:
        """Loads the newest version.

        Raises:
            ValueError: if it does not load.
        """
        self.current = self._load(max(self._folders().items())[1])

    async def watch(self, seconds: float) -> None:
        """Looks for a new version at this interval, until it is cancelled."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look()
            except OSError as error:  # files were removed meanwhile
                logging.warning("The folder of %s cannot be read: %s", self.name, error)
            except Exception:  # the next look may succeed
                logging.exception("A look for a new version of %s failed.", self.name)

    async def look(self) -> None:
        """Loads the newest version that can be loaded, if it is not the one that is served."""
        folders = await asyncio.to_thread(self._folders)
        self.failures = {version: why for version, why in self.failures.items() if version in folders}
        for version, folder in sorted(folders.items(), reverse=True):
            if version == self.current.version:
                return
            files = await asyncio.to_thread(_files, folder)
            if self.failures.get(version) and self._failed_files[version] == files:
                continue
            try:
                self.current = await asyncio.to_thread(self._load, folder)
            except ValueError as error:
                self.failures[version], self._failed_files[version] = str(error), files
                logging.warning("%s Version %d is served on.", error, self.current.version)
                continue
            self.failures.pop(version, None)
            logging.warning("Version %d of %s is served now.", version, self.name)
            return

    def get(self, name: str, version: int | None = None):
        """Returns the model of this name and version.

        Raises:
            RequestError: NOT_FOUND, with the stock server's message, for another name or version.
        """
        if name != self.name or version not in (None, self.current.version):
            requested = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise RequestError(
                "NOT_FOUND",
                f"Servable not found for request: {requested}. "
                f"Served is version {self.current.version} of {self.name}.",
            )
        return self.current

    def states(self, name: str, version: int | None = None) -> list[tuple[int, str, str]]:
        """Returns (version, state, error) of the served version and of those that did not load, the newest first."""
        states = [(number, END, why) for number, why in self.failures.items()]
        states = sorted([*states, (self.current.version, AVAILABLE, "")], reverse=True)
        states = [state for state in states if version in (None, state[0])]
        if name != self.name or not states:
            requested = name if version is None else f"{name} with version {version}"
            raise RequestError(
                "NOT_FOUND", f"Could not find any versions of model {requested}. The model is {self.name}."
            )
        return states

    def _folders(self) -> dict[int, Path]:
        paths = (path for path in self.directory.iterdir() if path.name.isascii() and path.name.isdigit())
        return {int(path.name): path for path in paths if int(path.name) <= _LAST and path.is_dir()}


def _files(folder: Path) -> frozenset:
    """Name, size and time of every file, by which a change is noticed."""
    stats = [(path, path.stat()) for path in folder.rglob("*") if path.is_file()]
    return frozenset((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats)
