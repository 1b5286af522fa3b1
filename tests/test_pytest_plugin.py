"""The fixtures that ship with the package, in test suites of their own."""

import pytest

pytest_plugins = ["pytester"]

VARIABLES = ("PUBSUB_EMULATOR_HOST", "PUBSUB_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")


PLAIN = ("-p", "no:asyncio")
COROUTINES = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")


def check_suite(
    pytester: pytest.Pytester, source: str, *options: str, passed: int, failed: int = 0
) -> None:
    """Run a suite in a process of its own, warnings as errors."""
    pytester.makepyfile(source)
    result = pytester.runpytest_subprocess("-W", "error", *(options or PLAIN))
    result.assert_outcomes(passed=passed, failed=failed)


@pytest.mark.parametrize("before", [None, "theirs"])
@pytest.mark.parametrize("fixture", ["pubsub_emulator", "pubsub_emulator_virtual"])
def test_environment_points_to_the_emulator_and_is_restored(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    fixture: str,
    before: str | None,
) -> None:
    for name in VARIABLES:
        if before is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, before)
    pytester.makeconftest(
        f"""
        import json, os, pathlib

        def pytest_unconfigure():
            seen = [os.environ.get(name) for name in {VARIABLES!r}]
            pathlib.Path("after.json").write_text(json.dumps(seen))
        """
    )
    check_suite(
        pytester,
        f"""
        import os

        def test_inside({fixture}):
            assert os.environ["PUBSUB_EMULATOR_HOST"] == {fixture}.address
            assert os.environ["PUBSUB_PROJECT_ID"] == {fixture}.project
            assert os.environ["GOOGLE_CLOUD_PROJECT"] == {fixture}.project

        def test_project_outside():
            assert os.environ.get("PUBSUB_PROJECT_ID") == {before!r}
            assert os.environ.get("GOOGLE_CLOUD_PROJECT") == {before!r}
        """,
        passed=2,
    )

    after = (pytester.path / "after.json").read_text()
    assert after == ("[null, null, null]" if before is None else '["theirs", "theirs", "theirs"]')


def test_each_test_has_a_project_of_its_own_on_the_one_server(pytester: pytest.Pytester) -> None:
    check_suite(
        pytester,
        """
        import pytest
        from google.api_core.exceptions import NotFound
        from google.cloud import pubsub_v1

        seen = []

        @pytest.mark.parametrize("number", range(3))
        def test_own_project(pubsub_emulator, number):
            topic = pubsub_emulator.create_topic("orders")
            seen.append((pubsub_emulator.address, pubsub_emulator.project, topic))
            assert pubsub_emulator.messages() == []
            pubsub_emulator.publish("orders", b"a")

        def test_shared_server(pubsub_emulator_server):
            addresses, projects, topics = map(set, zip(*seen))
            assert addresses == {pubsub_emulator_server.address}
            assert len(projects | {pubsub_emulator_server.project}) == 4
            publisher = pubsub_v1.PublisherClient()
            for topic in topics:
                with pytest.raises(NotFound):
                    publisher.get_topic(topic=topic)
        """,
        passed=4,
    )


def test_what_a_test_leaves_behind_does_not_reach_the_next(pytester: pytest.Pytester) -> None:
    check_suite(
        pytester,
        """
        from google.cloud import pubsub_v1

        def test_careless(pubsub_emulator):
            worker = pubsub_emulator.create_subscription("worker", "orders")
            pubsub_emulator.faults.fail("GetTopic", "INTERNAL", times=100)
            pubsub_emulator.faults.stall_streams()
            pubsub_emulator.faults.refuse_connections()
            assert False

        def test_next(pubsub_emulator):
            topic = pubsub_emulator.create_topic("orders")
            assert pubsub_v1.PublisherClient().get_topic(topic=topic).name == topic
            assert pubsub_emulator.streams() == []
        """,
        passed=1,
        failed=1,
    )


def test_google_clients_find_the_emulator(pytester: pytest.Pytester) -> None:
    check_suite(
        pytester,
        """
        import os
        from google.cloud import pubsub_v1

        def test_round_trip(pubsub_emulator):
            publisher = pubsub_v1.PublisherClient()
            topic = publisher.topic_path(os.environ["GOOGLE_CLOUD_PROJECT"], "orders")
            publisher.create_topic(name=topic)
            worker = pubsub_emulator.create_subscription("worker", "orders")
            publisher.publish(topic, b"a").result(timeout=10)
            with pubsub_v1.SubscriberClient() as subscriber:
                pulling = subscriber.subscribe(worker, callback=lambda message: message.ack())
                pubsub_emulator.until(lambda: pubsub_emulator.backlog(worker) == 0)
                pulling.cancel()
                pulling.result(timeout=10)
        """,
        passed=1,
    )


def test_coroutines_can_use_the_fixtures(pytester: pytest.Pytester) -> None:
    check_suite(
        pytester,
        """
        import os
        from google.pubsub_v1 import PublisherAsyncClient
        from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
        import grpc.aio
        import pytest

        @pytest.mark.parametrize("number", range(3))
        async def test_publish(pubsub_emulator, number):
            topic = pubsub_emulator.create_topic("orders")
            async with grpc.aio.insecure_channel(os.environ["PUBSUB_EMULATOR_HOST"]) as channel:
                transport = PublisherGrpcAsyncIOTransport(channel=channel)
                publisher = PublisherAsyncClient(transport=transport)
                await publisher.publish(topic=topic, messages=[{"data": b"a"}])
            assert [message.data for message in pubsub_emulator.messages()] == [b"a"]
        """,
        *COROUTINES,
        passed=3,
    )


def test_virtual_emulator_is_a_server_of_its_own_whose_clock_moves(
    pytester: pytest.Pytester,
) -> None:
    check_suite(
        pytester,
        """
        import os
        from datetime import timedelta
        import pytest

        @pytest.fixture
        def host_before(pubsub_emulator):
            return os.environ["PUBSUB_EMULATOR_HOST"]

        def test_retention(host_before, pubsub_emulator, pubsub_emulator_virtual):
            emulator = pubsub_emulator_virtual
            assert host_before == pubsub_emulator.address != emulator.address
            assert os.environ["PUBSUB_EMULATOR_HOST"] == emulator.address
            assert pubsub_emulator.project != emulator.project
            emulator.create_subscription("worker", "orders")
            emulator.publish("orders", b"a")
            emulator.advance(7 * 24 * 3600 + 1)
            assert emulator.backlog("worker") == 0

        def test_start(pubsub_emulator_virtual):
            pubsub_emulator_virtual.create_topic("orders")
            pubsub_emulator_virtual.publish("orders", b"a")
            (message,) = pubsub_emulator_virtual.messages()
            assert message.publish_time.isoformat() == "2026-01-01T00:00:00+00:00"

        def test_real_time(pubsub_emulator):
            with pytest.raises(TypeError):
                pubsub_emulator.advance(1)
        """,
        passed=3,
    )


def test_a_scenario_runs_in_virtual_time_with_an_emulator_of_its_own(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    check_suite(
        pytester,
        """
        import asyncio, os
        import pytest
        from pubsub_aio._wire import schema
        from pubsub_aio.testing import DeadlockError

        projects = []

        @pytest.mark.parametrize("number", range(2))
        def test_a_week(pubsub_virtual_time, number):
            async def scenario(emulator):
                projects.append(emulator.project)
                assert os.environ["PUBSUB_PROJECT_ID"] == emulator.project
                assert os.environ["GOOGLE_CLOUD_PROJECT"] == emulator.project
                worker = emulator.create_subscription("worker", "orders")
                emulator.publish("orders", b"a")
                transport = emulator.transport()
                await transport.open()
                request = schema.PullRequest(subscription=worker, max_messages=1)
                attempts = 0
                while emulator.backlog(worker):
                    await transport.call("Pull", request.SerializeToString(), timeout=30)
                    await asyncio.sleep(3600)
                    attempts += 1
                await transport.close()
                return attempts

            assert pubsub_virtual_time(scenario) == 7 * 24

        def test_an_hour_at_most(pubsub_virtual_time):
            async def scenario(emulator):
                await emulator.advance(3601)

            with pytest.raises(TimeoutError):
                pubsub_virtual_time(scenario, max_time=3600)

        def test_for_ever(pubsub_virtual_time):
            async def scenario(emulator):
                await asyncio.Event().wait()

            with pytest.raises(DeadlockError):
                pubsub_virtual_time(scenario)

        def test_projects():
            assert len(set(projects)) == 2
            assert "GOOGLE_CLOUD_PROJECT" not in os.environ
        """,
        passed=5,
    )


def test_unused_plugin_costs_no_import_of_the_emulator_or_grpc(pytester: pytest.Pytester) -> None:
    check_suite(
        pytester,
        """
        import sys

        def test_modules():
            assert "pubsub_aio.pytest_plugin" in sys.modules
            heavy = {"grpc", "aiohttp", "google.protobuf", "google.pubsub_v1"}
            heavy |= {"pubsub_aio.emulator", "pubsub_aio._wire", "pubsub_aio.testing"}
            assert not heavy & set(sys.modules)
        """,
        *PLAIN,
        "-p",
        "no:hypothesispytest",
        passed=1,
    )


def test_fixtures_are_listed_with_what_they_do(pytester: pytest.Pytester) -> None:
    listing = pytester.runpytest_subprocess("--fixtures").stdout.str()

    for name in ("pubsub_emulator", "pubsub_emulator_server", "pubsub_emulator_virtual"):
        assert name in listing
    assert "pubsub_virtual_time" in listing
    assert "whose clock only the test moves" in listing


def test_a_seed_is_in_the_project_of_each_test(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\npubsub_emulator_seed = pubsub.yaml")
    pytester.path.joinpath("pubsub.yaml").write_text(
        "project: shop\ntopics: {orders: {subscriptions: [worker]}}"
    )
    check_suite(
        pytester,
        """
        import pytest

        @pytest.fixture(params=["pubsub_emulator", "pubsub_emulator_virtual"])
        def emulator(request):
            return request.getfixturevalue(request.param)

        @pytest.mark.parametrize("number", range(2))
        def test_seeded(emulator, number):
            emulator.publish("orders", b"soup")
            assert emulator.backlog(f"projects/{emulator.project}/subscriptions/worker") == 1
        """,
        passed=4,
    )


def test_without_a_seed_the_files_format_is_not_even_loaded(pytester: pytest.Pytester) -> None:
    check_suite(
        pytester,
        """
        import sys

        def test_plain(pubsub_emulator):
            assert "yaml" not in sys.modules
            assert "pubsub_aio.emulator.seeds.reading" not in sys.modules
        """,
        passed=1,
    )
