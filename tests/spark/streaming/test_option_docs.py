"""The tables of options in the docs are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pubsub_aio.spark.streaming import option_values, options, sink_options
from pubsub_aio.spark.streaming.option_values import ConnectionOptions, Given

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "reference" / "spark.md").read_text()
NO_DEFAULT = ("needed", "none", "the environment's")

SOURCE = {
    "maxRowsPerTrigger": "max_rows",
    "maxBytesPerTrigger": "max_bytes",
    "minRowsPerTrigger": "min_rows",
    "maxTriggerDelay": "max_delay",
    "numPartitions": "partitions",
    "numFetchPartitions": "fetch_partitions",
    "maxFetchPeriod": "fetch_period",
    "dedupeWindow": "dedupe_window",
    "dedupeMaxIds": "dedupe_max_ids",
    "maxOutstandingMessages": "max_outstanding_messages",
    "maxOutstandingBytes": "max_outstanding_bytes",
    "createSubscription": "create",
    "deleteSubscriptionOnStreamStop": "delete_on_stop",
    "failOnDataLoss": "fail_on_data_loss",
    "availableNowIdle": "available_now_idle",
}
SINK = {
    "dataColumn": "data_column",
    "attributesColumn": "attributes_column",
    "orderingKeyColumn": "ordering_key_column",
    "idAttribute": "id_attribute",
    "maxOutstandingMessages": "max_outstanding_messages",
    "maxOutstandingBytes": "max_outstanding_bytes",
    "publishTimeout": "publish_timeout",
}


def table(title: str, text: str = REFERENCE) -> dict[str, str]:
    """The options of a section, and the defaults that it tells."""
    section = re.split(r"\n##+ ", text.split(f"# {title}\n", 1)[1], maxsplit=1)[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE)
    names = [name for name, _ in rows]
    assert len(names) == len(set(names)) > 0
    return dict(rows)


def as_told(name: str, told: str, value: object) -> object:
    """What a default in the docs means, if it is of the kind of that value."""
    plain = told.removeprefix("`").removesuffix("`")
    given = Given({name: plain}, [name])
    if isinstance(value, bool):
        return given.flag(name, default=not value)
    if isinstance(value, float):
        return given.seconds(name, -1.0)
    if isinstance(value, int):
        return given.size(name, -1) if "Bytes" in name else given.whole(name, -1, least=0)
    return plain


@pytest.mark.parametrize(
    ("title", "names"),
    [("Options of the source", options.NAMES), ("Options of the sink", sink_options.NAMES)],
)
def test_each_option_is_documented_and_no_other(title: str, names: tuple[str, ...]) -> None:
    connection = option_values.CONNECTION

    assert tuple(table(title)) == tuple(name for name in names if name not in connection)
    assert tuple(table("Options of the connection")) == connection


@pytest.mark.parametrize(
    ("title", "defaults", "fields"),
    [
        ("Options of the source", options.DEFAULTS, SOURCE),
        ("Options of the sink", sink_options.DEFAULTS, SINK),
        ("Options of the connection", ConnectionOptions(), {"transport": "transport"}),
    ],
)
def test_defaults_are_as_documented(title: str, defaults: object, fields: dict[str, str]) -> None:
    told = table(title)

    assert {name for name, default in told.items() if default not in NO_DEFAULT} == {*fields}
    for name, field in fields.items():
        value = getattr(defaults, field)
        assert as_told(name, told[name], value) == value, name


def test_defaults_are_the_same_in_the_guide() -> None:
    guide = (DOCS / "how-to" / "stream-into-spark.md").read_text()
    reference = table("Options of the source")

    for name, default in table("How much a batch has", guide).items():
        assert reference[name] == default, name


@pytest.mark.parametrize("page", ["stream-into-spark.md", "run-on-a-cluster.md"])
def test_options_that_are_shown_exist(page: str) -> None:
    text = (DOCS / "how-to" / page).read_text()
    sparks = {*option_values.SPARKS_OWN}
    ours = {name.lower() for name in (*options.NAMES, *sink_options.NAMES)}

    shown = {name.lower() for name in re.findall(r'\.?option\(\s*"(\w+)"', text)}

    assert shown - ours - sparks == set()


@pytest.mark.parametrize(
    ("title", "others"),
    [
        ("Coming from Databricks' connector", options.DATABRICKS),
        ("Coming from Kafka's source", options.KAFKA),
    ],
)
def test_names_of_others_are_told(title: str, others: dict[str, str]) -> None:
    guide = (DOCS / "how-to" / "stream-into-spark.md").read_text()
    section = guide.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]

    for name in others:
        assert f"`{name}`" in section, name
