"""What was written to its end is read, or called damaged; what was not is left out."""

from __future__ import annotations

import pytest

from pubsub_aio.emulator.storage.frames import DamagedError, framed, unframed

BATCHES = [[b"one"], [b"two", b"three" * 100, b""], [b"\xabPSL" * 3], [b"last", b"of all"]]
PAYLOADS = [payload for batch in BATCHES for payload in batch]


def written(file: int = 7) -> list[bytes]:
    """The bytes of each batch."""
    batches, first = [], 0
    for payloads in BATCHES:
        batches.append(b"".join(framed(payloads, file=file, first=first)))
        first += len(payloads)
    return batches


def test_all_that_was_written_is_read() -> None:
    data = b"".join(written())

    payloads, end = unframed(data, file=7)

    assert list(map(bytes, payloads)) == PAYLOADS
    assert end == len(data)


def test_an_empty_file_has_nothing() -> None:
    assert unframed(b"", file=7) == ([], 0)


def test_a_last_batch_that_was_not_written_to_its_end_is_left_out() -> None:
    *whole, last = written()
    begun = b"".join(whole)
    first = len(framed([b"x"], file=7, first=0)[0]) + len(b"last")

    for length in range(len(last)):
        payloads, end = unframed(begun + last[:length], file=7)

        assert list(map(bytes, payloads)) == PAYLOADS[: -2 if length < first else -1]
        assert end == len(begun) + (first if length >= first else 0)


def test_a_last_batch_of_which_any_part_is_missing_is_left_out() -> None:
    *whole, last = written()
    begun = b"".join(whole)

    for at in range(len(last)):  # the system may have written its blocks in another order
        payloads, _ = unframed(begun + bytes(at) + last[at:], file=7)

        assert list(map(bytes, payloads))[: len(PAYLOADS) - 2] == PAYLOADS[:-2]


def test_damage_to_what_was_written_to_its_end_is_told() -> None:
    batches = written()
    data = b"".join(batches)

    for at in range(len(data) - len(batches[-1])):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(DamagedError) as caught:
            unframed(bytes(damaged), file=7)
        assert caught.value.position <= at


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_batch_that_is_gone_is_damage(lost: int) -> None:
    batches = written()
    del batches[lost]

    with pytest.raises(DamagedError):
        unframed(b"".join(batches), file=7)


def test_two_batches_that_changed_places_are_damage() -> None:
    one, two, *rest = written()

    with pytest.raises(DamagedError):
        unframed(b"".join([two, one, *rest]), file=7)


def test_a_file_under_the_name_of_another_has_nothing() -> None:
    assert unframed(b"".join(written(file=8)), file=7) == ([], 0)
