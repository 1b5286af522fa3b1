"""Dead letters as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pubsub_aio.cli.output import reason
from pubsub_aio.subscriber.dead_letters import is_note

if TYPE_CHECKING:
    from pubsub_aio.jobs.dead_letters import DeadLetter, DeadLetterSubscription
    from pubsub_aio.jobs.sifting import Report

_BEGINNING = 100  # characters of data that are shown
_OURS = "pubsub_aio_"


# Subscriptions


def show_subscriptions(rows: Sequence[tuple[DeadLetterSubscription, str | None]]) -> None:
    """Print a table; elsewhere than on a terminal, lines with tabs between the columns."""
    lines = [
        [
            _short(each.name),
            ", ".join(map(_short, each.sources)),
            *([] if count is None else [_line(count)]),
        ]
        for each, count in rows
    ]
    console = Console()
    if not console.is_terminal:
        for line in lines:
            print(*line, sep="\t")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in ("SUBSCRIPTION", "DEAD LETTERS OF", "WAITING")[: len(lines[0])]:
        right = column == "WAITING"
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    console.print(table)


# Messages


def show_letters(letters: Sequence[DeadLetter], *, whole: bool) -> None:
    """Print a block for each."""
    now = datetime.now(UTC)
    for letter in letters:
        age = _age((now - letter.publish_time).total_seconds())
        print(_line(f"{letter.id}  {age}{_origin(letter)}"))
        for name, text in _facts(letter, whole=whole):
            first, *more = text.split("\n")
            print(f"  {name:<11}{first}")
            for line in more:
                print(f"  {'':<11}{line}")
        print()


def _origin(letter: DeadLetter) -> str:
    parts = []
    if letter.source:
        parts.append(f"of {_short(letter.source)}")
    if letter.deliveries:
        parts.append(f"delivered {_times(letter.deliveries)}")
    if letter.resurrections:
        parts.append(f"returned {_times(letter.resurrections)}")
    return "".join(f", {part}" for part in parts)


def _facts(letter: DeadLetter, *, whole: bool) -> list[tuple[str, str]]:
    own = {
        name: value
        for name, value in sorted(letter.attributes.items())
        if not is_note(name) and not name.startswith(_OURS)
    }
    facts = [
        ("error", letter.error or ""),
        ("job", letter.job_id or ""),
        ("key", letter.ordering_key),
        ("attributes", "\n".join(f"{name} = {value}" for name, value in own.items())),
    ]
    shown = [(name, printable(text)) for name, text in facts if text]
    return [*shown, ("data", _data(letter.data, whole=whole))]


def _data(data: bytes, *, whole: bool) -> str:
    if not data:
        return "(empty)"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = repr(data if whole else data[:_BEGINNING])
    if whole:
        return printable(text.rstrip("\n"))
    beginning = _line(text[:_BEGINNING])
    return beginning if len(text) <= _BEGINNING else f"{beginning} ... ({len(data):,} bytes)"


def _line(text: str) -> str:
    """Text as one line that a terminal only shows."""
    return printable(text).replace("\n", " ")


def printable(text: str) -> str:
    """Text without what a terminal would obey; line breaks stay."""
    return "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode()
        for one in text
    )


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' * (count != 1)} ago"
    return "just now" if seconds < 10 else f"{int(seconds)} seconds ago"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# Sums


def summary(
    report: Report, *, done: str, where: str, limited: bool, interrupted: bool
) -> list[str]:
    """What was done, the sum last.

    Args:
        report: How it stands.
        done: What became of messages, in a word.
        where: From where to where.
        limited: Whether somebody asked for so many and no more.
        interrupted: Whether it was not to the end.
    """
    lines = []
    if report.first_error is not None:
        lines.append(f"first error: {printable(reason(report.first_error))}")
    if report.held_back:
        lines.append(
            f"held back: {report.held_back:,}, each behind one of its ordering key that stays"
        )
    if report.ended_by == "max_held":
        lines.append("stopped, too many had to be held that stay: there may be more that match")
    stay = [
        f"{count:,} {what}"
        for count, what in (
            (report.skipped, "not matching"),
            (report.held_back, "held back"),
            (report.came_back, "came back while this ran"),
            (report.failed, "failed"),
        )
        if count
    ]
    total = f"{report.moved:,} {done} {where}"
    if stay:
        left = report.looked_at - report.moved
        total += f"; {left:,} {'stays' if left == 1 else 'stay'} there: {', '.join(stay)}"
    if interrupted:
        total = f"interrupted: {total}; the rest is where it was"
    elif limited and report.ended_by == "limit":
        total += "; there may be more"
    return [*lines, total]


def _short(name: str) -> str:
    return name.rpartition("/")[2]
