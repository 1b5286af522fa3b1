"""Names of resources: short ones are completed with a project, full ones are checked."""

from __future__ import annotations

from typing import Literal

from pubsub_aio.errors import ConfigError

Kind = Literal["topics", "subscriptions", "snapshots", "schemas"]

DELETED_TOPIC = "_deleted-topic_"
"""What the service calls the topic of a subscription whose topic is gone."""


def full_name(name: str, kind: Kind, project: str | None) -> str:
    """The full name of a resource: `projects/PROJECT/topics/NAME`.

    Only the form is checked; which characters a name may have is for the service to say.

    Args:
        name: Full, or short.
        kind: What it names.
        project: The project of a short name, if it is known.

    Raises:
        ConfigError: It names something else, or nothing, or the project is not known.
    """
    argument, form = kind[:-1], f"projects/PROJECT/{kind}/NAME"
    if kind == "topics" and name == DELETED_TOPIC:
        return name
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{argument}: must be NAME or {form}, not {name!r}")
    _check_text(argument, name)
    if "/" not in name:
        if project is None:
            raise ConfigError(
                "project: not known; name it as project, set GOOGLE_CLOUD_PROJECT, "
                f"or use the full name {form}"
            )
        return f"{project_name(project)}/{kind}/{name}"
    parts = name.split("/")
    if len(parts) != 4 or not all(parts) or (parts[0], parts[2]) != ("projects", kind):
        raise ConfigError(f"{argument}: must be NAME or {form}, not {name!r}")
    return name


def project_name(project: str | None) -> str:
    """The full name of a project.

    Raises:
        ConfigError: The project is not known, or is not an id.
    """
    if project is None:
        raise ConfigError("project: not known; name it as project, or set GOOGLE_CLOUD_PROJECT")
    if not isinstance(project, str) or not project or "/" in project:
        raise ConfigError(f"project: must be an id, such as my-project, not {project!r}")
    _check_text("project", project)
    return f"projects/{project}"


def _check_text(argument: str, name: str) -> None:
    """Refuse what cannot be put into a request."""
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{argument}: must be text that can be UTF-8, not {name!r}"
            ) from error
