"""Control records have the layout of every record, and rings carry them unchanged."""

import struct

import pytest

from amps._core.journal.reader import RECORD_HEADER_SIZE
from amps._core.shm.memory import Ring
from amps.server.records import (
    HEADER_BYTES,
    KIND_DECLARE_TOPIC,
    KIND_DISCONNECT,
    KIND_LOGON,
    KIND_REPLY,
    KIND_SPILLED_PUBLISH,
    NO_EXPIRATION,
    control_payload,
    control_record,
    raw_control_record,
)


def field(record: bytes, offset: int, form: str) -> int:
    """The number at a place in the record header (docs/files.md lists them)."""
    value: int = struct.unpack_from("<" + form, record, offset)[0]
    return value


def test_the_header_has_the_length_of_that_of_messages() -> None:
    assert HEADER_BYTES == RECORD_HEADER_SIZE == 80


def test_every_field_is_where_the_core_reads_it() -> None:
    record = raw_control_record(b"payload", KIND_LOGON, slot=0x01020304, serial=0xFFFFFFFE, topic=77)
    assert len(record) == 87
    assert field(record, 0, "I") == len(record)
    assert field(record, 8, "Q") == 0xFFFFFFFE_01020304
    assert record[16:56] == bytes(40)
    assert field(record, 56, "I") == 77
    assert field(record, 60, "I") == NO_EXPIRATION
    assert field(record, 64, "H") == KIND_LOGON
    assert record[66:76] == bytes(10)
    assert field(record, 76, "I") == 7
    assert record[80:] == b"payload"


def test_fields_that_are_not_given_are_zero() -> None:
    record = raw_control_record(b"", KIND_DISCONNECT)
    assert (field(record, 8, "Q"), field(record, 56, "I"), field(record, 76, "I")) == (0, 0, 0)


def test_kinds_are_all_different_and_differ_from_messages() -> None:
    kinds = {KIND_DECLARE_TOPIC, KIND_LOGON, KIND_DISCONNECT, KIND_SPILLED_PUBLISH, KIND_REPLY}
    assert len(kinds) == 5
    assert all(kind > 256 for kind in kinds)


@pytest.mark.parametrize(
    ("payload", "read"),
    [
        (None, None),
        (("logon", 1, 2, True, 2**64 - 1, 0), ["logon", 1, 2, True, 2**64 - 1, 0]),
        (("kick", 1, 2, "größe", ""), ["kick", 1, 2, "größe", ""]),
        ((b"raw \xff\0", b"json"), [b"raw \xff\0", b"json"]),
    ],
)
def test_payloads_are_read_as_they_were_written(payload: object, read: object) -> None:
    record = control_record(payload)
    assert field(record, 64, "H") == KIND_REPLY
    assert control_payload(record) == read


def test_a_ring_carries_records_of_any_length() -> None:
    ring = Ring(4096)
    records = [control_record("x" * length, KIND_LOGON, slot=length) for length in range(20)]
    for record in records:
        assert ring.push(record)
    assert ring.pop_all() == records


def test_a_full_ring_accepts_nothing_until_it_is_read() -> None:
    ring = Ring(4096)
    record = control_record("x" * 1000)
    pushed = 0
    while ring.push(record):
        pushed += 1
    assert pushed == 3
    assert ring.pop_all() == [record] * pushed
    assert ring.push(record)
