"""What `pubsub-aio dlq` does."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pubsub_aio.cli.interrupts import run
from pubsub_aio.cli.output import reason, say
from pubsub_aio.errors import PubSubError

if TYPE_CHECKING:
    from pubsub_aio.cli.gauge import Gauge
    from pubsub_aio.jobs.dead_letters import DeadLetter
    from pubsub_aio.jobs.redrive import Target
    from pubsub_aio.jobs.sifting import Report
    from pubsub_aio.subscriber.client import SubscriberClient

MOST_COUNTED = 1_000
"""Messages of a subscription that are counted."""

_AT_ONCE = 10  # subscriptions that are counted


def list_them(options: argparse.Namespace) -> int:
    """List subscriptions that receive dead letters; returns the exit status."""
    from pubsub_aio.cli.letters import show_subscriptions

    rows = run(_found(options))
    if not rows:
        print("no subscription of the project receives dead letters")
        return 0
    show_subscriptions(rows)
    return 0


async def _found(options: argparse.Namespace) -> list[tuple[Any, str | None]]:
    """The subscriptions, each with how much waits there if that is asked for."""
    from pubsub_aio.admin import AdminClient
    from pubsub_aio.jobs.dead_letters import dead_letter_subscriptions

    async with AdminClient(project=options.project, transport=options.transport) as admin:
        found = await dead_letter_subscriptions(admin)
    if not options.count:
        return [(each, None) for each in found]
    slots = asyncio.Semaphore(_AT_ONCE)
    async with _client(options) as client:
        counts = await asyncio.gather(
            *(_waiting(client, each.name, slots, options) for each in found)
        )
    return list(zip(found, counts, strict=True))


async def _waiting(
    client: SubscriberClient, name: str, slots: asyncio.Semaphore, options: argparse.Namespace
) -> str:
    """How many messages wait, as it is shown."""
    from pubsub_aio.jobs.redrive import purge

    async with slots:
        try:
            report = await purge(client, name, limit=MOST_COUNTED, dry_run=True, idle=options.idle)
        except PubSubError as error:
            return f"not known: {reason(error)}"
    return f"{report.looked_at:,}" + "+" * (not report.complete)


def peek_at(options: argparse.Namespace) -> int:
    """Show messages; returns the exit status."""
    from pubsub_aio.cli.letters import show_letters
    from pubsub_aio.jobs.redrive import peek

    told: list[Report] = []

    async def look() -> list[DeadLetter]:
        async with _client(options) as client:
            return await peek(
                client,
                options.subscription,
                limit=options.limit,
                where=options.filter,
                idle=options.idle,
                on_progress=told.append,
            )

    found = run(look())
    show_letters(found, whole=options.data)
    more = _more(told[-1])
    print(f"{_messages(len(found), options)} in {_short(options.subscription)}{more}")
    return 0


def _more(report: Report) -> str:
    """Whether there may be more than was shown, and why."""
    from pubsub_aio.jobs.sifting import MAX_HELD, MAX_HELD_BYTES

    if report.ended_by == "limit":
        return "; there may be more, --limit shows more of them"
    if report.ended_by == "max_held":
        most = f"{MAX_HELD:,} messages or {MAX_HELD_BYTES >> 20} MiB"
        return f"; there may be more, but no more than {most} can be held to look at them"
    return ""


def redrive_them(options: argparse.Namespace) -> int:
    """Move dead letters to a topic; returns the exit status."""
    from pubsub_aio.jobs.redrive import redrive

    target = run(_target(options))
    topic = _short(target.topic)
    if target.subscriptions is None:
        say(f"{topic}: which subscriptions it has may not be looked up")
    if target.fans_out:
        say(f"{topic} has {len(target.fans_out)} subscriptions, each gets what is moved:")
        for name in target.fans_out:
            say(f"  {_short(name)}")
        if not options.dry_run and not options.yes and not _confirmed("Move dead letters there?"):
            return 1

    async def move(told: Callable[[Report], None]) -> Report:
        from pubsub_aio.publisher.client import PublisherClient

        publisher = PublisherClient.throughput(options.project, transport=options.transport)
        async with _client(options) as client, publisher:
            return await redrive(
                client,
                publisher,
                options.subscription,
                to=target.topic,
                where=options.filter,
                limit=options.limit,
                rate=options.rate,
                dry_run=options.dry_run,
                idle=options.idle,
                on_progress=told,
            )

    done = "would be moved" if options.dry_run else "moved"
    where = f"from {_short(options.subscription)} to {topic}"
    limit = options.limit
    return _go(move, done=done, where=where, limit=limit, limited=limit is not None)


async def _target(options: argparse.Namespace) -> Target:
    from pubsub_aio.jobs.redrive import find_target

    async with _client(options) as client:
        return await find_target(client, options.subscription, to=options.to)


def purge_them(options: argparse.Namespace) -> int:
    """Delete messages; returns the exit status."""
    name, most = _short(options.subscription), options.limit
    if not options.yes:
        if not _somebody_is_there():
            return _refused("purge deletes messages for good")
        counted = _count_first(options)
        if not counted.moved:
            print(f"{_messages(0, options)} in {name}, there is nothing to delete")
            return 0
        many = _messages(counted.moved, options)
        if counted.ended_by == "max_held":
            many += ", and what more there is,"
        else:
            most = counted.moved  # not what came since
        if not _confirmed(f"Delete {many} from {name}?"):
            return 1

    async def delete(told: Callable[[Report], None]) -> Report:
        return await _purged(options, told, limit=most)

    limited = options.limit is not None
    return _go(delete, done="deleted", where=f"from {name}", limit=most, limited=limited)


def _count_first(options: argparse.Namespace) -> Report:
    from pubsub_aio.cli.gauge import Gauge

    say(f"looking how many there are in {_short(options.subscription)} ...")
    gauge = Gauge(done="found", limit=options.limit)
    with gauge.bar:
        return run(_purged(options, gauge.show, limit=options.limit, dry_run=True))


async def _purged(
    options: argparse.Namespace,
    told: Callable[[Report], None],
    *,
    limit: int | None,
    dry_run: bool = False,
) -> Report:
    from pubsub_aio.jobs.redrive import purge

    async with _client(options) as client:
        return await purge(
            client,
            options.subscription,
            where=options.filter,
            limit=limit,
            dry_run=dry_run,
            idle=options.idle,
            on_progress=told,
        )


# Parts


def _go(
    work: Callable[[Callable[[Report], None]], Awaitable[Report]],
    *,
    done: str,
    where: str,
    limit: int | None,
    limited: bool,
) -> int:
    """Do something with messages, show how it goes, and sum up, however it ends."""
    from pubsub_aio.cli.gauge import Gauge
    from pubsub_aio.cli.letters import summary
    from pubsub_aio.jobs.sifting import Report

    gauge = Gauge(done=done, limit=limit)
    interrupted = False
    try:
        with gauge.bar:
            run(_shown(work, gauge))
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        if gauge.last is not None or interrupted:
            report = gauge.last or Report()
            lines = summary(
                report, done=done, where=where, limited=limited, interrupted=interrupted
            )
            print(*lines, sep="\n", flush=True)
    return 1 if gauge.last is not None and gauge.last.failed else 0


async def _shown(
    work: Callable[[Callable[[Report], None]], Awaitable[Report]], gauge: Gauge
) -> None:
    gauge.show(await work(gauge.show))


def _client(options: argparse.Namespace) -> SubscriberClient:
    from pubsub_aio.subscriber.client import SubscriberClient

    return SubscriberClient(options.project, transport=options.transport)


def _somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _confirmed(question: str) -> bool:
    """Ask; whether the answer is yes."""
    if not _somebody_is_there():
        _refused("this has to be confirmed")
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    say("nothing was done")
    return False


def _refused(why: str) -> int:
    say(f"pubsub-aio: {why}, and there is no terminal to ask at: add --yes; nothing was done")
    return 1


def _messages(count: int, options: argparse.Namespace) -> str:
    matching = "matching " if options.filter else ""
    return f"{count:,} {matching}message{'s' * (count != 1)}"


def _short(name: str) -> str:
    return name.rpartition("/")[2]
