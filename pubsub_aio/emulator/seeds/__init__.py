"""Topics, subscriptions and schemas from a file, and back into one.

A file is read (`reading`, on `tree` and `fields`) as what it wants. That is rehearsed on a broker
of its own (`rehearsal`), compared with what is there (`planning`) and done (`sowing`). The other
way, a running emulator is asked over REST (`survey`) and its answers are written (`writing`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seeded:
    """What became of a seed file: the full names of its topics, subscriptions and schemas.

    Attributes:
        project: The project of the short names in it.
        created: Those that were not there.
        changed: Those that were there with other settings.
        unchanged: Those that were there as the file wants them.
    """

    project: str
    created: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Export:
    """A project of a running emulator as a seed file.

    Attributes:
        text: The file.
        count: How many topics, subscriptions and schemas are in it.
        left_out: What there is but cannot be in a file, a line each.
    """

    text: str
    count: int
    left_out: tuple[str, ...]


def export_seed(address: str, project: str) -> Export:
    """Write what an emulator has in a project as a seed file.

    It is asked over REST; Google's own emulator can be asked, too.

    Args:
        address: Its `host:port`.
        project: The project.

    Raises:
        ServiceError: It does not answer, or refuses.
    """
    from pubsub_aio.emulator.seeds.survey import survey
    from pubsub_aio.emulator.seeds.writing import as_text

    found = survey(address, project)
    count = len(found.topics) + len(found.subscriptions) + len(found.schemas)
    return Export(as_text(found), count, tuple(found.left_out))
