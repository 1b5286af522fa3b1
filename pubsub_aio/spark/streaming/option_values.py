"""Options as Spark hands them over, strings by name, turned into values."""

from __future__ import annotations

import base64
import difflib
import json
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pubsub_aio.config import check
from pubsub_aio.errors import ConfigError

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_UNITS = {
    "millisecond": "ms",
    "second": "s",
    "sec": "s",
    "minute": "m",
    "min": "m",
    "hour": "h",
    "day": "d",
}
_BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

_HERE = re.compile(r"(localhost|127\.[\d.]+|\[::1]):\d+$")
"""Addresses at which there is no Google, but an emulator."""

SPARKS_OWN = ("path", "checkpointlocation", "queryname", "outputmode")
"""What Spark passes along with the options that were meant for us."""

CONNECTION = ("project", "endpoint", "transport", "credentialsFile", "credentials")
"""The options by which the service is found."""


class Given:
    """The options of a query. Names are taken whatever their case, as everywhere in Spark.

    Args:
        options: By name.
        known: The names that there are.
        others: Names that another system has for them, and ours.

    Raises:
        ConfigError: There is one of another name.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        known: Iterable[str],
        others: Mapping[str, str] | None = None,
    ) -> None:
        names = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for name, value in options.items():
            if (lower := name.lower()) in names:
                self._values[names[lower]] = str(value).strip()
            elif lower not in SPARKS_OWN:
                raise _unknown(name, names, others or {})

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        """As it was given."""
        return self._values.get(name, default)

    def needed(self, name: str, example: str) -> str:
        """One that must be given."""
        if not (value := self.text(name)):
            raise ConfigError(f'{name} is missing: give .option("{name}", "{example}")')
        return value

    def resource(self, name: str, kind: Literal["topics", "subscriptions"]) -> str:
        """The name of a resource, short or in full; one that must be given."""
        self.needed(name, f"projects/PROJECT/{kind}/NAME")
        return self.optional_resource(name, kind)

    def optional_resource(
        self, name: str, kind: Literal["topics", "subscriptions", "snapshots"]
    ) -> str:
        """The same, or nothing."""
        value = self.text(name)
        parts = value.split("/")
        is_full = len(parts) == 4 and (parts[0], parts[2]) == ("projects", kind) and all(parts)
        if len(parts) > 1 and not is_full:
            raise ConfigError(f"{name} must be NAME or projects/PROJECT/{kind}/NAME, not {value!r}")
        return value

    def whole(self, name: str, default: int, *, least: int = 1) -> int:
        """A whole number."""
        value = self.text(name, str(default))
        if not re.fullmatch(r"[+-]?\d{1,18}", value):
            raise ConfigError(f"{name} must be a whole number, not {value!r}")
        check(name, int(value), least, whole=True)
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false"):
            raise ConfigError(f"{name} must be true or false, not {value!r}")
        return value == "true"

    def seconds(self, name: str, default: float, *, above: bool = False) -> float:
        """A duration: `30s`, `10 minutes`, or a number of seconds."""
        value = self.text(name, f"{default}s")
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value.lower())
        unit = found[2] or "s" if found else ""
        unit = _UNITS.get(unit.rstrip("s") or unit, unit)
        if found is None or unit not in _SECONDS:
            raise ConfigError(
                f"{name} must be a duration, such as 30s or 10 minutes, not {value!r}"
            )
        check(name, seconds := float(found[1]) * _SECONDS[unit], 0, above=above)
        return seconds

    def size(self, name: str, default: int) -> int:
        """A number of bytes: `512m`, `1g`, or a plain number."""
        value = self.text(name, str(default))
        found = re.fullmatch(r"(\d{1,15})\s*([kmg]?)i?b?", value.lower())
        if found is None:
            raise ConfigError(
                f"{name} must be a number of bytes, such as 512m or 1g, not {value!r}"
            )
        check(name, size := int(found[1]) * _BYTES[found[2]], 1, whole=True)
        return size

    def choice(self, name: str, default: str, *others: str) -> str:
        """One of several words."""
        value = self.text(name, default)
        if value not in (default, *others):
            choices = " or ".join((default, *others))
            raise ConfigError(f"{name} must be {choices}, not {value!r}")
        return value

    def connection(self) -> ConnectionOptions:
        """How the service is found."""
        file, inline = self.text("credentialsFile"), self.text("credentials")
        if file and inline:
            raise ConfigError("credentials: give it or credentialsFile, not both")
        endpoint = self.text("endpoint")
        if _HERE.match(endpoint):
            raise ConfigError(
                f"endpoint: an emulator on this machine is http://{endpoint}, not {endpoint!r}"
            )
        return ConnectionOptions(
            project=self.text("project") or None,
            endpoint=endpoint or None,
            transport="rest" if self.choice("transport", "grpc", "rest") == "rest" else "grpc",
            credentials_file=file,
            credentials=inline,
        )


def _unknown(name: str, names: Mapping[str, str], others: Mapping[str, str]) -> ConfigError:
    for other, what in others.items():  # Spark hands names over in lower case
        if name.lower() == other.lower():
            return ConfigError(f"{other}: there is no such option here: {what}")
    close = difflib.get_close_matches(name.lower(), names, n=1)
    meant = (
        f"did you mean {names[close[0]]}?" if close else f"there are {', '.join(names.values())}"
    )
    return ConfigError(f"{name}: there is no such option; {meant}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """How the service is found, in values that can be pickled."""

    project: str | None = None
    endpoint: str | None = None
    transport: Literal["grpc", "rest"] = "grpc"
    credentials_file: str = ""
    credentials: str = ""

    def arguments(self) -> dict[str, Any]:
        """What clients are made with, in the process that uses them."""
        return {
            "project": self.project,
            "endpoint": self.endpoint,
            "transport": self.transport,
            "credentials": self._loaded(),
        }

    def _loaded(self) -> Credentials | None:
        if not self.credentials_file and not self.credentials:
            return None
        import google.auth

        name = "credentialsFile" if self.credentials_file else "credentials"
        load: Any = google.auth.load_credentials_from_dict
        try:
            if self.credentials_file:
                with open(self.credentials_file, encoding="utf-8") as file:
                    key = json.load(file)
            else:
                key = json.loads(base64.b64decode(self.credentials, validate=True))
            with warnings.catch_warnings():
                # It warns of keys from others; this one is the user's own.
                warnings.simplefilter("ignore", DeprecationWarning)
                credentials: Credentials = load(key)[0]
        except Exception as error:  # noqa: BLE001 - whatever Google's library raises
            why = f"{type(error).__name__}: {error}" if self.credentials_file else "it is no key"
            raise ConfigError(
                f"{name} cannot be used ({why}): give "
                + ("the path of a JSON key" if self.credentials_file else "a JSON key in base64")
            ) from (error if self.credentials_file else None)
        return credentials
