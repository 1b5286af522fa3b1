"""The text of a `.proto` file as a descriptor, by Google's compiler in grpcio-tools.

It compiles in this process, within a millisecond, and reports errors with their place. Its Python
side gives the code of a module; the descriptor is the one literal in it. The compiler reads files,
so the text is put into one for a moment.
"""

from __future__ import annotations

import ast
import re
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_tools import _protoc_compiler

from pubsub_aio.emulator.schemas.errors import SchemaError

MAX_NESTING = 32
"""How deep messages may be nested, as the compiler has it; it is slow to find groups too deep."""

_FILE = "schema.proto"
_DESCRIPTOR = re.compile(rb"AddSerializedFile\((b'(?:[^'\\]|\\.)*')\)")
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|\w+|\S""",
    re.DOTALL | re.ASCII,
)
_COMMENTS = ("//", "/*")
_NAMES_ITS_SYNTAX = ("syntax", "edition")


def compile_proto(definition: str) -> FileDescriptorProto:
    """The descriptor of a file with this text.

    Raises:
        SchemaError: It does not compile.
    """
    # What the compiler takes for granted, too, but it says so on the standard error.
    definition = definition.removeprefix("\ufeff")
    given = _first_word(definition) in _NAMES_ITS_SYNTAX
    before = "" if given else 'syntax = "proto2"; '
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, _FILE).write_bytes(f"{before}{definition}".encode())
        try:
            files = _protoc_compiler.get_protos(_FILE.encode(), [folder.encode()])
        except _protoc_compiler.ProtocErrors as failed:
            raise SchemaError(_first_error(failed, len(before))) from None
        except Exception as failed:  # noqa: BLE001 - of any kind, all about the definition
            raise SchemaError(f"it does not compile: {failed!r}") from None
    code = dict(files)[b"schema_pb2.py"]
    literal = _DESCRIPTOR.search(code)
    if literal is None:
        raise SchemaError("it compiles to nothing")
    return FileDescriptorProto.FromString(ast.literal_eval(literal[1].decode("ascii")))


def _first_word(definition: str) -> str:
    """The first word of the text; refuses what is nested too deeply, and imports."""
    first, depth = "", 0
    for found in _TOKEN.finditer(definition):
        word = found[0]
        if word == "{":
            depth += 1
            if depth > MAX_NESTING:
                raise SchemaError(f"nested deeper than {MAX_NESTING} levels")
        elif word == "}":
            depth -= 1
        elif word == "import" and not depth:
            raise SchemaError("imports are not supported; define the types inside the message")
        first = first or ("" if word[:2] in _COMMENTS else word)
    return first


def _first_error(failed: Exception, shifted: int) -> str:
    """What is wrong, and where; the first line is `shifted` columns from where it was."""
    errors = failed.args[0] if failed.args else []
    placed = sorted((each for each in errors if each.line >= 0), key=lambda each: each.line)
    for each in placed or errors:
        message = each.message
        text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        column = each.column + 1 - (0 if each.line else shifted)
        return f"line {each.line + 1}, column {column}: {text}" if placed else text
    return "it does not compile"
