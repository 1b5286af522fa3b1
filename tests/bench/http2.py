"""As much of a gRPC server as a benchmark needs, on asyncio and nothing else.

grpcio's own server uses as much CPU a message as the fastest client that it is to feed. This one
uses a fraction: it keeps no header tables, makes no tasks, and does what it has to do while it is
called with the bytes that came in.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable
from typing import Protocol

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_HEADER_TABLE_SIZE, _INITIAL_WINDOW_SIZE = 1, 4
_MAX_WINDOW = 2**31 - 1
_FIRST_WINDOW = 65_535
_FRAME = 16_384
"""The most bytes in a frame that every peer accepts."""

_HEAD = 5
"""The bytes before each message: whether it is compressed, and its length."""

_GATHERED = 65_536
"""Bytes that are sent at once: a system call costs more than all the rest."""

_METHOD = re.compile(rb"/google\.pubsub\.v1\.[A-Za-z]+/([A-Za-z]+)")
"""In a block of headers. With a table of size 0 grpcio spells every header out."""

# `:status: 200` is an entry of HPACK's static table; the others are spelled out.
_OPENING = b"\x88\x0f\x10\x10application/grpc"
_OK = b"\x00\x0bgrpc-status\x010"
_UNIMPLEMENTED = b"\x88\x0f\x10\x10application/grpc\x00\x0bgrpc-status\x0212"


class Stream(Protocol):
    """What listens to a call of many messages."""

    def received(self, message: bytes) -> None:
        """A message came in."""

    def writable(self) -> None:
        """Everything that was sent is on its way."""

    def closed(self) -> None:
        """The call has ended."""


class Service(Protocol):
    """What is served."""

    unary: dict[str, Callable[[bytes], bytes]]
    streams: dict[str, Callable[[Call], Stream]]


class Call:
    """One call of a client."""

    def __init__(self, connection: Connection, number: int, name: str, window: int) -> None:
        self._connection = connection
        self._number = number
        self.name = name
        self.window = window
        self.stream: Stream | None = None
        self._incoming: list[bytes] = []
        self._missing = _HEAD
        self._outgoing = b""
        self._trailers = b""
        self.ended = False
        """Whether everything is sent, and nothing more will be."""

    @property
    def idle(self) -> bool:
        """Whether everything was sent."""
        return not self._outgoing

    def open(self) -> None:
        """Send the headers."""
        self._connection.write(_frame(_HEADERS, _END_HEADERS, self._number, _OPENING))

    def send(self, message: bytes) -> None:
        """Send a message as the client's windows allow it; not before the last one is sent."""
        self._outgoing = b"\0%b%b" % (len(message).to_bytes(4, "big"), message)
        self.flush()

    def finish(self) -> None:
        """End the call once all is sent."""
        self._trailers = _frame(_HEADERS, _END_HEADERS | _END_STREAM, self._number, _OK)
        self.flush()

    def flush(self) -> None:
        """Send what the windows allow."""
        connection, data, start = self._connection, self._outgoing, 0
        frames = []
        while start < len(data) and (room := min(self.window, connection.window)) > 0:
            part = data[start : start + min(_FRAME, room)]
            frames.append(_frame(_DATA, 0, self._number, part))
            start += len(part)
            self.window -= len(part)
            connection.window -= len(part)
        self._outgoing = data[start:]
        if self._trailers and not self._outgoing:
            frames.append(self._trailers)
            self.ended = True
        connection.write(b"".join(frames))

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete with these bytes."""
        self._incoming.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return []
        data, start, messages = b"".join(self._incoming), 0, []
        while len(data) >= (end := start + _message_end(data[start : start + _HEAD])):
            messages.append(data[start + _HEAD : end])
            start = end
        self._incoming = [data[start:]]
        self._missing = end - len(data)
        return messages


class Connection(asyncio.Protocol):
    """One client. It may send without limit; what is sent to it heeds its windows."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._rest = b""
        self._calls: dict[int, Call] = {}
        self.window = self._stream_window = _FIRST_WINDOW
        self._unreported = 0
        self._preface_came = False
        self._taking_in = False
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        settings = struct.pack(">HIHI", _HEADER_TABLE_SIZE, 0, _INITIAL_WINDOW_SIZE, _MAX_WINDOW)
        wider = (_MAX_WINDOW - _FIRST_WINDOW).to_bytes(4, "big")
        self.write(_frame(_SETTINGS, 0, 0, settings) + _frame(_WINDOW_UPDATE, 0, 0, wider))

    def connection_lost(self, error: Exception | None) -> None:
        del error
        for number in list(self._calls):
            self._end(number)

    def write(self, data: bytes) -> None:
        """Send frames; while bytes are taken in, together with what else they call for."""
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if not self._taking_in or self._gathered_bytes > _GATHERED:
            self._write_gathered()

    def _write_gathered(self) -> None:
        if self._gathered_bytes and not self._transport.is_closing():
            self._transport.write(b"".join(self._gathered))
        self._gathered.clear()
        self._gathered_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._taking_in = True
        try:
            self._take_in(data)
        finally:
            self._taking_in = False
            self._write_gathered()

    def _take_in(self, data: bytes) -> None:
        data, start = self._rest + data, 0
        if not self._preface_came and len(data) >= len(_PREFACE):
            self._preface_came, start = True, len(_PREFACE)
        while self._preface_came and len(data) >= start + 9:
            length = int.from_bytes(data[start : start + 3], "big")
            if len(data) < start + 9 + length:
                break
            kind, flags = data[start + 3], data[start + 4]
            number = int.from_bytes(data[start + 5 : start + 9], "big")
            payload = data[start + 9 : start + 9 + length]
            start += 9 + length
            self._frame_received(kind, flags, number, payload)
        self._rest = data[start:]

    def _frame_received(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == _DATA:
            self._on_data(number, payload, ended=bool(flags & _END_STREAM))
        elif kind == _HEADERS:
            self._on_headers(number, payload)
        elif kind == _WINDOW_UPDATE:
            self._on_window(number, int.from_bytes(payload, "big"))
        elif kind == _SETTINGS and not flags & _ACK:
            self._on_settings(payload)
        elif kind == _PING and not flags & _ACK:
            self.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _RESET:
            self._end(number)

    def _on_headers(self, number: int, block: bytes) -> None:
        found = _METHOD.search(block)
        name = found[1].decode() if found else ""
        if name not in self._service.unary and name not in self._service.streams:
            flags = _END_HEADERS | _END_STREAM
            self.write(_frame(_HEADERS, flags, number, _UNIMPLEMENTED))
            return
        call = self._calls[number] = Call(self, number, name, self._stream_window)
        call.open()
        if name in self._service.streams:
            call.stream = self._service.streams[name](call)

    def _on_data(self, number: int, payload: bytes, *, ended: bool) -> None:
        self._unreported += len(payload)
        if self._unreported > _MAX_WINDOW // 2:
            self.write(_frame(_WINDOW_UPDATE, 0, 0, self._unreported.to_bytes(4, "big")))
            self._unreported = 0
        call = self._calls.get(number)
        if call is None:
            return
        for message in call.feed(payload):
            if call.stream is None:
                call.send(self._service.unary[call.name](message))
            else:
                call.stream.received(message)
        if ended:
            call.finish()
            if call.ended:
                self._end(number)

    def _on_window(self, number: int, more: int) -> None:
        if number == 0:
            self.window += more
            waiting = [number for number, call in self._calls.items() if not call.idle]
        else:
            if number not in self._calls:
                return
            self._calls[number].window += more
            waiting = [number]
        for each in waiting:
            self._go_on(each)

    def _go_on(self, number: int) -> None:
        call = self._calls[number]
        call.flush()
        if call.ended:
            self._end(number)
        elif call.idle and call.stream is not None:
            call.stream.writable()

    def _on_settings(self, payload: bytes) -> None:
        for key, value in struct.iter_unpack(">HI", payload):
            if key == _INITIAL_WINDOW_SIZE:
                for call in self._calls.values():
                    call.window += value - self._stream_window
                self._stream_window = value
        self.write(_frame(_SETTINGS, _ACK, 0, b""))

    def _end(self, number: int) -> None:
        call = self._calls.pop(number, None)
        if call is not None and call.stream is not None:
            call.stream.closed()


def _message_end(data: bytes) -> int:
    """Where a message ends that these bytes begin; where its head does if that is not there yet."""
    return _HEAD + int.from_bytes(data[1:_HEAD], "big") if len(data) >= _HEAD else _HEAD


def _frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    length = len(payload)
    return struct.pack(">HBBBI", length >> 8, length & 255, kind, flags, number) + payload
