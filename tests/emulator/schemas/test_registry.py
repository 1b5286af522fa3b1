"""The registry of schemas: what a revision's id tells, and what is made of what was stored."""

from __future__ import annotations

import itertools

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from pubsub_aio._wire import schema
from pubsub_aio.emulator import Emulator
from pubsub_aio.emulator.schemas.registry import Revision, Schemas
from pubsub_aio.emulator.status import Code, StatusError

NAME = "projects/p/schemas/shape"
STRING = schema.Schema(type_=schema.Schema.Type.AVRO, definition='"string"')


def registry() -> Schemas:
    return Schemas(itertools.count(1).__next__, lambda _: None)


def test_ids_differ_and_keep_the_order_of_revisions_also_of_deleted_ones() -> None:
    schemas = registry()
    made = [schemas.create(NAME, STRING, now=0.0)]
    made += [schemas.commit(NAME, STRING, now=float(n)) for n in range(1, 10)]
    ids = [each.config.revision_id for each in made]
    numbers = [Revision(each.config).number for each in made]
    schemas.delete_revision(f"{NAME}@{ids[3]}")
    schemas.delete_revision(f"{NAME}@{ids[7]}")
    between = schemas.find(NAME).between(ids[3], ids[7])

    assert len(set(ids)) == 10
    assert numbers == list(range(1, 11))
    assert [each.config.revision_id for each in between] == [ids[6], ids[5], ids[4]]


def test_a_revision_is_understood_again_from_its_config() -> None:
    made = registry().create(NAME, STRING, now=0.0)
    stored = Revision(schema.Schema.FromString(made.config.SerializeToString()))

    stored.definition.check_json(b'"a"')
    assert stored.definition is stored.definition


@pytest.mark.skipif(
    "compiled_proto_schema" not in schema.Schema.DESCRIPTOR.fields_by_name,
    reason="google-cloud-pubsub is older than this part of the API",
)
def test_a_schema_may_come_compiled() -> None:
    file = FileDescriptorProto(name="shape.proto", package="p", syntax="proto3")
    for name in ("Inner", "Shape"):
        file.message_type.add(name=name)
    file.message_type[1].field.add(name="in", number=1, label=1, type=11, type_name=".p.Inner")
    data = FileDescriptorSet(file=[file]).SerializeToString()
    config = schema.Schema(type_=schema.Schema.Type.PROTOCOL_BUFFER)
    config.compiled_proto_schema.compiled_bytes = data
    config.compiled_proto_schema.root_message = "p.Shape"
    schemas = registry()
    made = schemas.create(NAME, config, now=0.0)

    made.definition.check_json(b'{"in": {}}')
    assert made.shown(schema.SchemaView.FULL).compiled_proto_schema.compiled_bytes == data
    assert not made.shown(schema.SchemaView.BASIC).HasField("compiled_proto_schema")
    for root, compiled in [("p.Other", data), ("p.Shape", b"\xff"), ("p.Shape", b"")]:
        config.compiled_proto_schema.root_message = root
        config.compiled_proto_schema.compiled_bytes = compiled
        with pytest.raises(StatusError) as refused:
            schemas.commit(NAME, config, now=1.0)
        assert refused.value.code is Code.INVALID_ARGUMENT


async def test_a_project_is_deleted_with_its_schemas_and_in_process_publishes_are_checked() -> None:
    async with Emulator(project="p") as emulator:
        schemas = emulator._broker.schemas
        schemas.create(NAME, STRING, now=0.0)
        schemas.create("projects/other/schemas/shape", STRING, now=0.0)
        emulator.create_topic("strict", schema_settings={"schema": NAME, "encoding": 1})
        emulator.publish("strict", b'"fits"')
        with pytest.raises(ValueError, match=r"messages\[0\]\.data: does not fit"):
            emulator.publish("strict", b"does not")
        emulator.delete_project()

        assert list(schemas.named) == ["projects/other/schemas/shape"]
        assert [message.data for message in emulator.messages("strict")] == [b'"fits"']
