"""Acks, nacks and extensions, gathered into requests of legal size, and sent again where it helps.

Acks and nacks are owed to the server until it answers. So is an extension, as long as the lease
lasts without it; then the next one takes its place.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from pubsub_aio._core import backoff
from pubsub_aio._core.acks_in_order import AcksInOrder
from pubsub_aio._core.bag import Bag
from pubsub_aio._core.lanes import Place
from pubsub_aio.errors import InvalidAckIdError, ServiceError, SettleError, UnconfirmedError

MAX_IDS = 2_500
"""Ack ids in one request; some 460 KB of the 512 KiB that the service accepts."""

MAX_BYTES = 480_000
MAX_CONFIRMED_IDS = 1_000
"""With exactly-once, a refusal names each id in the trailers; some 250 KB of them."""

_MAX_AT_ONCE = 20_000
"""Extensions or nacks that are taken at once; more would keep whoever takes them busy for long."""

OWED_FOR = 600.0
"""Seconds after which an ack or nack that could not be sent is given up."""

EXTENSION_OWED_FOR = 0.4
"""The part of an extension's time for which it is tried again: a lease is renewed when that part of
it is left."""

FIRST_DELAY = 0.1
MAX_DELAY = 10.0

TRANSIENT = frozenset(
    {
        *("ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED"),
        *("UNAVAILABLE", "UNKNOWN"),
    }
)
"""Codes after which the same request may succeed."""

_TRANSIENT_ID = "TRANSIENT_"


@dataclass(slots=True)
class Request:
    """Ack ids to be acked, if `seconds` is none, or whose deadlines are to be moved."""

    ids: list[str]
    seconds: int | None = None
    is_extension: bool = False
    """Whether it asks for more time; otherwise it is owed to the server."""
    attempts: int = 0
    owed_until: float = math.inf
    in_order: bool = False
    """Whether its ids are acked in the order of their messages."""


_Later = list[tuple[float, int, Request]]
"""Requests by when they are to be sent again, as a heap."""


@dataclass(slots=True)
class Outcome:
    """What became of a request's ids; those that are in none of these are sent again."""

    confirmed: list[str] = field(default_factory=list)
    failed: dict[str, SettleError] = field(default_factory=dict)
    struck: list[tuple[str, int]] = field(default_factory=list)
    """Extensions that are not sent any more, of this request and others, as ids and seconds."""


class Outbox:
    """What is to be told to the server about one subscription."""

    def __init__(self) -> None:
        self.acks: list[str] = []
        """Ids to be acked; always the same list."""
        self.one_by_one = False
        """Whether the server confirms each id, which makes for smaller requests."""
        self.cut_short = False
        """Whether there was more than is taken at once, the last time."""
        self._in_order = AcksInOrder()
        self._modacks: dict[tuple[int, bool], list[str]] = {}
        self._again: _Later = []
        self._extensions_again: _Later = []
        self._count = 0
        self._ids_again = 0  # ids that are to be sent again
        self._extending = Bag()  # ids of extensions that are on their way
        self._afterwards: dict[str, int] = {}  # delayed nacks of these
        self._nacks: set[str] = set()  # ids whose nacks were not answered yet
        self._unanswered = 0  # these, and all others but the acks that wait

    def __len__(self) -> int:
        """How many ids wait to be sent, or for their answer."""
        return len(self.acks) + self._unanswered

    def ack_in_order(self, key: str, place: Place, ack_ids: list[str], *, now: float) -> None:
        """Ack a message of an ordering key, not before any that is earlier and acked too.

        Args:
            key: The key.
            place: Where the message is among those of its key: an earlier one has a smaller place.
            ack_ids: Of its deliveries.
            now: The time.
        """
        added = self._in_order.add(key, place, ack_ids, owed_until=now + OWED_FOR)
        self._unanswered += added

    def extend(self, ack_ids: list[str], seconds: int) -> None:
        """Ask for more time."""
        self._modacks.setdefault((seconds, True), []).extend(ack_ids)
        self._unanswered += len(ack_ids)

    def nack(self, ack_ids: list[str], seconds: int) -> list[tuple[str, int]]:
        """Give messages back, to come again after that many seconds.

        Calls overtake one another: an extension that takes effect after a delayed nack would undo
        it, so such a nack waits for the answer, and extensions that are not on their way are not
        sent. A plain one cannot be undone.

        Returns these, as ids and seconds.
        """
        self._nacks.update(ack_ids)
        struck = self._strike({*ack_ids}) if seconds else []
        self._unanswered += len(ack_ids)
        if seconds and self._extending:
            wait = [ack_id for ack_id in ack_ids if ack_id in self._extending]
            self._afterwards.update(dict.fromkeys(wait, seconds))
            ack_ids = [ack_id for ack_id in ack_ids if ack_id not in self._extending]
        if ack_ids:
            self._modacks.setdefault((seconds, False), []).extend(ack_ids)
        return struck

    def _strike(self, ack_ids: set[str]) -> list[tuple[str, int]]:
        """Ask for more time for these no more, where that is still to be sent; returns where."""
        struck: list[tuple[str, int]] = []
        for (seconds, is_extension), ids in list(self._modacks.items()):
            if is_extension and not ack_ids.isdisjoint(ids):
                struck += [(one, seconds) for one in ids if one in ack_ids]
                ids[:] = [one for one in ids if one not in ack_ids]
                if not ids:
                    del self._modacks[seconds, True]
        for _, _, request in self._extensions_again:
            if not ack_ids.isdisjoint(request.ids):
                gone = [one for one in request.ids if one in ack_ids]
                struck += [(one, request.seconds or 0) for one in gone]
                request.ids = [one for one in request.ids if one not in ack_ids]
                self._ids_again -= len(gone)
        if struck:
            left = [entry for entry in self._extensions_again if entry[2].ids]
            heapq.heapify(left)
            self._extensions_again = left
        self._unanswered -= len(struck)
        return struck

    @property
    def nacking(self) -> bool:
        """Whether any nack was not answered yet."""
        return bool(self._nacks)

    @property
    def waiting(self) -> bool:
        """Whether there is anything to be sent that was not sent before."""
        return bool(self.acks or self._modacks or self._in_order.ready)

    def next_at(self, *, owed: bool = True, extensions: bool = True) -> float:
        """When something is to be sent again; infinity if nothing is.

        Args:
            owed: Whether acks and nacks can be sent.
            extensions: Whether extensions can.
        """
        at = math.inf
        if extensions and self._extensions_again:
            at = self._extensions_again[0][0]
        if owed:
            at = min(at, self._again[0][0] if self._again else math.inf, self._in_order.next_at)
        return at

    def take(self, *, now: float, owed: bool = True, extensions: bool = True) -> list[Request]:
        """Every request to be sent now; of what is not wanted, more gathers.

        Of a great many extensions or nacks some are left for the next time, see `cut_short`.

        Args:
            now: The time.
            owed: Whether acks and nacks are wanted.
            extensions: Whether extensions are.
        """
        requests = self._pop_due(self._extensions_again, now) if extensions else []
        if owed:
            requests += self._take_acks(now)
        self.cut_short = False
        for (seconds, is_extension), ids in list(self._modacks.items()):
            wanted = extensions if is_extension else owed
            if wanted:
                owed_for = seconds * EXTENSION_OWED_FOR if is_extension else OWED_FOR
                requests += [
                    Request(part, seconds, is_extension, owed_until=now + owed_for)
                    for part in self._cut(ids[:_MAX_AT_ONCE])
                ]
                if len(ids) > _MAX_AT_ONCE:
                    self._modacks[seconds, is_extension] = ids[_MAX_AT_ONCE:]
                    self.cut_short = True
                else:
                    del self._modacks[seconds, is_extension]
        for request in requests:
            if request.is_extension:
                self._extending.add({*request.ids})
        return requests

    def _pop_due(self, again: _Later, now: float) -> list[Request]:
        requests: list[Request] = []
        while again and again[0][0] <= now:
            request = heapq.heappop(again)[2]
            self._ids_again -= len(request.ids)
            requests.append(request)
        return requests

    def _take_acks(self, now: float) -> list[Request]:
        """Acks, and whatever is owed and is to be sent again."""
        requests = self._pop_due(self._again, now)
        if self.acks:
            acks = self.acks.copy()
            self.acks.clear()
            self._unanswered += len(acks)
            requests += [Request(ids, owed_until=now + OWED_FOR) for ids in self._cut(acks)]
        most = self._most(self._in_order.longest)
        requests += [Request(ids, in_order=True) for ids in self._in_order.take(most, now=now)]
        return requests

    def answered(
        self, request: Request, error: ServiceError | None, *, now: float, chance: float
    ) -> Outcome:
        """Heed the server's answer to a request.

        Args:
            request: One that was taken.
            error: How it was refused; none if it was not.
            now: The time.
            chance: A random number from 0 to 1, to spread what is sent again.
        """
        request.attempts += 1
        again = self._ids_again
        outcome = self._judge(request, error, now, chance)
        if request.in_order:
            settled = (*outcome.confirmed, *outcome.failed)
            self._in_order.settled(settled)
            self._unanswered -= len(settled)
        else:
            self._unanswered -= len(request.ids) - (self._ids_again - again)
        if request.seconds is not None and not request.is_extension:
            self._nacks.difference_update((*outcome.confirmed, *outcome.failed))
        if request.is_extension:
            answered = self._extending.remove({*request.ids})
            if self._afterwards:
                self._release_nacks(answered, outcome)
        return outcome

    def _release_nacks(self, ack_ids: Collection[str], outcome: Outcome) -> None:
        """Let the delayed nacks of these go; their extensions are not sent again."""
        nacked = [ack_id for ack_id in self._afterwards if ack_id in ack_ids]
        outcome.struck = self._strike({*nacked})
        for ack_id in nacked:
            seconds = self._afterwards.pop(ack_id)
            self._modacks.setdefault((seconds, False), []).append(ack_id)

    def _judge(
        self, request: Request, error: ServiceError | None, now: float, chance: float
    ) -> Outcome:
        if error is None:
            return Outcome(confirmed=request.ids)
        if error.ack_errors:
            return self._heed_each(request, error, now, chance)
        if error.code == "INVALID_ARGUMENT" and len(request.ids) > 1:
            self._halve(request, now)  # one bad id must not cost the others
            return Outcome()
        failed = request.ids
        if error.code in TRANSIENT:
            failed = self._try_again(request, error, now, chance)
        return Outcome(failed={ack_id: _failure(ack_id, error) for ack_id in failed})

    def _heed_each(
        self, request: Request, error: ServiceError, now: float, chance: float
    ) -> Outcome:
        """The server said of some ids why it refused them; the others it accepted."""
        outcome = Outcome()
        again: list[str] = []
        for ack_id in request.ids:
            reason = error.ack_errors.get(ack_id)
            if reason is None:
                outcome.confirmed.append(ack_id)
            elif reason.startswith(_TRANSIENT_ID):
                again.append(ack_id)
            else:
                outcome.failed[ack_id] = InvalidAckIdError(ack_id, reason)
        if request.in_order:
            self._in_order.settled((*outcome.confirmed, *outcome.failed))
        if again:
            rest = dataclasses.replace(request, ids=again)
            for ack_id in self._try_again(rest, error, now, chance):
                outcome.failed[ack_id] = _unconfirmed(ack_id, error)
        return outcome

    def _try_again(
        self, request: Request, error: ServiceError, now: float, chance: float
    ) -> list[str]:
        """Send a request again, later; returns those of its ids for which it is too late."""

        def wait(attempts: int) -> float:
            delay = backoff.delay(attempts, first=FIRST_DELAY, most=MAX_DELAY, chance=chance)
            return max(delay, error.retry_delay or 0.0)

        if request.in_order:
            return self._in_order.refused(request.ids, now=now, wait=wait)
        at = now + wait(request.attempts)
        if at > request.owed_until:
            return request.ids
        self._add(at, request)
        return []

    def _halve(self, request: Request, now: float) -> None:
        middle = len(request.ids) // 2
        for ids in (request.ids[:middle], request.ids[middle:]):
            self._add(now, dataclasses.replace(request, ids=ids))

    def _add(self, at: float, request: Request) -> None:
        self._count += 1
        self._ids_again += len(request.ids)
        again = self._extensions_again if request.is_extension else self._again
        heapq.heappush(again, (at, self._count, request))

    def _cut(self, ids: list[str]) -> Iterator[list[str]]:
        """Cut ids into parts that one request can carry."""
        most_ids = MAX_CONFIRMED_IDS if self.one_by_one else MAX_IDS
        if len(ids) <= most_ids and _bytes_of(len(ids), len("".join(ids))) <= MAX_BYTES:
            yield ids
            return
        most = self._most(max(map(len, ids)), most_ids)
        for start in range(0, len(ids), most):
            yield ids[start : start + most]

    @staticmethod
    def _most(longest: int, most: int = MAX_CONFIRMED_IDS) -> int:
        """How many ids of that length one request can carry."""
        return max(1, min(most, MAX_BYTES // _bytes_of(1, longest)))


def _bytes_of(count: int, length: int) -> int:
    """What ids take in a request, that are so long together."""
    return 3 * count + length


def _failure(ack_id: str, error: ServiceError) -> SettleError:
    if error.code == "INVALID_ARGUMENT":
        return InvalidAckIdError(ack_id, error.message)
    return _unconfirmed(ack_id, error)


def _unconfirmed(ack_id: str, error: ServiceError) -> UnconfirmedError:
    failure = UnconfirmedError(ack_id)
    failure.__cause__ = error
    return failure
