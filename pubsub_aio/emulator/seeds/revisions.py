"""Revisions of schemas: what creates them, and which of the wanted ones are there."""

from __future__ import annotations

from collections.abc import Sequence

from pubsub_aio._wire import schema


def create_schema(revision: schema.Schema) -> schema.CreateSchemaRequest:
    """The request for a schema whose first revision this is."""
    parent, _, short = revision.name.rpartition("/schemas/")
    request = schema.CreateSchemaRequest(parent=parent, schema=revision, schema_id=short)
    request.schema.ClearField("name")
    return request


def commit_schema(revision: schema.Schema) -> schema.CommitSchemaRequest:
    """The request for another revision of a schema."""
    return schema.CommitSchemaRequest(name=revision.name, schema=revision)


def count_there(there: Sequence[schema.Schema], wanted: Sequence[schema.Schema]) -> int:
    """How many of the wanted, from the first on, are the last that are there."""
    have = [revision.definition for revision in there]
    want = [revision.definition for revision in wanted]
    most = min(len(have), len(want))
    return next((n for n in range(most, 0, -1) if have[-n:] == want[:n]), 0)
