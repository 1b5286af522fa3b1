"""Whether what one Avro type wrote can be read as another: Avro's schema resolution."""

from __future__ import annotations

from pubsub_aio.emulator.schemas.avro_types import AvroField, AvroType
from pubsub_aio.emulator.schemas.errors import SchemaError

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_NAMED = ("record", "enum", "fixed")


def check_readable(writer: AvroType, reader: AvroType) -> None:
    """Refuse a reader that cannot read everything that the writer writes."""
    try:
        _Resolution().check(writer, reader)
    except RecursionError:
        raise SchemaError("nested too deeply to be compared with the last revision") from None


class _Resolution:
    """Walks both types; what is inside itself is taken for granted there."""

    def __init__(self) -> None:
        self._seen: set[tuple[AvroType, AvroType]] = set()

    def check(self, writer: AvroType, reader: AvroType) -> None:
        if writer.kind == "union":
            for branch in writer.branches:
                self.check(branch, reader)
        elif reader.kind == "union":
            if not any(_match(writer, branch) for branch in reader.branches):
                raise SchemaError(f"no branch of the union reads {writer.tag}")
            same = [each for each in reader.branches if each.kind == writer.kind]
            for branch in [each for each in same if _match(writer, each)][:1]:
                self.check(writer, branch)
        elif not _match(writer, reader):
            raise SchemaError(f"{reader.tag} cannot read {writer.tag}")
        elif (writer, reader) not in self._seen:
            self._seen.add((writer, reader))
            self._check_inside(writer, reader)

    def _check_inside(self, writer: AvroType, reader: AvroType) -> None:
        if reader.kind in ("array", "map"):
            self.check(writer.inner, reader.inner)
        elif reader.kind == "enum" and not reader.has_default:
            lost = [symbol for symbol in writer.symbols if symbol not in set(reader.symbols)]
            if lost:
                raise SchemaError(f"{reader.tag} has no symbol {lost[0]!r}, and no default")
        elif reader.kind == "record":
            written = {each.name: each for each in writer.fields}
            for each in reader.fields:
                self._check_field(written, each)

    def _check_field(self, written: dict[str, AvroField], read: AvroField) -> None:
        names = [read.name, *sorted(read.aliases)]
        source = next((written[name] for name in names if name in written), None)
        if source is None:
            if not read.has_default:
                raise SchemaError("is not in both, and has no default").within(read.name)
            return
        try:
            self.check(source.type, read.type)
        except SchemaError as error:
            raise error.within(read.name) from None


def _match(writer: AvroType, reader: AvroType) -> bool:
    """Whether they are of one kind, and of one name, or a number that can be widened."""
    if writer.kind != reader.kind:
        return reader.kind in _PROMOTIONS.get(writer.kind, ())
    if writer.kind in _NAMED:
        short = writer.name.rpartition(".")[2]
        if short != reader.name.rpartition(".")[2] and short not in reader.aliases:
            return False
    return writer.size == reader.size
