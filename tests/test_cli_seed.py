"""`pubsub-aio emulator --seed` and `pubsub-aio emulator export`, run as a user runs them."""

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.emulator.conformance.rest import Rest
from tests.test_cli import MODULE, WITHIN, run, running

SEED = """\
project: shop
topics:
  orders:
    subscriptions:
      audit:
      worker:
        ack_deadline_seconds: 60
"""
WORKER = "projects/shop/subscriptions/worker"
PROJECTS = ("PUBSUB_PROJECT_ID", "GOOGLE_CLOUD_PROJECT", "PUBSUB_EMULATOR_HOST")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROJECTS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    path = tmp_path / "pubsub.yaml"
    path.write_text(SEED)
    return path


def test_a_seeded_emulator_says_what_is_in_it_and_has_it(seed: Path) -> None:
    with running("--port", "0", "--seed", str(seed)) as emulator:
        answer = Rest(emulator.address, timeout=WITHIN).get(WORKER)

    assert emulator.said.startswith(f"{seed}: 1 topic, 2 subscriptions in shop\n")
    assert answer.body["ackDeadlineSeconds"] == 60


def test_what_was_kept_is_as_the_seed_wants_it(seed: Path, tmp_path: Path) -> None:
    both = ("--port", "0", "--seed", str(seed), "--data-dir", str(tmp_path / "data"))
    with running(*both) as emulator:
        made = Rest(emulator.address, timeout=WITHIN)
        made.put("projects/shop/topics/refunds", {})
        made.post("projects/shop/topics/orders:publish", {"messages": [{"data": "dGVh"}]})
        emulator.process.kill()
    seed.write_text(SEED.replace("60", "50"))
    with running(*both) as emulator:
        kept = Rest(emulator.address, timeout=WITHIN)
        pulled = kept.post(f"{WORKER}:pull", {"maxMessages": 10}).body["receivedMessages"]
        assert isinstance(pulled, list)

        told = "1 topic, 2 subscriptions in shop (0 new, 1 changed, 2 as they were)"
        assert emulator.said.startswith(f"{seed}: {told}\n")
        assert kept.get(WORKER).body["ackDeadlineSeconds"] == 50
        assert kept.get("projects/shop/topics/refunds").status == 200
        assert len(pulled) == 1


def test_an_export_is_what_a_seed_was(seed: Path, tmp_path: Path) -> None:
    file = tmp_path / "exported.yaml"
    with running("--port", "0", "--seed", str(seed)) as emulator:
        where = ("--address", emulator.address, "--project", "shop")
        printed = run("emulator", "export", *where)
        written = run("emulator", "export", *where, "-o", str(file))
    with running("--port", "0", "--seed", str(file)) as emulator:
        env = {"PUBSUB_EMULATOR_HOST": emulator.address, "PUBSUB_PROJECT_ID": "shop"}
        again = subprocess.run(
            [*MODULE, "emulator", "export"],
            capture_output=True,
            text=True,
            env=os.environ | env,
            timeout=WITHIN,
            check=False,
        )

    assert (printed.returncode, written.returncode, again.returncode) == (0, 0, 0)
    assert printed.stdout.endswith(SEED)
    assert (written.stdout, written.stderr) == ("", "")
    assert file.read_text() == printed.stdout == again.stdout


def test_short_names_are_in_the_files_project_or_else_in_the_environments(seed: Path) -> None:
    seed.write_text("topics: [orders]")
    with running("--port", "0", "--seed", str(seed), PUBSUB_PROJECT_ID="around") as emulator:
        assert emulator.said.startswith(f"{seed}: 1 topic in around\n")
    seed.write_text(SEED)
    with running("--port", "0", "--seed", str(seed), PUBSUB_PROJECT_ID="around") as emulator:
        assert "in shop\n" in emulator.said


def test_mistakes_are_lines_with_their_places_and_nothing_is_started(seed: Path) -> None:
    seed.write_text(SEED.replace("60", "5").replace("audit", "a"))
    done = run("emulator", "--port", "0", "--seed", str(seed))

    assert done.returncode == 1
    first, *mistakes = done.stderr.splitlines()
    assert first == f"pubsub-aio: {seed} has 2 mistakes, nothing was created:"
    assert mistakes[0].startswith(f"{seed}:5:7: topics.orders.subscriptions.a: the id in ")
    assert mistakes[1] == (
        f"{seed}:7:31: topics.orders.subscriptions.worker.ack_deadline_seconds: 5 must be between "
        "10 and 600 seconds"
    )
    assert len(mistakes) == 2


def test_a_missing_file_is_a_line(tmp_path: Path) -> None:
    missing = tmp_path / "nothing.yaml"
    done = run("emulator", "--port", "0", "--seed", str(missing))

    assert done.returncode == 1
    assert done.stderr == (
        f"pubsub-aio: {missing} has a mistake, nothing was created:\n"
        f"{missing}: cannot be read: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no emulator is named: give its --address HOST:PORT, or set PUBSUB_EMULATOR_HOST\n"),
        (
            ("--address", "127.0.0.1:1"),
            "no project is named: give --project NAME, or set PUBSUB_PROJECT_ID\n",
        ),
        (
            ("--address", "127.0.0.1:1", "--project", "shop"),
            "pubsub-aio: UNAVAILABLE: no emulator answers at 127.0.0.1:1 (Connection refused): "
            "start one, or name its address\n",
        ),
    ],
)
def test_an_export_that_cannot_be_is_a_line(arguments: tuple[str, ...], said: str) -> None:
    done = run("emulator", "export", *arguments)

    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_an_export_of_nothing_or_to_nowhere_is_a_line(seed: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "missing" / "file.yaml"
    with running("--port", "0", "--seed", str(seed)) as emulator:
        where = ("--address", emulator.address)
        empty = run("emulator", "export", *where, "--project", "other", "-o", str(nowhere))
        failed = run("emulator", "export", *where, "--project", "shop", "-o", str(nowhere))

    assert (empty.returncode, empty.stdout) == (1, "")
    assert (
        empty.stderr == f"{emulator.address} has nothing in project other: is it the right one?\n"
    )
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == (
        f"cannot write {nowhere}: No such file or directory; choose another with -o\n"
    )


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n\r\nhello", b""])
def test_another_server_is_not_taken_for_an_emulator(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        done = run("emulator", "export", "--address", address, "--project", "shop")
        thread.join(WITHIN)

    assert done.returncode == 1
    assert done.stderr.startswith(f"pubsub-aio: UNAVAILABLE: no emulator answers at {address} (")
    assert done.stderr.count("\n") == 1
