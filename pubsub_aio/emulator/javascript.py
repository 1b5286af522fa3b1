"""Runs scripts in child processes: none can stop, slow down or outgrow the emulator.

The engine is QuickJS, from PyPI: `pip install 'pubsub-aio[transforms]'`. A child is started when
it is first needed, which takes some 30 ms, and runs one script at a time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, cast

from pubsub_aio.emulator.javascript_child import DONE, LEFT_OUT, REPLY, REQUEST
from pubsub_aio.emulator.transforms import AT_ONCE, Script, ScriptError

MEMORY_BYTES = 256 * 1024 * 1024
"""What a script may use; a message of 10 MB in and out takes up to 190 MiB."""

_ENDED = (OSError, EOFError, ValueError)  # a ValueError says that its pipe was closed


def engine_path() -> str | None:
    """Where the engine is installed; none if it is not."""
    try:
        spec = importlib.util.find_spec("quickjs")
    except ImportError:
        return None
    return str(Path(spec.origin).parents[1]) if spec and spec.origin and sys.executable else None


class ScriptRunner:
    """Runs scripts; every thread may call it, and waits while all children are busy.

    Args:
        engine: Where the engine is installed.
        time_limit: Seconds that a script may take for a message.
    """

    def __init__(self, engine: str, *, time_limit: float) -> None:
        self._engine = engine
        self._time_limit = time_limit
        self._children: list[_Child] = []
        self._free: queue.LifoQueue[_Child | None] = queue.LifoQueue()
        for _ in range(AT_ONCE):
            self._free.put(None)
        self._closed = False
        self._lock = threading.Lock()

    def check(self, script: Script) -> None:
        """Find out whether a script defines its function.

        Raises:
            ScriptError: Why not.
        """
        self._ask(script, "")

    def run(self, script: Script, text: str) -> str | None:
        """Run a script on a message; returns what it made of it, or none if it left it out.

        Raises:
            ScriptError: It failed.
        """
        return self._ask(script, text)

    def _ask(self, script: Script, text: str) -> str | None:
        parts = [script.function_name.encode(), script.code.encode(), text.encode()]
        request = REQUEST.pack(self._time_limit, *map(len, parts)) + b"".join(parts)
        child = self._free.get()
        try:
            if child is None:
                child = self._start()
            status, reply = child.ask(request)
        except _ENDED:
            self._end(child)
            child = None
            limit = f"{self._time_limit:g} s"
            raise ScriptError(f"it was ended, for it took far longer than {limit}") from None
        finally:
            self._free.put(child)
        if status == LEFT_OUT:
            return None
        if status != DONE:
            raise ScriptError(reply)
        return reply

    def _start(self) -> _Child:
        child = None
        try:
            with self._lock:
                if self._closed:
                    raise ScriptError("the emulator is stopping")
                child = _Child(self._engine)
                self._children.append(child)
            child.read()
        except _ENDED:
            self._end(child)
            raise ScriptError(
                "the JavaScript engine does not start: try `python -c 'import quickjs'`"
            ) from None
        return child

    def _end(self, child: _Child | None) -> None:
        with self._lock:
            if child not in self._children:
                return
            self._children.remove(child)
        child.end()

    def close(self) -> None:
        """End the children, and with them what they are at."""
        with self._lock:
            self._closed = True
            children = list(self._children)
        for child in children:
            self._end(child)


class _Child:
    """One process that runs scripts."""

    def __init__(self, engine: str) -> None:
        program = Path(__file__).with_name("javascript_child.py")
        self._process = subprocess.Popen(  # noqa: S603 - ourselves, and no shell
            [sys.executable, "-I", "-S", str(program), engine, str(MEMORY_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._in = cast("IO[bytes]", self._process.stdin)
        self._out = cast("IO[bytes]", self._process.stdout)

    def ask(self, request: bytes) -> tuple[bytes, str]:
        """Send a request; returns its answer. EOFError or OSError if the process has ended."""
        self._in.write(request)
        self._in.flush()
        return self.read()

    def read(self) -> tuple[bytes, str]:
        """The next answer: the first says that the engine is there."""
        status, size = REPLY.unpack(self._read(REPLY.size))
        return status, self._read(size).decode()

    def _read(self, size: int) -> bytes:
        found = self._out.read(size)
        if len(found) < size:
            raise EOFError
        return found

    def end(self) -> None:
        """Kill the process; whoever waits for it is told."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._in, self._out):
            with contextlib.suppress(OSError):  # what was not sent is not wanted any more
                pipe.close()
