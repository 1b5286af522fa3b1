"""The columns of the result: which there are, and that no two of them have one name."""

from __future__ import annotations

from collections.abc import Sequence

from pubsub_aio.errors import ConfigError, MissingExtraError

try:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import BinaryType
except ImportError as error:
    raise MissingExtraError("decoding in Spark", "spark") from error

DATA = "data"


def kept_columns(
    df: DataFrame, fields: Sequence[str], *, into: str | None, undecoded: str
) -> list[str]:
    """The columns of the messages that stay, all but the data.

    Raises:
        ConfigError: An argument is not what it should be, or two columns would have one name.
    """
    check_messages(df)
    if into is not None:
        _check_name("into", into)
    _check_name("undecoded", undecoded)
    columns = [name for name in df.columns if name != DATA]
    taken = {name.lower() for name in columns}
    for field in fields if into is None else ():
        if field.lower() in taken:
            raise ConfigError(
                f"the decoded field {field!r} is a column already: pass into=, "
                "then all decoded fields are in one struct column of that name"
            )
        taken.add(field.lower())
    if into is not None:
        if into.lower() in taken:
            raise ConfigError(f"into={into!r} is a column already: pass another name")
        taken.add(into.lower())
    if undecoded.lower() in taken:
        raise ConfigError(
            f"undecoded={undecoded!r} is a column already: pass another name as undecoded="
        )
    return columns


def check_messages(df: object) -> None:
    """See that these are messages with their data."""
    if not isinstance(df, DataFrame):
        raise ConfigError(f"df must be a DataFrame, not {type(df).__name__}")
    if DATA not in df.columns:
        raise ConfigError(f"df must have a column {DATA!r}; it has {', '.join(df.columns)}")
    kind = df.schema[DATA].dataType
    if not isinstance(kind, BinaryType):
        raise ConfigError(f"the column {DATA!r} of df must be binary, not {kind.simpleString()}")


def quoted(name: str) -> str:
    """A column's name as Spark reads it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def _check_name(argument: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{argument} must be the name of a column, not {name!r}")
