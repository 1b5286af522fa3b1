"""What a call is about: the resource or project that its request names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pubsub_aio._wire.rpcs import RPCS, Rpc

if TYPE_CHECKING:
    from google.protobuf.message import Message


def _field(rpc: Rpc) -> str:
    """What the first HTTP route of an RPC has in its path."""
    if not rpc.http:
        return "subscription"  # StreamingPull
    return rpc.http[0].partition("{")[2].partition("=")[0]


FIELDS = {rpc.name: _field(rpc) for rpc in RPCS}
"""The field of each RPC's request that names what it is about."""

# Who creates something without a name is given one, in the project of what it is made from.
_UNNAMED = {"CreateSubscription": "topic", "CreateSnapshot": "subscription"}


def subject_of(rpc: str, request: Message) -> tuple[str, str]:
    """What a request is about, and the field that says so."""
    field = FIELDS[rpc]
    name = value(request, field)
    if not name and rpc in _UNNAMED:
        field = _UNNAMED[rpc]
        name = value(request, field)
    return name, field


def value(request: Message, field: str) -> str:
    """A text in a request, by its dotted path."""
    found: object = request
    for part in field.split("."):
        found = getattr(found, part)
    return str(found)


def project_in(name: str) -> str:
    """The `projects/P` that a name begins with, if it does."""
    return "/".join(name.split("/")[:2])
