"""Single message transforms: what the service accepts, and what they make of a message.

Pure: whoever calls `transformed` passes in what runs a script.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from pubsub_aio._wire import schema
from pubsub_aio.emulator import records
from pubsub_aio.emulator.status import StatusError, invalid

MAX_TRANSFORMS = 5
MAX_CODE_BYTES = 20 * 1024

AT_ONCE = 2
"""Scripts that run at the same time at most: while one is slow, others get on."""

STRETCH = 0.02
"""Seconds of transforming after which others have their turn, and what there is goes out."""

_FUNCTION_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,254}")
_ENDPOINT = re.compile(
    r"projects/[^/]+/locations/[^/]+/(endpoints/[^/]+|publishers/[^/]+/models/[^/]+)"
)


class ScriptError(Exception):
    """A script failed, or cannot be used; says why."""


@dataclass(frozen=True, slots=True)
class Script:
    """A JavaScript function of messages, and the code that defines it."""

    function_name: str
    code: str


Run = Callable[[Script, str], str | None]
"""Runs a script on a text, and returns its result: a text, or none if it leaves the message out."""

Transform = Callable[[schema.PubsubMessage], Awaitable[schema.PubsubMessage | None]]
"""What becomes of a message: another, or none to leave it out; ScriptError if it fails."""


# What is accepted


def check_transforms(transforms: Sequence[schema.MessageTransform]) -> None:
    """Refuse transforms that the service would refuse."""
    if len(transforms) > MAX_TRANSFORMS:
        raise invalid("message_transforms", f"{len(transforms)} is more than {MAX_TRANSFORMS}")
    names: set[str] = set()
    for at, transform in enumerate(transforms):
        field = f"message_transforms[{at}]"
        kind = transform.WhichOneof("transform")
        if kind is None:
            raise invalid(field, "one of javascript_udf, ai_inference or compression is needed")
        if kind == "ai_inference":
            _check_inference(transform.ai_inference, f"{field}.ai_inference")
        elif kind == "compression":
            _check_compression(transform.compression, f"{field}.compression")
        else:
            _check_udf(transform.javascript_udf, f"{field}.javascript_udf", names)


def _check_udf(udf: schema.JavaScriptUDF, field: str, names: set[str]) -> None:
    name = udf.function_name
    if not _FUNCTION_NAME.fullmatch(name):
        raise invalid(f"{field}.function_name", f"{name[:80]!r} must be the name of a function")
    if name in names:
        raise invalid(f"{field}.function_name", f"{name!r} is the name of another one, too")
    names.add(name)
    size = len(udf.code.encode())
    if size > MAX_CODE_BYTES:
        raise invalid(f"{field}.code", f"{size} bytes is more than {MAX_CODE_BYTES}")
    if not re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", udf.code):
        raise invalid(f"{field}.code", f"it must define the function {name}")


def _check_inference(inference: schema.AIInference, field: str) -> None:
    if not _ENDPOINT.fullmatch(inference.endpoint):
        raise invalid(
            f"{field}.endpoint",
            "must be projects/P/locations/L/endpoints/E "
            "or projects/P/locations/L/publishers/P/models/M",
        )


def _check_compression(compression: schema.Compression, field: str) -> None:
    if not compression.compression_algorithm:
        raise invalid(f"{field}.compression_algorithm", "must be given")
    if not compression.compression_mode:
        raise invalid(f"{field}.compression_mode", "must be given")


def scripts_of(transforms: Iterable[schema.MessageTransform]) -> list[Script]:
    """The scripts among these transforms that are not disabled, in their order."""
    return [
        Script(transform.javascript_udf.function_name, transform.javascript_udf.code)
        for transform in transforms
        if transform.HasField("javascript_udf") and not transform.disabled
    ]


# What they do


def transformed(
    message: schema.PubsubMessage, scripts: Iterable[Script], run: Run
) -> schema.PubsubMessage | None:
    """What scripts, one after another, make of a message; none if one of them leaves it out.

    The message that is passed in is changed. It may have more attributes than a publisher may
    give, for the emulator adds some.

    Raises:
        ScriptError: One of them failed, or made what the service does not take.
    """
    most_attributes = max(records.MAX_ATTRIBUTES, len(message.attributes))
    for script in scripts:
        try:
            result = run(script, _text_of(message))
            if result is None:
                return None
            _take_over(message, result)
        except ScriptError as error:
            raise ScriptError(f"the transform {script.function_name} failed: {error}") from None
    if fault := records.fault_of(message, most_attributes=most_attributes):
        raise ScriptError(f"what the transforms made has a wrong {fault[0]}: {fault[1]}")
    return message


def transformed_body(body: bytes, scripts: Iterable[Script], run: Run) -> bytes | None:
    """The same for the bytes of a message that is published."""
    message = transformed(schema.PubsubMessage.FromString(body), scripts, run)
    return message.SerializeToString() if message else None


def failed_publish(position: int, error: ScriptError) -> StatusError:
    """What a publisher is told when a transform failed for one of its messages."""
    return invalid(f"messages[{position}]", str(error))


def _text_of(message: schema.PubsubMessage) -> str:
    """A message and its metadata, as a script is given them."""
    import json

    # Bytes that are not UTF-8 become half surrogates, and these the same bytes again.
    data = message.data.decode("utf-8", "surrogateescape")
    metadata: dict[str, str] = {}
    if message.message_id:
        metadata["message_id"] = message.message_id
        metadata["publish_time"] = f"{message.publish_time.ToDatetime():%Y-%m-%dT%H:%M:%SZ}"
    if message.ordering_key:
        metadata["ordering_key"] = message.ordering_key
    return json.dumps([{"data": data, "attributes": dict(message.attributes)}, metadata])


def _take_over(message: schema.PubsubMessage, result: str) -> None:
    """Change a message as a script's result says."""
    import json

    try:
        made = json.loads(result)
        message.data = _bytes_of(made["data"])
        if "attributes" in made:
            attributes = {_text(key): _text(value) for key, value in made["attributes"].items()}
            message.ClearField("attributes")
            message.attributes.update(attributes)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ScriptError("its result cannot be read") from None


def _bytes_of(data: str) -> bytes:
    try:
        return data.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return _text(data).encode()


def _text(value: str) -> str:
    """A string of JavaScript as Unicode: half surrogates are replaced."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
