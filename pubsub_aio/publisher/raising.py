"""Errors that are kept for a while, and raised to many."""

from __future__ import annotations

import copy

from pubsub_aio.errors import PubSubError


def bare(error: BaseException) -> BaseException:
    """An error without what it would keep alive: frames that hold the request, maybe for long."""
    links: list[BaseException | None] = [error]
    seen: set[int] = set()  # the same error may be met again, in an attempt that followed another
    while links:
        link = links.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = None
            links += (link.__cause__, link.__context__)
    return error


def twin(error: BaseException) -> BaseException:
    """An error like another, to raise: what happens to it there is of no concern to others.

    One that is not this library's, as of a transport of the user's own, is raised as it is.
    """
    if not isinstance(error, PubSubError):
        return error
    other = copy.copy(error)
    if notes := getattr(error, "__notes__", None):
        other.__notes__ = list(notes)
    other.__cause__ = error.__cause__
    return other
