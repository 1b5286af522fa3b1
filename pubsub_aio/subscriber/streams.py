"""One stream of a subscription: opened, listened to, kept alive, reopened."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from google.protobuf.message import DecodeError

from pubsub_aio._core.rush import Rush
from pubsub_aio._wire import schema
from pubsub_aio._wire.transport import PullStream, Transport, service_error
from pubsub_aio.config import StreamPolicy
from pubsub_aio.errors import ServiceError
from pubsub_aio.subscriber.alarm import Alarm
from pubsub_aio.subscriber.custody import Custody
from pubsub_aio.subscriber.reconnect import FATAL, before_next_attempt
from pubsub_aio.subscriber.vitals import Vitals

GRACE = 1.0
"""Seconds after which a stream that was not refused counts as open; some servers say nothing."""

PAUSE = 5.0
"""Seconds after which a stream from which nothing is read is closed until there is room."""

QUIET = 0.25
"""Seconds without a message after which no more is on its way to one that ends."""

SETTLED = 10.0
"""Seconds after which a stream that brought no message has worked all the same."""


_MAX_PINGS = 100  # remembered on a server that answers none
_MAX_WAITS = 4  # while what comes is read, for what the server owes


class StreamReader:
    """Keeps one stream open for as long as its `run` runs.

    Args:
        transport: By which way.
        subscription: The full name of the subscription.
        custody: Takes what comes.
        vitals: Is told how it goes.
        policy: How the stream is kept alive.
        first_request: Makes the request that opens the stream.
    """

    def __init__(
        self,
        transport: Transport,
        subscription: str,
        *,
        custody: Custody[Any],
        vitals: Vitals,
        policy: StreamPolicy,
        first_request: Callable[[], schema.StreamingPullRequest],
    ) -> None:
        self._transport = transport
        self._subscription = subscription
        self._custody = custody
        self._vitals = vitals
        self._policy = policy
        self._first_request = first_request
        self._loop = asyncio.get_running_loop()
        self._stream: PullStream | None = None
        self._writing = asyncio.Lock()
        self._reopening = False
        self._finishing = False
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._open = False
        self._useful = False
        self._cut = False  # some of the stream may never be read
        self._dead: Exception | None = None  # why the stream was ended here
        self._answers_pings = False
        self._pings: deque[asyncio.Future[bool]] = deque()
        self._heard_at = self._loop.time()
        self._outdated = asyncio.Event()  # what the stream was told at its beginning has changed
        self._ending: asyncio.Future[bool] | None = None  # as the stream is read to its end
        self._rush = Rush()
        self._rush_alarm = Alarm(self._rush_is_due)

    # Life

    async def run(self) -> None:
        """Keep the stream open.

        Raises:
            ServiceError: It is no use to try again.
            ReconnectError: It could not be kept open within the reconnect budget.
        """
        failures = 0
        while await self._may_open():
            began = self._loop.time()
            reopening = False
            try:
                error = await self._session()
                reopening = self._reopening and error.code in ("CANCELLED", "UNAVAILABLE")
            finally:
                self._reopening = False
                if self._ending is not None:
                    self._ending.set_result(reopening and not self._cut)
                    self._ending = None
            if self._finishing:
                return
            lasted = self._loop.time() - began >= SETTLED and self._dead is None
            worked = self._useful or lasted or reopening
            self._vitals.lost(None if reopening else error, was_open=self._open, worked=worked)
            if reopening:
                continue
            if error.code in FATAL:
                raise error
            failures = 1 if worked else failures + 1
            await before_next_attempt(error, failures, policy=self._policy, vitals=self._vitals)

    async def _may_open(self) -> bool:
        """Wait until there is room for more, and reading is not paused; whether it goes on then."""
        await self._custody.room.wait()
        await self._resumed.wait()
        return not self._finishing

    def reopen(self) -> None:
        """Open the stream anew, because what it was told at its beginning has changed."""
        if self._stream is not None:
            self._reopening = True
            self._outdated.set()

    async def finish(self) -> None:
        """Let the server end the stream, and return when nothing comes any more."""
        self._finishing = True
        stream = self._stream
        if stream is None:
            return
        try:
            if self._ending is None:
                self._ending = self._loop.create_future()
                async with self._writing_to(stream):
                    await stream.done_writing()
        except ServiceError:
            return
        heard_at = -math.inf
        while self._stream is stream and self._heard_at > heard_at:
            heard_at = self._heard_at
            await asyncio.sleep(QUIET)

    async def pause(self) -> bool:
        """Read the stream to its end, and open none until `resume` is called.

        Returns whether the server has ended it; otherwise some of it may not have been read.
        """
        self._resumed.clear()
        if (stream := self._stream) is None:
            return True
        self._reopening = True
        return await self._see_out(stream)

    def resume(self) -> None:
        """Open a stream again."""
        self._resumed.set()

    async def _session(self) -> ServiceError:
        """Open a stream and listen until it ends; returns how it ended."""
        self._begin()
        stream = self._stream = self._transport.streaming_pull()
        try:
            async with self._writing_to(stream):
                await stream.write(self._first_request().SerializeToString())
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch(stream))
                replacing = tasks.create_task(self._see_out_when_outdated(stream))
                error = await self._listen(stream)
                watching.cancel()
                replacing.cancel()
        except ServiceError as refused:
            error = refused
        finally:
            self._stream = None
            stream.cancel()
            for ping in self._pings:
                if not ping.done():
                    ping.set_result(False)
            self._pings.clear()
        if self._dead is not None and not isinstance(self._dead, ServiceError):
            raise self._dead
        return self._dead or error

    def _begin(self) -> None:
        """Nothing is known yet of a stream that is new."""
        self._open = self._useful = self._cut = False
        self._dead = None
        self._outdated.clear()

    # Messages

    async def _listen(self, stream: PullStream) -> ServiceError:
        """Take what comes until the stream ends; returns how it ended."""
        room, rush = self._custody.room, self._rush
        try:
            while True:
                if not room.is_set() and not await self._room_soon():
                    self._reopening = True  # when there is room
                    return service_error("CANCELLED", "reading has paused")
                data = await stream.read()
                now = self._heard_at = self._loop.time()
                if not self._open:
                    self._opened()
                if not data:
                    self._take_in(rush.take())
                    self._answered()
                elif responses := rush.add(data, now=now):
                    self._take_in(responses)
                elif self._rush_alarm.at == math.inf:
                    self._rush_alarm.set(rush.due_at)
        except ServiceError as error:
            return error
        finally:
            self._rush_alarm.set(math.inf)
            with contextlib.suppress(ServiceError):  # what cannot be read comes again
                self._take_in(rush.take())

    def _take_in(self, responses: list[bytes]) -> None:
        """Take in responses that came together.

        Raises:
            ServiceError: One cannot be read; the others are taken in.
        """
        if not responses:
            return
        try:
            self._useful |= self._custody.receive(responses)
        except DecodeError as error:
            if len(responses) > 1:
                for response in responses:
                    with contextlib.suppress(ServiceError):
                        self._take_in([response])
            raise service_error("INTERNAL", f"a response cannot be read: {error}") from error

    def _rush_is_due(self) -> None:
        """What was gathered has waited long enough, unless it went and other came."""
        if self._rush.due_at <= self._loop.time():
            try:
                self._take_in(self._rush.take())
            except Exception as error:  # noqa: BLE001 - it is raised where the stream is read
                self._dead = error
                if self._stream is not None:
                    self._stream.cancel()
        self._rush_alarm.set(self._rush.due_at)

    async def _room_soon(self) -> bool:
        """Wait for room; not so long that what is unread expires on the server, and counts.

        But an ordered stream must be read to its end, however long that takes.
        """
        patience = PAUSE if self._custody.ordered is False else None
        self._heard_at = math.inf  # who does not listen hears no silence
        try:
            async with asyncio.timeout(patience):
                await self._custody.room.wait()
        except TimeoutError:
            return False
        finally:
            self._heard_at = self._loop.time()
        return True

    def _opened(self) -> None:
        self._open = True
        self._vitals.opened()

    # Signs of life

    async def _watch(self, stream: PullStream) -> None:
        """Ask for a sign of life now and then; a stream that gives none is dead."""
        policy = self._policy
        with contextlib.suppress(ServiceError):  # the listener hears of it too
            if self._transport.can.pings:
                await self._ping(stream)
            await asyncio.sleep(GRACE)
            if not self._open and not self._answers_pings:
                self._opened()
            while self._transport.can.pings:
                await asyncio.sleep(policy.ping_interval)
                if self._ending is not None:  # nothing may be written any more
                    return
                unanswered = self._pings if self._answers_pings else ()
                answer = unanswered[-1] if unanswered else await self._ping(stream)
                try:
                    async with asyncio.timeout(policy.ping_timeout):
                        await asyncio.shield(answer)
                except TimeoutError:
                    if self._is_silent(policy.ping_timeout) and self._answers_pings:
                        raise self._given_up(stream, "gave no sign of life") from None

    @contextlib.asynccontextmanager
    async def _writing_to(self, stream: PullStream) -> AsyncIterator[None]:
        """The turn to write to a stream; one that takes nothing is dead.

        Raises:
            ServiceError: It is.
        """
        try:
            async with self._writing, asyncio.timeout(self._policy.ping_timeout):
                yield
        except TimeoutError:
            raise self._given_up(stream, "took no request") from None

    def _given_up(self, stream: PullStream, why: str) -> ServiceError:
        """End a dead stream; it is opened anew."""
        error = service_error(
            "UNAVAILABLE", f"the stream {why} for {self._policy.ping_timeout:g} s"
        )
        if self._stream is stream:
            self._dead = error
        stream.cancel()
        return error

    def _is_silent(self, seconds: float) -> bool:
        """Whether the stream is listened to, and nothing was heard for so long."""
        return self._custody.room.is_set() and self._loop.time() - self._heard_at >= seconds

    async def _see_out_when_outdated(self, stream: PullStream) -> None:
        await self._outdated.wait()
        await self._see_out(stream)

    async def _see_out(self, stream: PullStream) -> bool:
        """Let the server end the stream; if it does not, cancel it when nothing comes any more.

        Returns whether everything in it was read, as far as can be known.
        """
        if (ending := self._ending) is None:
            ending = self._ending = self._loop.create_future()
            try:
                async with self._writing_to(stream):
                    await stream.done_writing()
            except ServiceError:  # it ends by itself
                self._cut = True
        # What is unread in a stream that is cancelled comes late, and so out of order.
        patience = QUIET if self._custody.ordered is False else self._policy.ping_timeout
        waits = 0
        while not ending.done():
            await asyncio.wait([ending], timeout=patience)
            waits += self._custody.room.is_set()
            if not ending.done() and (self._is_silent(patience) or waits >= _MAX_WAITS):
                self._cut = True
                stream.cancel()
        return ending.result()

    async def _ping(self, stream: PullStream) -> asyncio.Future[bool]:
        answer = self._loop.create_future()
        async with self._writing_to(stream):
            if len(self._pings) == _MAX_PINGS and not (oldest := self._pings.popleft()).done():
                oldest.set_result(False)
            self._pings.append(answer)
            await stream.write(b"")
        return answer

    def _answered(self) -> None:
        """The server answers pings in order, after everything that it sent before."""
        if self._pings:
            self._answers_pings = True
            if not (ping := self._pings.popleft()).done():
                ping.set_result(True)

    async def everything_read(self) -> bool:
        """Return when all that the server had sent at the call has been read.

        Returns whether that is so; it is not if the stream ended before. Of a server that answers
        no pings nothing better is known than that it is so.
        """
        stream = self._stream
        if stream is None or not self._answers_pings:
            return True
        if self._ending is not None:
            return await asyncio.shield(self._ending)
        try:
            answer = await self._ping(stream)
        except ServiceError:
            return False
        waits = 0
        while not answer.done() and waits < _MAX_WAITS:
            await asyncio.wait([answer], timeout=self._policy.ping_timeout)
            waits += self._custody.room.is_set()
        return answer.result() if answer.done() else True
