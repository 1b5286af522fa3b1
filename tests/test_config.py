"""Settings: their defaults, and what they refuse."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub_aio import FlowControl, ShutdownPolicy, StreamPolicy
from pubsub_aio.config import check
from pubsub_aio.errors import ConfigError, PubSubError

# Defaults


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("max_messages", 1_000),
        ("max_bytes", 100 * 1024 * 1024),
        ("resume_threshold", 0.8),
        ("max_request_batch_size", 100),
        ("max_request_batch_latency", 0.01),
        ("max_lease_duration", 3_600.0),
        ("max_requests", 100),
        ("min_duration_per_lease_extension", 10.0),
        ("max_duration_per_lease_extension", 600.0),
    ],
)
def test_the_defaults_of_a_flow_control(name: str, default: float) -> None:
    """G8, G9, G10, G11, G12, G13, G14: one default each, as documented."""
    assert getattr(FlowControl(), name) == default
    assert len(dataclasses.fields(FlowControl)) == 9


def test_the_seeds_example_is_accepted() -> None:
    """G8, G10, G11, G12, G13: with the seed's own values."""
    flow = FlowControl(
        max_messages=1,
        resume_threshold=0.8,
        max_request_batch_size=1,
        max_request_batch_latency=0.1,
        max_lease_duration=10,
    )

    assert dataclasses.asdict(flow) == {
        "max_messages": 1,
        "max_bytes": 100 * 1024 * 1024,
        "resume_threshold": 0.8,
        "max_request_batch_size": 1,
        "max_request_batch_latency": 0.1,
        "max_lease_duration": 10,
        "max_requests": 100,
        "min_duration_per_lease_extension": 10.0,
        "max_duration_per_lease_extension": 600.0,
    }


def test_max_requests_is_accepted_and_warned_about() -> None:
    """G14: it never had an effect; the warning points at who set it."""
    with pytest.warns(UserWarning, match="max_requests has no effect") as caught:
        flow = FlowControl(max_requests=7)

    assert [warning.filename for warning in caught] == [__file__]
    assert flow.max_requests == 7
    assert flow.max_outstanding_messages == FlowControl().max_outstanding_messages


def test_the_defaults_of_a_shutdown() -> None:
    assert dataclasses.asdict(ShutdownPolicy()) == {
        "mode": "wait",
        "timeout": 30.0,
        "flush_timeout": 5.0,
    }


def test_the_defaults_of_streams() -> None:
    """R7, R27: pings every 30 s that may take 15 s, and delays that grow."""
    assert dataclasses.asdict(StreamPolicy()) == {
        "streams": 1,
        "ping_interval": 30.0,
        "ping_timeout": 15.0,
        "first_delay": 0.1,
        "max_delay": 30.0,
        "reconnect_budget": 600.0,
    }


@pytest.mark.parametrize("kind", [FlowControl, ShutdownPolicy, StreamPolicy])
def test_settings_are_values(kind: Any) -> None:
    one, other = kind(), kind()

    assert one == other
    assert hash(one) == hash(other)
    name = dataclasses.fields(kind)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, name, getattr(one, name))
    with pytest.raises(TypeError):
        kind(1)
    with pytest.raises(TypeError, match="unknown"):
        kind(unknown=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dataclasses.replace(one) == one


def test_the_server_is_told_what_may_be_held_at_once() -> None:
    """G16: the seed's peak, in whole messages."""
    assert FlowControl().max_outstanding_messages == 900
    flow = FlowControl(max_messages=1, max_request_batch_size=1)
    assert flow.max_outstanding_messages == 1
    flow = FlowControl(max_messages=7, resume_threshold=0.5, max_request_batch_size=2)
    assert flow.max_outstanding_messages == 5


@given(
    messages=st.integers(1, 10**6),
    threshold=st.floats(0.001, 1.0),
    batch=st.integers(1, 10**4),
)
def test_what_the_server_is_told_is_the_peak(messages: int, threshold: float, batch: int) -> None:
    """G16: never above the seed's formula, and always room for a round."""
    flow = FlowControl(
        max_messages=messages, resume_threshold=threshold, max_request_batch_size=batch
    )

    assert batch <= flow.max_outstanding_messages <= messages * threshold + batch
    assert flow.max_outstanding_messages - batch > messages * threshold - 1


# What is refused

NAN = math.nan
INF = math.inf

refused: list[tuple[Any, str, list[object]]] = [
    (FlowControl, "max_messages", [0, -1, 1.5, "10", None, True, INF, NAN]),
    (FlowControl, "max_bytes", [0, -1, 1e6, "10", None, False]),
    (FlowControl, "resume_threshold", [0, 0.0, -0.1, 1.01, 80, "0.8", None, True, NAN, INF]),
    (FlowControl, "max_request_batch_size", [0, -1, 2.0, "1", None, True]),
    (FlowControl, "max_request_batch_latency", [-0.001, "1", None, True, NAN, -INF]),
    (FlowControl, "max_lease_duration", [0, -1, "1", None, True, NAN]),
    (FlowControl, "min_duration_per_lease_extension", [0, 9.9, 600.1, "60", None, NAN, True]),
    (FlowControl, "max_duration_per_lease_extension", [0, 9.9, 600.1, "60", None, NAN, INF]),
    (ShutdownPolicy, "mode", ["", "WAIT", "drop", None, 1, [], {}]),
    (ShutdownPolicy, "timeout", [-1, "1", None, True, NAN]),
    (ShutdownPolicy, "flush_timeout", [-1, "1", None, True, NAN]),
    (StreamPolicy, "streams", [0, -1, 101, 1.0, "1", None, True]),
    (StreamPolicy, "ping_interval", [0, -1, "1", None, True, NAN]),
    (StreamPolicy, "ping_timeout", [0, -1, "1", None, True, NAN]),
    (StreamPolicy, "first_delay", [0, -1, "1", None, True, NAN]),
    (StreamPolicy, "max_delay", [0.05, -1, "1", None, True, NAN]),
    (StreamPolicy, "reconnect_budget", [-1, "1", None, True, NAN]),
]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(kind, name, value) for kind, name, values in refused for value in values],
)
def test_a_bad_setting_is_refused_by_its_name(kind: Any, name: str, value: object) -> None:
    """One error, which says what it was and what can be."""
    with pytest.raises(ConfigError) as caught:
        kind(**{name: value})

    assert str(caught.value).startswith(f"{name} must be ")
    assert str(caught.value).endswith(f"not {value!r}")


def test_every_setting_is_checked() -> None:
    checked = {(kind, name) for kind, name, _ in refused}
    for kind in (FlowControl, ShutdownPolicy, StreamPolicy):
        for field in dataclasses.fields(kind):
            assert (kind, field.name) in checked or field.name == "max_requests"


def test_an_extension_cannot_be_at_least_more_than_at_most() -> None:
    with pytest.raises(ConfigError, match="min_duration_per_lease_extension must not be more"):
        FlowControl(min_duration_per_lease_extension=100, max_duration_per_lease_extension=99.5)
    flow = FlowControl(min_duration_per_lease_extension=42, max_duration_per_lease_extension=42)

    assert flow.min_duration_per_lease_extension == flow.max_duration_per_lease_extension


def test_a_config_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="streams"):
        StreamPolicy(streams=0)
    with pytest.raises(PubSubError):
        StreamPolicy(streams=0)


@pytest.mark.parametrize(
    "setting",
    [
        FlowControl(max_messages=1, max_bytes=1, max_request_batch_size=1),
        FlowControl(resume_threshold=1.0),
        FlowControl(resume_threshold=1),
        FlowControl(resume_threshold=1e-9),
        FlowControl(max_request_batch_latency=0),
        FlowControl(max_request_batch_latency=INF),
        FlowControl(max_lease_duration=INF),
        FlowControl(max_lease_duration=1e-9),
        ShutdownPolicy(mode="nack", timeout=0, flush_timeout=0),
        ShutdownPolicy(timeout=INF),
        StreamPolicy(streams=100),
        StreamPolicy(first_delay=5, max_delay=5),
        StreamPolicy(ping_interval=INF, ping_timeout=INF, reconnect_budget=INF),
        StreamPolicy(reconnect_budget=0),
    ],
)
def test_the_bounds_themselves_are_accepted(setting: object) -> None:
    assert setting is not None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((5, 10), "x must be at least 10, not 5"),
        ((5, 10, 20), "x must be at least 10 and at most 20, not 5"),
        ((21, 10, 20), "x must be at least 10 and at most 20, not 21"),
        ((math.nan, 0), "x must be at least 0, not nan"),
    ],
)
def test_a_number_out_of_bounds_says_which(arguments: tuple[float, ...], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check("x", *arguments)

    assert str(caught.value) == text


def test_what_must_be_above_and_whole_says_so() -> None:
    with pytest.raises(ConfigError, match=r"^x must be more than 0, not 0$"):
        check("x", 0, 0, above=True)
    with pytest.raises(ConfigError, match=r"^x must be a whole number, not 1\.5$"):
        check("x", 1.5, 0, whole=True)
    check("x", 10**400, 1, whole=True)
