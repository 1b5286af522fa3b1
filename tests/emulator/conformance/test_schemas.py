"""Schemas: their life, and the life of their revisions."""

import itertools
import json
import re

import pytest
from google.api_core.exceptions import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from google.pubsub_v1 import (
    CommitSchemaRequest,
    DeleteSchemaRevisionRequest,
    ListSchemaRevisionsRequest,
    ListSchemasRequest,
    Schema,
    SchemaView,
)

from tests.emulator.conformance.marks import embedded_only, google_falls_short
from tests.emulator.conformance.schemas import (
    AVRO,
    ORDER,
    ORDER_PROTO,
    PROTO,
    Definition,
    avro,
    commit,
    create,
    delete,
    delete_revision,
    get,
    record,
    revisions,
    roll_back,
    with_fields,
)
from tests.emulator.conformance.servers import Server, moment

without_protobuf = google_falls_short("does not know protobuf")


def test_schema_create_get_list_delete_and_views(server: Server) -> None:
    name = server.schema_name()
    made = create(server, avro(ORDER), name)

    assert (made.name, made.type_, made.definition) == (name, AVRO, json.dumps(ORDER))
    assert re.fullmatch("[0-9a-f]{8}", made.revision_id)
    assert get(server, name) == made
    assert get(server, name, SchemaView.FULL) == made
    basic = get(server, name, SchemaView.BASIC)
    assert (basic.name, basic.type_, basic.definition) == (name, AVRO, "")
    other = create(server, avro(ORDER))
    request = ListSchemasRequest(parent=f"projects/{server.project}", view="FULL")
    assert list(server.call(server.schemas.list_schemas, request)) == [made, other]
    delete(server, name)
    with server.refuses(NotFound):
        get(server, name)
    with server.refuses(NotFound):
        delete(server, name)


@google_falls_short("gives definitions with every list")
def test_lists_are_without_definitions_unless_they_are_asked_for(server: Server) -> None:
    name = create(server, avro(ORDER)).name
    parent = f"projects/{server.project}"
    listed = server.call(server.schemas.list_schemas, ListSchemasRequest(parent=parent))
    request = ListSchemaRevisionsRequest(name=name)
    history = server.call(server.schemas.list_schema_revisions, request)

    assert [(each.name, each.type_, each.definition) for each in listed] == [(name, AVRO, "")]
    assert [(each.name, each.type_, each.definition) for each in history] == [(name, AVRO, "")]


def test_schemas_are_listed_in_pages(server: Server) -> None:
    made = [create(server, avro(ORDER)).name for _ in range(5)]
    request = ListSchemasRequest(parent=f"projects/{server.project}", page_size=2)
    pages = list(server.call(server.schemas.list_schemas, request).pages)

    assert [len(page.schemas) for page in pages] == [2, 2, 1]
    assert [each.name for page in pages for each in page.schemas] == made


def test_a_schema_name_is_taken_once(server: Server) -> None:
    name = create(server, avro(ORDER)).name

    with server.refuses(AlreadyExists):
        create(server, avro(with_fields("more")), name)
    assert get(server, name).definition == json.dumps(ORDER)


@pytest.mark.parametrize("schema_id", ["", "ab", "1abc", "goog-order", "my order", "a" * 256])
def test_a_bad_schema_id_is_refused(server: Server, schema_id: str) -> None:
    with server.refuses(InvalidArgument, naming="schema_id"):
        create(server, avro(ORDER), server.schema_name(schema_id))


def test_a_schema_without_type_or_definition_is_refused(server: Server) -> None:
    with server.refuses(InvalidArgument, naming="type"):
        create(server, Schema(definition=json.dumps(ORDER)))
    with server.refuses(InvalidArgument, naming="definition"):
        create(server, Schema(type_=AVRO))


@google_falls_short("takes definitions of any size")
def test_a_definition_has_at_most_300_kb(server: Server) -> None:
    symbols = ", ".join(f'"s{number:08}"' for number in range(23_000))
    head, tail = '{"type": "enum", "name": "E", "symbols": [', "]}"
    full = f"{head}{symbols}{tail}".ljust(300_000)
    assert len(full) == 300_000

    create(server, Schema(type_=AVRO, definition=full))
    with server.refuses(InvalidArgument, naming="300000"):
        create(server, Schema(type_=AVRO, definition=full + " "))


# Revisions


def test_schema_revisions_commit_list_rollback_delete(server: Server) -> None:
    first = create(server, avro(ORDER))
    second = commit(server, first.name, avro(with_fields("more")))
    third = roll_back(server, first.name, first.revision_id)

    assert len({first.revision_id, second.revision_id, third.revision_id}) == 3
    assert (third.type_, third.definition) == (first.type_, first.definition)
    assert get(server, first.name) == third
    assert get(server, f"{first.name}@{first.revision_id}") == first
    listed = revisions(server, first.name)
    assert sorted(each.revision_id for each in listed) == sorted(
        each.revision_id for each in (first, second, third)
    )
    delete_revision(server, third)
    assert get(server, first.name) == second
    with server.refuses(NotFound):
        get(server, f"{first.name}@{third.revision_id}")
    delete_revision(server, first)
    assert revisions(server, first.name) == [second]
    with server.refuses(InvalidArgument, naming="only revision"):
        delete_revision(server, second)


@google_falls_short("lists them in another order")
def test_revisions_are_listed_newest_first_in_pages(server: Server) -> None:
    made = [create(server, avro(ORDER))]
    made += [commit(server, made[0].name, avro(with_fields(f"f{n}"))) for n in range(4)]
    request = ListSchemaRevisionsRequest(name=made[0].name, view="FULL", page_size=2)
    pages = list(server.call(server.schemas.list_schema_revisions, request).pages)

    assert [len(page.schemas) for page in pages] == [2, 2, 1]
    assert [each for page in pages for each in page.schemas] == made[::-1]


@embedded_only("it takes time that is told")
def test_revisions_tell_when_they_were_made(server: Server) -> None:
    first = create(server, avro(ORDER))
    server.let_time_pass(3_600)
    second = commit(server, first.name, avro(with_fields("more")))
    server.let_time_pass(60)
    third = roll_back(server, first.name, first.revision_id)

    times = [moment(each.revision_create_time) for each in (first, second, third)]
    apart = [(after - before).total_seconds() for before, after in itertools.pairwise(times)]
    assert apart == [3_600, 60]


def test_a_schema_has_at_most_20_revisions(server: Server) -> None:
    first = create(server, avro(ORDER))
    for _ in range(19):
        last = commit(server, first.name, avro(ORDER))

    with server.refuses(ResourceExhausted, naming="20 revisions"):
        commit(server, first.name, avro(ORDER))
    delete_revision(server, first)
    assert get(server, first.name) == last
    commit(server, first.name, avro(ORDER))
    assert len(revisions(server, first.name)) == 20


@google_falls_short("rolls back past the limit")
def test_a_rollback_makes_no_21st_revision(server: Server) -> None:
    first = create(server, avro(ORDER))
    for _ in range(19):
        commit(server, first.name, avro(ORDER))

    with server.refuses(ResourceExhausted, naming="20 revisions"):
        roll_back(server, first.name, first.revision_id)


def test_what_there_is_not_is_not_found(server: Server) -> None:
    made, unknown = create(server, avro(ORDER)), server.schema_name()
    commit(server, made.name, avro(ORDER))

    with server.refuses(NotFound):
        commit(server, unknown, avro(ORDER))
    with server.refuses(NotFound):
        roll_back(server, unknown, made.revision_id)
    with server.refuses(NotFound):
        roll_back(server, made.name, "00000000")
    with server.refuses(NotFound):
        get(server, f"{made.name}@00000000")
    with server.refuses(NotFound):
        get(server, f"{made.name}@not a revision")
    with server.refuses(NotFound):
        delete_revision(server, Schema(name=made.name, revision_id="00000000"))
    with server.refuses(InvalidArgument, naming="revision_id"):
        roll_back(server, made.name, "")
    with server.refuses(InvalidArgument, naming="name"):
        delete(server, f"{made.name}@{made.revision_id}")
    with server.refuses(InvalidArgument, naming="name"):
        commit(server, f"{made.name}@{made.revision_id}", avro(ORDER))


@google_falls_short("finds no such revision")
def test_which_revision_to_delete_must_be_said(server: Server) -> None:
    name = create(server, avro(ORDER)).name
    commit(server, name, avro(ORDER))

    with server.refuses(InvalidArgument, naming="revision"):
        request = DeleteSchemaRevisionRequest(name=name)
        server.call(server.schemas.delete_schema_revision, request)


@without_protobuf
def test_a_revision_keeps_type_and_name(server: Server) -> None:
    name = create(server, avro(ORDER)).name

    with server.refuses(InvalidArgument, naming="schema.type"):
        commit(server, name, Schema(type_=PROTO, definition=ORDER_PROTO))
    with server.refuses(InvalidArgument, naming="schema.name"):
        request = CommitSchemaRequest(name=name, schema=create(server, avro(ORDER)))
        server.call(server.schemas.commit_schema, request)


@google_falls_short("lets every revision follow every other")
@pytest.mark.parametrize(
    ("first", "second", "naming"),
    [
        pytest.param(ORDER, {**ORDER, "fields": []}, "id: ", id="less without default"),
        pytest.param(record("int"), record("long"), "a: int cannot read long", id="wider"),
        pytest.param(record("int"), record("string"), "a: string cannot read int", id="other"),
        pytest.param(
            record({"type": "enum", "name": "E", "symbols": ["x", "y"]}),
            record({"type": "enum", "name": "E", "symbols": ["x"]}),
            "no symbol 'y'",
            id="fewer symbols",
        ),
        pytest.param(record(["null", "int"]), record("int"), "int cannot read null", id="union"),
        pytest.param(ORDER, {**ORDER, "name": "Bill"}, "Bill cannot read Order", id="renamed"),
    ],
)
def test_an_avro_revision_must_read_the_last_and_be_read_by_it(
    server: Server, first: Definition, second: Definition, naming: str
) -> None:
    name = create(server, avro(first)).name

    with server.refuses(InvalidArgument, naming=naming):
        commit(server, name, avro(second))
    assert len(revisions(server, name)) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(ORDER, with_fields("more"), id="more with default"),
        pytest.param(with_fields("more"), ORDER, id="less with default"),
        pytest.param(
            record({"type": "enum", "name": "E", "symbols": ["x"], "default": "x"}),
            record({"type": "enum", "name": "E", "symbols": ["x", "y"], "default": "x"}),
            id="more symbols with default",
        ),
        pytest.param(
            {**record(["null", "R"]), "doc": "a"}, {**record(["null", "R"]), "doc": "b"}, id="loop"
        ),
        pytest.param(record("bytes"), record("string"), id="bytes and string"),
    ],
)
def test_a_compatible_avro_revision_is_taken(
    server: Server, first: Definition, second: Definition
) -> None:
    name = create(server, avro(first)).name

    assert commit(server, name, avro(second)).definition == json.dumps(second)


@without_protobuf
@pytest.mark.parametrize(
    ("first", "second", "naming"),
    [
        ("int32 a = 1;", "int64 a = 1;", "field a"),
        ("int32 a = 1;", "int32 b = 1;", "field a"),
        ("int32 a = 1;", "repeated int32 a = 1;", "field a"),
        ("message B { int32 a = 1; } B b = 1;", "message B { string a = 1; } B b = 1;", "field a"),
        ("oneof o { int32 a = 1; }", "int32 a = 1;", "field a"),
    ],
)
def test_a_protobuf_revision_must_not_change_arecord(
    server: Server, first: str, second: str, naming: str
) -> None:
    old, new = (
        Schema(type_=PROTO, definition=f'syntax = "proto3"; message A {{ {fields} }}')
        for fields in (first, second)
    )
    name = create(server, old).name

    with server.refuses(InvalidArgument, naming=naming):
        commit(server, name, new)


@without_protobuf
def test_a_protobuf_revision_may_have_optional_fields_more_or_fewer(server: Server) -> None:
    old, new, needs = (
        Schema(type_=PROTO, definition=f'syntax = "proto2"; message A {{ {fields} }}')
        for fields in (
            "required int32 a = 1; optional int32 b = 2;",
            "required int32 a = 1; optional int32 c = 3; repeated string d = 4;",
            "required int32 a = 1; required int32 c = 5;",
        )
    )
    name = create(server, old).name

    assert commit(server, name, new).definition == new.definition
    with server.refuses(InvalidArgument, naming="required field c"):
        commit(server, name, needs)
