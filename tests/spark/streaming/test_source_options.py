"""The options of the source: what they mean, and what is said of those that cannot be."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pubsub_aio.errors import ConfigError
from pubsub_aio.spark.streaming.option_values import ConnectionOptions
from pubsub_aio.spark.streaming.options import NAMES, OTHERS, SourceOptions, source_options

NEEDED = {"subscription": "worker", "walLocation": "/wal"}
LEAST = SourceOptions(subscription="worker", wal_location="/wal", connection=ConnectionOptions())
MIB = 1 << 20


def parsed(**options: str) -> SourceOptions:
    return source_options(NEEDED | options)


def mistake(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        source_options(options)
    return str(caught.value)


def test_two_options_are_enough() -> None:
    assert parsed() == LEAST
    assert parsed() == SourceOptions(
        subscription="worker",
        wal_location="/wal",
        connection=ConnectionOptions(),
        max_rows=500_000,
        max_bytes=512 * MIB,
        min_rows=1,
        max_delay=900.0,
        partitions=0,
        fetch_partitions=0,
        fetch_period=2.0,
        dedupe_window=1_200.0,
        dedupe_max_ids=50_000_000,
        dedupe_attribute="",
        event_time_attribute="",
        max_outstanding_messages=200_000,
        max_outstanding_bytes=128 * MIB,
        topic="",
        create=False,
        delete_on_stop=False,
        start_at=None,
        fail_on_data_loss=True,
        available_now_idle=5.0,
        idle_is_given=False,
    )


GIVEN: list[tuple[dict[str, str], dict[str, Any]]] = [
    (
        {"subscription": " projects/p/subscriptions/s "},
        {"subscription": "projects/p/subscriptions/s"},
    ),
    ({"walLocation": "gs://b/f"}, {"wal_location": "gs://b/f"}),
    ({"maxRowsPerTrigger": "10"}, {"max_rows": 10}),
    ({"maxBytesPerTrigger": "10"}, {"max_bytes": 10}),
    ({"maxBytesPerTrigger": "10 kb"}, {"max_bytes": 10 << 10}),
    ({"maxBytesPerTrigger": "10MiB"}, {"max_bytes": 10 << 20}),
    ({"maxBytesPerTrigger": "2g"}, {"max_bytes": 2 << 30}),
    ({"minRowsPerTrigger": "10"}, {"min_rows": 10}),
    ({"maxTriggerDelay": "0"}, {"max_delay": 0.0}),
    ({"maxTriggerDelay": "1.5"}, {"max_delay": 1.5}),
    ({"maxTriggerDelay": "15m"}, {"max_delay": 900.0}),
    ({"maxTriggerDelay": "500ms"}, {"max_delay": 0.5}),
    ({"maxTriggerDelay": "2 Hours"}, {"max_delay": 7_200.0}),
    ({"numPartitions": "0"}, {"partitions": 0}),
    ({"numPartitions": "7"}, {"partitions": 7}),
    ({"numFetchPartitions": "2"}, {"fetch_partitions": 2}),
    ({"maxFetchPeriod": "10 seconds"}, {"fetch_period": 10.0}),
    ({"dedupeWindow": "1d"}, {"dedupe_window": 86_400.0}),
    ({"dedupeWindow": "10 min"}, {"dedupe_window": 600.0}),
    ({"dedupeMaxIds": "5"}, {"dedupe_max_ids": 5}),
    ({"dedupeAttribute": "order_id"}, {"dedupe_attribute": "order_id"}),
    ({"eventTimeAttribute": "at"}, {"event_time_attribute": "at"}),
    ({"maxOutstandingMessages": "5"}, {"max_outstanding_messages": 5}),
    ({"maxOutstandingBytes": "5m"}, {"max_outstanding_bytes": 5 << 20}),
    ({"createSubscription": "TRUE", "topic": "t"}, {"create": True, "topic": "t"}),
    ({"createSubscription": "false"}, {"create": False}),
    (
        {"createSubscription": "true", "topic": "t", "deleteSubscriptionOnStreamStop": "true"},
        {"create": True, "topic": "t", "delete_on_stop": True},
    ),
    (
        {"startingTimestamp": "2026-01-31T12:00:00+01:00"},
        {"start_at": datetime(2026, 1, 31, 11, tzinfo=UTC)},
    ),
    (
        {"startingTimestamp": "2026-01-31T12:00:00Z"},
        {"start_at": datetime(2026, 1, 31, 12, tzinfo=UTC)},
    ),
    ({"startingSnapshot": "before"}, {"start_at": "before"}),
    ({"failOnDataLoss": "false"}, {"fail_on_data_loss": False}),
    ({"availableNowIdle": "1s"}, {"available_now_idle": 1.0, "idle_is_given": True}),
    ({"project": "p"}, {"connection": ConnectionOptions(project="p")}),
    ({"endpoint": "http://h:1"}, {"connection": ConnectionOptions(endpoint="http://h:1")}),
    ({"transport": "rest"}, {"connection": ConnectionOptions(transport="rest")}),
    ({"transport": "grpc"}, {}),
    ({"credentialsFile": "/k"}, {"connection": ConnectionOptions(credentials_file="/k")}),
    ({"credentials": "e30="}, {"connection": ConnectionOptions(credentials="e30=")}),
]


@pytest.mark.parametrize(("options", "changed"), GIVEN)
def test_each_option(options: dict[str, str], changed: dict[str, Any]) -> None:
    assert parsed(**options) == replace(LEAST, **changed)


def test_every_option_has_an_example_here() -> None:
    assert {name for options, _ in GIVEN for name in options} == {*NAMES}


@pytest.mark.parametrize("change", [str.lower, str.upper])
def test_names_are_taken_whatever_their_case(change: Any) -> None:
    """Spark hands them over in lower case."""
    options = {change(name): value for name, value in (NEEDED | {"maxRowsPerTrigger": "7"}).items()}

    assert source_options(options).max_rows == 7


@pytest.mark.parametrize("name", ["path", "checkpointLocation", "queryName", "outputMode"])
def test_what_spark_adds_is_passed_over(name: str) -> None:
    assert parsed(**{name: "x"}) == LEAST


WHOLE = "{} must be a whole number, not {!r}"
DURATION = "{} must be a duration, such as 30s or 10 minutes, not {!r}"
SIZE = "{} must be a number of bytes, such as 512m or 1g, not {!r}"
FLAG = "{} must be true or false, not {!r}"

WHOLE_NUMBERS = (
    *("maxRowsPerTrigger", "minRowsPerTrigger", "dedupeMaxIds", "maxOutstandingMessages"),
    *("numPartitions", "numFetchPartitions"),
)
DURATIONS = ("maxTriggerDelay", "maxFetchPeriod", "dedupeWindow", "availableNowIdle")
SIZES = ("maxBytesPerTrigger", "maxOutstandingBytes")
FLAGS = ("createSubscription", "deleteSubscriptionOnStreamStop", "failOnDataLoss")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(
            (name, bad, WHOLE)
            for name in WHOLE_NUMBERS
            for bad in ("", "many", "1.5", "1e3", "9" * 30)
        ),
        *(
            (name, bad, DURATION)
            for name in DURATIONS
            for bad in ("", "soon", "-1s", "1 year", "s")
        ),
        *((name, bad, SIZE) for name in SIZES for bad in ("", "big", "-1", "1.5g", "1t")),
        *((name, bad, FLAG) for name in FLAGS for bad in ("", "yes", "1")),
    ],
)
def test_a_value_that_cannot_be_is_named_with_an_example(
    name: str, value: str, message: str
) -> None:
    assert mistake(NEEDED | {name: value}) == message.format(name, value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *((name, "0", "must be at least 1, not 0") for name in WHOLE_NUMBERS[:4]),
        *((name, "-1", "must be at least 0, not -1") for name in WHOLE_NUMBERS[4:]),
        *((name, "0", "must be more than 0, not 0.0") for name in DURATIONS[1:]),
        *((name, "0", "must be at least 1, not 0") for name in SIZES),
    ],
)
def test_a_number_out_of_bounds_is_named_with_them(name: str, value: str, message: str) -> None:
    assert mistake(NEEDED | {name: value}) == f"{name} {message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transport": "http"}, "transport must be grpc or rest, not 'http'"),
        (
            {"startingSnapshot": "projects/p/topics/t"},
            "startingSnapshot must be NAME or projects/PROJECT/snapshots/NAME, not "
            "'projects/p/topics/t'",
        ),
        (
            {"createSubscription": "true", "topic": "p/t"},
            "topic must be NAME or projects/PROJECT/topics/NAME, not 'p/t'",
        ),
        (
            {"startingTimestamp": "yesterday"},
            "startingTimestamp must be a time with its zone, such as 2026-01-31T12:00:00Z, not "
            "'yesterday'",
        ),
        (
            {"startingTimestamp": "2026-01-31T12:00:00"},
            "startingTimestamp must be a time with its zone, such as 2026-01-31T12:00:00Z, not "
            "'2026-01-31T12:00:00'",
        ),
        (
            {"startingTimestamp": "2026-01-31T12:00:00Z", "startingSnapshot": "s"},
            "startingSnapshot: give it or startingTimestamp, not both",
        ),
        (
            {"credentials": "e30=", "credentialsFile": "/key"},
            "credentials: give it or credentialsFile, not both",
        ),
        (
            {"createSubscription": "true"},
            "topic is missing: createSubscription needs the topic to subscribe to",
        ),
        ({"topic": "t"}, "topic goes with createSubscription; a subscription knows its topic"),
        (
            {"deleteSubscriptionOnStreamStop": "true"},
            "deleteSubscriptionOnStreamStop goes with createSubscription: what the query did not "
            "create it does not delete",
        ),
        (
            {"minRowsPerTrigger": "2000", "maxRowsPerTrigger": "1000"},
            "minRowsPerTrigger must be at most maxRowsPerTrigger, 1,000, not 2,000",
        ),
        (
            {"minRowsPerTrigger": "500001"},
            "minRowsPerTrigger must be at most maxRowsPerTrigger, 500,000, not 500,001",
        ),
    ],
)
def test_options_that_do_not_go_together_are_told(options: dict[str, str], message: str) -> None:
    assert mistake(NEEDED | options) == message


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("subscription", "projects/PROJECT/subscriptions/NAME"),
        ("walLocation", "gs://BUCKET/FOLDER"),
    ],
)
@pytest.mark.parametrize("empty", [{}, {"subscription": " ", "walLocation": ""}])
def test_what_is_missing_is_asked_for(name: str, example: str, empty: dict[str, str]) -> None:
    others = {other: value for other, value in NEEDED.items() if other != name}

    assert mistake(empty | others) == (f'{name} is missing: give .option("{name}", "{example}")')


@pytest.mark.parametrize("name", OTHERS)
def test_names_of_databricks_and_kafka_hint_at_ours(name: str) -> None:
    """Spark hands them over in lower case."""
    for spelled in (name, name.lower()):
        assert mistake(NEEDED | {spelled: "x"}) == (
            f"{name}: there is no such option here: {OTHERS[name]}"
        )


def test_what_is_hinted_at_is_there() -> None:
    hinted = {*re.findall(r"give (\w+)", " ".join(OTHERS.values()))}

    assert {"subscription", "maxRowsPerTrigger", "credentialsFile"} <= hinted <= {*NAMES}


@pytest.mark.parametrize("kind", ["x/y", "projects/p/topics/t", "projects/p/subscriptions/", "/"])
def test_a_malformed_subscription_is_told_before_anything_happens(kind: str) -> None:
    assert mistake(NEEDED | {"subscription": kind}) == (
        f"subscription must be NAME or projects/PROJECT/subscriptions/NAME, not {kind!r}"
    )


@pytest.mark.parametrize("address", ["localhost:8085", "127.0.0.1:1", "[::1]:8085"])
def test_an_emulator_without_its_scheme_is_hinted_at(address: str) -> None:
    assert mistake(NEEDED | {"endpoint": address}) == (
        f"endpoint: an emulator on this machine is http://{address}, not {address!r}"
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("maxRowsPerTriger", "maxRowsPerTrigger"),
        ("subscripton", "subscription"),
        ("wallocations", "walLocation"),
        ("dedupwindow", "dedupeWindow"),
        ("numPartition", "numPartitions"),
    ],
)
def test_an_option_that_there_is_not_suggests_the_nearest(name: str, meant: str) -> None:
    assert mistake(NEEDED | {name: "1"}) == (
        f"{name}: there is no such option; did you mean {meant}?"
    )


def test_an_option_like_no_other_has_all_listed() -> None:
    assert mistake(NEEDED | {"zzz": "1"}) == (
        f"zzz: there is no such option; there are {', '.join(NAMES)}"
    )


# Credentials

DEPRECATED = pytest.mark.filterwarnings("ignore:The load_credentials_from_dict:DeprecationWarning")


def key() -> dict[str, str]:
    return {
        "type": "authorized_user",
        "client_id": "id",
        "client_secret": "secret",
        "refresh_token": "token",
    }


@DEPRECATED
def test_credentials_are_read_where_they_are_used(tmp_path: Path) -> None:
    (file := tmp_path / "key.json").write_text(json.dumps(key()))
    inline = base64.b64encode(json.dumps(key()).encode()).decode()

    for options in ({"credentialsFile": str(file)}, {"credentials": inline}):
        arguments = parsed(project="p", **options).connection.arguments()
        assert arguments.pop("credentials").client_id == "id"
        assert arguments == {"project": "p", "endpoint": None, "transport": "grpc"}


@DEPRECATED
@pytest.mark.parametrize("content", ["", "secret", "{}", '{"type": "secret"}', "[]"])
def test_credentials_that_are_no_key_are_told_without_their_content(
    content: str, tmp_path: Path
) -> None:
    (file := tmp_path / "key.json").write_text(content)
    inline = base64.b64encode(content.encode()).decode() or "-"

    with pytest.raises(ConfigError) as caught:
        parsed(credentials=inline).connection.arguments()
    assert str(caught.value) == (
        "credentials cannot be used (it is no key): give a JSON key in base64"
    )
    assert caught.value.__cause__ is None
    with pytest.raises(
        ConfigError, match=r"^credentialsFile cannot be used \(.*: give the path of a JSON key$"
    ):
        parsed(credentialsFile=str(file)).connection.arguments()


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"FileNotFoundError: .*'/none/key.json'\): give the path"
    ):
        parsed(credentialsFile="/none/key.json").connection.arguments()
