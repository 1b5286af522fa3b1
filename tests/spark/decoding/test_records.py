"""Rows that a decoder cannot take, whatever it does then."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pubsub_aio.spark.decoding.records import decode_rows


class Panic(BaseException):
    """As a panic of Rust is one: no Exception."""


class Digits:
    """A decoder of whole numbers that takes all rows or none."""

    record_type = pa.struct([("number", pa.int64())])

    def __init__(self, failure: BaseException) -> None:
        self._failure = failure

    def decode(self, data: Any) -> Any:
        if not all(each.isdigit() for each in data.to_pylist()):
            raise self._failure
        return pa.array([{"number": int(each)} for each in data.to_pylist()], self.record_type)


@pytest.mark.parametrize("failure", [ValueError(), MemoryError(), Panic()])
def test_a_row_that_fails_costs_no_other_row(failure: BaseException) -> None:
    data = [b"1", b"x", b"2", b"3", b"", b"y", b"4"]

    records, undecoded = decode_rows(Digits(failure), pa.array(data, pa.binary()))

    numbers = [1, None, 2, 3, None, None, 4]
    assert records.to_pylist() == [each and {"number": each} for each in numbers]
    assert undecoded.to_pylist() == [None, b"x", None, None, b"", b"y", None]


def test_no_rows_are_no_records() -> None:
    records, undecoded = decode_rows(Digits(ValueError()), pa.array([], pa.binary()))

    assert (len(records), records.type, len(undecoded)) == (0, Digits.record_type, 0)


def test_who_is_told_to_stop_stops() -> None:
    with pytest.raises(KeyboardInterrupt):
        decode_rows(Digits(KeyboardInterrupt()), pa.array([b"1", b"x"], pa.binary()))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_undecoded_data_is_of_the_type_that_came(kind: Any) -> None:
    _, undecoded = decode_rows(Digits(ValueError()), pa.array([b"1", b"x"], kind))

    assert (undecoded.type, undecoded.to_pylist()) == (kind, [None, b"x"])
