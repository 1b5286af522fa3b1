"""Errors that are kept for a while, and raised to many."""

from __future__ import annotations


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
    """An error like another, to raise: what happens to it there is of no concern to others."""
    other = type(error).__new__(type(error), *error.args)
    other.args = error.args
    other.__dict__.update(error.__dict__)
    if notes := getattr(error, "__notes__", None):
        other.__notes__ = list(notes)
    other.__cause__ = error.__cause__
    return other
