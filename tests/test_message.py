"""A message: what it says, as Google's does, and whom it tells what is done with it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import math
import queue
import threading
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from google.cloud.pubsub_v1.subscriber.message import Message as GoogleMessage
from google.pubsub_v1 import types
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio import Confirmation, Message
from pubsub_aio._wire import schema
from pubsub_aio._wire.columns import Columns
from pubsub_aio.errors import (
    AlreadySettledError,
    ConfigError,
    InvalidAckIdError,
    LeaseExpiredError,
    SettleError,
)
from pubsub_aio.message import Told, WholeMessage, all_confirmed, whole_seconds

Call = tuple[str, Message, int | None, Confirmation | None]


class Gathering:
    """A lease that takes acks in a thread, or in none."""

    def __init__(self, thread: int = 0) -> None:
        self.gathers_in = thread
        self.acked: list[Message] = []


class Notebook:
    """Writes down what it is asked to do."""

    exactly_once = False
    subscription = "projects/p/subscriptions/worker"
    ending = False

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def watch(self, message: Message, told: Told) -> None:
        raise NotImplementedError

    def catch_up(self) -> None:
        raise NotImplementedError

    def ack(self, message: Message, confirmation: Confirmation | None = None) -> None:
        self.calls.append(("ack", message, None, confirmation))

    def nack(
        self, message: Message, seconds: int, confirmation: Confirmation | None = None
    ) -> None:
        self.calls.append(("nack", message, seconds, confirmation))

    def extend(
        self, message: Message, seconds: int, confirmation: Confirmation | None = None
    ) -> None:
        self.calls.append(("extend", message, seconds, confirmation))

    def drop(self, message: Message) -> None:
        self.calls.append(("drop", message, None, None))


def received(**fields: Any) -> types.ReceivedMessage:
    """A message in Google's own words."""
    sent = {
        "data": b"the data",
        "attributes": {"colour": "red", "size": "9"},
        "message_id": "4711",
        "publish_time": datetime(2026, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC),
        "ordering_key": "key",
    } | fields.pop("message", {})
    return types.ReceivedMessage(
        **({"ack_id": "ack 1", "delivery_attempt": 3, "message": sent} | fields)
    )


def ours(source: types.ReceivedMessage, notebook: Notebook | None = None) -> Message:
    """The same as a message of this library, through the wire."""
    one = schema.ReceivedMessage.FromString(types.ReceivedMessage.serialize(source))
    columns = Columns(
        ack_ids=[one.ack_id],
        delivery_attempts=[one.delivery_attempt],
        message_ids=[one.message.message_id],
        data=[one.message.data],
        sources=[one.message.SerializeToString()],
        properties=(),
    )
    (message,) = Message.all_in(columns, notebook or Notebook(), Gathering())
    return message


def ours_whole(source: types.ReceivedMessage, notebook: Notebook | None = None) -> Message:
    """The same, with all of its fields read when it came."""
    one = schema.ReceivedMessage.FromString(types.ReceivedMessage.serialize(source))
    (message,) = WholeMessage.all_of([one], notebook or Notebook(), Gathering())
    return message


def googles(source: types.ReceivedMessage) -> GoogleMessage:
    raw = types.ReceivedMessage.pb(source)
    return GoogleMessage(raw.message, raw.ack_id, raw.delivery_attempt, queue.Queue())


def message_and_notebook() -> tuple[Message, Notebook]:
    notebook = Notebook()
    return ours(received(), notebook), notebook


# As Google's

FIELDS = (
    *("data", "attributes", "message_id", "publish_time", "ordering_key", "delivery_attempt"),
    *("ack_id", "size"),
)
LEFT_OUT = {
    "exactly_once_enabled",  # of the subscription, not of a message
    "opentelemetry_data",  # of Google's own tracing
}


def test_a_message_has_every_public_name_of_googles() -> None:
    names = {name for name in dir(googles(received())) if not name.startswith("_")} - LEFT_OUT

    assert names <= {*dir(ours(received()))}
    assert names >= {*FIELDS, "ack", "nack", "drop", "modify_ack_deadline"}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ack", ()),
        ("ack_with_response", ()),
        ("nack", ()),
        ("nack_with_response", ()),
        ("drop", ()),
        ("modify_ack_deadline", (10,)),
        ("modify_ack_deadline_with_response", (10,)),
    ],
)
def test_its_methods_are_called_as_googles(name: str, arguments: tuple[int, ...]) -> None:
    """G3, R33: by position and by name."""
    theirs = inspect.signature(getattr(GoogleMessage, name))
    mine = inspect.signature(getattr(Message, name))
    theirs.bind(object(), *arguments)
    mine.bind(object(), *arguments)
    if arguments:
        theirs.bind(object(), seconds=10)
        mine.bind(object(), seconds=10)


@pytest.mark.parametrize("made", [ours, ours_whole])
def test_an_attribute_can_be_asked_for_alone(
    made: Callable[[types.ReceivedMessage], Message],
) -> None:
    message = made(received())

    assert [message.attribute(name) for name in ("size", "weight")] == ["9", ""]
    assert message.attributes == {"colour": "red", "size": "9"}
    assert message.attribute("colour") == "red"


@pytest.mark.parametrize(
    "source",
    [
        received(),
        received(delivery_attempt=0),
        received(message={"data": b"", "attributes": {"only": "attributes"}}),
        received(message={"data": b"\x00\xff" * 10_000, "attributes": {}, "ordering_key": ""}),
        received(message={"attributes": {"snow": "☃", "": "empty"}}),
    ],
)
def test_its_fields_are_those_of_googles(source: types.ReceivedMessage) -> None:
    mine, theirs = ours(source), googles(source)

    values = {name: getattr(mine, name) for name in FIELDS}
    assert values == {name: getattr(theirs, name) for name in FIELDS} | {
        "attributes": dict(theirs.attributes)
    }


def test_its_fields_have_plain_types() -> None:
    message = ours(received())

    assert {name: type(getattr(message, name)) for name in FIELDS} == {
        "data": bytes,
        "attributes": dict,
        "message_id": str,
        "publish_time": datetime,
        "ordering_key": str,
        "delivery_attempt": int,
        "ack_id": str,
        "size": int,
    }


def test_without_a_dead_letter_policy_there_is_no_delivery_attempt() -> None:
    assert ours(received(delivery_attempt=0)).delivery_attempt is None
    assert ours(received(delivery_attempt=1)).delivery_attempt == 1


def test_the_publish_time_is_aware_and_exact_to_the_microsecond() -> None:
    message = ours(received())

    assert message.publish_time == datetime(2026, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)
    assert message.publish_time.tzinfo is UTC


@given(st.datetimes(timezones=st.just(UTC)))
def test_every_publish_time_can_be_told(time: datetime) -> None:
    assert ours(received(message={"publish_time": time})).publish_time == time


@pytest.mark.parametrize("attempt", [0, 7])
def test_it_says_the_same_however_it_was_read(attempt: int) -> None:
    source = received(delivery_attempt=attempt)
    settler = Notebook()
    one, other = ours(source, settler), ours_whole(source, settler)

    def said(message: Message) -> dict[str, object]:
        names = [name for name in dir(message) if not name.startswith("_") and name != "lease"]
        values = {name: getattr(message, name) for name in names}
        return {name: value for name, value in values.items() if not callable(value)}

    assert said(one) == said(other)
    assert repr(one) == repr(other)
    assert {"ack_id", "attributes", "data", "delivery_attempt", "size"} <= said(one).keys()


def test_it_settles_the_same_way_however_it_was_read() -> None:
    notebook = Notebook()
    message = ours_whole(received(), notebook)

    message.ack()
    message.nack(delay=3)

    assert notebook.calls == [("ack", message, None, None), ("nack", message, 3, None)]


def test_a_lease_that_gathers_acks_takes_it_once_and_whatever_is_else_is_for_the_settler() -> None:
    lease = Gathering(threading.get_ident())
    for made in (ours, ours_whole):
        notebook = Notebook()
        message = made(received(), notebook)
        message.lease = lease
        lease.acked.clear()

        message.ack()
        assert (lease.acked, notebook.calls) == ([message], [])
        assert not message.lease

        message.ack()
        assert (lease.acked, notebook.calls) == ([message], [("ack", message, None, None)])


def test_a_lease_that_gathers_acks_has_none_from_another_thread() -> None:
    message, notebook = message_and_notebook()
    lease = message.lease = Gathering(threading.get_ident())

    other = threading.Thread(target=message.ack)
    other.start()
    other.join()

    assert (lease.acked, message.lease) == ([], lease)
    assert notebook.calls == [("ack", message, None, None)]


def test_changing_its_attributes_does_not_change_the_message() -> None:
    message = ours(received())
    message.attributes["colour"] = "blue"

    assert message.attributes == {"colour": "red", "size": "9"}
    with pytest.raises(KeyError):
        message.attributes["missing"]


def test_its_representation_is_the_same_in_whatever_order_attributes_come() -> None:
    colours = {str(number): "red" for number in (3, 1, 2)}
    for attributes in (colours, dict(reversed(colours.items()))):
        assert repr(ours(received(message={"attributes": attributes}))) == (
            "Message(id=4711, data=b'the data', "
            "attributes={'1': 'red', '2': 'red', '3': 'red'}, ordering_key='key')"
        )


def test_its_representation_is_short() -> None:
    assert repr(ours(received(message={"attributes": {"a": "b"}}))) == (
        "Message(id=4711, data=b'the data', attributes={'a': 'b'}, ordering_key='key')"
    )
    large = ours(received(message={"data": b"x" * 51, "attributes": {}, "ordering_key": ""}))
    assert repr(large) == f"Message(id=4711, data=b'{'x' * 50}...', attributes={{}})"


def test_a_message_can_be_weakly_referred_to_and_is_itself_alone() -> None:
    message, twin = ours(received()), ours(received())

    assert weakref.ref(message)() is message
    assert message != twin
    assert len({message, twin}) == 2
    with pytest.raises(AttributeError):
        message.surprise = 1  # type: ignore[attr-defined]


def test_a_message_goes_on_with_the_ack_id_of_another_delivery_and_leaves_it_the_own() -> None:
    message, copy = ours(received()), ours(received(ack_id="ack 2", delivery_attempt=4))
    before = message.ack_id
    message.renew_with(copy)

    assert (message.ack_id, message.delivery_attempt) == ("ack 2", 4)
    assert copy.ack_id == before
    assert message.data == b"the data"


# What is done with it


def test_settling_is_a_plain_call_that_returns_nothing() -> None:
    """G3, G24, G25: without await."""
    message, notebook = message_and_notebook()
    returned: list[object] = [
        message.ack(),  # type: ignore[func-returns-value]
        message.nack(),  # type: ignore[func-returns-value]
        message.drop(),  # type: ignore[func-returns-value]
        message.modify_ack_deadline(10),  # type: ignore[func-returns-value]
    ]

    assert returned == [None] * 4
    assert notebook.calls == [
        ("ack", message, None, None),
        ("nack", message, 0, None),
        ("drop", message, None, None),
        ("extend", message, 10, None),
    ]


def test_what_can_be_awaited_is_what_the_settler_was_given() -> None:
    """G3: for each that has an answer."""
    message, notebook = message_and_notebook()
    confirmations = [
        message.ack_with_response(),
        message.nack_with_response(),
        message.nack_with_response(delay=29.5),
        message.modify_ack_deadline_with_response(45),
    ]

    assert notebook.calls == [
        ("ack", message, None, confirmations[0]),
        ("nack", message, 0, confirmations[1]),
        ("nack", message, 30, confirmations[2]),
        ("extend", message, 45, confirmations[3]),
    ]
    assert not any(confirmation.done() for confirmation in confirmations)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *[(0, 0), (0.0, 0), (-0.0, 0), (1e-200, 1), (0.001, 1), (1, 1), (1.0001, 2), (30, 30)],
        *[(599.01, 600), (600, 600), (600.0, 600)],
    ],
)
def test_seconds_are_whole_and_rounded_up(value: float, seconds: int) -> None:
    """R33: a nacked message never comes sooner than it was asked to."""
    message, notebook = message_and_notebook()
    message.nack(delay=value)
    message.modify_ack_deadline(value)

    assert [(call[0], call[2]) for call in notebook.calls] == [
        ("nack", seconds),
        ("extend", seconds),
    ]
    assert all(type(call[2]) is int for call in notebook.calls)


@given(st.floats(0, 600))
def test_any_number_of_seconds_is_rounded_up_to_the_next(value: float) -> None:
    """R33: from 0 to 600."""
    assert whole_seconds(value, "delay") == math.ceil(value)


@pytest.mark.parametrize("value", [-1, -0.001, 600.001, 601, 1e9, math.nan, math.inf, "3", None])
def test_seconds_out_of_bounds_are_refused_and_nothing_is_done(value: Any) -> None:
    """R33: 0 to 600; the error names the argument."""
    message, notebook = message_and_notebook()
    with pytest.raises(ConfigError, match=r"^delay must be 0 to 600 seconds"):
        message.nack(delay=value)
    with pytest.raises(ConfigError, match=r"^delay must be 0 to 600 seconds"):
        message.nack_with_response(delay=value)
    with pytest.raises(ConfigError, match=r"^seconds must be 0 to 600 seconds"):
        message.modify_ack_deadline(value)
    with pytest.raises(ConfigError, match=r"^seconds must be 0 to 600 seconds"):
        message.modify_ack_deadline_with_response(value)

    assert notebook.calls == []


def test_a_delay_is_given_by_name() -> None:
    message, _ = message_and_notebook()
    with pytest.raises(TypeError):
        message.nack(30)  # type: ignore[call-arg]


# Confirmations


async def test_a_confirmation_is_awaited() -> None:
    """G3: it returns nothing when the server has confirmed."""
    confirmation = Confirmation()
    asyncio.get_running_loop().call_soon(confirmation.set_result, None)

    assert await confirmation is None  # type: ignore[func-returns-value]
    assert await confirmation is None  # type: ignore[func-returns-value]


async def test_a_confirmation_raises_why_it_failed() -> None:
    confirmation = Confirmation()
    error = LeaseExpiredError("ack 1")
    asyncio.get_running_loop().call_soon(confirmation.set_exception, error)

    for _ in range(2):
        with pytest.raises(LeaseExpiredError) as caught:
            await confirmation
        assert caught.value is error


async def test_a_confirmation_can_be_waited_for_in_another_thread() -> None:
    """G3: in a thread, `result()` waits for it."""
    confirmation, waits = Confirmation(), threading.Event()

    def wait() -> object:
        waits.set()
        return confirmation.result(timeout=30)

    waiting = asyncio.create_task(asyncio.to_thread(wait))
    await asyncio.to_thread(waits.wait)
    confirmation.set_result(None)

    assert await waiting is None


async def test_a_confirmation_that_is_set_in_another_thread_is_awaited() -> None:
    confirmation = Confirmation()
    waiting = asyncio.ensure_future(confirmation)
    await asyncio.to_thread(confirmation.set_exception, AlreadySettledError("ack 1"))

    with pytest.raises(AlreadySettledError):
        await waiting


def test_a_thread_does_not_wait_longer_than_it_wants() -> None:
    confirmation = Confirmation()
    with pytest.raises(concurrent.futures.TimeoutError):
        confirmation.result(timeout=0)

    assert not confirmation.done()


async def test_cancelling_who_waits_does_not_cancel_the_confirmation() -> None:
    """Who stops waiting does not take the ack back, nor leave the others without an answer."""
    confirmation = Confirmation()

    async def wait() -> None:
        await confirmation

    gone, patient = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await confirmation

    assert not confirmation.done()
    confirmation.set_result(None)
    await patient
    await confirmation


async def test_a_confirmation_cannot_be_cancelled() -> None:
    confirmation = Confirmation()

    assert confirmation.cancel() is False
    confirmation.set_result(None)
    await confirmation


async def test_confirmations_work_with_what_asyncio_offers() -> None:
    first, second = Confirmation(), Confirmation()
    first.set_result(None)
    second.set_exception(LeaseExpiredError("ack 2"))
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), LeaseExpiredError]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(Confirmation(), timeout=0.001)


def test_a_confirmation_that_nobody_waits_for_says_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Confirmation().set_exception(LeaseExpiredError("ack 1"))

    assert caplog.records == []


async def test_all_confirmed_returns_when_all_are() -> None:
    confirmations = [Confirmation() for _ in range(3)]
    waiting = asyncio.create_task(all_confirmed(confirmations))
    for confirmation in confirmations:
        await asyncio.sleep(0)
        assert not waiting.done()
        confirmation.set_result(None)

    await waiting
    await all_confirmed([])


async def test_all_confirmed_raises_each_failure() -> None:
    confirmations = [Confirmation() for _ in range(3)]
    failures: list[SettleError] = [LeaseExpiredError("ack 0"), InvalidAckIdError("ack 2", "gone")]
    confirmations[0].set_exception(failures[0])
    confirmations[1].set_result(None)
    confirmations[2].set_exception(failures[1])

    with pytest.raises(ExceptionGroup, match="2 of 3 messages") as caught:
        await all_confirmed(confirmations)
    assert list(caught.value.exceptions) == failures


async def test_who_stops_waiting_for_all_cancels_none() -> None:
    confirmations = [Confirmation() for _ in range(2)]
    waiting = asyncio.create_task(all_confirmed(confirmations))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert not any(confirmation.done() for confirmation in confirmations)
