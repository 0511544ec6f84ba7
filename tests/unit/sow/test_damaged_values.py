"""Value files that are cut or changed at any byte: what is intact is used, and nothing else (sow.md §4)."""

import mmap
import os
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from amps._core.journal.reader import checksum
from amps._core.sow.table import (
    VALUE_FILE_HEADER_BYTES,
    KeyMemory,
    KeyTable,
    StateReader,
    TopicState,
    ValueFile,
    slab_bytes,
    table_bytes,
)
from tests.support.sow_core import FAR, SLAB_SIZE, SowCore

SLAB_HEADER_BYTES = 64
RECORD_HEADER_BYTES = 80
PAYLOAD_LENGTH_OFFSET = 76
SLAB = slab_bytes(SLAB_SIZE)


@dataclass(frozen=True)
class Span:
    """A record of a value file, found by its description in docs/files.md alone."""

    begin: int
    end: int
    alive: bool
    is_value: bool
    payload: bytes


def spans_of(data: bytes) -> list[Span]:
    """All records of an intact file, in the order of the file."""
    found = []
    for slab in range(VALUE_FILE_HEADER_BYTES, len(data), SLAB):
        at = slab + SLAB_HEADER_BYTES
        while data[slab : slab + SLAB_HEADER_BYTES].strip(b"\0") and at + RECORD_HEADER_BYTES <= slab + SLAB:
            length, sum_ = struct.unpack_from("<II", data, at)
            if length == 0:
                break
            alive = checksum(data[at + 8 : at + length]) == sum_
            (payload_length,) = struct.unpack_from("<I", data, at + PAYLOAD_LENGTH_OFFSET)
            payload = data[at + length - payload_length : at + length]
            end = at + (length + 7) // 8 * 8
            found.append(Span(at, end, alive, payload.startswith(b"{"), payload))
            at = end
    return found


class Scanner:
    """Takes value files as a core does at its start."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "scanned"
        with (directory / "keys").open("w+b") as file:
            file.truncate(table_bytes())
            self.memory = mmap.mmap(file.fileno(), table_bytes())

    def take(self, data: bytes) -> tuple[set[bytes], tuple[int, int] | None]:
        """The values that a core finds, and what it says about damage."""
        self.path.write_bytes(data.rstrip(b"\0"))
        os.truncate(self.path, len(data))
        slots = 4096 + (1 << 28) * 4
        self.memory[slots : slots + 16384] = bytes(16384)  # a new table has zeros there
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            values = ValueFile(
                descriptor, SLAB_SIZE, True, lambda offset, length: os.posix_fallocate(descriptor, offset, length)
            )
            state = TopicState(KeyTable(self.memory), values, False, False)
            state.take_file(len(data))
            reader = StateReader(KeyMemory(self.memory, False), ValueFile(descriptor, SLAB_SIZE, False), None)
            return {payload for _, payload in reader.values_at(FAR, FAR).values()}, values.damage
        finally:
            os.close(descriptor)


@pytest.fixture
def scanner(tmp_path: Path) -> Scanner:
    return Scanner(tmp_path)


def written(tmp_path: Path, *, reuse: bool = False) -> bytes:
    """A value file with live and dead values, and removals; two slabs. reuse: old records lie behind the end."""
    core = SowCore(tmp_path)
    try:
        if reuse:
            for step in range(900):
                core.publish("plain", {"id": step % 3, "v": step, "pad": "x" * 3000})
        for id_ in range(12):
            core.publish("plain", {"id": id_, "v": 1, "pad": "x" * (id_ * 23 % 90)})
        for id_ in range(0, 12, 3):
            core.publish("plain", {"id": id_, "w": 2}, delta=True)
        core.feeder.control.set_transport_alive(3, True)
        core.feeder.control.set_state_floor(3, 1)  # a reader that needs the removals
        core.delete("plain", 5, 7)
        os.fsync(core.topics["plain"].descriptor)
        return (tmp_path / "plain.sow").read_bytes()
    finally:
        core.close()


def alive(spans: list[Span]) -> set[bytes]:
    return {span.payload for span in spans if span.alive and span.is_value}


@pytest.mark.parametrize("reuse", [False, True])
def test_a_byte_changed_anywhere_costs_one_value(tmp_path: Path, scanner: Scanner, reuse: bool) -> None:
    chance = random.Random(1)
    data = written(tmp_path, reuse=reuse)
    spans = spans_of(data)
    assert len(alive(spans)) == 10
    assert scanner.take(data) == (alive(spans), None)
    places = [
        *range(VALUE_FILE_HEADER_BYTES, VALUE_FILE_HEADER_BYTES + SLAB_HEADER_BYTES),
        *(
            offset
            for span in spans
            for offset in range(span.begin, span.end + 8)
            if chance.random() < (0.5 if span.alive else 0.001)
        ),
    ]
    for offset in places:
        changed = bytearray(data)
        changed[offset] ^= 1 << chance.randrange(8)
        hit = next((span for span in spans if span.begin <= offset < span.end), None)
        expected = set(alive(spans))
        padding = hit is not None and offset >= hit.begin + struct.unpack_from("<I", data, hit.begin)[0]
        if hit is not None and hit.alive and hit.is_value and offset >= hit.begin + 4 and not padding:
            expected.discard(hit.payload)
        found, damage = scanner.take(bytes(changed))
        assert found == expected, offset
        if expected != alive(spans):
            assert hit is not None
            assert damage == (1, hit.begin)


def test_a_file_cut_anywhere_has_the_values_before_the_cut(tmp_path: Path, scanner: Scanner) -> None:
    data = written(tmp_path)
    spans = spans_of(data)
    last = max(span.end for span in spans)
    for length in range(VALUE_FILE_HEADER_BYTES, last + 9, 3):
        cut = data[:length]
        found, damage = scanner.take(cut)
        # Zeros in place of the padding of a record change nothing.
        expected = {
            span.payload
            for span in spans
            if span.alive and span.is_value and span.begin + 8 <= length
            and data[span.begin : span.end].rstrip(b"\0") == data[span.begin : min(length, span.end)].rstrip(b"\0")
        }
        older = {span.payload for span in spans if span.is_value} - expected
        assert expected <= found, length
        assert found - expected <= older
        assert not {payload for payload in found - expected if payload in alive(spans)}
        if length > VALUE_FILE_HEADER_BYTES + 8:
            assert damage is not None


def test_a_scan_takes_no_record_out_of_a_message(tmp_path: Path, scanner: Scanner) -> None:
    """A publisher can put a whole record into a message: damage around it does not let it in."""
    data = written(tmp_path)
    forged = next(span for span in spans_of(data) if span.alive and span.is_value)
    record = data[forged.begin : forged.end].replace(b'"v": 1', b'"v": 9')
    record = record[:4] + struct.pack("<I", checksum(record[8 : forged.end - forged.begin])) + record[8:]
    (tmp_path / "other").mkdir()
    core = SowCore(tmp_path / "other")
    try:
        core.publish("plain", {"id": 1, "pad": (record * 4).decode("latin-1")})
        core.publish("plain", {"id": 2})
        attacked = (tmp_path / "other" / "plain.sow").read_bytes()
    finally:
        core.close()
    first, second = spans_of(attacked)
    for offset in range(first.begin, first.end, 3):
        changed = bytearray(attacked)
        changed[offset] ^= 0xFF
        changed[first.begin + 4] ^= 1
        found, _ = scanner.take(bytes(changed))
        assert found <= {first.payload, second.payload}


def test_one_of_two_copies_of_a_value_may_be_the_only_one_of_its_slab(tmp_path: Path, scanner: Scanner) -> None:
    """The core may die between the copy of a record and the release of the old one: the rest of the slab counts."""
    data = bytearray(written(tmp_path))
    spans = spans_of(bytes(data))
    slab = bytearray(SLAB)
    slab[:SLAB_HEADER_BYTES] = data[VALUE_FILE_HEADER_BYTES : VALUE_FILE_HEADER_BYTES + SLAB_HEADER_BYTES]
    struct.pack_into("<Q", slab, 8, 1)
    struct.pack_into("<I", slab, 56, checksum(bytes(slab[:56])))
    moved = next(span for span in spans if span.alive and span.is_value)
    others = [span for span in spans if span.alive and span.is_value and span != moved][:3]
    at = SLAB_HEADER_BYTES
    for span in (moved, *others):
        slab[at : at + span.end - span.begin] = data[span.begin : span.end]
        at += span.end - span.begin
    for span in others:
        data[span.begin + 4 : span.begin + 8] = bytes(b ^ 0xFF for b in data[span.begin + 4 : span.begin + 8])
    data[VALUE_FILE_HEADER_BYTES + SLAB :] = slab
    assert scanner.take(bytes(data)) == (alive(spans), None)


@pytest.fixture
def core(tmp_path: Path) -> Iterator[SowCore]:
    made = SowCore(tmp_path, file_bytes=16384)
    yield made
    made.close()


def test_a_damaged_file_costs_no_value_that_the_log_has(core: SowCore) -> None:
    chance = random.Random(2)
    for id_ in range(30):
        core.publish("kept", {"id": id_, "v": 1, "pad": "x" * 300})
    while core.feeder.journal.number < 2:
        core.publish("kept", {"id": 1, "v": 1, "pad": "x" * 300})
    core.remove_journals(2)
    for id_ in range(15):
        core.publish("kept", {"id": id_, "v": 2})
    core.delete("kept", 20)
    state = core.state("kept")
    recorded = {id_: message for id_, message in state.items() if id_ < 15}
    path = core.directory / "kept.sow"
    intact = path.read_bytes()
    used = max(span.end for span in spans_of(intact))
    for _ in range(150):
        changed = bytearray(intact)
        changed[chance.randrange(VALUE_FILE_HEADER_BYTES, used)] ^= 1 << chance.randrange(8)
        cut = chance.randrange(VALUE_FILE_HEADER_BYTES, used) if chance.random() < 0.3 else len(changed)
        os.truncate(path, 0)
        path.write_bytes(changed[:cut])
        core.restart()
        found = core.state("kept")
        assert recorded.items() <= found.items()
        assert found.items() <= state.items()
        if cut == len(changed):
            assert len(found) >= len(state) - 1
