"""Where parts of the emulator meet: schemas and transforms, dead letters and schemas, policies."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.api_core.exceptions import InvalidArgument
from google.pubsub_v1 import Schema, SchemaServiceClient
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport

from pubsub_aio.emulator import Emulator, EmulatorThread, VirtualClock
from pubsub_aio.testing import MemoryEmulator
from tests.emulator.conformance.servers import Server, texts

ANN = "user:ann@example.com"
NUMBERED = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
DROP = "function drop(message, metadata) { return message.data == 'drop' ? null : message; }"


def schema_settings(server: Server) -> dict[str, str]:
    """A schema that wants a number."""
    schemas = SchemaServiceClient(transport=SchemaServiceGrpcTransport(channel=server.channel))
    made = schemas.create_schema(
        parent=f"projects/{server.project}",
        schema=Schema(type_=Schema.Type.AVRO, definition=NUMBERED),
        schema_id="numbered",
    )
    return {"schema": made.name, "encoding": "JSON"}


@pytest.fixture
def server() -> Iterator[Server]:
    with EmulatorThread(clock=VirtualClock()) as emulator:
        server = Server("embedded", emulator.address, let_time_pass=emulator.advance)
        yield server
        server.close()


def test_a_schemas_refusal_counts_what_transforms_left_out(server: Server) -> None:
    transform = {"javascript_udf": {"function_name": "drop", "code": DROP}}
    settings = schema_settings(server)
    topic = server.create_topic(schema_settings=settings, message_transforms=[transform])
    subscription = server.create_subscription(topic)

    with server.refuses(InvalidArgument, naming="messages[3].data"):
        server.publish(topic, "drop", "drop", '{"a": 1}', "bad")
    assert len(server.publish(topic, "drop", '{"a": 2}', "drop")) == 3
    assert texts(server.receive(subscription, 1)) == ['{"a": 2}']


def test_a_dead_letter_that_does_not_fit_its_topics_schema_stays(server: Server) -> None:
    letters = server.create_topic(schema_settings=schema_settings(server))
    kept = server.create_subscription(letters)
    topic, subscription = server.create_pair(
        dead_letter_policy={"dead_letter_topic": letters, "max_delivery_attempts": 5}
    )
    server.publish(topic, "poison", '{"a": 1}')
    for _ in range(6):
        server.nack(subscription, *server.receive(subscription, 1))

    fitting = server.receive(kept, 1)
    assert texts(fitting) == ['{"a": 1}']
    assert fitting[0].message.attributes["googclient_schemaname"].endswith("/numbered")
    assert texts(server.receive(subscription, 1)) == ["poison"]


async def test_who_loses_a_role_with_its_project_loses_the_stream() -> None:
    async with Emulator(enforce_iam=True, principal=ANN) as emulator:
        subscription = emulator.create_subscription("projects/q/subscriptions/worker", "orders")
        role = "projects/emulated-project/roles/reader"
        emulator.iam.define_role(role, ["pubsub.subscriptions.consume"])
        emulator.iam.grant(role, ANN, on=subscription)
        stream = emulator._broker.open_stream(
            subscription,
            client_id="",
            ack_deadline=10,
            max_messages=0,
            max_bytes=0,
            now=emulator.clock.now(),
        )
        stream.caller = ANN
        emulator.create_topic("another")
        assert stream.ended is None

        emulator.delete_project()

        assert "PERMISSION_DENIED" in str(stream.ended)


async def test_who_loses_a_role_by_a_seed_loses_the_stream(tmp_path: Path) -> None:
    seed = tmp_path / "pubsub.yaml"
    text = "topics: {orders: {subscriptions: {worker: {iam: {roles/pubsub.subscriber: [%s]}}}}}"
    seed.write_text(text % ANN)
    async with Emulator(enforce_iam=True, principal=ANN, seed=seed) as emulator:
        stream = emulator._broker.open_stream(
            f"projects/{emulator.project}/subscriptions/worker",
            client_id="",
            ack_deadline=10,
            max_messages=0,
            max_bytes=0,
            now=emulator.clock.now(),
        )
        stream.caller = ANN
        seed.write_text(text % "user:bob@example.com")

        emulator.load_seed(seed)

        assert "PERMISSION_DENIED" in str(stream.ended)


def test_the_emulator_is_the_same_in_a_thread_and_in_memory() -> None:
    arguments = set(inspect.signature(Emulator).parameters)
    in_memory = set(inspect.signature(MemoryEmulator).parameters)
    both = vars(Emulator) | vars(Emulator.__base__ or object)
    public = {name for name in both if not name.startswith("_")}

    assert set(inspect.signature(EmulatorThread).parameters) == arguments
    # It has no port, its clock is the loop's, and virtual time cannot wait for a disk.
    assert in_memory == (arguments - {"host", "port", "clock", "data_dir"}) | {"start"}
    assert public - set(dir(EmulatorThread)) == {"activity", "activity_after"}
