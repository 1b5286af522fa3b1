"""`pubsub-aio` and `python -m pubsub_aio`, run as a user runs them."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from google.api_core.exceptions import PermissionDenied, ResourceExhausted
from google.pubsub_v1 import PublisherClient, SubscriberClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

import pubsub_aio
from tests.emulator.conformance.rest import Rest
from tests.emulator.conformance.streams import Stream

WITHIN = 30.0
"""Seconds of real time in which a process must have done what a test waits for."""

TOPIC = "projects/p/topics/orders"
WORKER = "projects/p/subscriptions/worker"

MODULE = [sys.executable, "-m", "pubsub_aio"]
SCRIPT = [str(Path(sys.executable).with_name("pubsub-aio"))]
EITHER = pytest.mark.parametrize("command", [MODULE, SCRIPT], ids=["module", "script"])


def run(*arguments: str, command: Sequence[str] = MODULE) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end."""
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=WITHIN, check=False
    )


class Running(NamedTuple):
    process: "subprocess.Popen[str]"
    said: str
    """What it printed until it was ready."""
    address: str
    """What its ready line told to export."""

    def stop(self, number: signal.Signals = signal.SIGTERM) -> str:
        """Stop it, as it should stop; gives what else it printed."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=WITHIN)
        assert self.process.returncode == 0
        return said


@contextlib.contextmanager
def running(*arguments: str, command: Sequence[str] = MODULE, **env: str) -> Iterator[Running]:
    """Start an emulator and wait for its ready line."""
    line = [*command, "emulator", *arguments]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=os.environ | env) as process:
        assert process.stderr
        said = ""
        try:
            for line_said in process.stderr:
                said += line_said
                if found := re.search(r"PUBSUB_EMULATOR_HOST=(\S+)", line_said):
                    yield Running(process, said, found[1])
                    return
            pytest.fail(f"it ended and said only: {said}")
        finally:
            process.kill()


@EITHER
def test_emulator_says_where_it_is_and_works(command: Sequence[str]) -> None:
    with (
        running("--port", "0", command=command) as emulator,
        grpc.insecure_channel(emulator.address) as channel,
    ):
        publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        publisher.create_topic(name=TOPIC, timeout=WITHIN)
        answer = Rest(emulator.address, timeout=WITHIN).get(TOPIC)

    assert re.fullmatch(r"127\.0\.0\.1:\d+", emulator.address)
    assert answer.body["name"] == TOPIC


@EITHER
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_the_emulator_cleanly_with_a_stream_open(
    command: Sequence[str], number: signal.Signals
) -> None:
    with (
        running("--port", "0", command=command) as emulator,
        grpc.insecure_channel(emulator.address) as channel,
    ):
        publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        publisher.create_topic(name=TOPIC, timeout=WITHIN)
        subscriber.create_subscription(name=WORKER, topic=TOPIC, timeout=WITHIN)
        first: dict[str, object] = {"subscription": WORKER, "stream_ack_deadline_seconds": 10}
        with Stream(channel, first, heartbeats=True) as stream:
            stream.response()
            said = emulator.stop(number)
            assert stream.ending() == "UNAVAILABLE"

    assert "Traceback" not in said


def test_emulator_leaves_no_temporary_files(tmp_path: Path) -> None:
    with running("--port", "0", TMPDIR=str(tmp_path)) as emulator:
        emulator.stop()

    assert list(tmp_path.iterdir()) == []


def test_chosen_host_and_port_are_listened_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with running("--host", "127.0.0.1", "--port", str(port)) as emulator:
        assert emulator.address == f"127.0.0.1:{port}"


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("0.0.0.0", True)])  # noqa: S104
def test_listening_wider_than_loopback_is_warned_of(host: str, warns: bool) -> None:
    with running("--host", host, "--port", "0") as emulator:
        assert ("WARNING" in emulator.said) == warns


def test_verbose_emulator_logs_what_goes_on() -> None:
    with running("--port", "0", "--verbose") as emulator:
        Rest(emulator.address, timeout=WITHIN).put(TOPIC, {})
        said = emulator.stop()

    assert "CreateTopic" in said


def test_port_in_use_is_said_in_a_line_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("emulator", "--port", str(port))

    assert done.returncode == 1
    assert re.search(rf"127\.0\.0\.1:{port}.* in use.*--port", done.stderr)
    assert "Traceback" not in done.stderr


def test_unknown_host_is_said_in_a_line() -> None:
    done = run("emulator", "--host", "no.such.host.invalid", "--port", "0")

    assert done.returncode == 1
    assert "no.such.host.invalid" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("port", ["http", "65536", "-1", "1.5", ""])
def test_bad_port_is_a_usage_error_that_names_it(port: str) -> None:
    done = run("emulator", f"--port={port}")

    assert done.returncode == 2
    assert "--port" in done.stderr
    assert repr(port) in done.stderr


def test_emulator_with_permissions_quotas_and_a_stream_life() -> None:
    ann = "user:ann@example.com"
    with (
        running(
            *("--port", "0", "--enforce-iam", "--stream-life", "0.5"),
            *("--quota", "topics_per_project=1", "--quota", "administrator-operations=100"),
        ) as emulator,
        grpc.insecure_channel(emulator.address) as channel,
    ):
        publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        subscriber = SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        publisher.create_topic(name=TOPIC, timeout=WITHIN)
        subscriber.create_subscription(name=WORKER, topic=TOPIC, timeout=WITHIN)
        with pytest.raises(PermissionDenied, match=ann):
            publisher.get_topic(
                topic=TOPIC, timeout=WITHIN, metadata=[("x-emulator-principal", ann)]
            )
        with pytest.raises(ResourceExhausted, match="topics_per_project is 1"):
            publisher.create_topic(name=f"{TOPIC}-2", timeout=WITHIN)
        first: dict[str, object] = {"subscription": WORKER, "stream_ack_deadline_seconds": 10}
        with Stream(channel, first, heartbeats=True) as stream:
            assert stream.ending() == "UNAVAILABLE"


def test_emulator_with_a_principal() -> None:
    with running("--port", "0", "--enforce-iam", "--principal", "anonymous") as emulator:
        answer = Rest(emulator.address, timeout=WITHIN).put(TOPIC, {})

    assert answer.status == 403


@pytest.mark.parametrize(
    ("argument", "naming"),
    [
        ("--stream-life=0", "--stream-life"),
        ("--quota=speed=1", "publisher_throughput"),
        ("--quota=publisher_throughput", "publisher_throughput"),
        ("--quota=publisher_throughput=0", "above 0"),
        ("--quota=topics_per_project=1.5", "whole number"),
        ("--principal=ann", "user:EMAIL"),
    ],
)
def test_bad_settings_of_the_emulator_are_named_in_a_line(argument: str, naming: str) -> None:
    done = run("emulator", "--port=0", argument)

    assert done.returncode in (1, 2)
    assert naming in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [[], ["emulate"]])
def test_missing_or_unknown_command_is_a_usage_error(arguments: list[str]) -> None:
    done = run(*arguments)

    assert done.returncode == 2
    assert done.stderr.startswith("usage: pubsub-aio")


@EITHER
def test_help_shows_the_commands_and_their_defaults(command: Sequence[str]) -> None:
    whole, emulator = run("--help", command=command), run("emulator", "--help", command=command)

    assert (whole.returncode, emulator.returncode) == (0, 0)
    assert "emulator" in whole.stdout
    assert "127.0.0.1" in emulator.stdout
    assert "8085" in emulator.stdout


@EITHER
def test_version_is_that_of_the_package(command: Sequence[str]) -> None:
    done = run("--version", command=command)

    assert (done.returncode, done.stdout) == (0, f"pubsub-aio {pubsub_aio.__version__}\n")
