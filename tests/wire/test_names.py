"""Names of resources, short and full."""

from __future__ import annotations

import pytest

from pubsub_aio._wire.names import DELETED_TOPIC, Kind, full_name, project_name
from pubsub_aio.errors import ConfigError

KINDS: list[Kind] = ["topics", "subscriptions", "snapshots", "schemas"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_name_takes_the_project(kind: Kind) -> None:
    assert full_name("mine", kind, "shop") == f"projects/shop/{kind}/mine"


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_name_stays_as_it_is(kind: Kind) -> None:
    name = f"projects/other/{kind}/mine"

    assert full_name(name, kind, "shop") == name
    assert full_name(name, kind, None) == name


def test_a_deleted_topic_is_a_topic_only() -> None:
    assert full_name(DELETED_TOPIC, "topics", None) == "_deleted-topic_"
    with pytest.raises(ConfigError, match=r"^project: not known"):
        full_name(DELETED_TOPIC, "subscriptions", None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_name_without_a_project_says_how_to_give_one(kind: Kind) -> None:
    with pytest.raises(ConfigError) as refused:
        full_name("mine", kind, None)

    assert str(refused.value) == (
        "project: not known; name it as project, set GOOGLE_CLOUD_PROJECT, "
        f"or use the full name projects/PROJECT/{kind}/NAME"
    )


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "mine/",
        "/mine",
        "topics/mine",
        "projects/shop/topics",
        "projects/shop/topics/",
        "projects//topics/mine",
        "projects/shop/topics/mine/more",
        "projects/shop/subscriptions/mine",
        "project/shop/topics/mine",
        "//pubsub.googleapis.com/projects/shop/topics/mine",
        None,
        7,
        b"mine",
    ],
)
def test_what_does_not_name_a_topic_is_refused_with_the_right_form(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        full_name(name, "topics", "shop")

    assert str(refused.value) == (
        f"topic: must be NAME or projects/PROJECT/topics/NAME, not {name!r}"
    )


def test_a_project_is_named_by_its_id() -> None:
    assert project_name("example.com:shop") == "projects/example.com:shop"


@pytest.mark.parametrize("project", ["", "projects/shop", 7])
def test_what_is_not_a_projects_id_is_refused(project: str) -> None:
    with pytest.raises(ConfigError, match=r"^project: must be an id"):
        project_name(project)
    with pytest.raises(ConfigError, match=r"^project: must be an id"):
        full_name("mine", "topics", project)


def test_a_project_that_is_not_known_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"name it as project, or set GOOGLE_CLOUD_PROJECT"):
        project_name(None)
