"""Applies transforms: to what is published before it is kept, and to what is delivered.

Scripts run in child processes, called from threads, so that nothing here waits for them but the one
call that needs their result.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pubsub_aio.emulator.status import Code, StatusError, invalid
from pubsub_aio.emulator.transforms import (
    AT_ONCE,
    STRETCH,
    Run,
    Script,
    ScriptError,
    check_transforms,
    failed_publish,
    scripts_of,
    transformed,
    transformed_body,
)

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from pubsub_aio._wire import schema
    from pubsub_aio.emulator.javascript import ScriptRunner
    from pubsub_aio.emulator.transforms import Transform

    Config = schema.Topic | schema.Subscription
    Kept = Sequence[bytes | None]

T = TypeVar("T")

log = logging.getLogger("pubsub_aio.emulator")

TIME_LIMIT = 0.5
"""Seconds that a script may take for one message, as the service has it."""

_NOT_APPLIED = {"ai_inference", "compression"}


class Transforms:
    """Runs the transforms of topics and subscriptions, where a JavaScript engine is installed.

    Without one they are stored, and messages pass unchanged.

    Args:
        time_limit: Seconds that a script may take for one message.
    """

    def __init__(self, *, time_limit: float = TIME_LIMIT) -> None:
        self._time_limit = time_limit
        self._runner: ScriptRunner | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._warned: set[str] = set()
        self._closed = False

    def open(self) -> None:
        """Let scripts run; they may from the beginning, until `close`."""
        self._closed = False

    def close(self) -> None:
        """End every script that runs, and let none run until `open`."""
        self._closed = True
        runner, threads, self._runner, self._threads = self._runner, self._threads, None, None
        if runner:
            runner.close()
        if threads:
            threads.shutdown(cancel_futures=True)

    # Settings

    async def check(self, config: Config) -> None:
        """Refuse scripts that do not define their functions; warn of what will not be done."""
        if runner := self._needed_for(config):
            await self._in_thread(lambda: _check(runner, config))

    def check_now(self, config: Config) -> None:
        """The same, for those who cannot wait."""
        if runner := self._needed_for(config):
            _check(runner, config)

    def _needed_for(self, config: Config) -> ScriptRunner | None:
        """What runs scripts, if there are any; warns of transforms that are not applied."""
        check_transforms(config.message_transforms)
        kinds = {transform.WhichOneof("transform") for transform in config.message_transforms}
        for kind in sorted(kinds & _NOT_APPLIED - self._warned):
            self._warned.add(kind)
            log.warning("transforms by %s are stored but not applied: %s", kind, config.name)
        return self._running() if "javascript_udf" in kinds else None

    def _running(self) -> ScriptRunner | None:
        """What runs scripts; none, with a warning, if no engine is installed.

        Raises:
            StatusError: None may run now.
        """
        if self._runner or "engine" in self._warned:
            return self._runner
        if self._closed:
            raise StatusError(Code.UNAVAILABLE, "the emulator has stopped: no script can run")
        from concurrent.futures import ThreadPoolExecutor

        from pubsub_aio.emulator import javascript

        if engine := javascript.engine_path():
            self._runner = javascript.ScriptRunner(engine, time_limit=self._time_limit)
            self._threads = ThreadPoolExecutor(AT_ONCE, "pubsub-emulator-transforms")
        else:
            self._warned.add("engine")
            log.warning(
                "message transforms are stored but not applied, for there is no JavaScript engine: "
                "pip install 'pubsub-aio[transforms]'"
            )
        return self._runner

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # Messages

    def of(self, config: Config) -> Transform | None:
        """What a subscription's transforms make of a message; none if they make nothing of any."""
        scripts = scripts_of(config.message_transforms)
        if not scripts or not (runner := self._running()):
            return None
        return lambda message: self._in_thread(lambda: transformed(message, scripts, runner.run))

    async def published(self, topic: schema.Topic, bodies: Sequence[bytes]) -> Kept:
        """What a topic's transforms make of messages; none for each that they leave out.

        Raises:
            StatusError: A transform failed, so that nothing may be published.
        """
        scripts = scripts_of(topic.message_transforms)
        if not scripts or not (runner := self._running()):
            return bodies
        done: list[bytes | None] = []
        while len(done) < len(bodies):
            rest = range(len(done), len(bodies))
            stretch = partial(_transform, bodies, rest, scripts, runner.run, seconds=STRETCH)
            done += await self._in_thread(stretch)
        return done

    def published_now(self, topic: schema.Topic, bodies: Sequence[bytes]) -> Kept:
        """The same, for those who cannot wait."""
        scripts = scripts_of(topic.message_transforms)
        if not scripts or not (runner := self._running()):
            return bodies
        return _transform(bodies, range(len(bodies)), scripts, runner.run, seconds=math.inf)


def _check(runner: ScriptRunner, config: Config) -> None:
    for at, transform in enumerate(config.message_transforms):
        for script in scripts_of([transform]):
            try:
                runner.check(script)
            except ScriptError as error:
                field = f"message_transforms[{at}].javascript_udf.code"
                raise invalid(field, str(error)) from None


def _transform(
    bodies: Sequence[bytes], at: Iterable[int], scripts: list[Script], run: Run, *, seconds: float
) -> list[bytes | None]:
    """What becomes of the messages at these positions, or of the first of them."""
    done: list[bytes | None] = []
    ends_at = time.monotonic() + seconds
    for position in at:
        try:
            done.append(transformed_body(bodies[position], scripts, run))
        except ScriptError as error:
            raise failed_publish(position, error) from None
        if time.monotonic() > ends_at:
            break
    return done
