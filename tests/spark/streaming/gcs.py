"""A server for the part of Google Cloud Storage's XML API that logs need, on the loopback address.

It keeps objects in memory, and does with preconditions, ranges and pages of lists what Google
documents. There is no package for it: those that there are know no preconditions. Objects in a
folder `conflicts-N` are refused so many times, as if others put them in the same moment.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 100
"""Names in one answer; Google's have 1,000."""
_MODIFIED = "Wed, 18 Nov 2026 12:00:00 GMT"


class _Bucket:
    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.tried: Counter[str] = Counter()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: _Bucket
    name: str

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    @property
    def _key(self) -> str | None:
        """The name of the object; none if it is of another bucket."""
        bucket, _, key = urlsplit(self.path).path.removeprefix("/").partition("/")
        return unquote(key) if bucket == self.name else None

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if (key := self._key) is None:
            return self._answer(404)
        with self.bucket.lock:
            self.bucket.tried[key] += 1
            conflicts = re.search(r"conflicts-(\d+)/", key)
            if conflicts and self.bucket.tried[key] <= int(conflicts[1]):
                return self._answer(409)
            if self.headers.get("x-goog-if-generation-match") == "0" and key in self.bucket.objects:
                return self._answer(412)
            self.bucket.objects[key] = body
        return self._answer(200)

    def do_GET(self) -> None:
        key = self._key
        if key == "":
            return self._list()
        if key is None or (whole := self.bucket.objects.get(key)) is None:
            return self._answer(404)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked:
            return self._answer(200, whole)
        start, last = int(asked[1]), min(int(asked[2]), len(whole) - 1)
        if start > last:
            return self._answer(416)
        there = f"bytes {start}-{last}/{len(whole)}"
        return self._answer(206, whole[start : last + 1], {"Content-Range": there})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        with self.bucket.lock:
            known = self.bucket.objects.pop(self._key or "", None)
        self._answer(404 if known is None else 204)

    def _list(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        prefix = asked.get("prefix", [""])[0]
        after = asked.get("continuation-token", [""])[0]
        with self.bucket.lock:
            sizes = {key: len(body) for key, body in self.bucket.objects.items()}
        keys = sorted(key for key in sizes if key.startswith(prefix) and key > after)
        more = ""
        if len(keys) > PAGE:
            more = f"<NextContinuationToken>{escape(keys[PAGE - 1])}</NextContinuationToken>"
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{sizes[key]}</Size><ETag>1</ETag>"
            "<LastModified>2026-11-18T12:00:00.000Z</LastModified></Contents>"
            for key in keys[:PAGE]
        )
        self._answer(200, f"<ListBucketResult>{contents}{more}</ListBucketResult>".encode())

    def _answer(self, status: int, body: bytes = b"", more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"ETag": '"1"', "Last-Modified": _MODIFIED, "Content-Length": str(len(body))}
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def serving(name: str) -> Iterator[str]:
    """Serve a bucket; yields the service account's key with which obstore finds the server."""
    handler = type("Handler", (_Handler,), {"bucket": _Bucket(), "name": name})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        key = {
            "gcs_base_url": f"http://127.0.0.1:{server.server_port}",
            "disable_oauth": True,
            **dict.fromkeys(("client_email", "private_key", "private_key_id"), ""),
        }
        try:
            yield json.dumps(key)
        finally:
            server.shutdown()
            thread.join()
