"""Where in a store which part of a log is. Files of other names are not the log's."""

from __future__ import annotations

import re

from pubsub_aio.spark.streaming.stores import Store

IDENTITY = "wal.json"
INCOMING, LOG, IDS, MARKS = FOLDERS = ("incoming", "log", "ids", "marks")

_NAMES = {
    INCOMING: re.compile(r"\d{20}-\w+\.segment"),
    LOG: re.compile(r"\d{20}\.json"),
    IDS: re.compile(r"\d{20}-\d{20}\.ids"),
    MARKS: re.compile(r"[a-z]+(-\w+)?"),
}


def names_in(store: Store, folder: str) -> list[str]:
    """The names of the log's files in a folder, in order."""
    return [name for name in store.names(folder) if _NAMES[folder].fullmatch(name)]


def segment_name(number: int, author: str) -> str:
    """The file of a segment; later ones have larger numbers."""
    return f"{INCOMING}/{number:020}-{author}.segment"


def number_of_segment(name: str) -> int:
    """The number of a segment, by its name."""
    return int(name.rpartition("/")[2].partition("-")[0])


def log_name(seq: int) -> str:
    """The file of a manifest."""
    return f"{LOG}/{seq:020}.json"


def number_of_manifest(name: str) -> int:
    """The number of its batch, by its name in the folder."""
    return int(name.removesuffix(".json"))


def ids_name(since: int, until: int) -> str:
    """The file of the ids of some batches."""
    return f"{IDS}/{since:020}-{until:020}.ids"


def last_of_ids(name: str) -> int:
    """The last of these batches, by its name in the folder."""
    return int(name.removesuffix(".ids").partition("-")[2])
