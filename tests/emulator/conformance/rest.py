"""Pub/Sub's REST API, spoken with nothing but the standard library."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    content_type: str
    body: dict[str, Json]


class Rest:
    """Makes requests below `/v1/` of a server, each on a connection of its own."""

    def __init__(self, address: str, *, timeout: float) -> None:
        self._address = address
        self._timeout = timeout

    def request(
        self, method: str, path: str, body: Mapping[str, Json] | bytes | None = None
    ) -> Response:
        connection = http.client.HTTPConnection(self._address, timeout=self._timeout)
        try:
            payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            headers = {} if payload is None else {"Content-Type": "application/json"}
            connection.request(method, f"/v1/{path}", payload, headers)
            answer = connection.getresponse()
            content_type = answer.headers.get_content_type()
            return Response(answer.status, content_type, json.loads(answer.read()))
        finally:
            connection.close()

    def get(self, path: str) -> Response:
        return self.request("GET", path)

    def put(self, path: str, body: Mapping[str, Json]) -> Response:
        return self.request("PUT", path, body)

    def post(self, path: str, body: Mapping[str, Json]) -> Response:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Json]) -> Response:
        return self.request("PATCH", path, body)

    def delete(self, path: str) -> Response:
        return self.request("DELETE", path)
