"""The RPCs of schemas: request -> broker call -> reply, nothing more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pubsub_aio._wire import schema
from pubsub_aio.emulator.names import check_project
from pubsub_aio.emulator.schemas.definitions import check_encoding, check_message, define
from pubsub_aio.emulator.schemas.errors import SchemaError
from pubsub_aio.emulator.status import invalid

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pubsub_aio.emulator.broker import Broker

BASIC, FULL = schema.SchemaView.BASIC, schema.SchemaView.FULL


def _create_schema(
    broker: Broker, request: schema.CreateSchemaRequest, now: float
) -> schema.Schema:
    check_project(request.parent, field="parent")
    name = f"{request.parent}/schemas/{request.schema_id}"
    return broker.schemas.create(name, request.schema, now=now).config


def _get_schema(broker: Broker, request: schema.GetSchemaRequest, _: float) -> schema.Schema:
    return broker.schemas.revision(request.name).shown(request.view or FULL)


def _list_schemas(
    broker: Broker, request: schema.ListSchemasRequest, _: float
) -> schema.ListSchemasResponse:
    page, token = broker.schemas.page(request.parent, request.page_size, request.page_token)
    shown = [revision.shown(request.view or BASIC) for revision in page]
    return schema.ListSchemasResponse(schemas=shown, next_page_token=token)


def _list_schema_revisions(
    broker: Broker, request: schema.ListSchemaRevisionsRequest, _: float
) -> schema.ListSchemaRevisionsResponse:
    page, token = broker.schemas.page_of_revisions(
        request.name, request.page_size, request.page_token
    )
    shown = [revision.shown(request.view or BASIC) for revision in page]
    return schema.ListSchemaRevisionsResponse(schemas=shown, next_page_token=token)


def _commit_schema(
    broker: Broker, request: schema.CommitSchemaRequest, now: float
) -> schema.Schema:
    return broker.schemas.commit(request.name, request.schema, now=now).config


def _rollback_schema(
    broker: Broker, request: schema.RollbackSchemaRequest, now: float
) -> schema.Schema:
    return broker.schemas.roll_back(request.name, request.revision_id, now=now).config


def _delete_schema_revision(
    broker: Broker, request: schema.DeleteSchemaRevisionRequest, _: float
) -> schema.Schema:
    name = request.name
    if request.revision_id and "@" not in name:
        name = f"{name}@{request.revision_id}"
    return broker.delete_schema_revision(name).last.config


def _delete_schema(broker: Broker, request: schema.DeleteSchemaRequest, _: float) -> None:
    broker.delete_schema(request.name)


def _validate_schema(
    _broker: Broker, request: schema.ValidateSchemaRequest, _: float
) -> schema.ValidateSchemaResponse:
    check_project(request.parent, field="parent")
    define(request.schema)
    return schema.ValidateSchemaResponse()


def _validate_message(
    broker: Broker, request: schema.ValidateMessageRequest, _: float
) -> schema.ValidateMessageResponse:
    check_project(request.parent, field="parent")
    given = request.WhichOneof("schema_spec")
    if given == "name":
        definition = broker.schemas.revision(request.name).definition
    elif given == "schema":
        definition = define(request.schema)
    else:
        raise invalid("schema_spec", "either name or schema is needed")
    check_encoding(request.encoding, field="encoding")
    try:
        check_message(definition, request.encoding, request.message)
    except SchemaError as error:
        raise invalid("message", f"does not fit the schema: {error}") from None
    return schema.ValidateMessageResponse()


HANDLERS: dict[str, Callable[..., Message | None]] = {
    "CreateSchema": _create_schema,
    "GetSchema": _get_schema,
    "ListSchemas": _list_schemas,
    "ListSchemaRevisions": _list_schema_revisions,
    "CommitSchema": _commit_schema,
    "RollbackSchema": _rollback_schema,
    "DeleteSchemaRevision": _delete_schema_revision,
    "DeleteSchema": _delete_schema,
    "ValidateSchema": _validate_schema,
    "ValidateMessage": _validate_message,
}
"""By RPC; a reply of none stands for an empty message."""
