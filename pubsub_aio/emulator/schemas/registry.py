"""The schemas of all projects, and their revisions.

A revision's id is its number in disguise. So it is known also of a revision that is deleted which
others are older and which are newer, which is what a topic goes by that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from pubsub_aio._wire import schema
from pubsub_aio.emulator import records
from pubsub_aio.emulator.names import check_name, check_project
from pubsub_aio.emulator.paging import page_of
from pubsub_aio.emulator.schemas.definitions import (
    Definition,
    check_encoding,
    check_message,
    define,
)
from pubsub_aio.emulator.schemas.errors import SchemaError
from pubsub_aio.emulator.status import Code, Info, StatusError, already_exists, invalid, not_found

MAX_REVISIONS = 20
DELETED_SCHEMA = "_deleted-schema_"
"""What a topic, and a message, shows as its schema once that was deleted."""

DELETED_REVISION = "_deleted-schema-revision_"
"""What a message shows as its revision once that was deleted."""

NAME, ENCODING, REVISION = (
    f"googclient_schema{part}" for part in ("name", "encoding", "revisionid")
)
"""The attributes that say what a message was checked against."""

_DEFINITIONS = {"definition", "compiled_proto_schema"}
_NAME = NAME.encode()
_ODD = 0x9E3779B1
_INVERSE = pow(_ODD, -1, 1 << 32)


def _id_of(number: int) -> str:
    return f"{number * _ODD % (1 << 32):08x}"


def _number_of(revision_id: str) -> int:
    return int(revision_id, 16) * _INVERSE % (1 << 32)


class Revision:
    """A definition that a schema has, or had before.

    Args:
        config: The schema as it was then, with everything filled in.
        definition: What its definition was understood as, if that is known.
    """

    def __init__(self, config: schema.Schema, definition: Definition | None = None) -> None:
        self.config = config
        if definition is not None:
            self.definition = definition

    @property
    def number(self) -> int:
        """Grows from revision to revision."""
        return _number_of(self.config.revision_id)

    @cached_property
    def definition(self) -> Definition:
        """Its definition, understood once."""
        return define(self.config)

    def shown(self, view: int) -> schema.Schema:
        """The schema, with its definition or without it."""
        shown = schema.Schema()
        shown.CopyFrom(self.config)
        if view == schema.SchemaView.BASIC:
            for field in _DEFINITIONS.intersection(shown.DESCRIPTOR.fields_by_name):
                shown.ClearField(field)
        return shown


class VersionedSchema:
    """A schema: its revisions, by their ids, oldest first. There is always one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.revisions: dict[str, Revision] = {}

    @property
    def last(self) -> Revision:
        """The newest revision, which is what the schema is now."""
        return next(reversed(self.revisions.values()))

    def revision(self, revision_id: str) -> Revision:
        """The revision of that id."""
        if revision_id not in self.revisions:
            raise not_found(f"{self.name}@{revision_id}")
        return self.revisions[revision_id]

    def between(self, first_id: str, last_id: str) -> Iterator[Revision]:
        """The revisions from one to another, newest first; both may be deleted, or empty."""
        first = _number_of(first_id) if first_id else 0
        last = _number_of(last_id) if last_id else 1 << 32
        for revision in reversed(self.revisions.values()):
            if first <= revision.number <= last:
                yield revision


class Schemas:
    """All schemas.

    Args:
        next_number: Gives the number of the next revision; each is greater than the one before.
        changed: Called with what was created, changed or deleted.
    """

    def __init__(
        self, next_number: Callable[[], int], changed: Callable[[VersionedSchema], None]
    ) -> None:
        self.named: dict[str, VersionedSchema] = {}
        self._next_number = next_number
        self._changed = changed

    def go_on(self, name: str, revisions: Iterable[schema.Schema]) -> VersionedSchema:
        """Take over a schema of an earlier life."""
        kept = self.named[name] = VersionedSchema(name)
        kept.revisions = {config.revision_id: Revision(config) for config in revisions}
        return kept

    # Reading

    def find(self, name: str, *, field: str = "name") -> VersionedSchema:
        """The schema of that name."""
        found = self.named.get(name)
        if found is None:
            check_name(name, "schemas", field=field)
            raise not_found(name)
        return found

    def revision(self, name: str, *, field: str = "name") -> Revision:
        """The revision of that name, `projects/P/schemas/S@REVISION`, or the last of a schema."""
        name, at, revision_id = name.partition("@")
        found = self.find(name, field=field)
        return found.revision(revision_id) if at else found.last

    def page(self, project: str, size: int, token: str) -> tuple[list[Revision], str]:
        """A page of the schemas of a project, and the token of the next page."""
        check_project(project, field="parent")
        names = [name for name in self.named if name.startswith(f"{project}/")]
        names, next_token = page_of(names, size=size, token=token)
        return [self.named[name].last for name in names], next_token

    def page_of_revisions(self, name: str, size: int, token: str) -> tuple[list[Revision], str]:
        """A page of the revisions of a schema, newest first, and the token of the next page."""
        revisions = self.find(name).revisions.values()
        # Pages go by name: a later revision's comes first, also if one is added in between.
        by_age = {f"{(1 << 32) - each.number:010}": each for each in revisions}
        keys, next_token = page_of(by_age, size=size, token=token)
        return [by_age[key] for key in keys], next_token

    # Changing

    def create(self, name: str, config: schema.Schema, *, now: float) -> Revision:
        """Create a schema."""
        check_name(name, "schemas", field="schema_id")
        definition = define(config)
        if name in self.named:
            raise already_exists(name)
        made = self.named[name] = VersionedSchema(name)
        return self._add(made, config, definition, now)

    def commit(self, name: str, config: schema.Schema, *, now: float) -> Revision:
        """Add a revision to a schema."""
        target = self.find(name)
        if config.name not in ("", name):
            raise invalid("schema.name", f"{config.name!r} must be {name!r}")
        last = target.last
        if config.type_ != last.config.type_:
            kept = schema.Schema.Type.Name(last.config.type_)
            raise invalid("schema.type", f"must be {kept}, the type that it was created with")
        definition = define(config)
        _check_room(target)
        try:
            definition.check_follows(last.definition)
        except SchemaError as error:
            why = f"not compatible with revision {last.config.revision_id}: {error}"
            raise invalid("schema.definition", why) from None
        return self._add(target, config, definition, now)

    def roll_back(self, name: str, revision_id: str, *, now: float) -> Revision:
        """Make a copy of an older revision the newest."""
        target = self.find(name)
        if not revision_id:
            raise invalid("revision_id", "must be given")
        source = target.revision(revision_id)
        _check_room(target)
        return self._add(target, source.config, source.definition, now)

    def _add(
        self, target: VersionedSchema, config: schema.Schema, definition: Definition, now: float
    ) -> Revision:
        made = schema.Schema()
        made.CopyFrom(config)
        made.name = target.name
        made.revision_id = _id_of(self._next_number())
        made.revision_create_time.FromNanoseconds(round(now * 1_000_000) * 1_000)
        revision = Revision(made, definition)
        target.revisions[made.revision_id] = revision
        self._changed(target)
        return revision

    def delete_revision(self, name: str) -> VersionedSchema:
        """Delete a revision, `projects/P/schemas/S@REVISION`; returns its schema."""
        name, _, revision_id = name.partition("@")
        target = self.find(name)
        if not revision_id:
            raise invalid("name", f"{name!r} must name a revision: {name}@REVISION_ID")
        target.revision(revision_id)
        if len(target.revisions) == 1:
            raise invalid("name", "the only revision of a schema stays; delete the schema instead")
        del target.revisions[revision_id]
        self._changed(target)
        return target

    def delete(self, name: str) -> None:
        """Delete a schema with all its revisions."""
        target = self.find(name)
        del self.named[name]
        self._changed(target)

    # Topics and messages

    def check_settings(self, new: schema.SchemaSettings, old: schema.SchemaSettings) -> None:
        """Refuse settings of a topic, which may keep what is deleted but not begin with it."""
        if new == old:
            return
        if not new.schema:
            raise invalid("schema_settings.schema", "must be given")
        target = self.find(new.schema, field="schema_settings.schema")
        check_encoding(new.encoding, field="schema_settings.encoding")
        for field in ("first_revision_id", "last_revision_id"):
            revision_id = getattr(new, field)
            kept = new.schema == old.schema and revision_id == getattr(old, field)
            if revision_id and not kept:
                target.revision(revision_id)
        first, last = new.first_revision_id, new.last_revision_id
        if first and last and _number_of(first) > _number_of(last):
            raise invalid("schema_settings.last_revision_id", "is older than first_revision_id")

    def admit(
        self, settings: schema.SchemaSettings, bodies: Sequence[bytes | None]
    ) -> list[bytes | None]:
        """Messages to a topic, each with what it was checked against; refused if one is wrong.

        None stands for a message that is not kept.
        """
        if settings.schema == DELETED_SCHEMA:
            raise StatusError(
                Code.NOT_FOUND,
                "schema_settings.schema: the topic's schema was deleted; set another, or clear it",
            )
        target = self.find(settings.schema)
        allowed = list(target.between(settings.first_revision_id, settings.last_revision_id))
        if not allowed:
            raise invalid("messages", "the revisions that schema_settings allow are all deleted")
        tails = {each: _attributes(each, settings.encoding) for each in allowed}
        admitted: list[bytes | None] = []
        for index, body in enumerate(bodies):
            if body is None:
                admitted.append(None)
                continue
            data = schema.PubsubMessage.FromString(body).data
            revision = _fitting(allowed, settings.encoding, data, index)
            admitted.append(body + tails[revision])
        return admitted

    def retold(self, record: bytes) -> bytes:
        """A message's record as it is told to subscribers once schemas or revisions are deleted."""
        if _NAME not in record:
            return record
        message = records.message_of(record)
        told = message.attributes
        known = self.named.get(told.get(NAME, ""))
        if REVISION not in told or (known and told[REVISION] in known.revisions):
            return record
        told[REVISION] = DELETED_REVISION
        if known is None:
            told[NAME] = DELETED_SCHEMA
        return records.record_of(message)


def _check_room(target: VersionedSchema) -> None:
    if len(target.revisions) >= MAX_REVISIONS:
        raise StatusError(
            Code.RESOURCE_EXHAUSTED,
            f"{target.name} has {MAX_REVISIONS} revisions already; delete one first",
        )


def _fitting(allowed: list[Revision], encoding: int, data: bytes, index: int) -> Revision:
    """The newest revision that data fits."""
    first_error = None
    for revision in allowed:
        try:
            check_message(revision.definition, encoding, data)
        except SchemaError as error:
            first_error = first_error or error
        else:
            return revision
    newest = allowed[0].config
    older = len(allowed) - 1
    tried = f", nor the {older} older revision{'s' * (older > 1)} that are allowed" if older else ""
    name = f"{newest.name}@{newest.revision_id}"
    why = f"does not fit {name}{tried}: {first_error}"
    kinds = "AVRO" if newest.type_ == schema.Schema.Type.AVRO else "PROTO"
    raise StatusError(
        Code.INVALID_ARGUMENT,
        f"messages[{index}].data: {why}",
        info=Info(
            f"INVALID_{schema.Encoding.Name(encoding)}_{kinds}_MESSAGE",
            "pubsub.googleapis.com",
            {"message": f"messages[{index}] was refused", "revisionInfo": f"{name}: {first_error}"},
        ),
    )


def _attributes(revision: Revision, encoding: int) -> bytes:
    """What is appended to a message: on the wire the last value of an attribute counts."""
    name = schema.Encoding.Name(encoding)
    told = {NAME: revision.config.name, ENCODING: name, REVISION: revision.config.revision_id}
    return schema.PubsubMessage(attributes=told).SerializeToString()
