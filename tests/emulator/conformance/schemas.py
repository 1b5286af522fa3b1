"""Schemas that tests share, and short ways to make and change them."""

import io
import json

import fastavro
from google.pubsub_v1 import (
    CommitSchemaRequest,
    CreateSchemaRequest,
    DeleteSchemaRequest,
    DeleteSchemaRevisionRequest,
    Encoding,
    GetSchemaRequest,
    ListSchemaRevisionsRequest,
    RollbackSchemaRequest,
    Schema,
    SchemaView,
    Topic,
    ValidateMessageRequest,
)

from tests.emulator.conformance.servers import Server

AVRO, PROTO = Schema.Type.AVRO, Schema.Type.PROTOCOL_BUFFER
JSON, BINARY = Encoding.JSON, Encoding.BINARY
Definition = dict[str, object]

ORDER: Definition = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
ORDER_PROTO = """
syntax = "proto3";
package shop;
message Order {
  string id = 1;
  int32 amount = 2;
  message Line { string what = 1; }
  repeated Line lines = 3;
  enum State { NEW = 0; PAID = 1; }
  State state = 4;
}
"""


def with_fields(*more: str) -> Definition:
    """The order with further strings that may be left out when it is read."""
    fields = [{"name": name, "type": "string", "default": ""} for name in more]
    assert isinstance(ORDER["fields"], list)
    return {**ORDER, "fields": [*ORDER["fields"], *fields]}


def record(kind: object, **more: object) -> Definition:
    """A record with one field."""
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, **more}]}


def avro(definition: Definition) -> Schema:
    return Schema(type_=AVRO, definition=json.dumps(definition))


def create(server: Server, made: Schema, name: str | None = None) -> Schema:
    parent, _, schema_id = (name or server.schema_name()).partition("/schemas/")
    request = CreateSchemaRequest(parent=parent, schema=made, schema_id=schema_id)
    return server.call(server.schemas.create_schema, request)


def commit(server: Server, name: str, made: Schema) -> Schema:
    made = Schema(name=name, type_=made.type_, definition=made.definition)
    return server.call(server.schemas.commit_schema, CommitSchemaRequest(name=name, schema=made))


def roll_back(server: Server, name: str, revision_id: str) -> Schema:
    request = RollbackSchemaRequest(name=name, revision_id=revision_id)
    return server.call(server.schemas.rollback_schema, request)


def get(server: Server, name: str, view: int | None = None) -> Schema:
    return server.call(server.schemas.get_schema, GetSchemaRequest(name=name, view=view))


def revisions(server: Server, name: str) -> list[Schema]:
    request = ListSchemaRevisionsRequest(name=name, view=SchemaView.FULL)
    return list(server.call(server.schemas.list_schema_revisions, request))


def delete(server: Server, name: str) -> None:
    server.call(server.schemas.delete_schema, DeleteSchemaRequest(name=name))


def delete_revision(server: Server, revision: Schema) -> Schema:
    request = DeleteSchemaRevisionRequest(name=f"{revision.name}@{revision.revision_id}")
    return server.call(server.schemas.delete_schema_revision, request)


def validate(server: Server, against: Schema | str, data: bytes, encoding: int = JSON) -> None:
    """Validate a message, against a definition or against a schema by its name."""
    chosen = {"name": against} if isinstance(against, str) else {"schema": against}
    request = ValidateMessageRequest(
        {
            "parent": f"projects/{server.project}",
            "message": data,
            "encoding": encoding,
            **chosen,
        }
    )
    server.call(server.schemas.validate_message, request)


def topic_with(server: Server, name: str, encoding: int = JSON, **settings: str) -> Topic:
    """Make a topic that has this schema."""
    made = Topic(
        name=server.topic_name(),
        schema_settings={"schema": name, "encoding": encoding, **settings},
    )
    return server.call(server.publisher.create_topic, made)


def written(definition: Definition, value: object) -> bytes:
    """A value in Avro's binary encoding."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, definition, value)
    return out.getvalue()
