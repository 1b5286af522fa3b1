"""Who calls: how callers are named, and which members of a policy they are."""

from __future__ import annotations

import re

from pubsub_aio.emulator.status import invalid

HEADER = "x-emulator-principal"
"""The HTTP header, or key of gRPC metadata, by which a caller says who it is."""

OWNER = "owner"
"""The caller that may do everything: whoever runs the emulator."""

ANONYMOUS = "anonymous"
"""The caller without credentials."""

EVERYBODY, EVERYBODY_KNOWN = "allUsers", "allAuthenticatedUsers"

_ADDRESS = r"[^\s@,:]+@[^\s@,:]+"
_SOMEBODY = rf"(user|serviceAccount|group):{_ADDRESS}|principal(Set)?://[^\s,]+"
_PRINCIPAL = rf"{OWNER}|{ANONYMOUS}|{_SOMEBODY}"
_OF_A_PROJECT = r"project(Owner|Editor|Viewer):[^\s@,]+"
_MEMBER = rf"{EVERYBODY}|{EVERYBODY_KNOWN}|{_SOMEBODY}|{_OF_A_PROJECT}|domain:[^\s@,:]+|deleted:\S+"
_LONGEST = 512


def principal(name: str, *, field: str = HEADER) -> str:
    """A caller by its name, as names are compared."""
    if len(name) > _LONGEST or not re.fullmatch(_PRINCIPAL, name):
        raise invalid(
            field,
            f"{name[:80]!r} must be one of user:EMAIL, serviceAccount:EMAIL, group:EMAIL, "
            f"principal://NAME, {ANONYMOUS} and {OWNER}",
        )
    return _comparable(name)


def check_member(name: str, *, field: str) -> None:
    """Refuse what cannot be a member of a policy."""
    if len(name) > _LONGEST or not re.fullmatch(_MEMBER, name):
        raise invalid(
            field,
            f"{name[:80]!r} must be one of user:EMAIL, serviceAccount:EMAIL, group:EMAIL, "
            f"domain:DOMAIN, principal://NAME, {EVERYBODY_KNOWN} and {EVERYBODY}",
        )


def is_member(principal: str, member: str) -> bool:
    """Whether a member of a policy stands for that caller.

    Nobody knows here who is in a group: it stands for a caller that calls itself by its name.
    """
    if member == EVERYBODY:
        return True
    if member == EVERYBODY_KNOWN:
        return principal != ANONYMOUS
    if member.startswith("domain:"):
        _, at, domain = principal.rpartition("@")
        return bool(at) and domain == member.removeprefix("domain:").lower()
    return _comparable(member) == principal


def _comparable(name: str) -> str:
    """Addresses are the same in capitals."""
    kind, _, address = name.partition(":")
    return f"{kind}:{address.lower()}" if "@" in address else name
