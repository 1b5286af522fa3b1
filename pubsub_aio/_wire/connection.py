"""Where the service is and who is asking: endpoint, project and credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pubsub_aio.errors import ConfigError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

DEFAULT_ENDPOINT = "pubsub.googleapis.com:443"
EMULATOR_HOST = "PUBSUB_EMULATOR_HOST"
CREDENTIALS_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
PROJECT_VARIABLES = ("GOOGLE_CLOUD_PROJECT", "PUBSUB_PROJECT_ID", "GCLOUD_PROJECT")
SCOPES = (
    "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/pubsub",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where to connect and how.

    Attributes:
        target: `host:port`.
        tls: Whether the connection is encrypted; only an emulator goes without.
        source: What decided the target: an argument, the environment or the default.
        credentials: Given by the caller; otherwise found as Google's libraries find them.
    """

    target: str
    tls: bool
    source: str
    credentials: Credentials | None = None

    @property
    def needs_credentials(self) -> bool:
        """Whether the server asks who is calling."""
        return self.tls


def resolve(
    *,
    endpoint: str | None = None,
    region: str | None = None,
    credentials: Credentials | None = None,
    environment: Mapping[str, str] | None = None,
) -> Connection:
    """Decide where to connect: an argument first, then PUBSUB_EMULATOR_HOST, then the default.

    Args:
        endpoint: `host` or `host:port`; with `http://` before it, an emulator without TLS.
        region: A region such as `europe-west1`, for its locational endpoint.
        credentials: Whose name the calls are made in.
        environment: Instead of the process's.

    Raises:
        ConfigError: One of them cannot be.
    """
    environment = os.environ if environment is None else environment
    if endpoint is not None and region is not None:
        raise ConfigError("endpoint and region cannot both be given: a region names its endpoint")
    if credentials is not None:
        _check_credentials(credentials)
    if region is not None:
        if not isinstance(region, str) or not re.fullmatch("[a-z][a-z0-9-]*", region):
            raise ConfigError(f"region must be a name such as 'europe-west1', not {region!r}")
        target, tls, source = f"{region}-pubsub.googleapis.com:443", True, "the argument region"
    elif endpoint is not None:
        target, tls = _parse(endpoint, "endpoint", tls=True)
        source = "the argument endpoint"
    elif host := environment.get(EMULATOR_HOST):
        target, tls = _parse(host, EMULATOR_HOST, tls=False)
        source = f"the environment, {EMULATOR_HOST}"
    else:
        target, tls, source = DEFAULT_ENDPOINT, True, "the default"
    return Connection(target=target, tls=tls, source=source, credentials=credentials)


def _parse(endpoint: str, name: str, *, tls: bool) -> tuple[str, bool]:
    """An address as `host:port`, and whether TLS is used."""
    given = endpoint
    if not isinstance(given, str):
        raise _no_address(name, given)
    for scheme, encrypted in (("http://", False), ("https://", True)):
        if endpoint.startswith(scheme):
            endpoint, tls = endpoint.removeprefix(scheme), encrypted
    endpoint = endpoint.rstrip("/")
    host, colon, port = endpoint.rpartition(":")
    if not colon or endpoint.endswith("]"):
        host, port = endpoint, "443" if tls else "80"
    well_formed = re.fullmatch(r"[^\s/:@\[\]]+|\[[0-9A-Fa-f:.]+\]", host)
    if not well_formed or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
        raise _no_address(name, given)
    return f"{host}:{port}", tls


def _no_address(name: str, given: object) -> ConfigError:
    return ConfigError(f"{name} must be host:port, such as localhost:8085, not {given!r}")


def _check_credentials(credentials: object) -> None:
    """Refuse what are none. It is not shown: there may be a secret in it."""
    import google.auth.credentials

    if not isinstance(credentials, google.auth.credentials.Credentials):
        kind = type(credentials).__name__
        raise ConfigError(
            f"credentials must be a Credentials object of google.auth, not {kind}: load a key file "
            "with google.oauth2.service_account.Credentials.from_service_account_file(), or name "
            f"it in {CREDENTIALS_FILE}"
        )


def project_of(environment: Mapping[str, str] | None = None) -> str | None:
    """The project that the environment names, if it does."""
    environment = os.environ if environment is None else environment
    for variable in PROJECT_VARIABLES:
        if project := environment.get(variable):
            return project
    return None


def find_credentials(connection: Connection) -> tuple[Credentials, str | None]:
    """The caller's credentials, or the machine's, and the project that goes with them.

    It reads files and may ask the metadata server, so it belongs in a thread.

    Raises:
        ConfigError: There are none.
    """
    import google.auth
    import google.auth.credentials
    from google.auth.exceptions import DefaultCredentialsError

    if connection.credentials is not None:
        scoped: Any = google.auth.credentials.with_scopes_if_required
        return scoped(connection.credentials, SCOPES), None
    try:
        found: tuple[Credentials, str | None] = google.auth.default(scopes=SCOPES)
    except DefaultCredentialsError as error:
        file = os.environ.get(CREDENTIALS_FILE)
        what = f"those of {CREDENTIALS_FILE}={file} cannot be used" if file else "none were found"
        raise ConfigError(
            f"credentials: {what} for {connection.target} ({error}). Run `gcloud auth "
            f"application-default login`, set {CREDENTIALS_FILE}, pass credentials=, "
            f"or set {EMULATOR_HOST} to use an emulator"
        ) from error
    return found
