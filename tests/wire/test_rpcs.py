"""The table of RPCs is the one that Google's clients have."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import pytest
from google.pubsub_v1.services.publisher.transports import grpc as publisher_grpc
from google.pubsub_v1.services.publisher.transports import rest_base as publisher_rest
from google.pubsub_v1.services.schema_service.transports import grpc as schema_grpc
from google.pubsub_v1.services.schema_service.transports import rest_base as schema_rest
from google.pubsub_v1.services.subscriber.transports import grpc as subscriber_grpc
from google.pubsub_v1.services.subscriber.transports import rest_base as subscriber_rest

from pubsub_aio._wire.rpcs import RPCS
from pubsub_aio.emulator.rest_api import ROUTES

GRPC = (publisher_grpc, subscriber_grpc, schema_grpc)
REST = (publisher_rest, subscriber_rest, schema_rest)


def test_there_are_35_rpcs_of_pubsub_and_3_of_iam() -> None:
    services = [rpc.service for rpc in RPCS]

    assert len([name for name in services if name.startswith("google.pubsub.v1.")]) == 35
    assert services.count("google.iam.v1.IAMPolicy") == 3


def test_every_rpc_that_googles_clients_call_is_in_the_table() -> None:
    called = {path for module in GRPC for path in paths_called(module)}

    assert {f"/{rpc.service}/{rpc.name}" for rpc in RPCS} == called


def paths_called(module: ModuleType) -> set[str]:
    return set(re.findall(r'"(/google\.(?:pubsub|iam)\.[\w.]+/\w+)"', inspect.getsource(module)))


def google_routes() -> dict[str, set[tuple[str, str | None]]]:
    """By RPC, its verbs with path templates, and which field is the body."""
    routes: dict[str, set[tuple[str, str | None]]] = {}
    for module in REST:
        transport = next(
            value for name, value in vars(module).items() if name.endswith("RestTransport")
        )
        for name, method in vars(transport).items():
            if name.startswith("_Base") and hasattr(method, "_get_http_options"):
                for option in method._get_http_options():
                    route = f"{option['method'].upper()} {option['uri']}"
                    routes.setdefault(name.removeprefix("_Base"), set()).add(
                        (route, option.get("body"))
                    )
    return routes


def test_every_route_is_the_documented_one() -> None:
    # GET and DELETE have no body; nor does detaching, for which an empty one is as good.
    ours = {
        rpc.name: {
            (route, None if route.startswith(("GET", "DELETE")) else rpc.body) for route in rpc.http
        }
        for rpc in RPCS
        if rpc.http
    }
    theirs = google_routes()
    ours["DetachSubscription"] = {(route, None) for route, _ in ours["DetachSubscription"]}

    assert ours == theirs


@pytest.mark.parametrize("rpc", [rpc.name for rpc in RPCS if rpc.http])
def test_no_route_hides_another(rpc: str) -> None:
    mine = [route for route in ROUTES if route.rpc.name == rpc]
    for route in mine:
        template = next(http for http in route.rpc.http if http.startswith(route.verb))
        path = re.sub(r"\{[\w.]+=([^}]*)\}", r"\1", template.split(" ")[1]).replace("*", "abc")
        first = next(r for r in ROUTES if r.verb == route.verb and r.path.fullmatch(path))

        assert first.rpc.name == rpc
