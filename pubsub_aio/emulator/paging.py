"""Lists in pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from pubsub_aio.emulator.status import invalid

DEFAULT_PAGE = 100
MAX_PAGE = 1_000


def page_of(names: Iterable[str], *, size: int, token: str) -> tuple[list[str], str]:
    """The names of one page, in order, and the token of the next page; empty on the last."""
    if size < 0:
        raise invalid("page_size", f"{size} must not be negative")
    after = _after(token)
    rest = sorted(name for name in names if name > after)
    size = min(size or DEFAULT_PAGE, MAX_PAGE)
    if len(rest) <= size:
        return rest, ""
    last = rest[size - 1]
    return rest[:size], base64.urlsafe_b64encode(last.encode()).decode()


def _after(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise invalid("page_token", "take it from next_page_token of the page before") from None
