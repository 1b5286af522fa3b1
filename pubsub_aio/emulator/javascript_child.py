"""The program that runs scripts: a process of its own, so that nothing a script does can do harm.

It imports nothing of ours, so that it starts fast. It reads requests from its standard input and
answers each on its standard output, in a context that is made for it and thrown away. A script is
stopped by the engine when its time or memory is used up; should it hold the engine up in a place
where that does not look, the whole process ends, some `_GRACE` seconds later.

Arguments: where the engine is installed, and the memory that a script may use, in bytes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import signal
import struct
import sys
from types import ModuleType

REQUEST = struct.Struct("<dIII")
"""Seconds that the script may take, and the sizes of its function's name, its code and the input.

An input of no bytes stands for none: the script is looked at, not run.
"""

REPLY = struct.Struct("<cI")
"""What became of it, and the size of the text that follows."""

READY, DONE, LEFT_OUT, FAILED = b"r", b"d", b"n", b"f"

_GRACE = 2.0
_GRACE_PER_BYTE = 1e-7
_STACK_BYTES = 512 * 1024
_OVERHEAD_BYTES = 512 * 1024 * 1024  # of Python, and of what passes in and out
_MAX_ERROR = 300

# Taken before the script can replace them. What the script returns is read while its time runs, for
# reading may run code of its own. What is written are plain strings in objects without a prototype.
_FRAME = """
(function () {
  "use strict";
  const parse = JSON.parse, stringify = JSON.stringify, Fault = TypeError;
  const keys = Object.keys, create = Object.create;
  let input, output;
  function run(transform) {
    const result = transform(input[0], input[1]);
    if (result === null || result === undefined) return false;
    output = create(null);
    output.data = result.data;
    if (typeof output.data !== "string")
      throw new Fault("it must return null, or a message whose data is a string");
    const returned = result.attributes;
    if (returned === null || returned === undefined) return true;
    const attributes = output.attributes = create(null), names = keys(returned);
    for (let at = 0; at < names.length; at++) {
      const value = attributes[names[at]] = returned[names[at]];
      if (typeof value !== "string")
        throw new Fault("the attribute " + names[at] + " is not a string");
    }
    return true;
  }
  return function (step, value) {
    if (step === "read") input = parse(value);
    if (step === "run") return run(value);
    if (step === "write") return stringify(output);
  };
})()
"""


class _ScriptError(Exception):
    """The script cannot be used; says why."""


def answer(
    engine: ModuleType, memory: int, limit: float, name: str, code: str, text: str
) -> tuple[bytes, str]:
    """Run a script on a message, or only look at it; returns what became of it."""
    context = engine.Context()
    context.set_memory_limit(memory)
    context.set_max_stack_size(_STACK_BYTES)
    try:
        frame = context.eval(_FRAME)
        context.set_time_limit(limit)
        context.eval(code)
        if context.eval(f"typeof {name}") != "function":
            raise _ScriptError(f"the code does not define a function {name}")
        if not text:
            return DONE, ""
        transform = context.eval(name)
        context.set_time_limit(_GRACE)
        frame("read", text)
        context.set_time_limit(limit)
        if not frame("run", transform):
            return LEFT_OUT, ""
        context.set_time_limit(_GRACE)
        return DONE, frame("write")
    except _ScriptError as error:
        return FAILED, str(error)
    except Exception as error:  # noqa: BLE001 - whatever a script throws is its failure
        return FAILED, _reason(error, limit, memory)


def _reason(error: Exception, limit: float, memory: int) -> str:
    reason = str(error).strip().partition("\n")[0]
    if reason == "InternalError: interrupted":
        return f"it took longer than {limit:g} s"
    if reason == "InternalError: out of memory" or isinstance(error, MemoryError):
        return f"it needs more than {memory >> 20} MiB of memory"
    return (reason or type(error).__name__)[:_MAX_ERROR]


def _limit_memory(memory: int) -> None:
    """Bound the process, too, where the system can do that."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        most = memory + _OVERHEAD_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(engine_path: str, memory: int) -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us ends us
    nowhere = os.open(os.devnull, os.O_WRONLY)
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    faulthandler.dump_traceback_later(10.0, exit=True, file=nowhere)
    sys.path.append(engine_path)
    engine = importlib.import_module("quickjs")
    _limit_memory(memory)
    faulthandler.cancel_dump_traceback_later()
    replies.write(REPLY.pack(READY, 0))
    replies.flush()
    while header := requests.read(REQUEST.size):
        limit, *sizes = REQUEST.unpack(header)
        name, code, text = (requests.read(size).decode() for size in sizes)
        patience = limit + _GRACE + len(text) * _GRACE_PER_BYTE
        faulthandler.dump_traceback_later(patience, exit=True, file=nowhere)
        status, reply = answer(engine, memory, limit, name, code, text)
        faulthandler.cancel_dump_traceback_later()
        encoded = reply.encode("utf-8", "replace")
        replies.write(REPLY.pack(status, len(encoded)) + encoded)
        replies.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
