"""The emulator in a thread of its own, for code that is not asyncio's."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar, cast

from pubsub_aio.emulator.broker import STREAM_LIFE
from pubsub_aio.emulator.clock import Clock
from pubsub_aio.emulator.contents import OpenStream
from pubsub_aio.emulator.faults import Faults
from pubsub_aio.emulator.journal import HISTORY, PublishedMessage
from pubsub_aio.emulator.principals import OWNER
from pubsub_aio.emulator.server import Emulator
from pubsub_aio.emulator.service import DELIVERY_LAG
from pubsub_aio.emulator.transforming import TIME_LIMIT

if TYPE_CHECKING:
    from pubsub_aio.emulator.iam import Iam
    from pubsub_aio.emulator.quotas import Quotas
    from pubsub_aio.emulator.seeds import Seeded

T = TypeVar("T")
P = ParamSpec("P")


class EmulatorThread:
    """An `Emulator` that any thread may use: the same methods, none of them a coroutine.

    Start it with `with`. For the arguments and methods, see `Emulator`.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        project: str | None = None,
        history: int = HISTORY,
        stream_life: float = STREAM_LIFE,
        delivery_lag: float = DELIVERY_LAG,
        instance: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        seed: str | os.PathLike[str] | None = None,
        enforce_iam: bool = False,
        principal: str = OWNER,
        quotas: Quotas | None = None,
        transform_timeout: float = TIME_LIMIT,
    ) -> None:
        self._emulator = Emulator(
            host=host,
            port=port,
            clock=clock,
            project=project,
            history=history,
            stream_life=stream_life,
            delivery_lag=delivery_lag,
            instance=instance,
            data_dir=data_dir,
            seed=seed,
            enforce_iam=enforce_iam,
            principal=principal,
            quotas=quotas,
            transform_timeout=transform_timeout,
        )
        self.faults = cast("Faults", _InLoop(self, self._emulator.faults))
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=loop.run_forever, name="pubsub-emulator", daemon=True
        )
        self._thread.start()
        try:
            self._await(self._emulator.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._await(self._emulator.__aexit__(kind, error, trace))
        finally:
            self._end()

    def _end(self) -> None:
        loop, self._loop = self._loop, None
        if loop:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    @property
    def address(self) -> str:
        """`host:port`, as PUBSUB_EMULATOR_HOST wants it."""
        return self._emulator.address

    @property
    def project(self) -> str:
        """The project of resources that are named without one."""
        return self._emulator.project

    @project.setter
    def project(self, project: str) -> None:
        self._emulator.project = project

    @property
    def iam(self) -> Iam:
        """See `Emulator.iam`."""
        return cast("Iam", _InLoop(self, self._emulator.iam))

    @property
    def clock(self) -> Clock:
        """The clock that it was given, or the machine's."""
        return self._emulator.clock

    def advance(self, seconds: float) -> None:
        """See `Emulator.advance`."""
        self._await(self._emulator.advance(seconds))

    def until(self, condition: Callable[[], bool], *, timeout: float = 10.0) -> None:
        """See `Emulator.until`; the condition may use this object's methods."""
        ends_at = time.monotonic() + timeout
        seen = self.call(self._emulator.activity)
        while not condition():
            if time.monotonic() > ends_at:
                raise TimeoutError(f"the condition did not hold within {timeout} seconds")
            seen = self._await(self._emulator.activity_after(seen))

    def create_topic(self, topic: str, **settings: object) -> str:
        """See `Emulator.create_topic`."""
        return self.call(self._emulator.create_topic, topic, **settings)

    def create_subscription(self, subscription: str, topic: str, **settings: object) -> str:
        """See `Emulator.create_subscription`."""
        return self.call(self._emulator.create_subscription, subscription, topic, **settings)

    def publish(
        self,
        topic: str,
        data: bytes = b"",
        *,
        attributes: Mapping[str, str] | None = None,
        ordering_key: str = "",
    ) -> str:
        """See `Emulator.publish`."""
        return self.call(
            self._emulator.publish, topic, data, attributes=attributes, ordering_key=ordering_key
        )

    @property
    def seeded(self) -> Seeded | None:
        """See `Emulator.seeded`."""
        return self._emulator.seeded

    def load_seed(self, path: str | os.PathLike[str], *, project: str | None = None) -> Seeded:
        """See `Emulator.load_seed`."""
        return self.call(self._emulator.load_seed, path, project=project)

    def delete_project(self) -> None:
        """See `Emulator.delete_project`."""
        self.call(self._emulator.delete_project)

    def messages(self, topic: str | None = None) -> list[PublishedMessage]:
        """See `Emulator.messages`."""
        return self.call(self._emulator.messages, topic)

    def message(self, message_id: str) -> PublishedMessage:
        """See `Emulator.message`."""
        return self.call(self._emulator.message, message_id)

    def backlog(self, subscription: str) -> int:
        """See `Emulator.backlog`."""
        return self.call(self._emulator.backlog, subscription)

    def outstanding(self, subscription: str) -> int:
        """See `Emulator.outstanding`."""
        return self.call(self._emulator.outstanding, subscription)

    def streams(self, subscription: str | None = None) -> list[OpenStream]:
        """See `Emulator.streams`."""
        return self.call(self._emulator.streams, subscription)

    def _await(self, awaitable: Coroutine[object, object, T]) -> T:
        if self._loop is None:
            awaitable.close()
            raise RuntimeError("the emulator does not run: use it inside a `with` block")
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the emulator's own thread."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._await(call())


class _InLoop:
    """Stands for an object of the emulator's: its methods are called where the emulator lives."""

    def __init__(self, owner: EmulatorThread, target: object) -> None:
        self._owner = owner
        self._target = target

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._target, name)

        def call(*args: object, **kwargs: object) -> object:
            return self._owner.call(method, *args, **kwargs)

        return call
