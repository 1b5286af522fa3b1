"""Text files that a developer names: read whole, within bounds, with a reason if that fails."""

from __future__ import annotations

from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024
"""The largest file that is read."""


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ValueError: It cannot be read; why, and what to do.
    """
    try:
        if path.is_dir():
            raise ValueError("is a folder: name a file in it")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ValueError(f"is larger than {MAX_BYTES // 1024**2} MiB: make it smaller")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not UTF-8: save the file as UTF-8") from error
