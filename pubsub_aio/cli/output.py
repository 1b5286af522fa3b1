"""What a command tells its user: messages on standard error."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """Print a line."""
    print(line, file=sys.stderr, flush=True)
