"""Schemas in Avro."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Self

from pubsub_aio.emulator.schemas.avro_binary import BinaryChecks, check_binary
from pubsub_aio.emulator.schemas.avro_json import JsonChecks, check_json
from pubsub_aio.emulator.schemas.avro_resolution import check_readable
from pubsub_aio.emulator.schemas.avro_types import AvroType, parse_avro
from pubsub_aio.emulator.schemas.errors import SchemaError

if TYPE_CHECKING:
    from pubsub_aio.emulator.schemas import avro_binary, avro_json


class AvroDefinition:
    """A definition that was understood; see `Definition`."""

    def __init__(self, definition: str) -> None:
        self.type = parse_avro(definition)
        try:
            _check_defaults(self.type, JsonChecks(defaults=True), set())
        except RecursionError:
            raise SchemaError("types refer to each other too deeply") from None

    @cached_property
    def _binary(self) -> avro_binary.Check:
        return BinaryChecks().check_of(self.type)

    @cached_property
    def _json(self) -> avro_json.Check:
        return JsonChecks().check_of(self.type)

    def check_binary(self, data: bytes) -> None:
        """Refuse data that is not one message in the binary encoding."""
        check_binary(self._binary, data)

    def check_json(self, data: bytes) -> None:
        """Refuse data that is not one message in the JSON encoding."""
        check_json(self._json, data)

    def check_follows(self, last: Self) -> None:
        """Refuse to follow a definition with which this one cannot be exchanged."""
        check_readable(last.type, self.type)
        check_readable(self.type, last.type)


def _check_defaults(kind: AvroType, checks: JsonChecks, seen: set[AvroType]) -> None:
    """Refuse defaults that are not of their field's type."""
    if kind in seen:
        return
    seen.add(kind)
    for each in kind.fields:
        try:
            if each.has_default:
                checks.check_of(each.type)(each.default, 0)
            _check_defaults(each.type, checks, seen)
        except SchemaError as error:
            raise error.within(each.name) from None
    for inner in (*kind.branches, *filter(None, [kind.items])):
        _check_defaults(inner, checks, seen)
