"""Schemas and their revisions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

from pubsub_aio.admin.calls import Calls
from pubsub_aio.config import CALL_TIMEOUT
from pubsub_aio.errors import ConfigError

if TYPE_CHECKING:
    from google.pubsub_v1.types import Encoding, Schema, SchemaView

    SchemaType = Schema.Type | Literal["AVRO", "PROTOCOL_BUFFER"]
    View = SchemaView | Literal["BASIC", "FULL"]


class Schemas(Calls):
    """What can be done to schemas. A definition is changed by committing a revision."""

    async def create_schema(
        self, schema: str, definition: str, *, type_: SchemaType, timeout: float = CALL_TIMEOUT
    ) -> Schema:
        """Create a schema.

        Args:
            schema: Its name.
            definition: An Avro schema as JSON, or the text of a `.proto` file.
            type_: `"AVRO"` or `"PROTOCOL_BUFFER"`.
            timeout: Seconds for the call with all its attempts.
        """
        google = self._google
        made = self._schema(schema, definition, type_)
        parent, _, schema_id = made.name.rpartition("/schemas/")
        request = {"parent": parent, "schema": made, "schema_id": schema_id}
        return await google.call(google.schemas.create_schema, request, timeout=timeout)

    async def get_schema(
        self, schema: str, *, view: View = "FULL", timeout: float = CALL_TIMEOUT
    ) -> Schema:
        """A schema; `NAME@REVISION` names one of its revisions.

        Args:
            schema: Its name.
            view: `"BASIC"` leaves the definition out.
            timeout: Seconds for the call with all its attempts.
        """
        google = self._google
        name = self._name(schema, "schemas")
        request = google.make(google.types.GetSchemaRequest, {"view": view}, name=name)
        return await google.call(google.schemas.get_schema, request, timeout=timeout)

    def list_schemas(
        self,
        *,
        project: str | None = None,
        view: View = "BASIC",
        page_size: int = 0,
        timeout: float = CALL_TIMEOUT,
    ) -> AsyncIterator[Schema]:
        """All schemas of a project, for `async for`.

        Args:
            project: Another than the client's.
            view: `"FULL"` gives the definitions too.
            page_size: How many to ask for at a time; zero leaves it to the service.
            timeout: Seconds for each page.
        """
        google = self._google
        request = google.make(
            google.types.ListSchemasRequest,
            {"view": view, "page_size": page_size},
            parent=self._parent(project),
        )
        return self._list(google.schemas.list_schemas, request, "schemas", timeout=timeout)

    def list_schema_revisions(
        self,
        schema: str,
        *,
        view: View = "BASIC",
        page_size: int = 0,
        timeout: float = CALL_TIMEOUT,
    ) -> AsyncIterator[Schema]:
        """All revisions of a schema, for `async for`.

        Args:
            schema: Its name.
            view: `"FULL"` gives the definitions too.
            page_size: How many to ask for at a time; zero leaves it to the service.
            timeout: Seconds for each page.
        """
        google = self._google
        request = google.make(
            google.types.ListSchemaRevisionsRequest,
            {"view": view, "page_size": page_size},
            name=self._name(schema, "schemas"),
        )
        method = google.schemas.list_schema_revisions
        return self._list(method, request, "schemas", timeout=timeout)

    async def commit_schema(
        self, schema: str, definition: str, *, type_: SchemaType, timeout: float = CALL_TIMEOUT
    ) -> Schema:
        """Make a definition the newest revision of a schema.

        Args:
            schema: Its name.
            definition: An Avro schema as JSON, or the text of a `.proto` file.
            type_: The type that it was created with.
            timeout: Seconds for the call with all its attempts.
        """
        google = self._google
        made = self._schema(schema, definition, type_)
        request = {"name": made.name, "schema": made}
        return await google.call(google.schemas.commit_schema, request, timeout=timeout)

    async def rollback_schema(
        self, schema: str, revision_id: str, *, timeout: float = CALL_TIMEOUT
    ) -> Schema:
        """Make a copy of an older revision the newest."""
        google = self._google
        name, given = self._name(schema, "schemas"), {"revision_id": revision_id}
        request = google.make(google.types.RollbackSchemaRequest, given, name=name)
        return await google.call(google.schemas.rollback_schema, request, timeout=timeout)

    async def delete_schema_revision(
        self, schema: str, revision_id: str, *, timeout: float = CALL_TIMEOUT
    ) -> Schema:
        """Delete a revision; the schema's last cannot be deleted."""
        google = self._google
        request = {"name": f"{self._name(schema, 'schemas')}@{revision_id}"}
        return await google.call(google.schemas.delete_schema_revision, request, timeout=timeout)

    async def delete_schema(self, schema: str, *, timeout: float = CALL_TIMEOUT) -> None:
        """Delete a schema with all its revisions."""
        google = self._google
        request = {"name": self._name(schema, "schemas")}
        await google.call(google.schemas.delete_schema, request, timeout=timeout)

    async def validate_schema(
        self,
        definition: str,
        *,
        type_: SchemaType,
        project: str | None = None,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        """Return if a definition is a valid one.

        Args:
            definition: An Avro schema as JSON, or the text of a `.proto` file.
            type_: `"AVRO"` or `"PROTOCOL_BUFFER"`.
            project: Another than the client's.
            timeout: Seconds for the call with all its attempts.

        Raises:
            InvalidRequestError: It is not.
        """
        google = self._google
        made = google.make(google.types.Schema, {"type_": type_, "definition": definition})
        request = {"parent": self._parent(project), "schema": made}
        await google.call(google.schemas.validate_schema, request, timeout=timeout)

    async def validate_message(
        self,
        message: bytes,
        *,
        encoding: Encoding | Literal["JSON", "BINARY"],
        schema: str | None = None,
        definition: str | None = None,
        type_: SchemaType | None = None,
        project: str | None = None,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        """Return if a message fits a schema.

        Args:
            message: The message's data.
            encoding: `"JSON"` or `"BINARY"`.
            schema: The name of a schema. Either this,
            definition: or a definition,
            type_: with its type.
            project: Another than the client's.
            timeout: Seconds for the call with all its attempts.

        Raises:
            InvalidRequestError: It does not.
        """
        google = self._google
        if not isinstance(message, bytes):  # Google's types would take a string for base64
            raise ConfigError(f"message: must be bytes, not {type(message).__name__}")
        if (schema is None) == (definition is None) or (definition is None) != (type_ is None):
            raise ConfigError("schema, definition: give a schema, or a definition with its type_")
        fixed: dict[str, object] = {"parent": self._parent(project), "message": message}
        if schema is not None:
            fixed["name"] = self._name(schema, "schemas")
        else:
            given = {"type_": type_, "definition": definition}
            fixed["schema"] = google.make(google.types.Schema, given)
        request = google.make(google.types.ValidateMessageRequest, {"encoding": encoding}, **fixed)
        await google.call(google.schemas.validate_message, request, timeout=timeout)

    def _schema(self, schema: str, definition: str, type_: SchemaType) -> Schema:
        google = self._google
        given = {"type_": type_, "definition": definition}
        name = self._name(schema, "schemas")
        made: Schema = google.make(google.types.Schema, given, name=name)
        return made
