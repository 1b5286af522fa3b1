"""Where the service is and who is asking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.oauth2.credentials import Credentials
from google.oauth2.service_account import Credentials as ServiceAccount

from pubsub_aio._wire.connection import (
    DEFAULT_ENDPOINT,
    SCOPES,
    Connection,
    find_credentials,
    project_of,
    resolve,
)
from pubsub_aio.errors import ConfigError

EMULATED = {"PUBSUB_EMULATOR_HOST": "localhost:8085"}


def test_the_default_is_the_global_service_with_tls() -> None:
    assert resolve(environment={}) == Connection(
        target=DEFAULT_ENDPOINT, tls=True, source="the default"
    )


def test_the_environment_comes_before_the_default() -> None:
    assert resolve(environment=EMULATED) == Connection(
        target="localhost:8085", tls=False, source="the environment, PUBSUB_EMULATOR_HOST"
    )


def test_an_empty_variable_is_none() -> None:
    assert resolve(environment={"PUBSUB_EMULATOR_HOST": ""}).target == DEFAULT_ENDPOINT


def test_an_argument_comes_before_the_environment() -> None:
    assert resolve(endpoint="proxy.example:8443", environment=EMULATED) == Connection(
        target="proxy.example:8443", tls=True, source="the argument endpoint"
    )
    assert resolve(region="europe-west1", environment=EMULATED) == Connection(
        target="europe-west1-pubsub.googleapis.com:443", tls=True, source="the argument region"
    )


def test_without_an_environment_the_processs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "localhost:1234")
    assert resolve().target == "localhost:1234"
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST")
    assert resolve().target == DEFAULT_ENDPOINT


@pytest.mark.parametrize(
    ("endpoint", "target", "tls"),
    [
        ("example.com", "example.com:443", True),
        ("example.com:80", "example.com:80", True),
        ("https://example.com", "example.com:443", True),
        ("https://example.com:8443/", "example.com:8443", True),
        ("http://localhost", "localhost:80", False),
        ("http://localhost:8085/", "localhost:8085", False),
        ("127.0.0.1:65535", "127.0.0.1:65535", True),
        ("[::1]:8085", "[::1]:8085", True),
        ("[::1]", "[::1]:443", True),
        ("http://[::1]", "[::1]:80", False),
        ("my_host-1:1", "my_host-1:1", True),
    ],
)
def test_an_endpoint_is_a_host_with_or_without_scheme_and_port(
    endpoint: str, target: str, tls: bool
) -> None:
    made = resolve(endpoint=endpoint, environment={})

    assert (made.target, made.tls, made.needs_credentials) == (target, tls, tls)


@pytest.mark.parametrize(
    "address",
    [
        *("", ":8085", "localhost:", "localhost:port", "localhost:0", "localhost:65536"),
        *("localhost:-1", "localhost:8085/v1", "http://", "ftp://localhost:1", "::1", "::1:8085"),
        *("local host:1", "localhost:8085\n", " localhost:8085", "user@host:1", "[::1", "[x]:1"),
        "localhost:\u0668\u0660",
    ],
)
def test_a_bad_address_is_refused_by_the_name_of_what_gave_it(address: str) -> None:
    with pytest.raises(ConfigError, match=r"^endpoint must be host:port"):
        resolve(endpoint=address, environment={})
    if address:
        with pytest.raises(ConfigError, match=r"^PUBSUB_EMULATOR_HOST must be host:port"):
            resolve(environment={"PUBSUB_EMULATOR_HOST": address})


@pytest.mark.parametrize("region", ["", "europe.west1", "a:1", "a/b", "Europe West", "evil.com#"])
def test_a_bad_region_is_refused_by_its_name(region: str) -> None:
    with pytest.raises(ConfigError, match=r"^region must be"):
        resolve(region=region, environment={})


def test_an_endpoint_and_a_region_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="endpoint and region"):
        resolve(endpoint="localhost:1", region="europe-west1", environment={})


def test_the_project_is_the_first_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every = {"GCLOUD_PROJECT": "c", "PUBSUB_PROJECT_ID": "b", "GOOGLE_CLOUD_PROJECT": "a"}
    assert project_of(every) == "a"
    assert project_of({**every, "GOOGLE_CLOUD_PROJECT": ""}) == "b"
    assert project_of({"GCLOUD_PROJECT": "c"}) == "c"
    assert project_of({}) is None
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "mine")
    assert project_of() == "mine"


# Credentials


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that has no credentials, in a cloud that is no cloud; a folder for files."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # google-auth asks the gcloud command too
    return tmp_path


@pytest.fixture(scope="module")
def account() -> dict[str, str]:
    """What the key file of a service account says."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return {
        "type": "service_account",
        "project_id": "its-project",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "robot@its-project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "https://localhost:1/token",
    }


def test_credentials_are_found_where_the_environment_points(
    account: dict[str, str], nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = nowhere / "key.json"
    file.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    found, project = find_credentials(resolve(environment={}))

    assert isinstance(found, ServiceAccount)
    assert found.service_account_email == account["client_email"]
    assert found.scopes == SCOPES
    assert project == "its-project"


def test_credentials_that_are_given_come_first(
    account: dict[str, str], nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = nowhere / "key.json"
    file.write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    given: Any = Credentials(token="given")  # type: ignore[no-untyped-call]  # noqa: S106

    assert find_credentials(resolve(environment={}, credentials=given)) == (given, None)


def test_a_service_account_without_scopes_is_given_ours(account: dict[str, str]) -> None:
    load: Any = ServiceAccount.from_service_account_info
    found, _ = find_credentials(resolve(environment={}, credentials=load(account)))
    kept, _ = find_credentials(
        resolve(environment={}, credentials=load(account, scopes=["https://of.its/own"]))
    )

    assert isinstance(found, ServiceAccount)
    assert found.scopes == SCOPES
    assert isinstance(kept, ServiceAccount)
    assert kept.scopes == ["https://of.its/own"]


@pytest.mark.usefixtures("nowhere")
def test_without_credentials_the_error_names_each_remedy() -> None:
    with pytest.raises(ConfigError) as caught:
        find_credentials(resolve(region="europe-west1", environment={}))

    for remedy in (
        "credentials: none were found for europe-west1-pubsub.googleapis.com:443",
        "gcloud auth application-default login",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "credentials=",
        "PUBSUB_EMULATOR_HOST",
    ):
        assert remedy in str(caught.value)


@pytest.mark.parametrize("content", [None, "not JSON", "{}", '{"type": "service_account"}'])
def test_a_file_that_is_no_key_is_told(
    content: str | None, nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = nowhere / "key.json"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(ConfigError, match=r"key\.json"):
        find_credentials(resolve(environment={}))
