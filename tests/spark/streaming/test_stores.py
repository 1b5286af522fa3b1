"""Stores: of those who put the same name one wins, and nobody reads a part of it."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pubsub_aio.errors import ConfigError, DataLossError, WalError
from pubsub_aio.spark.streaming import segments, stores
from pubsub_aio.spark.streaming.candidates import Limit
from pubsub_aio.spark.streaming.stores import (
    Buffer,
    LocalStore,
    ObjectStore,
    Store,
    check_store,
    store_at,
    writing,
)
from tests.spark.streaming.gcs import serving
from tests.spark.streaming.logs import (
    NOW,
    SUBSCRIPTION,
    MemoryStore,
    arrive,
    commit,
    ids_of,
    opened,
    read,
)
from tests.spark.wire import WITHIN

BUCKET = "bucket"
KIB = 1 << 10


# Object stores: moto, which speaks S3's protocol, and a server that speaks that of GCS


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URL of a server in a process of its own."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip('pip install "moto[server]"')
    code = (
        "from moto.server import ThreadedMotoServer as Server\n"
        "server = Server('127.0.0.1', 0); server.start()\n"
        "print('at', *server.get_host_and_port(), flush=True)\n"
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout
        told = next(line.split() for line in process.stdout if line.startswith("at "))
        url = f"http://{told[1]}:{told[2]}"
        urllib.request.urlopen(  # noqa: S310 - it is our own
            urllib.request.Request(f"{url}/{BUCKET}", method="PUT")  # noqa: S310 - the same
        ).close()
        yield url
        process.kill()


@pytest.fixture
def in_s3(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have obstore find the server, as users do."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture(scope="module")
def gcs() -> Iterator[str]:
    with serving(BUCKET) as key:
        yield key


@pytest.fixture
def in_gs(gcs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have obstore find the server, by a key as users have it."""
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", gcs)


@pytest.fixture(params=["local", "s3", "gs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        made = store_at(str(tmp_path / "a" / "b"))
    else:
        request.getfixturevalue(f"in_{request.param}")
        made = store_at(f"{request.param}://{BUCKET}/{tmp_path.name}")
    made.prepare(["x", "xy", "y"])
    return made


def local(folder: Path) -> LocalStore:
    """A store in a folder, where names may begin with `x/`."""
    made = LocalStore(folder)
    made.prepare(["x"])
    return made


# What all stores do


def test_what_was_put_is_there(store: Store) -> None:
    assert store.put_if_absent("x/1", [b"one ", memoryview(b"two"), b"", b" three"]) is True

    assert bytes(store.get("x/1")) == b"one two three"


def test_a_name_that_is_taken_stays_as_it_was(store: Store) -> None:
    store.put_if_absent("x/1", [b"first"])

    assert store.put_if_absent("x/1", [b"second"]) is False
    assert bytes(store.get("x/1")) == b"first"


@pytest.mark.parametrize(
    ("start", "length", "there"),
    [
        (0, 3, b"012"),
        (4, 3, b"456"),
        (8, 3, b"89"),
        (9, 1 << 30, b"9"),
        (0, 10, b"0123456789"),
        (10, 3, b""),
        (100, 3, b""),
    ],
)
def test_a_part_of_it_is_shorter_at_the_end(
    store: Store, start: int, length: int, there: bytes
) -> None:
    store.put_if_absent("x/1", [b"0123456789"])

    assert bytes(store.get_range("x/1", start, length)) == there


def test_what_is_empty_has_no_bytes(store: Store) -> None:
    assert store.put_if_absent("x/empty", [])

    assert bytes(store.get("x/empty")) == b""
    assert bytes(store.get_range("x/empty", 0, 64)) == b""


def test_what_is_not_there_is_not_found(store: Store) -> None:
    store.put_if_absent("x/1", [b""])

    with pytest.raises(FileNotFoundError):
        store.get("x/2")
    with pytest.raises(FileNotFoundError):
        store.get_range("x/2", 0, 1)


def test_names_are_those_of_the_folder_in_order(store: Store) -> None:
    for name in ("x/2", "x/10", "x/1", "xy/3", "y/4", "z"):
        store.put_if_absent(name, [b""])

    assert [store.names(folder) for folder in ("x", "xy", "y", "gone")] == [
        ["1", "10", "2"],
        ["3"],
        ["4"],
        [],
    ]


def test_what_is_deleted_is_gone_and_may_be_put_again(store: Store) -> None:
    for name in ("x/1", "x/2", "x/3"):
        store.put_if_absent(name, [b"before"])

    store.delete([])
    store.delete(["x/0", "x/1", "x/2", "gone/1"])
    store.delete(["x/1"])

    assert store.names("x") == ["3"]
    assert store.put_if_absent("x/1", [b"after"])
    assert bytes(store.get("x/1")) == b"after"


def test_many_can_be_deleted_at_once(store: Store) -> None:
    names = [f"x/{number:04}" for number in range(1_100)]  # S3 takes a thousand in a request
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda name: store.put_if_absent(name, [b""]), names))

    assert store.names("x") == [name.removeprefix("x/") for name in names]
    store.delete([f"gone/{number}" for number in range(40)] + names)

    assert store.names("x") == []


def test_a_good_store_passes_its_check_and_keeps_nothing_of_it(store: Store) -> None:
    check_store(store, ())

    assert store.names("probe") == []


def test_a_log_lives_in_it(store: Store) -> None:
    wal = opened(store)
    arrive(wal, ["1", "2", "3"])
    wal.seal(0, Limit(rows=2), now=NOW)
    arrive(wal, ["3", "4", "1"])

    later = opened(store)
    later.seal(1, Limit(), now=NOW)

    assert (later.id, read(later, 1)) == (wal.id, [(0, "1"), (1, "2")])
    assert read(later, 2) == [(2, "3"), (4, "4")]


def test_a_log_in_it_is_collected(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from pubsub_aio.spark.streaming import collection

    monkeypatch.setattr(collection, "_GROUP_BATCHES", 1)
    wal = opened(store)
    arrive(wal, ["1"])
    wal.seal(0, Limit(), now=NOW)
    commit(wal, 1)

    later = opened(store)
    arrive(later, ["1", "2"])
    later.seal(1, Limit(), now=NOW)

    assert store.names("incoming")[:-1] == []
    assert ids_of(later, 2) == ["2"]


@pytest.mark.parametrize("left", [0, 10, 64, 700])
def test_a_segment_that_was_cut_off_is_damage_in_any_store(store: Store, left: int) -> None:
    wal = opened(store)
    name = arrive(wal, [str(number) for number in range(20)]).name
    whole = bytes(store.get(name))
    store.delete([name])
    store.put_if_absent(name, [whole[:left]])

    with pytest.raises(DataLossError, match=f"{name} is damaged"):
        segments.load(store, name, wal.id)


def test_rows_that_were_cut_off_are_damage_in_any_store(store: Store) -> None:
    wal = opened(store)
    segment = arrive(wal, [str(number) for number in range(20)])
    (chunk,) = segment.chunks
    whole = bytes(store.get(segment.name))
    for left in (chunk.offset, chunk.offset + 5):
        store.delete([segment.name])
        store.put_if_absent(segment.name, [whole[:left]])

        with pytest.raises(DataLossError, match=f"{segment.name} is damaged"):
            segments.read_chunk(store, segment.name, chunk)


# Many at once


def test_of_many_threads_one_wins_and_nobody_reads_a_part(tmp_path: Path) -> None:
    """Readers look all the time; what they find is all of what one writer put."""
    store = local(tmp_path)
    contents = [bytes([65 + writer]) * 300 * KIB for writer in range(8)]
    rounds = 20
    whole: list[bool] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            for name in store.names("x"):
                there = bytes(store.get(f"x/{name}"))
                whole.append(there in contents)

    with ThreadPoolExecutor(10) as pool:
        readers = [pool.submit(look) for _ in range(2)]
        try:
            wins = [
                [
                    *pool.map(
                        lambda content, name=f"x/{turn}": store.put_if_absent(name, [content]),
                        contents,
                    )
                ]
                for turn in range(rounds)
            ]
        finally:
            over.set()
        for reader in readers:
            reader.result()

    assert [sum(won) for won in wins] == [1] * rounds
    winners = [contents[won.index(True)] for won in wins]
    assert [bytes(store.get(f"x/{turn}")) for turn in range(rounds)] == winners
    assert {*whole} == {True}
    assert sorted(os.listdir(tmp_path / "x")) == sorted(map(str, range(rounds)))


WRITER = """
import sys
from pathlib import Path
from pubsub_aio.spark.streaming.stores import LocalStore
store = LocalStore(Path(sys.argv[1]))
store.prepare(["new/folder"])
print("ready", flush=True)
sys.stdin.readline()
content = sys.argv[2].encode() * 20_000
print(*(int(store.put_if_absent(f"new/folder/{turn}", [content])) for turn in range(50)))
"""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_of_many_processes_one_wins(tmp_path: Path) -> None:
    writers = [python(WRITER, str(tmp_path), letter) for letter in "abcd"]
    for writer in writers:
        assert writer.stdout
        writer.stdout.readline()
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("\n")
        writer.stdin.flush()
    wins = [writer.communicate(timeout=WITHIN)[0].split() for writer in writers]

    store = local(tmp_path)
    assert [sum(map(int, turn)) for turn in zip(*wins, strict=True)] == [1] * 50
    for turn, won in enumerate(zip(*wins, strict=True)):
        letter = b"abcd"[won.index("1") :][:1]
        assert bytes(store.get(f"new/folder/{turn}")) == letter * 20_000


def test_what_a_process_that_died_was_writing_is_deleted_when_it_is_old(tmp_path: Path) -> None:
    store = local(tmp_path)
    store.put_if_absent("x/1", [b"x"])
    old, new = tmp_path / "x" / ".unfinished-old", tmp_path / "x" / ".unfinished-new"
    beside = tmp_path / ".unfinished-old"
    for path in (old, new, beside, tmp_path / "x" / "1"):
        path.write_bytes(b"half")
    for path in (old, beside, tmp_path / "x" / "1"):
        os.utime(path, (0, 0))

    check_store(store, ())

    assert (old.exists(), new.exists(), store.names("x")) == (False, True, ["1"])
    assert not beside.exists()


def test_what_a_process_that_died_tried_a_store_with_is_deleted_when_it_is_old() -> None:
    store = MemoryStore()
    old, new = stores._probe(time.time() - 4_000), stores._probe(time.time())
    for name in (old, new):
        store.put_if_absent(name, [b"first"])

    check_store(store, ())

    assert [*store.files] == [new]


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_of_many_who_put_the_same_object_one_wins(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """Each with connections of its own, as drivers have."""
    request.getfixturevalue(f"in_{kind}")
    stores = [store_at(f"{kind}://{BUCKET}/{tmp_path.name}") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        wins = [
            [*pool.map(lambda each, name=f"x/{turn}": each.put_if_absent(name, [b"x"]), stores)]
            for turn in range(10)
        ]

    assert [sum(won) for won in wins] == [1] * 10


@pytest.mark.parametrize(("tries", "put"), [(1, True), (99, False)])
def test_a_name_that_is_said_to_be_taken_and_is_not_is_put_again(
    in_gs: None, tmp_path: Path, tries: int, put: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As object stores answer when two put the same name in one moment, and neither has it."""
    del in_gs
    monkeypatch.setattr(stores, "_PAUSES", (0.0, 0.0))
    store = store_at(f"gs://{BUCKET}/{tmp_path.name}")
    name = f"conflicts-{tries}/1"

    if put:
        assert store.put_if_absent(name, [b"x"]) is True
        assert store.put_if_absent(name, [b"y"]) is False
        assert bytes(store.get(name)) == b"x"
    else:
        with pytest.raises(OSError, match=f"{name} is said to be there, and is not"):
            store.put_if_absent(name, [b"x"])


@pytest.mark.parametrize("when", ["before", "while"])
def test_another_folder_that_takes_the_place_of_one_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """As when a disk is unmounted, and there is a folder below it."""
    store = local(tmp_path / "wal")
    below = local(tmp_path / "below")
    below.prepare(["x"])

    def unmount(*_: object) -> None:
        (tmp_path / "wal").rename(tmp_path / "unmounted")
        (tmp_path / "below").rename(tmp_path / "wal")

    if when == "before":
        unmount()
    else:
        monkeypatch.setattr(stores, "_sync", unmount)  # the file has its name by then
    with (
        pytest.raises(WalError, match=r"is another folder now, on another disk\. Bring it back"),
        writing(store),
    ):
        store.put_if_absent("x/1", [b"x"])

    assert os.listdir(tmp_path / "wal" / "x") == []


def test_who_has_read_a_folder_writes_to_no_other(tmp_path: Path) -> None:
    """As a task does, which looks whose log it is."""
    local(tmp_path / "wal").put_if_absent("x/1", [b"x"])
    task = LocalStore(tmp_path / "wal")
    assert task.get("x/1") == b"x"
    shutil.move(tmp_path / "wal", tmp_path / "unmounted")
    (tmp_path / "wal" / "x").mkdir(parents=True)

    with pytest.raises(FileNotFoundError, match="is another folder now"):
        task.put_if_absent("x/2", [b"x"])


def test_a_folder_that_goes_while_it_is_used_is_not_made_anew(tmp_path: Path) -> None:
    """As when a disk is unmounted: whatever were put there would be seen by nobody."""
    store = local(tmp_path / "wal")
    shutil.rmtree(tmp_path / "wal")

    with (
        pytest.raises(WalError, match=r"cannot be written to: .* Bring it back, and start the qu"),
        writing(store),
    ):
        store.put_if_absent("x/1", [b"x"])

    assert not (tmp_path / "wal").exists()


# What is interrupted


def test_a_writer_that_is_killed_leaves_nothing_to_be_found(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from pubsub_aio.spark.streaming import stores
store = stores.LocalStore(Path(sys.argv[1]))
store.prepare(["x"])
stores.os.fsync = lambda descriptor: os.kill(os.getpid(), 9)
store.put_if_absent("x/1", [b"x" * 1000])
"""
    with python(code, str(tmp_path)) as process:
        assert process.wait(WITHIN) == -9
    store = local(tmp_path)

    assert len(os.listdir(tmp_path / "x")) == 1  # it was in the middle of it
    assert store.names("x") == []
    with pytest.raises(FileNotFoundError):
        store.get("x/1")
    assert store.put_if_absent("x/1", [b"again"])
    assert store.names("x") == ["1"]


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    """No file may grow beyond a limit here, which is what a write to a full disk runs into, too."""
    code = """
import errno, resource, signal, sys
from pathlib import Path
from pubsub_aio.spark.streaming.stores import LocalStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = LocalStore(Path(sys.argv[1]))
store.prepare(["x"])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    store.put_if_absent("x/1", [b"x" * 60_000, b"y" * 60_000])
except OSError as error:
    print(errno.errorcode[error.errno])
print(store.put_if_absent("x/2", [b"x" * 60_000]))
"""
    with python(code, str(tmp_path)) as process:
        told, _ = process.communicate(timeout=WITHIN)

    assert told.split() == ["EFBIG", "True"]
    assert os.listdir(tmp_path / "x") == ["2"]


def test_an_error_in_the_middle_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = local(tmp_path)

    def fail(descriptor: int) -> None:
        del descriptor
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            store.put_if_absent("x/1", [b"x"])

    assert os.listdir(tmp_path / "x") == []
    assert store.put_if_absent("x/1", [b"x"])


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so are its folders, before anybody is told: what was put outlives the machine.

    What is there already too, for who put it may have died before it had synced the folder.
    """
    synced: list[tuple[str, list[str]]] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        there = sorted(name for name in os.listdir(tmp_path / "a" / "b") if name == "1")
        synced.append(("file" if path.is_file() else str(path.relative_to(tmp_path.parent)), there))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    store = LocalStore(tmp_path / "a")
    store.prepare(["b"])
    assert store.put_if_absent("b/1", [b"x"])
    assert not store.put_if_absent("b/1", [b"y"])

    root = tmp_path.name
    assert sorted(synced[:3]) == [(root, []), (f"{root}/a", []), (f"{root}/a/b", [])]
    assert synced[3:5] == [("file", []), (f"{root}/a/b", ["1"])]
    assert synced[5:] == [("file", ["1"]), (f"{root}/a/b", ["1"])]


def test_short_reads_and_writes_are_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_some, write_some = os.read, os.write
    monkeypatch.setattr(os, "read", lambda file, length: read_some(file, min(length, 3)))
    monkeypatch.setattr(os, "write", lambda file, data: write_some(file, data[:3]))
    store = local(tmp_path)

    store.put_if_absent("1", [b"0123456789", memoryview(b"abc"), b"d"])

    assert bytes(store.get_range("1", 1, 100)) == b"123456789abcd"


# Where it is


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("{}/wal", "{}/wal"),
        ("file:{}/wal", "{}/wal"),
        ("file://{}/a%20b%C3%A9", "{}/a bé"),
        ("file://localhost{}/wal", "{}/wal"),
        ("{}/a%20b c:d", "{}/a%20b c:d"),
    ],
)
def test_folders_are_found(tmp_path: Path, location: str, folder: str) -> None:
    store = store_at(location.format(tmp_path))
    store.prepare(())
    store.put_if_absent("1", [b"x"])

    assert (Path(folder.format(tmp_path)) / "1").read_bytes() == b"x"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_buckets_of_s3_are_found(in_s3: None, tmp_path: Path, scheme: str) -> None:
    del in_s3
    store = store_at(f"{scheme}://{BUCKET}/{tmp_path.name}/wal/")
    store.put_if_absent("x/1", [b"x"])

    assert isinstance(store, ObjectStore)
    assert store.location == f"{scheme}://{BUCKET}/{tmp_path.name}/wal/"
    assert store_at(f"s3://{BUCKET}").names(f"{tmp_path.name}/wal/x") == ["1"]


def test_buckets_of_gcs_are_found(in_gs: None, tmp_path: Path) -> None:
    del in_gs
    store = store_at(f"gs://{BUCKET}/{tmp_path.name}/wal/")
    store.put_if_absent("x/1", [b"x"])

    assert isinstance(store, ObjectStore)
    assert store_at(f"gs://{BUCKET}").names(f"{tmp_path.name}/wal/x") == ["1"]


@pytest.mark.parametrize(
    "location",
    [
        *("hdfs://name:8020/wal", "abfss://c@a.dfs.core.windows.net/wal", "http://host/wal"),
        *("hdfs:/wal", "dbfs:/wal"),
    ],
)
def test_other_stores_are_refused(location: str) -> None:
    with pytest.raises(ConfigError) as caught:
        store_at(location)

    assert str(caught.value) == (
        f"walLocation: there is no store for {location}, since only some can put a file if there "
        "is none: give a folder, or a URL that begins with file:, gs: or s3:"
    )


def test_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        store_at("file://host/wal")

    assert str(caught.value) == (
        "walLocation: file://host/wal is on another machine: give file:///FOLDER"
    )


@pytest.mark.parametrize("location", ["wal", "./wal", "~/wal", "file:wal", "C:\\wal"])
def test_a_folder_that_depends_on_where_a_process_was_started_is_refused(location: str) -> None:
    with pytest.raises(ConfigError) as caught:
        store_at(location)

    assert str(caught.value) == (
        "walLocation must be an absolute path, such as "
        f"{Path(location.removeprefix('file:')).absolute()}, or a URL, not {location!r}"
    )


@pytest.mark.parametrize("location", ["s3:", "s3://", "gs://", "gs:bucket"])
def test_a_url_without_a_bucket_is_refused(location: str) -> None:
    with pytest.raises(ConfigError, match=f"^walLocation: {location} cannot be used: ") as caught:
        store_at(location)

    assert len(str(caught.value).splitlines()) == 1


# What is checked at the start


class Careless(MemoryStore):
    """Lets everybody win."""

    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        self.files[name] = b"".join(parts)
        return True


class Polite(MemoryStore):
    """Says that the second has lost, and keeps what it brought."""

    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        absent = name not in self.files
        self.files[name] = b"".join(parts)
        return absent


class Doubtful(MemoryStore):
    """The answer to the first is lost, so that it seems to have been there already."""

    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        super().put_if_absent(name, parts)
        return False


class ReadOnly(MemoryStore):
    def put_if_absent(self, name: str, parts: Sequence[Buffer]) -> bool:
        del parts
        raise PermissionError(errno.EACCES, "Permission denied", name)


class Undeletable(MemoryStore):
    def delete(self, names: Iterable[str]) -> None:
        del names
        raise RuntimeError


@pytest.mark.parametrize("kind", [Careless, Polite])
def test_a_store_that_lets_two_win_is_refused(kind: Callable[[], Store]) -> None:
    with pytest.raises(WalError) as caught:
        check_store(kind(), ())

    assert str(caught.value) == (
        "walLocation: memory lets two writers put the same file, so that messages could be lost: "
        "give a place on a local disk, GCS or S3"
    )


def test_an_answer_that_is_lost_makes_no_store_bad() -> None:
    check_store(Doubtful(), ())


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (ReadOnly, r"\[Errno 13\] Permission denied: 'probe/[\w-]+'"),
        (Undeletable, "RuntimeError"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused(kind: Callable[[], Store], why: str) -> None:
    with pytest.raises(
        WalError,
        match=rf"^walLocation: memory cannot be used: {why}. Give a place where this process may "
        "create, read and delete files$",
    ):
        check_store(kind(), ())


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "wal").write_text("")

    with pytest.raises(WalError, match=f"{tmp_path}/wal cannot be used: {tmp_path}/wal is a file"):
        check_store(store_at(str(tmp_path / "wal")), ())


def test_a_bucket_that_there_is_not_is_named(in_s3: None) -> None:
    del in_s3
    with pytest.raises(WalError, match="walLocation: s3://gone/wal cannot be used: ") as caught:
        check_store(store_at("s3://gone/wal"), ())

    assert "NoSuchBucket" in str(caught.value)
    assert "Debug source" not in str(caught.value)


def test_a_log_is_not_begun_in_a_bad_store() -> None:
    from pubsub_aio.spark.streaming.wal import Wal

    store = Careless()
    with contextlib.suppress(WalError):
        Wal(store, window=1.0, max_ids=1).open(SUBSCRIPTION)

    assert store.files == {}
