"""How the jobs of a queue are worked on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict

from pubsub_aio.config import MAX_SECONDS, check
from pubsub_aio.errors import ConfigError
from pubsub_aio.jobs.giving_up import OnGiveUp
from pubsub_aio.jobs.job import Job
from pubsub_aio.message import Message
from pubsub_aio.subscriber.schedulers import check_callback, is_async

Retrying = Literal["here", "server"]
Undecodable = Literal["dead_letter", "discard"]


class WorkOptions(TypedDict, total=False):
    """What a worker takes, each as a keyword."""

    concurrency: int
    """How many jobs are tried at once; as many as the flow control lets in unless told. While a job
    waits for its next attempt another may be tried."""

    retry: Retrying
    """Who tries a job again that failed: the worker, `"here"`, unless told; or the `"server"`, to
    which it is given back. The server then decides when it comes again and when it is a dead
    letter, see `retry_on_server`."""

    decode: Callable[[bytes], Any]
    """Makes the `body` of a job from its data, say `json.loads`."""

    undecodable: Undecodable
    """What becomes of a job whose data `decode` does not take, which is tried once only:
    `"dead_letter"`, unless told otherwise, has it return later, as often as any other;
    `"discard"` gives it up at once."""

    on_drop: Callable[[Job], object]
    """Called, or awaited, with a job that has expired, before it is acked. It must be fast, and
    whatever it raises, the job is dropped."""

    drop_timeout: float
    """Seconds after which an async `on_drop` is cancelled; 1 unless told."""

    on_give_up: OnGiveUp
    """Called, or awaited, with a job that is given up and what it failed with last, before it is
    acked. If that raises, the job stays, and comes again. It has to end: the job is held till
    then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`WorkOptions`, complete and checked."""

    concurrency: int | None = None
    retry: Retrying = "here"
    decode: Callable[[bytes], Any] | None = None
    undecodable: Undecodable = "dead_letter"
    on_drop: Callable[[Job], object] | None = None
    drop_timeout: float = 1.0
    on_give_up: OnGiveUp | None = None

    def __post_init__(self) -> None:
        if self.concurrency is not None:
            check("concurrency", self.concurrency, 1, whole=True)
        check("drop_timeout", self.drop_timeout, 0, MAX_SECONDS, above=True)
        if self.retry not in ("here", "server"):
            raise ConfigError(f"retry must be 'here' or 'server', not {self.retry!r}")
        if self.undecodable not in ("dead_letter", "discard"):
            raise ConfigError(
                f"undecodable must be 'dead_letter' or 'discard', not {self.undecodable!r}"
            )
        if self.decode is not None:
            check_callback(self.decode, "bytes", name="decode")
            if is_async(self.decode):
                raise ConfigError("decode must be a plain function: await in the handler instead")
        if self.on_drop is not None:
            check_callback(self.on_drop, "a job", name="on_drop")
        if self.on_give_up is not None:
            check_callback(self.on_give_up, "a job and an error", name="on_give_up", arguments=2)


def complete(options: WorkOptions) -> Options:
    """All options, with what was told.

    Raises:
        ConfigError: One that there is not, or that cannot be.
    """
    known = [each.name for each in fields(Options)]
    if unknown := [name for name in options if name not in known]:
        raise ConfigError(f"{unknown[0]}: there is no such option; there are {', '.join(known)}")
    return Options(**options)


AsyncHandler = Callable[[Job], Awaitable[object]]
Handler = Callable[[Job], object]
"""What performs a job: an async function, or a plain one, which is run in a thread."""

MessageHandler = Callable[[Message], Awaitable[None]]
Wrapper = Callable[[MessageHandler], MessageHandler]
"""A function from handler to handler."""
