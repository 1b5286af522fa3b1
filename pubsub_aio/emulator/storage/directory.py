"""The data directory: whose it is, and the files in it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import IO

from pubsub_aio.errors import DataDirectoryError

FORMAT = 1
"""What this version writes; of directories with another number it keeps away."""

_MARK = "pubsub-aio-emulator.json"
_LOCK = "lock"
_PREFIX, _SUFFIX = "log-", ".bin"
_NEW = ".new"
_NO_MATTER = {_LOCK, _MARK + _NEW, "lost+found", ".gitignore"}

_sync_data = getattr(os, "fdatasync", os.fsync)  # elsewhere than on Linux there is only fsync


class DataDirectory:
    """Files that outlive the process. It blocks: call it in a thread.

    Args:
        path: The directory; it is made unless it is there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._latest = 0
        """The file that must be there; zero for none."""
        self.ended_at: int | None = None
        """How long it was when it was ended; none if it was not."""

    def open(self) -> None:
        """Make it ours until `close`.

        Raises:
            DataDirectoryError: It cannot be; nothing in it was changed.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_mark()
            self._lock = (self.path / _LOCK).open("ab")
        except OSError as error:
            raise self._unusable(error) from error
        try:
            _lock(self._lock)
        except OSError as error:
            self.close()
            raise DataDirectoryError(
                f"{self.path} is in use by another emulator: stop that one, or choose another "
                "directory"
            ) from error
        try:
            if not (self.path / _MARK).exists():
                self._write_mark(0)
        except OSError as error:
            self.close()
            raise self._unusable(error) from error
        if self._latest > max(self.numbers(), default=0):
            self.close()
            raise self.damaged(self.name(self._latest), "it is missing")

    def _write_mark(self, latest: int, *, ended_at: int | None = None) -> None:
        what = "data of a Pub/Sub emulator, see pubsub-aio"
        mark = {"what": what, "format": FORMAT, "latest": latest, "ended_at": ended_at}
        self._write_whole(self.path / _MARK, [json.dumps(mark).encode()])
        self._latest = latest

    def _check_mark(self) -> None:
        """Refuse a directory that is not an emulator's, or of another version."""
        try:
            text = (self.path / _MARK).read_bytes()
        except FileNotFoundError:
            others = sorted({entry.name for entry in self.path.iterdir()} - _NO_MATTER)
            if others:
                raise DataDirectoryError(
                    f"{self.path} is not an emulator's data directory, there is {others[0]!r} in "
                    "it: give an empty one, or one that does not exist yet"
                ) from None
            return
        try:
            mark = json.loads(text)
            found = mark["format"]
            self._latest, self.ended_at = int(mark.get("latest", 0)), mark.get("ended_at")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self.damaged(_MARK, "it cannot be read") from None
        if found != FORMAT:
            raise DataDirectoryError(
                f"{self.path} was written by another version (format {found}, this one has "
                f"{FORMAT}): use that version, or another directory"
            )

    def _unusable(self, error: OSError) -> DataDirectoryError:
        if isinstance(error, FileExistsError | NotADirectoryError):
            return DataDirectoryError(f"{self.path} is not a directory, nor can it be made one")
        return DataDirectoryError(f"{self.path} cannot be used: {error.strerror or error}")

    def damaged(self, name: str, what: str) -> DataDirectoryError:
        """An error that says which file is damaged."""
        return DataDirectoryError(
            f"{self.path / name} is damaged: {what}; nothing was changed. Put a copy back, or "
            "start with another directory"
        )

    @staticmethod
    def name(number: int) -> str:
        """The name of a file of the log."""
        return f"{_PREFIX}{number:010}{_SUFFIX}"

    def numbers(self) -> list[int]:
        """The files of the log that are there, the oldest first."""
        found = (path.name for path in self.path.glob(f"{_PREFIX}*{_SUFFIX}"))
        digits = [name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in found]
        return sorted(int(number) for number in digits if number.isdecimal())

    def read(self, number: int) -> bytes:
        """All of a file of the log."""
        try:
            return (self.path / self.name(number)).read_bytes()
        except FileNotFoundError:
            raise self.damaged(self.name(number), "it is missing") from None
        except OSError as error:
            raise self._unusable(error) from error

    def begin(self, number: int, parts: list[bytes]) -> None:
        """Make a file of the log, at once with all these parts, and go on with it."""
        self._end_log()
        path = self.path / self.name(number)
        self._write_whole(path, parts)
        self._write_mark(number)
        self._log = path.open("ab", buffering=0)

    def append(self, parts: list[bytes]) -> None:
        """Write to the end of the file that was begun last; returns once it is on disk."""
        if self._log is None:
            raise OSError("no file was begun")
        _write(self._log, parts)
        _sync_data(self._log.fileno())

    def end(self, length: int) -> None:
        """Note that nothing more is written to the latest file, and how long it is."""
        self._write_mark(self._latest, ended_at=length)

    def remove(self, number: int) -> None:
        """Delete a file of the log that nothing refers to."""
        (self.path / self.name(number)).unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of it."""
        self._end_log()
        if self._lock:
            self._lock.close()  # which unlocks it
            self._lock = None

    def _end_log(self) -> None:
        if self._log:
            self._log.close()
            self._log = None

    def _write_whole(self, path: Path, parts: list[bytes]) -> None:
        """A file that is there with all of it or not at all, whatever happens."""
        new = path.with_name(path.name + _NEW)
        try:
            with new.open("wb", buffering=0) as file:
                _write(file, parts)
                os.fsync(file.fileno())
            new.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        if os.name == "posix":  # elsewhere a directory cannot be opened, and need not be
            folder = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _write(file: IO[bytes], parts: list[bytes]) -> None:
    rest = memoryview(b"".join(parts))
    while rest:
        rest = rest[file.write(rest) :]


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
