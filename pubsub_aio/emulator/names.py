"""Resource names: `projects/P/topics/T` and its kin."""

from __future__ import annotations

import re

from pubsub_aio.emulator.status import invalid

DELETED_TOPIC = "_deleted-topic_"
"""What a subscription shows as its topic once that was deleted."""

_ID_RULE = (
    "3 to 255 characters, the first a letter, the rest letters, digits or any of -_.~+%, "
    'and not beginning with "goog"'
)
_ID = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-_.:]{0,254}")


def check_name(name: str, kind: str, *, field: str) -> None:
    """Refuse a `name` that is not `projects/P/<kind>/ID` with a legal id."""
    parts = name.split("/")
    if len(parts) != 4 or parts[0] != "projects" or parts[2] != kind:
        raise invalid(field, f"{name!r} must have the form projects/PROJECT/{kind}/ID")
    if not _PROJECT.fullmatch(parts[1]):
        raise invalid(field, f"{name!r} has no valid project id")
    if not _ID.fullmatch(parts[3]):
        raise invalid(field, f"the id in {name!r} must be {_ID_RULE}")


def check_project(name: str, *, field: str) -> None:
    """Refuse a `name` that is not `projects/P`."""
    head, _, project = name.partition("/")
    if head != "projects" or not _PROJECT.fullmatch(project):
        raise invalid(field, f"{name!r} must have the form projects/PROJECT")


def project_of(name: str) -> str:
    """The `P` of `projects/P/...`."""
    return name.split("/")[1]


def id_of(name: str) -> str:
    """The last part of a name."""
    return name.rsplit("/", 1)[-1]
