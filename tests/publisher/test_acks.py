"""The ack of a flight that has landed is like any future that is done, whoever looks at it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import weakref
from collections.abc import Awaitable, Callable

import pytest

from pubsub_aio.publisher.acks import KnownAck
from pubsub_aio.testing import MemoryEmulator
from tests.publisher.conftest import TOPIC, publisher_of
from tests.subscriber.conftest import virtual

Ack = asyncio.Future[str]


def known() -> Ack:
    ack: KnownAck = KnownAck()
    ack._result, ack._loop = "17", asyncio.get_running_loop()
    return ack


def real() -> Ack:
    ack: Ack = asyncio.get_running_loop().create_future()
    ack.set_result("17")
    return ack


@virtual
async def test_a_flight_that_has_landed_has_one(emulator: MemoryEmulator) -> None:
    async with publisher_of(emulator) as publisher:
        flight = publisher.publish(TOPIC, b"x")
        before = flight.ack
        message_id = await before

        assert isinstance(flight.ack, KnownAck)
        assert await flight.ack == message_id == before.result()
        assert flight.ack.get_loop() is before.get_loop()


def test_nothing_of_a_future_is_forgotten() -> None:
    """What it has from asyncio would find nothing prepared."""
    public = {name for name in dir(asyncio.Future) if not name.startswith("_")}

    assert public <= vars(KnownAck).keys()


async def _awaited(ack: Ack) -> object:
    return await ack


async def _asked(ack: Ack) -> object:
    return (ack.done(), ack.cancelled(), ack.result(), ack.exception(), ack.cancel(), ack.done())


async def _known_to_asyncio(ack: Ack) -> object:
    loop = asyncio.get_running_loop()
    return (
        isinstance(ack, asyncio.Future),
        asyncio.isfuture(ack),
        asyncio.ensure_future(ack) is ack,
        asyncio.wrap_future(ack) is ack,
        ack.get_loop() is loop,
        weakref.ref(ack)() is ack,
        {ack: 1}[ack],
        "finished result='17'" in repr(ack),
    )


async def _inspected(ack: Ack) -> object:
    """As debuggers do."""
    members = inspect.getmembers(ack, lambda value: not callable(value))
    return [member for member in members if not member[0].startswith("__")]


async def _with_others(ack: Ack) -> object:
    other = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(other.set_result, "18")
    return await asyncio.gather(ack, other, ack)


async def _waited_for(ack: Ack) -> object:
    done, pending = await asyncio.wait([ack], timeout=1)
    first = [await each for each in asyncio.as_completed([ack])]
    shielded = await asyncio.shield(ack)
    return (done == {ack}, pending, first, shielded, await asyncio.wait_for(ack, 1))


async def _without_time(ack: Ack) -> object:
    async with asyncio.timeout(0):
        return await ack


async def _in_a_task(ack: Ack) -> object:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(_awaited(ack))
    return task.result()


async def _called_back(ack: Ack) -> object:
    told: list[object] = []
    place = contextvars.ContextVar("place", default="outside")
    context = contextvars.copy_context()
    context.run(place.set, "inside")

    def tell(who: Ack) -> None:
        told.append((who is ack, place.get()))

    ack.add_done_callback(tell)
    ack.add_done_callback(tell, context=context)
    removed, at_once = ack.remove_done_callback(tell), list(told)
    await asyncio.sleep(0)
    return (removed, at_once, told)


async def _changed(ack: Ack) -> object:
    with pytest.raises(asyncio.InvalidStateError, match="invalid state"):
        ack.set_result("18")
    with pytest.raises(asyncio.InvalidStateError, match="invalid state"):
        ack.set_exception(ValueError())
    return ack.result()


@pytest.mark.parametrize(
    "look",
    [
        _awaited,
        _asked,
        _known_to_asyncio,
        _inspected,
        _with_others,
        _waited_for,
        _without_time,
        _in_a_task,
        _called_back,
        _changed,
    ],
)
async def test_it_is_like_any_other_that_is_done(look: Callable[[Ack], Awaitable[object]]) -> None:
    assert await look(known()) == await look(real())


def test_a_loop_runs_until_it_is_done() -> None:
    loop = asyncio.new_event_loop()
    ack: KnownAck = KnownAck()
    ack._result, ack._loop = "17", loop

    assert loop.run_until_complete(ack) == "17"
    loop.close()
