"""`pubsub-aio dlq`, run as a user runs it, on a terminal and without one."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pubsub_aio.emulator import EmulatorThread
from tests.dlq_command import (
    SOURCE,
    TEA,
    WITHIN,
    emulator_with_dead_letters,
    environment,
    on_terminal,
    run,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def emulator() -> Iterator[EmulatorThread]:
    with emulator_with_dead_letters() as emulator:
        yield emulator


# List and peek


def test_list_shows_who_has_dead_letters_and_whose_they_are(emulator: EmulatorThread) -> None:
    """B1: what is where can be seen on a console."""
    plain = run(emulator, "list")
    counted = run(emulator, "list", "--count")
    status, shown = on_terminal(emulator, "list", "--count")

    assert (plain.returncode, plain.stderr) == (0, "")
    assert plain.stdout == "jobs.dead-letter\tjobs\nletters\tworker\n"
    assert counted.stdout == "jobs.dead-letter\tjobs\t1\nletters\tworker\t6\n"
    assert status == 0
    assert re.search(r"SUBSCRIPTION +DEAD LETTERS OF +WAITING", shown)
    assert re.search(r"letters +worker +6", shown)


def test_a_count_goes_no_further_than_it_looks(emulator: EmulatorThread) -> None:
    for _ in range(1_000):
        emulator.publish("buried", b"x")

    assert run(emulator, "list", "--count").stdout.endswith("letters\tworker\t1,000+\n")


def test_list_of_a_project_without_dead_letters_says_so(emulator: EmulatorThread) -> None:
    done = run(emulator, "list", "--project", "other")

    assert (done.returncode, done.stdout.count("\n")) == (0, 1)
    assert "no subscription of the project receives dead letters" in done.stdout


def test_peek_shows_what_a_dead_letter_says_and_obeys_none_of_it(
    emulator: EmulatorThread,
) -> None:
    done = run(emulator, "peek", "jobs.dead-letter")

    assert done.returncode == 0
    assert "just now, of jobs, delivered 3 times, returned 2 times" in done.stdout
    assert re.search(r"error +ValueError: it cannot be done", done.stdout)
    assert re.search(r"job +j1", done.stdout)
    assert re.search(r"data +\\x1b\[31mred", done.stdout)
    assert "\x1b" not in done.stdout
    assert done.stdout.endswith("\n1 message in jobs.dead-letter\n")
    assert emulator.backlog("jobs.dead-letter") == 1


def test_peek_obeys_nothing_that_a_dead_letter_says_of_where_it_comes_from(
    emulator: EmulatorThread,
) -> None:
    says = {
        f"{SOURCE}Subscription": "\x1b[2Jx\nfake  just now",
        f"{SOURCE}SubscriptionProject": "p",
    }
    emulator.publish("buried", b"", attributes={"evil": "", **says})
    done = run(emulator, "peek", "letters", "--filter", "attributes:evil")

    assert "just now, of \\x1b[2Jx fake  just now\n" in done.stdout
    assert "\x1b" not in done.stdout


def test_peek_says_that_there_may_be_more_than_can_be_held(emulator: EmulatorThread) -> None:
    emulator.create_subscription("large", "large")
    for _ in range(12):
        emulator.publish("large", bytes(9_900_000))
    some = run(emulator, "peek", "large", "--limit", "12")
    all_of_them = run(emulator, "peek", "large", "--limit", "5")

    said = (
        "11 messages in large; there may be more, but no more than 10,000 messages or 100 MiB can"
    )
    assert said in some.stdout
    assert "5 messages in large; there may be more, --limit shows" in all_of_them.stdout


def test_peek_shows_those_that_match_as_many_as_asked_for(emulator: EmulatorThread) -> None:
    done = run(emulator, "peek", "letters", "--filter", TEA, "--limit", "2")

    assert re.findall(r"data +(.*)", done.stdout) == ["order 1", "order 2"]
    assert "2 matching messages in letters; there may be more" in done.stdout


def test_peek_shows_all_data_if_told(emulator: EmulatorThread) -> None:
    emulator.publish("buried", b"many words " * 100, attributes={"long": ""})
    brief = run(emulator, "peek", "letters", "--filter", "attributes:long")
    whole = run(emulator, "peek", "letters", "--filter", "attributes:long", "--data")

    assert "... (1,100 bytes)" in brief.stdout
    assert brief.stdout.count("many words") < 10
    assert whole.stdout.count("many words") == 100


# Redrive


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_redrive_moves_what_matches_and_sums_up(emulator: EmulatorThread, transport: str) -> None:
    done = run(
        *(emulator, "redrive", "letters", "--to", "orders", "--filter", TEA),
        *("--transport", transport),
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "4 moved from letters to orders; 2 stay there: 2 not matching\n"
    assert len(emulator.messages("orders")) == 4
    assert emulator.backlog("letters") == 2


def test_redrive_of_a_queue_needs_no_topic(emulator: EmulatorThread) -> None:
    done = run(emulator, "redrive", "jobs.dead-letter")

    assert (done.returncode, done.stdout) == (0, "1 moved from jobs.dead-letter to jobs.return\n")
    assert emulator.backlog("jobs.return") == 1


def test_a_dry_run_moves_nothing(emulator: EmulatorThread) -> None:
    done = run(emulator, "redrive", "letters", "--to", "orders", "--dry-run", "--limit", "2")

    assert done.stdout == "2 would be moved from letters to orders; there may be more\n"
    assert (emulator.messages("orders"), emulator.backlog("letters")) == ([], 6)


def test_redrive_to_a_topic_that_fans_out_is_confirmed(emulator: EmulatorThread) -> None:
    emulator.create_subscription("audit", "orders")
    arguments = ("redrive", "letters", "--to", "orders", "--limit", "2")

    alone = run(emulator, *arguments)
    no, refused = on_terminal(emulator, *arguments, answer="\n")
    assert (alone.returncode, no, emulator.messages("orders")) == (1, 1, [])
    assert "add --yes" in alone.stderr
    assert re.search(r"orders has 2 subscriptions.*\r\n  audit\r\n  worker\r\n", refused)
    assert "nothing was done" in refused

    yes, moved = on_terminal(emulator, *arguments, answer="y\n")
    told = run(emulator, *arguments, "--yes")
    assert (yes, told.returncode, len(emulator.messages("orders"))) == (0, 0, 4)
    assert "2 moved" in moved


def test_progress_is_shown_on_a_terminal(emulator: EmulatorThread) -> None:
    status, shown = on_terminal(emulator, "redrive", "letters", "--to", "orders", "--rate", "5")

    assert status == 0
    assert "━" in shown
    assert "3 moved" in shown
    assert shown.rstrip().endswith("6 moved from letters to orders")


def test_what_came_back_while_it_ran_is_told(emulator: EmulatorThread) -> None:
    ended = threading.Event()

    def fail() -> None:
        done: set[str] = set()
        while not ended.wait(0.02):
            for one in emulator.messages("orders"):
                if one.message_id not in done:
                    done.add(one.message_id)
                    emulator.publish("buried", one.data, attributes=one.attributes)

    worker = threading.Thread(target=fail)
    worker.start()
    try:
        done = run(emulator, "redrive", "letters", "--to", "orders")
    finally:
        ended.set()
        worker.join()

    assert done.returncode == 0
    assert done.stdout == (
        "6 moved from letters to orders; 6 stay there: 6 came back while this ran\n"
    )


def test_what_fails_is_told_and_the_status_says_so(emulator: EmulatorThread) -> None:
    emulator.faults.fail("Publish", "PERMISSION_DENIED", times=1_000, message="not for you")
    done = run(emulator, "redrive", "letters", "--to", "orders", "--limit", "1")

    assert done.returncode == 1
    assert "0 moved from letters to orders" in done.stdout
    assert "PERMISSION_DENIED: not for you" in done.stderr
    assert "Traceback" not in done.stderr
    assert emulator.backlog("letters") == 6


def test_a_message_that_stays_because_it_failed_is_told_and_the_status_says_so(
    emulator: EmulatorThread,
) -> None:
    emulator.publish("buried", b"full", attributes={f"a{n}": "" for n in range(100)})
    done = run(emulator, "redrive", "letters", "--to", "orders")

    assert (done.returncode, done.stderr) == (1, "")
    first, last = done.stdout.splitlines()
    assert first.startswith("first error: ")
    assert last == "6 moved from letters to orders; 1 stays there: 1 failed"


# Purge


def test_purge_asks_with_how_many_match(emulator: EmulatorThread) -> None:
    no, refused = on_terminal(emulator, "purge", "letters", "--filter", TEA, answer="n\n")
    assert (no, emulator.backlog("letters")) == (1, 6)
    assert "Delete 4 matching messages from letters? [y/N]" in refused

    yes, deleted = on_terminal(emulator, "purge", "letters", "--filter", TEA, answer="y\n")
    assert (yes, emulator.backlog("letters")) == (0, 2)
    assert "4 deleted from letters" in deleted


def test_purge_deletes_no_more_than_was_confirmed(emulator: EmulatorThread) -> None:
    def publish() -> None:
        emulator.publish("buried", b"late")

    status, shown = on_terminal(emulator, "purge", "letters", answer="y\n", meanwhile=publish)

    assert (status, emulator.backlog("letters")) == (0, 1)
    assert "6 deleted from letters\r\n" in shown


def test_purge_of_nothing_asks_nothing(emulator: EmulatorThread) -> None:
    status, shown = on_terminal(emulator, "purge", "letters", "--filter", "attributes:missing")

    assert status == 0
    assert "0 matching messages in letters, there is nothing to delete" in shown


def test_purge_without_a_terminal_needs_a_yes(emulator: EmulatorThread) -> None:
    refused = run(emulator, "purge", "letters")
    assert (refused.returncode, refused.stdout, emulator.backlog("letters")) == (1, "", 6)
    assert re.fullmatch(r"pubsub-aio: .*add --yes.*\n", refused.stderr)

    done = run(emulator, "purge", "letters", "--yes", "--limit", "5")
    assert (done.returncode, done.stdout) == (0, "5 deleted from letters; there may be more\n")
    assert emulator.backlog("letters") == 1


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["peek", "missing"], 1, "there is no projects/shop/subscriptions/missing"),
        (["redrive", "letters"], 1, "--to: must be given"),
        (["redrive", "letters", "--to", "a/b"], 2, "--to: must be NAME or"),
        (["redrive", "letters", "--to", "missing"], 1, "--to: there is no"),
        (["redrive", "letters", "--to", "buried"], 1, "--to: the dead letters come from"),
        (["purge", "missing", "--yes"], 1, "there is no projects/shop/subscriptions/missing"),
        (["peek", "letters", "--filter", "x"], 2, "--filter: invalid filter at character 1"),
        (["peek", "letters", "--limit", "0"], 2, "'0' is not a number of messages"),
        (["redrive", "letters", "--rate", "0"], 2, "'0' is not a number of messages a second"),
        (["peek", "letters", "--idle", "-1"], 2, "--idle: '-1' is not a number of seconds"),
        (["peek", "a/b"], 2, "subscription: must be NAME or"),
        (["peek"], 2, "SUBSCRIPTION"),
    ],
)
def test_mistakes_are_said_in_a_line(
    emulator: EmulatorThread, arguments: list[str], status: int, said: str
) -> None:
    done = run(emulator, *arguments)

    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    if status == 1:
        assert done.stderr.count("\n") == 1


def test_without_rich_it_says_what_to_install(emulator: EmulatorThread) -> None:
    program = (
        "import sys; sys.modules['rich'] = None; from pubsub_aio.cli import main;"
        "sys.exit(main(['dlq', 'list']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(emulator),
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )

    assert done.returncode == 1
    assert 'pip install "pubsub-aio[cli]"' in done.stderr
