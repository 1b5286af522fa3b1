"""What a command tells its user: messages on standard error."""

from __future__ import annotations

import sys

_CAUSE = "Caused by: "


def say(line: str) -> None:
    """Print a line."""
    print(line, file=sys.stderr, flush=True)


def reason(error: BaseException | None) -> str:
    """The line of an error that says what is wrong.

    One that comes from the JVM has many: it begins with what was called, and the last cause is
    what happened.
    """
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    except Exception:  # noqa: BLE001 - an error may fail to say what it is
        lines = []
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    said = [line.removeprefix(": ") for line in lines if not line.startswith("An error occurred")]
    return [*causes[-1:], *said, *lines, type(error).__name__][0]
