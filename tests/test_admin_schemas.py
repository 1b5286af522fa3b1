"""Schemas through the admin client: the requests it sends, and what emulators answer."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

import grpc
import grpc.aio
import pytest
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types

from pubsub_aio._wire.connection import Connection
from pubsub_aio._wire.grpc import GrpcTransport
from pubsub_aio.admin import AdminClient
from pubsub_aio.emulator import Emulator
from pubsub_aio.errors import (
    AlreadyExistsError,
    ConfigError,
    InvalidRequestError,
    NotFoundError,
)

NAME = "projects/shop/schemas/order"
AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}'
WIDER = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"},'
    ' {"name": "note", "type": "string", "default": ""}]}'
)
FIRST = types.Schema(name=NAME, type_="AVRO", definition=AVRO, revision_id="1a")
SECOND = types.Schema(name=NAME, type_="AVRO", definition=WIDER, revision_id="2b")
TOPIC = types.Topic(
    name="projects/shop/topics/orders", schema_settings={"schema": NAME, "encoding": "JSON"}
)
REST = "2"
"""The page token of what is left."""

Request = object
"""One of Google's request types."""


class SchemaServer(grpc.GenericRpcHandler):
    """A server of schemas, and of topics that have one, with the same answer for everybody.

    It keeps what it is asked. Lists come in two pages.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.routing: list[str] = []

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method.rpartition("/")[2]
        kind = types.Topic if method == "CreateTopic" else getattr(types, f"{method}Request")

        async def answer(data: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            request = kind.deserialize(data)
            self.requests.append(request)
            metadata = dict(context.invocation_metadata() or ())
            self.routing.append(str(metadata.get("x-goog-request-params", "")))
            return _answer(method, getattr(request, "page_token", ""))

        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
        return handler


def _answer(method: str, page_token: str) -> bytes:
    if method.startswith("List"):
        page = (
            {"schemas": [SECOND]} if page_token else {"schemas": [FIRST], "next_page_token": REST}
        )
        answer: bytes = getattr(types, f"{method}Response").serialize(page)
    elif method.startswith("Validate"):
        answer = getattr(types, f"{method}Response").serialize({})
    elif method == "DeleteSchema":
        answer = Empty().SerializeToString()
    elif method == "CreateTopic":
        answer = types.Topic.serialize(TOPIC)
    else:
        answer = types.Schema.serialize(SECOND)
    return answer


@pytest.fixture
async def server() -> AsyncIterator[tuple[SchemaServer, str]]:
    """The server, and its address."""
    schemas = SchemaServer()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((schemas,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield schemas, f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture(params=["grpc", "given"])
async def admin(
    server: tuple[SchemaServer, str], request: pytest.FixtureRequest
) -> AsyncIterator[AdminClient]:
    """A client of that server."""
    transport: Literal["grpc"] | GrpcTransport = "grpc"
    endpoint: str | None = f"http://{server[1]}"
    if request.param == "given":
        connection = Connection(target=server[1], tls=False, source="a test")
        transport, endpoint = GrpcTransport(connection), None
    async with AdminClient(project="shop", transport=transport, endpoint=endpoint) as admin:
        yield admin


Call = Callable[[AdminClient], Awaitable[object]]


@pytest.mark.parametrize(
    ("call", "request_sent", "answer"),
    [
        pytest.param(
            lambda admin: admin.create_schema("order", AVRO, type_="AVRO"),
            types.CreateSchemaRequest(
                parent="projects/shop",
                schema_id="order",
                schema={"name": NAME, "type_": "AVRO", "definition": AVRO},
            ),
            SECOND,
            id="create",
        ),
        pytest.param(
            lambda admin: admin.create_schema(
                "projects/other/schemas/it", "syntax", type_=types.Schema.Type.PROTOCOL_BUFFER
            ),
            types.CreateSchemaRequest(
                parent="projects/other",
                schema_id="it",
                schema={
                    "name": "projects/other/schemas/it",
                    "type_": "PROTOCOL_BUFFER",
                    "definition": "syntax",
                },
            ),
            SECOND,
            id="create, full name",
        ),
        pytest.param(
            lambda admin: admin.get_schema("order"),
            types.GetSchemaRequest(name=NAME, view="FULL"),
            SECOND,
            id="get",
        ),
        pytest.param(
            lambda admin: admin.get_schema("order@1a", view="BASIC"),
            types.GetSchemaRequest(name=f"{NAME}@1a", view="BASIC"),
            SECOND,
            id="get a revision",
        ),
        pytest.param(
            lambda admin: admin.commit_schema("order", WIDER, type_="AVRO"),
            types.CommitSchemaRequest(
                name=NAME, schema={"name": NAME, "type_": "AVRO", "definition": WIDER}
            ),
            SECOND,
            id="commit",
        ),
        pytest.param(
            lambda admin: admin.rollback_schema("order", "1a"),
            types.RollbackSchemaRequest(name=NAME, revision_id="1a"),
            SECOND,
            id="roll back",
        ),
        pytest.param(
            lambda admin: admin.delete_schema_revision("order", "1a"),
            types.DeleteSchemaRevisionRequest(name=f"{NAME}@1a"),
            SECOND,
            id="delete a revision",
        ),
        pytest.param(
            lambda admin: admin.delete_schema("order"),
            types.DeleteSchemaRequest(name=NAME),
            None,
            id="delete",
        ),
        pytest.param(
            lambda admin: admin.validate_schema(AVRO, type_="AVRO"),
            types.ValidateSchemaRequest(
                parent="projects/shop", schema={"type_": "AVRO", "definition": AVRO}
            ),
            None,
            id="validate",
        ),
        pytest.param(
            lambda admin: admin.validate_message(b"{}", encoding="JSON", schema="order"),
            types.ValidateMessageRequest(
                parent="projects/shop", name=NAME, message=b"{}", encoding="JSON"
            ),
            None,
            id="validate a message by name",
        ),
        pytest.param(
            lambda admin: admin.validate_message(
                b"{}", encoding="BINARY", definition=AVRO, type_="AVRO", project="other"
            ),
            types.ValidateMessageRequest(
                parent="projects/other",
                schema={"type_": "AVRO", "definition": AVRO},
                message=b"{}",
                encoding="BINARY",
            ),
            None,
            id="validate a message by definition",
        ),
        pytest.param(
            lambda admin: admin.create_topic(
                "orders", schema_settings={"schema": "order", "encoding": "JSON"}
            ),
            TOPIC,
            TOPIC,
            id="create a topic with a schema",
        ),
    ],
)
async def test_a_call_sends_its_request_and_gives_the_answer(
    admin: AdminClient,
    server: tuple[SchemaServer, str],
    call: Call,
    request_sent: Request,
    answer: object,
) -> None:
    assert await call(admin) == answer
    assert server[0].requests == [request_sent]


async def test_schemas_and_revisions_are_listed_over_all_pages(
    admin: AdminClient, server: tuple[SchemaServer, str]
) -> None:
    assert [schema async for schema in admin.list_schemas(page_size=1)] == [FIRST, SECOND]
    listed = admin.list_schema_revisions("order", view="FULL")
    assert [schema async for schema in listed] == [FIRST, SECOND]

    parent = "projects/shop"
    assert server[0].requests == [
        types.ListSchemasRequest(parent=parent, view="BASIC", page_size=1),
        types.ListSchemasRequest(parent=parent, view="BASIC", page_size=1, page_token=REST),
        types.ListSchemaRevisionsRequest(name=NAME, view="FULL"),
        types.ListSchemaRevisionsRequest(name=NAME, view="FULL", page_token=REST),
    ]


async def test_over_a_channel_of_its_own_a_call_is_routed_by_its_resource(
    server: tuple[SchemaServer, str],
) -> None:
    async with AdminClient(project="shop", endpoint=f"http://{server[1]}") as admin:
        await admin.get_schema("order")

    assert server[0].routing == ["name=projects/shop/schemas/order"]


@pytest.mark.parametrize(
    ("call", "naming"),
    [
        (lambda admin: admin.create_schema("order", AVRO, type_="avro"), "type_: 'avro' .* AVRO"),
        (lambda admin: admin.create_schema("order", 3, type_="AVRO"), "definition: "),
        (lambda admin: admin.create_schema("", AVRO, type_="AVRO"), "schema: "),
        (lambda admin: admin.get_schema("order", view="HALF"), "view: 'HALF' .* BASIC, FULL"),
        (lambda admin: admin.get_schema("projects/shop/topics/order"), "schema: "),
        (lambda admin: admin.rollback_schema("order", 3), "revision_id: "),
        (
            lambda admin: admin.validate_message("{}", encoding="JSON", schema="order"),
            "message: must be bytes, not str",
        ),
        (
            lambda admin: admin.validate_message(b"{}", encoding="YAML", schema="order"),
            "encoding: 'YAML' .* JSON, BINARY",
        ),
        (lambda admin: admin.validate_message(b"{}", encoding="JSON"), "schema, definition: "),
        (
            lambda admin: admin.validate_message(
                b"{}", encoding="JSON", schema="order", definition=AVRO, type_="AVRO"
            ),
            "schema, definition: ",
        ),
        (
            lambda admin: admin.validate_message(b"{}", encoding="JSON", definition=AVRO),
            "schema, definition: ",
        ),
    ],
)
async def test_a_wrong_argument_is_named_and_nothing_is_sent(
    admin: AdminClient, server: tuple[SchemaServer, str], call: Call, naming: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{naming}"):
        await call(admin)

    assert server[0].requests == []


# On servers: ours, and Google's emulator, where it is installed


@pytest.fixture(params=["embedded", "google"])
async def address(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    if request.param == "google":
        yield request.getfixturevalue("google_address")
        return
    async with Emulator() as emulator:
        yield emulator.address


@pytest.mark.parametrize("transport", ["grpc", "rest"])
async def test_a_schema_lives_its_whole_life(
    address: str, transport: Literal["grpc", "rest"]
) -> None:
    async with AdminClient(
        project=f"shop-{uuid.uuid4().hex}",
        transport=transport,
        endpoint=f"http://{address}",
    ) as admin:
        first = await admin.create_schema("order", AVRO, type_="AVRO")
        with pytest.raises(AlreadyExistsError):
            await admin.create_schema("order", AVRO, type_="AVRO")
        second = await admin.commit_schema("order", WIDER, type_="AVRO")
        assert await admin.get_schema("order") == second
        assert await admin.get_schema(f"order@{first.revision_id}") == first
        revisions = admin.list_schema_revisions("order", view="FULL", page_size=1)
        listed = {revision.revision_id: revision async for revision in revisions}
        assert listed == {first.revision_id: first, second.revision_id: second}
        assert [schema.name async for schema in admin.list_schemas()] == [first.name]

        third = await admin.rollback_schema("order", first.revision_id)
        assert third.definition == AVRO
        await admin.delete_schema_revision("order", second.revision_id)
        with pytest.raises(NotFoundError):
            await admin.get_schema(f"order@{second.revision_id}")

        topic = await admin.create_topic(
            "orders", schema_settings={"schema": "order", "encoding": "JSON"}
        )
        assert topic.schema_settings.schema == first.name
        await admin.validate_message(b'{"id": "a"}', encoding="JSON", schema="order")
        with pytest.raises(InvalidRequestError):
            await admin.validate_message(
                b'{"id": 3}', encoding="JSON", definition=AVRO, type_="AVRO"
            )
        await admin.validate_schema(AVRO, type_="AVRO")
        with pytest.raises(InvalidRequestError):
            await admin.validate_schema("{", type_="AVRO")

        await admin.delete_schema("order")
        with pytest.raises(NotFoundError):
            await admin.get_schema("order")
