"""Where the log of a source is kept: files on this machine, or objects in GCS or S3.

A store can put something if nothing is there by that name, so that of two who try one wins, and
whoever reads it reads all of it. What was put stays, whatever becomes of the process or machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from pubsub_aio.errors import ConfigError, MissingExtraError, WalError

Buffer = bytes | memoryview
REMOTE = ("gs", "s3", "s3a", "s3n")
"""The schemes of object stores; Hadoop has several for S3."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # a drive of Windows has one letter
_PROBE = "probe"
"""The folder in which it is tried whether a store is one."""
_PAUSES = (0.0, 0.1, 0.5, 2.0)
"""Seconds before each try, where an object store says that a name is taken, and it is not."""
_UNFINISHED = ".unfinished-"
"""How names begin of files that are being written."""
_ABANDONED = 3_600.0
"""Seconds after which nobody writes such a file any more, or tries the store."""


class Store(Protocol):
    """Named bytes that never change. Names have folders, with slashes between them."""

    location: str
    """What errors call it."""

    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        """Keep these bytes, one part after another; returns False if the name is taken.

        When it returns they outlive the process and the machine.
        """

    def get(self, name: str) -> Buffer:
        """All bytes of a name.

        Raises:
            FileNotFoundError: There is none.
        """

    def get_range(self, name: str, start: int, length: int) -> Buffer:
        """Some of its bytes, fewer at the end.

        Raises:
            FileNotFoundError: There is none.
        """

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without it, in order."""

    def delete(self, names: Iterable[str]) -> None:
        """Forget these; those that there are not are left out."""

    def prepare(self, folders: Iterable[str]) -> None:
        """Have these folders, and delete what processes that died were writing."""


def store_at(location: str) -> Store:
    """The store that a location names.

    Args:
        location: A folder, or a URL that begins with `file:`, `gs:` or `s3:`.

    Raises:
        ConfigError: There is no store for such a location.
        MissingExtraError: obstore is not installed.
    """
    named = _SCHEME.match(location)
    scheme = named[1].lower() if named else ""
    if scheme in REMOTE:
        return ObjectStore(location)
    if scheme == "file":
        url = urlsplit(location)
        if url.netloc not in ("", "localhost"):
            raise ConfigError(f"walLocation: {location} is on another machine: give file:///FOLDER")
        return _local(Path(unquote(url.path)), location)
    if scheme:
        raise ConfigError(
            f"walLocation: there is no store for {location}, since only some can put a file if "
            "there is none: give a folder, or a URL that begins with file:, gs: or s3:"
        )
    return _local(Path(location), location)


def _local(folder: Path, location: str) -> LocalStore:
    if not folder.is_absolute():  # processes are started in different folders
        raise ConfigError(
            f"walLocation must be an absolute path, such as {folder.absolute()}, or a URL, not "
            f"{location!r}"
        )
    return LocalStore(folder)


def check_store(store: Store, folders: Iterable[str]) -> None:
    """Make sure that it can be written to, and that of two who put the same name one wins.

    Args:
        store: Where a log begins, or goes on.
        folders: Those that it has.

    Raises:
        WalError: It is not so.
    """
    name = _probe(time.time())
    try:
        store.prepare([*folders, _PROBE])
        probes = (f"{_PROBE}/{each}" for each in store.names(_PROBE))
        abandoned = _probe(time.time() - _ABANDONED)
        store.delete([each for each in probes if each < abandoned])
        store.put_if_absent(name, [b"first"])  # an answer may be lost, and it is tried again
        twice = store.put_if_absent(name, [b"second"])
        there = bytes(store.get(name))
        store.delete([name])
    except Exception as error:
        raise WalError(
            f"walLocation: {store.location} cannot be used: {_why(error)}. Give a place where this "
            "process may create, read and delete files"
        ) from error
    if twice or there != b"first":
        raise WalError(
            f"walLocation: {store.location} lets two writers put the same file, so that messages "
            "could be lost: give a place on a local disk, GCS or S3"
        )


def _probe(made: float) -> str:
    """The name of a file that was made then to try the store."""
    return f"{_PROBE}/{int(made):020}-{secrets.token_hex(16)}"


@contextlib.contextmanager
def writing(store: Store) -> Iterator[None]:
    """Say where it was, and what to do, if something cannot be written or deleted.

    Raises:
        WalError: It cannot.
    """
    try:
        yield
    except OSError as error:
        remedy = "Bring it back" if isinstance(error, FileNotFoundError) else "Make room there"
        raise WalError(
            f"walLocation: {store.location} cannot be written to: {_why(error)}. {remedy}, and "
            "start the query again: what could not be kept was not acknowledged, and comes again"
        ) from error


@contextlib.contextmanager
def reading(store: Store, name: str) -> Iterator[None]:
    """Say where it was, and what to do, if the store does not answer.

    Raises:
        WalError: It does not.
        FileNotFoundError: There is no such name.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise WalError(
            f"walLocation: {store.location}/{name} cannot be read now: {_why(error)}. Nothing is "
            "lost by that: start the query again when the store answers"
        ) from error


def _why(error: Exception) -> str:
    told = str(error).partition("\n\nDebug source")[0]  # what obstore adds is pages long
    return " ".join(told.split()) or type(error).__name__


class LocalStore:
    """Files below a folder, complete and on the disk before they have their name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()  # tasks have other working folders
        self.location = str(self._folder)
        self._place: tuple[int, int] | None = None  # where the folder is, once it was used

    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        """Keep bytes: written under another name, synced, then linked to this one."""
        self._check_place()
        path = self._folder / name
        unfinished = path.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
        try:
            with unfinished.open("xb", buffering=0) as file:
                for part in parts:
                    _write_all(file.fileno(), part)
                os.fsync(file.fileno())
            try:
                path.hardlink_to(unfinished)  # fails where there is one, unlike a rename
                first = True
            except FileExistsError:
                first = False
        finally:
            with contextlib.suppress(FileNotFoundError):
                unfinished.unlink()
        _sync(path.parent)  # also of one that is there: who put it may have died before
        self._check_place()
        return first

    def _check_place(self) -> None:
        """Make sure that it is still the folder that it was: below a mount there is another one.

        Raises:
            FileNotFoundError: It is not.
        """
        self._note_place()
        if _place_of(self._folder) != self._place:
            raise FileNotFoundError(f"{self._folder} is another folder now, on another disk")

    def _note_place(self) -> None:
        if self._place is None:
            self._place = _place_of(self._folder)

    def get(self, name: str) -> Buffer:
        """All bytes of a file."""
        self._note_place()
        return (self._folder / name).read_bytes()

    def get_range(self, name: str, start: int, length: int) -> Buffer:
        """Some bytes of a file."""
        with (self._folder / name).open("rb", buffering=0) as file:
            file.seek(start)
            return _read_all(file.fileno(), length)

    def names(self, folder: str) -> list[str]:
        """The names in a folder."""
        try:
            found = os.listdir(self._folder / folder)
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith(_UNFINISHED))

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; what comes back after a crash is deleted again by whoever looks then."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                (self._folder / name).unlink()

    def prepare(self, folders: Iterable[str]) -> None:
        """Make what is missing, here alone: a disk that goes while it is used is not filled anew.

        What was begun so long ago that nobody writes it any more is deleted.
        """
        wanted = [self._folder, *(self._folder / name for name in folders)]
        above = [new for folder in wanted for new in _make_folders(folder)]
        for folder in dict.fromkeys([*wanted, *above]):
            _sync(folder)
        before = time.time() - _ABANDONED
        self._place = _place_of(self._folder)
        unfinished = f"{_UNFINISHED}*"
        for path in (*self._folder.glob(unfinished), *self._folder.glob(f"*/{unfinished}")):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()


def _place_of(folder: Path) -> tuple[int, int]:
    """What tells a folder from any other, on this disk or another one."""
    found = folder.stat()
    return found.st_dev, found.st_ino


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder and those that it is in; returns those whose entries are new."""
    if folder.is_dir():
        return []
    above = _make_folders(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    if not stat.S_ISDIR(folder.stat().st_mode):
        raise NotADirectoryError(f"{folder} is a file")
    return [folder.parent, *above]


def _write_all(descriptor: int, part: Buffer) -> None:
    rest = memoryview(part).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _read_all(descriptor: int, length: int) -> bytes:
    parts = []
    while length > 0 and (part := os.read(descriptor, length)):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ObjectStore:
    """Objects in GCS or S3. The environment says how they are reached, as obstore has it."""

    def __init__(self, location: str) -> None:
        try:
            import obstore
            from obstore.exceptions import AlreadyExistsError, BaseError
            from obstore.store import from_url
        except ImportError as error:
            raise MissingExtraError(f"walLocation {location}", "spark") from error
        self.location = location
        self._obstore: Any = obstore
        self._taken = AlreadyExistsError
        self._errors = BaseError
        scheme, _, rest = location.partition(":")
        url = f"s3:{rest}" if scheme.startswith("s3") else location
        try:
            self._store: Any = from_url(url)
        except Exception as error:
            raise ConfigError(f"walLocation: {location} cannot be used: {_why(error)}") from error

    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        """Keep an object; again if somebody was at it in the same moment, and in vain."""
        data = b"".join(parts)
        with self._told():
            for pause in _PAUSES:
                time.sleep(pause)
                try:
                    self._obstore.put(self._store, name, data, mode="create")
                except self._taken:
                    if self._is_there(name):
                        return False
                else:
                    return True
        raise OSError(f"{name} is said to be there, and is not")

    def _is_there(self, name: str) -> bool:
        try:
            self._obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        return True

    def get(self, name: str) -> Buffer:
        """All bytes of an object."""
        with self._told():
            return memoryview(self._obstore.get(self._store, name).bytes())

    def get_range(self, name: str, start: int, length: int) -> Buffer:
        """Some bytes of an object."""
        with self._told():
            try:
                return self._range(name, start, length)
            except self._errors:
                left = self._obstore.head(self._store, name)["size"] - start
                if left >= length:
                    raise
                return self._range(name, start, left) if left > 0 else b""

    def _range(self, name: str, start: int, length: int) -> Buffer:
        return memoryview(self._obstore.get_range(self._store, name, start=start, length=length))

    def names(self, folder: str) -> list[str]:
        """The names of the objects in a folder."""
        with self._told():
            pages = self._obstore.list(self._store, prefix=folder)
            paths = [entry["path"] for page in pages for entry in page]
        return sorted(path.removeprefix(f"{folder}/") for path in paths)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects: together, and one by one if the first that there is not ends that."""
        if not (wanted := [*names]):
            return
        with self._told():
            try:
                self._obstore.delete(self._store, wanted)
            except FileNotFoundError:  # as GCS says
                for name in wanted:
                    with contextlib.suppress(FileNotFoundError):
                        self._obstore.delete(self._store, name)

    def prepare(self, folders: Iterable[str]) -> None:
        """There are no folders, and an object is there as a whole or not at all."""

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever the object store says is an error of the operating system's kind."""
        try:
            yield
        except FileNotFoundError:
            raise
        except self._errors as error:
            raise OSError(_why(error)) from error
