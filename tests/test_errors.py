"""The errors: what they are, say and carry."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from pubsub_aio import errors
from pubsub_aio.errors import (
    AlreadyExistsError,
    AlreadySettledError,
    Check,
    ClosedError,
    ConfigError,
    DataDirectoryError,
    DataLossError,
    DrainTimeoutError,
    ForkedError,
    InvalidAckIdError,
    InvalidRequestError,
    KeyPausedError,
    LeaseExpiredError,
    MissingExtraError,
    NoResponseFromTopicError,
    NotFoundError,
    PermissionDeniedError,
    PublisherStoppedError,
    PublishTimeoutError,
    PubSubError,
    QueueFullError,
    ReconnectError,
    SeedError,
    SeedMistake,
    ServiceError,
    SettleError,
    SparkGoneError,
    StartupError,
    StuckHandlerError,
    TakenBackError,
    UnavailableError,
    UnconfirmedError,
    UnsupportedError,
    WalError,
    WrongLoopError,
)

ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, BaseException)
]

EXAMPLES: list[PubSubError] = [
    ConfigError("why"),
    UnsupportedError("why"),
    MissingExtraError("Arrow batches", "spark"),
    WrongLoopError("why"),
    DataDirectoryError("why"),
    ForkedError("why"),
    ClosedError("why"),
    ServiceError("ABORTED", "why", retry_delay=1.5, ack_errors={"a": "b"}),
    NotFoundError("NOT_FOUND", "why"),
    AlreadyExistsError("ALREADY_EXISTS", "why"),
    PermissionDeniedError("PERMISSION_DENIED", "why"),
    InvalidRequestError("INVALID_ARGUMENT", "why"),
    UnavailableError("UNAVAILABLE", "why"),
    StartupError("projects/p/subscriptions/s", [Check("reach", "ok")]),
    ReconnectError("projects/p/subscriptions/s", attempts=3, seconds=600.0),
    PublishTimeoutError("projects/p/topics/t", seconds=5.0, attempts=2),
    NoResponseFromTopicError("projects/p/topics/t", "why", attempts=3),
    QueueFullError("max_messages", 10_000, "wait"),
    KeyPausedError("projects/p/topics/t", "key"),
    TakenBackError(),
    PublisherStoppedError(sent=True),
    DrainTimeoutError(60.0, queued=3, in_flight=2),
    SeedError("pubsub.yaml", [SeedMistake("pubsub.yaml", 1, 1, "topics", "why")], untold=1),
    SparkGoneError(),
    WalError("why"),
    DataLossError("why"),
    StuckHandlerError(20.0),
    SettleError("a" * 100, "why"),
    LeaseExpiredError("a" * 100),
    AlreadySettledError("a" * 100),
    InvalidAckIdError("a" * 100, "gone"),
    UnconfirmedError("a" * 100),
]


def test_every_error_has_an_example_here() -> None:
    assert {type(error) for error in EXAMPLES} | {PubSubError} == {*ALL}


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_ours_and_says_what_it_means(kind: type[Exception]) -> None:
    assert issubclass(kind, PubSubError)
    assert kind.__name__.endswith("Error")
    assert (kind.__doc__ or "").strip()


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (ConfigError, ValueError),
        (MissingExtraError, ImportError),
        (WrongLoopError, RuntimeError),
        (ForkedError, RuntimeError),
        (ClosedError, RuntimeError),
        (StuckHandlerError, TimeoutError),
    ],
)
def test_some_are_of_a_kind_that_python_knows(
    kind: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(kind, builtin)


@pytest.mark.parametrize(
    "kind",
    [
        *(NotFoundError, AlreadyExistsError, PermissionDeniedError),
        *(InvalidRequestError, UnavailableError),
    ],
)
def test_answers_of_the_service_can_be_caught_together(kind: type[ServiceError]) -> None:
    assert issubclass(kind, ServiceError)


def test_whoever_catches_what_is_wrong_with_a_log_catches_a_loss() -> None:
    assert issubclass(DataLossError, WalError)


@pytest.mark.parametrize(
    "kind", [LeaseExpiredError, AlreadySettledError, InvalidAckIdError, UnconfirmedError]
)
def test_failures_to_settle_can_be_caught_together(kind: type[SettleError]) -> None:
    assert issubclass(kind, SettleError)


def test_an_answer_of_the_service_carries_what_it_said() -> None:
    told = {"a": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    error = ServiceError("ABORTED", "try later", retry_delay=2.5, ack_errors=told)
    told.clear()

    assert str(error) == "ABORTED: try later"
    assert (error.code, error.message, error.retry_delay) == ("ABORTED", "try later", 2.5)
    assert error.ack_errors == {"a": "PERMANENT_FAILURE_INVALID_ACK_ID"}
    plain = ServiceError("ABORTED", "why")
    assert (plain.retry_delay, plain.ack_errors) == (None, {})


def test_a_missing_extra_says_how_to_install_it() -> None:
    error = MissingExtraError("Arrow batches", "spark")

    assert 'pip install "pubsub-aio[spark]"' in str(error)
    assert error.extra == "spark"


def test_a_failed_start_lists_what_was_checked() -> None:
    """R3: one error with each check, and what to do."""
    checks = [
        Check("server reachable", "ok"),
        Check("subscription exists", "failed", "create it"),
        Check("permission to consume", "not reached"),
    ]
    error = StartupError("projects/p/subscriptions/s", checks)

    assert str(error) == (
        "cannot subscribe to projects/p/subscriptions/s:"
        "\n  server reachable: ok"
        "\n  subscription exists: failed - create it"
        "\n  permission to consume: not reached"
    )
    assert (error.name, error.checks) == ("projects/p/subscriptions/s", tuple(checks))


def test_a_lost_connection_says_how_long_it_was_tried() -> None:
    error = ReconnectError("projects/p/subscriptions/s", attempts=12, seconds=600.4)

    assert "600 s" in str(error)
    assert "12 attempts" in str(error)
    assert (error.subscription, error.attempts, error.seconds) == (
        "projects/p/subscriptions/s",
        12,
        600.4,
    )


@pytest.mark.parametrize("error", [one for one in EXAMPLES if isinstance(one, SettleError)])
def test_a_failure_to_settle_names_its_delivery_shortly(error: SettleError) -> None:
    """G26: a later ack is reported as expired, with the delivery it was about."""
    assert error.ack_id == "a" * 100
    assert "a" * 20 in str(error)
    assert "a" * 21 not in str(error)


def test_a_refused_ack_id_carries_the_reason() -> None:
    error = InvalidAckIdError("id", "PERMANENT_FAILURE_INVALID_ACK_ID")

    assert error.reason == "PERMANENT_FAILURE_INVALID_ACK_ID"
    assert "PERMANENT_FAILURE_INVALID_ACK_ID" in str(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_can_be_raised_and_copied(error: PubSubError) -> None:
    """Process pools and Spark send errors from one process to another."""
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 - our own
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)
