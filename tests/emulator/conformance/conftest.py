"""The `server` fixture: every test runs on our emulator, and on Google's where it is installed."""

import time
from collections.abc import Iterator

import pytest

from tests.emulator.conformance import google_emulator
from tests.emulator.conformance.servers import Server


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "falls_short(how, hangs): what Google's emulator does not do"
    )


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


def _runs_on_google(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and item.callspec.params["server"] == "google"


@pytest.fixture(scope="session")
def google_address() -> Iterator[str]:
    """Where Google's emulator listens: one process for the whole session."""
    with google_emulator.running() as address:
        yield address


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
