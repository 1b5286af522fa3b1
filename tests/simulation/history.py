"""What happened to messages, and whether it may have: an event log and its checker.

It knows nothing of the library: events are plain values, whoever notes them. A statement is a
function of the `Facts`; `STATEMENTS` lists them, and more can be added there.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

TIE = 1e-4
"""Seconds within which two events count as simultaneous: logs of two clocks are compared."""

MIN_ACK_DEADLINE = 10.0
"""The least seconds for which a server leases a message."""


# Events. A message is named by its publisher, a delivery by whoever notes the callback.


@dataclass(frozen=True, slots=True)
class Published:
    """A message was published; if not `known`, its publisher heard nothing and it may not exist."""

    at: float
    message: str
    key: str = ""
    body: str = ""
    known: bool = True


@dataclass(frozen=True, slots=True)
class Started:
    """A callback began."""

    at: float
    delivery: int
    session: str
    message: str
    ack_id: str = ""
    key: str = ""
    body: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A callback ended, one way or another."""

    at: float
    delivery: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A delivery was acked, nacked or dropped; `void` if the library says that it was too late."""

    at: float
    delivery: int
    how: Literal["ack", "nack", "drop"]
    void: bool = False


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Somebody who waited for the server's word on an ack was told that it took effect."""

    at: float
    delivery: int


@dataclass(frozen=True, slots=True)
class Expired:
    """The library let go of a delivery: it was held too long, or the server says it was lost."""

    at: float
    delivery: int


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """A message was found in the dead-letter topic."""

    at: float
    message: str


@dataclass(frozen=True, slots=True)
class Sent:
    """The server sent a message to a subscriber, and leased it."""

    at: float
    message: str
    ack_id: str


@dataclass(frozen=True, slots=True)
class ServerAck:
    """The server heard an ack."""

    at: float
    message: str
    ack_id: str
    effective: bool = True


@dataclass(frozen=True, slots=True)
class ServerModack:
    """The server was asked for another deadline; zero seconds is a nack."""

    at: float
    message: str
    ack_id: str
    seconds: float
    effective: bool = True


@dataclass(frozen=True, slots=True)
class Backlog:
    """So many messages are outstanding on the server."""

    at: float
    count: int


@dataclass(frozen=True, slots=True)
class Limits:
    """A session's flow control, in force from now on."""

    at: float
    session: str
    max_messages: int
    max_bytes: int
    threshold: float
    batch: int
    lease: float

    @property
    def most(self) -> float:
        """The most messages held at once."""
        return self.max_messages * self.threshold + self.batch

    def most_bytes(self, largest: int) -> float:
        """The most bytes held at once."""
        return self.max_bytes * self.threshold + self.batch * largest


@dataclass(frozen=True, slots=True)
class Held:
    """A session says how much it holds."""

    at: float
    session: str
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class Stopping:
    """A session was told to end, and should within so many seconds."""

    at: float
    session: str
    within: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """A session has ended; with a failure, and since when it was ending, if it was not told to."""

    at: float
    session: str
    failure: str = ""
    since: float = math.inf


@dataclass(frozen=True, slots=True)
class Fault:
    """Something was made to go wrong, for that long."""

    at: float
    until: float
    what: str


@dataclass(frozen=True, slots=True)
class LeftOver:
    """Something is still there that should not be."""

    at: float
    what: str


Event = (
    Published
    | Started
    | Ended
    | Settled
    | Confirmed
    | Expired
    | DeadLettered
    | Sent
    | ServerAck
    | ServerModack
    | Backlog
    | Limits
    | Held
    | Stopping
    | Stopped
    | Fault
    | LeftOver
)


@dataclass(slots=True)
class History:
    """Events in the order they happened, and what was promised.

    Attributes:
        ordered: Messages of one key come in order.
        exactly_once: Acks and receipts are confirmed.
        server: The server's own events are there too; without them an ack is taken at its word.
        events: What happened. The server's events may stand apart from the others.
    """

    ordered: bool = False
    exactly_once: bool = False
    server: bool = True
    events: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Violation:
    """Something happened that must not."""

    statement: str
    kind: str
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.statement} {self.kind} at {self.at:.3f}: {self.what}"


class Facts:
    """A history, sorted out."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.published: dict[str, Published] = {}
        self.starts: dict[int, Started] = {}
        self.starts_of: dict[str, list[Started]] = defaultdict(list)
        self.let_go: dict[int, float] = {}
        """When each delivery was settled or expired, if it was."""
        self.acks_of: dict[str, list[Settled]] = defaultdict(list)
        self.sent: dict[str, list[Sent]] = defaultdict(list)
        self.server_acks: dict[str, list[ServerAck]] = defaultdict(list)
        self.modacks: dict[str, list[ServerModack]] = defaultdict(list)
        self.refusals: dict[str, list[float]] = defaultdict(list)
        """When the server refused to extend a lease of each message."""
        self.arrived: dict[str, float] = {}
        """When a subscriber first used each ack id."""
        self.sent_at: dict[str, float] = {}
        """When the server sent the delivery of each ack id."""
        self.dead: dict[str, float] = {}
        self.faults: list[Fault] = []
        self.limits: dict[str, list[Limits]] = defaultdict(list)
        self.stopped: dict[str, float] = {}
        for event in history.events:
            self._note(event)
        for sent in self.sent.values():
            sent.sort(key=lambda each: each.at)
        self.settled_at = self._settled_at()
        """When the server had settled a message for good, if it has."""

    def _note(self, event: Event) -> None:
        if isinstance(event, Started | ServerAck | ServerModack):
            first = self.arrived.get(event.ack_id, math.inf)
            self.arrived[event.ack_id] = min(first, event.at)
        match event:
            case Published():
                self.published[event.message] = event
            case Started():
                self.starts[event.delivery] = event
                self.starts_of[event.message].append(event)
            case Settled() if not event.void:
                self.let_go.setdefault(event.delivery, event.at)
                if event.how == "ack":
                    self.acks_of[self.starts[event.delivery].message].append(event)
            case Expired():
                self.let_go.setdefault(event.delivery, event.at)
            case DeadLettered():
                self.dead.setdefault(event.message, event.at)
            case Sent():
                self.sent[event.message].append(event)
                self.sent_at[event.ack_id] = event.at
            case ServerAck() if event.effective:
                self.server_acks[event.message].append(event)
            case ServerModack() if event.effective:
                self.modacks[event.ack_id].append(event)
            case ServerModack():
                self.refusals[event.message].append(event.at)
            case Limits():
                self.limits[event.session].append(event)
            case Stopped():
                self.stopped[event.session] = event.at
            case Fault():
                self.faults.append(event)
            case _:
                pass

    def exists(self, message: str) -> bool:
        """Whether a message is known to have reached the server."""
        return self.published[message].known or message in self.sent or message in self.starts_of

    def keys(self) -> dict[str, list[str]]:
        """The messages of each ordering key, as published."""
        keys: dict[str, list[str]] = defaultdict(list)
        for message, event in self.published.items():
            if event.key and self.exists(message):
                keys[event.key].append(message)
        return keys

    def _settled_at(self) -> dict[str, float]:
        settled: dict[str, float] = {}
        for message in self.published:
            acked = [ack.at for ack in self.server_acks.get(message, ())]
            if not self.history.server:
                acked = [ack.at for ack in self.acks_of.get(message, ())]
            if message in self.dead:
                settled[message] = self.dead[message]
            elif acked:
                settled[message] = max(acked)
        if self.history.ordered and self.history.server:
            # An ack takes effect once everything before it in its key is acked.
            for messages in self.keys().values():
                latest = -math.inf
                for message in messages:
                    if message in self.dead:  # it is out of the way at once
                        continue
                    latest = max(latest, settled.get(message, math.inf))
                    if latest < math.inf:
                        settled[message] = latest
                    else:
                        settled.pop(message, None)
        return settled

    def is_settled(self, message: str, at: float) -> bool:
        """Whether the server had settled it by then."""
        return self.settled_at.get(message, math.inf) <= at + TIE

    def was_lost_on_its_way(self, message: str, start: Started) -> bool:
        """Whether who begins another cannot know that this message comes before it.

        So it is if a fault lost the last delivery of it before that of the other was sent, and what
        was sent of it since shows no sign of having arrived.
        """
        since = self.sent_at.get(start.ack_id, start.at)
        sent = [each for each in self.sent.get(message, ()) if each.at <= since + TIE]
        if not sent or sent[-1].ack_id in self.arrived:
            return False
        later = [each for each in self.sent[message] if since + TIE < each.at <= start.at]
        if any(self.arrived.get(each.ack_id, math.inf) <= start.at for each in later):
            return False
        return self.faulty(sent[-1].at, since)

    def released_at(self, start: Started) -> float:
        """When a session no longer held a delivery."""
        gone = self.stopped.get(start.session, math.inf)
        return min(self.let_go.get(start.delivery, math.inf), gone)

    def faulty(self, begin: float, end: float, *, what: str = "") -> bool:
        """Whether anything, or something of that name, was made to go wrong then."""
        return any(
            fault.at <= end + TIE and fault.until >= begin - TIE and fault.what.startswith(what)
            for fault in self.faults
        )


def check(history: History, statements: Iterable[str] | None = None) -> list[Violation]:
    """What must not have happened; all statements are tried unless some are named."""
    facts = Facts(history)
    return [violation for name in statements or STATEMENTS for violation in STATEMENTS[name](facts)]


# Statements


def nothing_is_lost(facts: Facts) -> Iterator[Violation]:
    """H1: every publish that returned ok is acked, dead-lettered, or still outstanding.

    And nothing is acked on the server that no callback acked.
    """
    backlog = next((e.count for e in facts.history.events[::-1] if isinstance(e, Backlog)), 0)
    open_ends = [m for m in facts.published if facts.exists(m) and m not in facts.settled_at]
    if len(open_ends) > backlog:
        at = facts.history.events[-1].at
        for message in open_ends:
            yield Violation("H1", "lost", at, f"{message}, or another: {backlog} are outstanding")
    for message, acks in facts.server_acks.items():
        first = min((ack.at for ack in facts.acks_of.get(message, ())), default=math.inf)
        for ack in acks:
            if ack.at < first - TIE:
                yield Violation("H1", "lost", ack.at, f"{message} was acked by no callback")


def nothing_is_made_up(facts: Facts) -> Iterator[Violation]:
    """H2: nothing is delivered that was not published."""
    for start in facts.starts.values():
        source = facts.published.get(start.message)
        if source is None or source.at > start.at + TIE:
            yield Violation("H2", "unexpected", start.at, f"{start.message} was not published")
        elif (source.key, source.body) != (start.key, start.body):
            yield Violation("H2", "unexpected", start.at, f"{start.message} is not as published")


def nothing_comes_twice(facts: Facts) -> Iterator[Violation]:
    """H3: no delivery begins while its session holds the message.

    With exactly-once no delivery begins after a confirmed ack, or before its receipt is confirmed,
    and no two valid leases overlap.
    """
    confirmed: dict[str, float] = {}
    for event in facts.history.events:
        if isinstance(event, Confirmed):
            confirmed.setdefault(facts.starts[event.delivery].message, event.at)
    for message, starts in facts.starts_of.items():
        for at, start in enumerate(starts):
            for earlier in starts[:at]:
                if facts.released_at(earlier) > start.at + TIE and (
                    earlier.session == start.session or earlier.ack_id == start.ack_id
                ):
                    what = f"{message} began in {start.session} while {earlier.session} holds it"
                    yield Violation("H3", "duplicated", start.at, what)
            if not facts.history.exactly_once:
                continue
            if confirmed.get(message, math.inf) < start.at - TIE:
                what = f"{message} began in {start.session} after a confirmed ack"
                yield Violation("H3", "duplicated", start.at, what)
            receipts = facts.modacks.get(start.ack_id, ())
            if facts.history.server and not any(
                each.seconds > 0 and each.at <= start.at + TIE for each in receipts
            ):
                what = f"{message} began in {start.session} before its receipt was confirmed"
                yield Violation("H3", "duplicated", start.at, what)


def keys_are_in_order(facts: Facts) -> Iterator[Violation]:
    """H4: per key, callbacks start in publish order, one at a time, in each session.

    A redelivery restarts the key at that message. What comes before a message that begins must be
    settled on the server, or have begun here since the last restart and be acked. A message that a
    fault lost on its way leaves a gap that nobody can see.
    """
    if not facts.history.ordered:
        return
    keys = facts.keys()
    place = {message: at for messages in keys.values() for at, message in enumerate(messages)}
    running: dict[tuple[str, str], Started] = {}
    trails: dict[tuple[str, str], dict[str, bool]] = defaultdict(dict)
    for event in facts.history.events:
        if isinstance(event, Started) and event.key and event.message in place:
            lane = (event.session, event.key)
            if other := running.get(lane):
                what = f"{event.message} began in {event.session} during {other.message}"
                yield Violation("H4", "out of order", event.at, what)
            running[lane] = event
            if facts.is_settled(event.message, event.at):
                continue  # a copy that came late
            here = place[event.message]
            trail = trails[lane]
            for message in [each for each in trail if place[each] >= here]:
                del trail[message]
            for message in keys[event.key][:here]:
                if trail.get(message) or facts.is_settled(message, event.at):
                    continue
                if not facts.was_lost_on_its_way(message, event):
                    what = f"{event.message} began in {event.session} before {message} was done"
                    yield Violation("H4", "out of order", event.at, what)
                break
            trail[event.message] = False
        elif isinstance(event, Ended):
            start = facts.starts[event.delivery]
            lane = (start.session, start.key)
            if running.get(lane) is start:
                del running[lane]
        elif isinstance(event, Settled) and event.how == "ack" and not event.void:
            start = facts.starts[event.delivery]
            trail = trails[start.session, start.key]
            if start.message in trail:
                trail[start.message] = True


def limits_hold(facts: Facts) -> Iterator[Violation]:
    """H5: what is held, seen from outside and by the session's own word, is within its limits.

    Limits that were lowered count only once what was leased before must be over.
    """
    largest = max((start.size for start in facts.starts.values()), default=0)
    seen: list[Held] = [e for e in facts.history.events if isinstance(e, Held)]
    by_session: dict[str, list[Started]] = defaultdict(list)
    for start in facts.starts.values():
        by_session[start.session].append(start)
    for session, starts in by_session.items():
        held_now: list[tuple[float, int]] = []
        size = 0
        for start in starts:
            while held_now and held_now[0][0] <= start.at + TIE:
                size -= facts.starts[heapq.heappop(held_now)[1]].size
            heapq.heappush(held_now, (facts.released_at(start), start.delivery))
            size += start.size
            seen.append(Held(start.at, session, len(held_now), size))
    for held in seen:
        limits = facts.limits.get(held.session, [])
        longest = max((each.lease for each in limits), default=0.0)
        # Those in force now, and those that were when the oldest lease may have begun.
        first = bisect.bisect_right([each.at for each in limits], held.at - longest - 1.0) - 1
        last = bisect.bisect_right([each.at for each in limits], held.at + TIE)
        valid = limits[max(0, first) : last]
        if not valid:
            continue
        most = max(each.most for each in valid)
        most_bytes = max(each.most_bytes(largest) for each in valid)
        if held.count > most + TIE or held.size > most_bytes + TIE:
            what = f"{held.session} holds {held.count} messages of {most:g}, {held.size} bytes"
            yield Violation("H5", "too much", held.at, f"{what} of {most_bytes:g}")


def held_leases_live(facts: Facts) -> Iterator[Violation]:
    """H6: no lease that is held ends on the server unless a fault or `max_lease_duration` explains.

    A lease ended if the server sent the message again although nobody had given it back. And the
    library does not let go of a message early.
    """
    if not facts.history.server:
        return
    given_back = _given_back(facts)
    for event in facts.history.events:
        if isinstance(event, Expired) and not _may_go(facts, event, given_back):
            start = facts.starts[event.delivery]
            what = f"{start.message}, which began in {start.session} at {start.at:.3f}"
            yield Violation("H6", "let go early", event.at, what)
    for message, leases in facts.sent.items():
        key = facts.published[message].key if message in facts.published else ""
        for lease, again in itertools.pairwise(leases):
            modacks = [each for each in facts.modacks.get(lease.ack_id, ()) if each.at <= again.at]
            if any(each.seconds < MIN_ACK_DEADLINE for each in modacks):
                continue  # it was given back, at once or to come again soon
            kept = max([lease.at, *(each.at for each in modacks)])
            if facts.faulty(kept, again.at) or facts.faulty(lease.at, again.at, what="duplicate"):
                continue
            if facts.history.ordered and _restarted(given_back[key], facts, message, lease, again):
                continue
            if holder := _holder(facts, message, lease, again):
                what = f"{message} was held by {holder}, last extended at {kept:.3f}"
                yield Violation("H6", "expired", again.at, what)


def _may_go(facts: Facts, event: Expired, given_back: dict[str, list[tuple[float, str]]]) -> bool:
    """Whether there was a reason to let go of a delivery."""
    start = facts.starts[event.delivery]
    sent = [each for each in facts.sent[start.message] if each.at <= event.at + TIE]
    shortest = min(each.lease for each in facts.limits[start.session])
    if event.at - min((each.at for each in sent), default=start.at) >= shortest - TIE:
        return True
    if facts.history.exactly_once and any(
        at <= event.at + TIE for at in facts.refusals[start.message]
    ):
        return True  # the server says that it is lost
    if not facts.history.ordered or not start.key or not sent:
        return False
    end = Sent(event.at, start.message, "")
    return _restarted(given_back[start.key], facts, start.message, sent[0], end)


def _holder(facts: Facts, message: str, lease: Sent, again: Sent) -> str:
    """Which session held a lease when the message was sent again, if one did."""
    starts = facts.starts_of.get(message, [])
    modacks = [each for each in facts.modacks.get(lease.ack_id, ()) if each.at <= again.at]
    own = [
        start
        for start in starts
        if start.ack_id == lease.ack_id and _was_valid(lease, modacks, start.at)
    ]
    # Without a callback of its own, but extended once it had been received, it is a copy that
    # another delivery took over.
    renewed = bool(modacks) and modacks[-1].at > lease.at + TIE
    others = [start for start in starts if renewed and start.at <= lease.at + TIE]
    holders = own or others
    if not holders or any(facts.released_at(start) <= again.at + TIE for start in holders):
        return ""
    if facts.history.exactly_once and any(at <= again.at for at in facts.refusals[message]):
        return ""  # who is told that a lease is lost holds it no longer
    return holders[0].session


def _was_valid(lease: Sent, modacks: list[ServerModack], at: float) -> bool:
    """Whether a lease had surely not ended by then; what is not read in time is held by nobody."""
    ends_at = lease.at + MIN_ACK_DEADLINE
    for modack in modacks:
        if modack.at <= at + TIE:
            ends_at = max(ends_at, modack.at + modack.seconds)
    return at < ends_at


def _given_back(facts: Facts) -> dict[str, list[tuple[float, str]]]:
    """When a message of each key was given back, or sent again."""
    given: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for message, sent in facts.sent.items():
        if message not in facts.published:
            continue
        key = facts.published[message].key
        given[key] += [(each.at, message) for each in sent[1:]]
        for each in sent:
            given[key] += [
                (modack.at, message)
                for modack in facts.modacks.get(each.ack_id, ())
                if modack.seconds == 0
            ]
        if message in facts.dead:
            given[key].append((facts.dead[message], message))
    return given


def _restarted(
    given: list[tuple[float, str]], facts: Facts, message: str, lease: Sent, again: Sent
) -> bool:
    """Whether an earlier message of the key was given back, and this one with it."""
    order = {each: at for at, each in enumerate(facts.published)}
    return any(
        lease.at - TIE <= at <= again.at + TIE and order[other] < order[message]
        for at, other in given
    )


def sessions_end(facts: Facts) -> Iterator[Violation]:
    """H9: shutdown ends within its timeout, nothing is left; only faults make a session fail."""
    stopping: dict[str, Stopping] = {}
    for event in facts.history.events:
        if isinstance(event, Stopping):
            stopping.setdefault(event.session, event)
        elif isinstance(event, Stopped):
            told = stopping.pop(event.session, None)
            if told and event.at > told.at + told.within + TIE:
                what = f"{event.session} took {event.at - told.at:.3f} s, not {told.within:g}"
                yield Violation("H9", "slow to end", event.at, what)
            failed_at = min(event.at, event.since)
            if event.failure and not facts.faulty(failed_at - 1, failed_at):
                what = f"{event.session}: {event.failure}"
                yield Violation("H9", "failed", event.at, what)
        elif isinstance(event, LeftOver):
            yield Violation("H9", "left over", event.at, event.what)
    for told in stopping.values():
        yield Violation("H9", "slow to end", told.at, f"{told.session} never ended")


Statement = Callable[[Facts], Iterator[Violation]]

STATEMENTS: dict[str, Statement] = {
    "H1": nothing_is_lost,
    "H2": nothing_is_made_up,
    "H3": nothing_comes_twice,
    "H4": keys_are_in_order,
    "H5": limits_hold,
    "H6": held_leases_live,
    "H9": sessions_end,
}


def summary(history: History) -> Counter[str]:
    """How many events there are of each kind."""
    return Counter(type(event).__name__ for event in history.events)
