"""The `server` fixture: every test runs on our emulator, and on Google's where it is installed."""

import concurrent.futures
import time
from collections.abc import Iterator

import pytest

from tests.emulator.conformance import google_emulator
from tests.emulator.conformance.rest import Response, Rest
from tests.emulator.conformance.servers import Server


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "falls_short(how, hangs): what Google's emulator does not do"
    )
    config.addinivalue_line("markers", "last: waits for what others' time can pass in")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        kinds = ["embedded", "google"] if google_emulator.command() else ["embedded"]
        metafunc.parametrize("server", kinds, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out: set[pytest.Item] = set()
    for item in items:
        mark = item.get_closest_marker("falls_short")
        if mark is None or not _runs_on_google(item):
            continue
        if mark.kwargs["hangs"]:
            left_out.add(item)
        else:
            item.add_marker(pytest.mark.xfail(reason=mark.kwargs["how"], strict=True))
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


def _runs_on_google(item: pytest.Item) -> bool:
    return item.name.partition("[")[2].startswith("google")


@pytest.fixture(scope="session", autouse=True)
def lonely_rest_pull() -> Iterator[concurrent.futures.Future[Response]]:
    """A REST Pull on an empty subscription of our emulator, begun when the session begins.

    It may wait for real seconds, whatever the virtual clock says; the other tests fill them.
    """
    from pubsub_aio.emulator import EmulatorThread, VirtualClock

    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        EmulatorThread(clock=VirtualClock()) as emulator,
    ):
        rest = Rest(emulator.address, timeout=60)
        rest.put("projects/lonely/topics/empty", {})
        rest.put("projects/lonely/subscriptions/empty", {"topic": "projects/lonely/topics/empty"})
        yield pool.submit(rest.post, "projects/lonely/subscriptions/empty:pull", {"maxMessages": 1})


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with a project of the test's own."""
    if request.param == "embedded":
        yield from _embedded()
    else:
        yield from _google(request.getfixturevalue("google_address"))


def _embedded() -> Iterator[Server]:
    from pubsub_aio.emulator import EmulatorThread, VirtualClock

    with EmulatorThread(clock=VirtualClock()) as emulator:
        server = Server("embedded", emulator.address, let_time_pass=emulator.advance)
        yield server
        server.close()


def _google(address: str) -> Iterator[Server]:
    server = Server("google", address, let_time_pass=time.sleep)
    yield server
    server.close()
