"""The frames NAMES, DATA and ACK of a link against a second, independent reader of docs/replication.md.

The records have right checksums, whatever else is wrong with them: so a stranger's frames are read to their end. The
model says which frames are refused. Of the others, every record must be in the ring, with its origin.
"""

import random
import struct
from dataclasses import replace
from typing import Any

from amps._core.replication.stream import FRAME_DATA, FRAME_NAMES, SinkFlow, StreamError, TxidSet
from amps._core.shm.memory import Ring
from amps._core.values.value import publisher_id
from amps._core.wire.topics import TopicTable
from tests.fuzz.codec import Finding
from tests.support.records import RecordParts, crc32c, element, padded

UPSTREAM = publisher_id("amps-server: from A 1 2")
HOP = b"A\tG\t1"
TRANSACTION, REFUSED = 19, 20
NAMES = {
    1: (b"anna", b"bert", b"amps-server: A/queue", b"amps-server: from C 1 2"),
    3: (b"B\tG\t1", b"B\tG\t1\nC\tH\t2"),
}
RANGES_MAX = 16384


class Malformed(Exception):
    """The model refuses a frame."""


class Model:
    """What a sink knows, and what it accepts."""

    def __init__(self, last_txid: int) -> None:
        self.journal = 0
        self.topics: set[int] = set()
        self.paths: set[int] = set()
        self.txid = last_txid

    def take(self, kind: int, payload: bytes) -> int:
        """The number of records and transactions that a frame brings into the ring. Raises Malformed."""
        if kind == FRAME_NAMES:
            self._names(payload)
            return 0
        need(kind == FRAME_DATA and len(payload) >= 16)
        journal, count, _ = struct.unpack_from("<QII", payload)
        need(journal == self.journal)
        records = list(self._records(payload[16:]))
        need(len(records) == count)
        txid, at, units = self.txid, 0, 0
        while at < len(records):
            size = 1
            if records[at][0] == TRANSACTION:
                size = self._group(records[at:])
            for _kind, number, _record in records[at + (size > 1) : at + size]:
                need(number > txid)
                txid = number
            at += size
            units += 1
        self.txid = txid
        return units

    def _names(self, payload: bytes) -> None:
        need(len(payload) >= 8)
        (journal,) = struct.unpack_from("<Q", payload)
        if journal != self.journal:
            self.journal, self.topics = journal, set()
        at = 8
        while at < len(payload):
            need(len(payload) - at >= 16)
            kind, length, name_id = struct.unpack_from("<IIQ", payload, at)
            end = at + 16 + (length + 7) // 8 * 8
            need(length <= 65536 and end <= len(payload))
            text = payload[at + 16 : at + 16 + length]
            at = end
            if kind == 0:
                need(b"\t" in text and name_id < 1 << 32)
                self.topics.add(name_id)
                continue
            need(kind in (1, 3) and name_id == publisher_id(text.decode()))
            need(kind == 3 or not text.startswith(b"amps-server: from "))
            if kind == 3:
                self.paths.add(name_id)

    def _records(self, data: bytes) -> list[tuple[int, int, bytes]]:
        found = []
        while data:
            need(len(data) >= 80)
            fields = struct.unpack_from("<II6QIIHHHHHHI", data)
            length, checksum, kind = fields[0], fields[1], fields[10]
            need(length >= 80 and length <= 1 << 28 and length == 80 + sum(fields[12:17]))
            need((length + 7) // 8 * 8 <= len(data))
            record, data = data[:length], data[(length + 7) // 8 * 8 :]
            need(crc32c(record[8:]) == checksum)
            extension = self._extension(record[80 : 80 + fields[15]])
            if kind != TRANSACTION:
                need(1 <= kind <= 6 or kind == REFUSED)
                need(fields[5] not in (0, UPSTREAM) and fields[8] in self.topics)
                need(4 not in extension or extension[4] == 0 or extension[4] in self.paths)
                payload = record[length - fields[16] :]
                if kind in (4, 5):
                    need(
                        len(payload) >= 32
                        and len(payload) == 32 + 32 * struct.unpack_from("<I", payload, 4)[0]
                    )
                need(kind != REFUSED or len(payload) == 16)
            found.append((kind, fields[3], record))
        return found

    @staticmethod
    def _extension(area: bytes) -> dict[int, int]:
        found: dict[int, int] = {}
        while area:
            need(len(area) >= 4)
            tag, length = struct.unpack_from("<HH", area)
            need(length <= len(area) - 4)
            if 1 <= tag <= 6:
                need(length == (16 if tag == 3 else 8) and tag not in found)
                (found[tag],) = struct.unpack_from("<Q", area, 4)
            area = area[4 + length :]
        return found

    @staticmethod
    def _group(records: list[tuple[int, int, bytes]]) -> int:
        count: int
        head = records[0][2]
        need(len(head) == 96 and struct.unpack_from("<I", head, 76)[0] == 16)
        size, count, _ = struct.unpack_from("<QII", head, 80)
        group = [record for _kind, _txid, record in records[1 : 1 + count]]
        need(0 < count == len(group) and size == sum(len(padded(record)) for record in group))
        before = None
        for number, record in enumerate(group):
            publisher, sequence = struct.unpack_from("<QQ", record, 32)
            need(records[1 + number][0] == (1 if number else 4))
            need(before is None or (publisher, sequence) == (before[0], before[1] + 1))
            before = publisher, sequence
        return 1 + count


def need(holds: bool) -> None:
    """Refuse the frame unless this holds."""
    if not holds:
        raise Malformed


class Maker:
    """Makes frames that are right, but for a few fields."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.txid = 10

    def rarely(self, value: Any, *others: Any) -> Any:
        return self.chance.choice(others) if self.chance.random() < 0.03 else value

    def names(self) -> bytes:
        made = struct.pack("<Q", self.chance.choice([1, 1, 1, 2]))
        for _ in range(self.chance.randrange(5)):
            kind = self.rarely(self.chance.choice([0, 1, 3]), 2, 4, 16)
            if kind in NAMES:
                text = self.chance.choice(NAMES[kind])
                name_id = self.rarely(publisher_id(text.decode()), 7)
            else:
                text, name_id = (
                    self.rarely(b"json\tt", b"json", b"\t"),
                    self.rarely(self.chance.randrange(3), 1 << 32),
                )
            length = self.rarely(len(text), 0, 8, 65537, 1 << 31)
            made += struct.pack("<IIQ", kind, length, name_id) + padded(text)
        return made[: self.rarely(len(made), len(made) - 1, 4)]

    def record(self, **fields: Any) -> bytes:
        self.txid += self.rarely(self.chance.choice([1, 1, 5]), 0, -4)
        kind = self.rarely(self.chance.choice([1, 1, 2, 3, 6]), 0, 4, 5, 7, 8, 16, 18, 20, 257)
        area = b""
        for tag in self.chance.sample([1, 2, 3, 4, 5, 6, 99], self.chance.choice([0, 0, 1, 3])):
            path = publisher_id(self.chance.choice(NAMES[3]).decode())
            words = [path if tag == 4 else self.chance.randrange(1 << 64)] * (2 if tag == 3 else 1)
            area += element(self.rarely(tag, 4, 6), *words)
        parts = RecordParts(
            bytes(self.chance.choice([0, 1, 16, 32, 64])),
            kind=kind,
            topic_id=self.chance.randrange(3) if self.chance.random() < 0.1 else 0,
            publisher_id=self.rarely(5, 0, UPSTREAM),
            sequence=self.txid,
            txid=max(0, self.txid),
            extension=area[: self.rarely(len(area), max(0, len(area) - 1), 3)],
            sow_key=b"k" * self.chance.randrange(3),
        )
        raw = bytearray(replace(parts, **fields).to_bytes())
        if self.chance.random() < 0.02:
            # One of the lengths.
            at = self.chance.choice([0, 68, 70, 72, 74, 76])
            struct.pack_into("<H", raw, at, self.chance.choice([0, 8, 79, 80, 88, 0xFFFF]))
        raw[4:8] = struct.pack("<I", self.rarely(crc32c(bytes(raw[8:])), 0))
        return padded(bytes(raw))

    def group(self) -> bytes:
        entries = struct.pack("<IIQQII", 0, 1, 0, 0, 0, 0) + bytes(32)
        sequence = self.chance.randrange(100)
        members = [self.record(kind=self.rarely(4, 1), payload=entries, sequence=sequence)]
        for number in range(self.chance.randrange(3)):
            members.append(
                self.record(kind=self.rarely(1, 2, 4), sequence=sequence + 1 + self.rarely(number, 7))
            )
        size = self.rarely(sum(map(len, members)), 0, 80, 1 << 40)
        count = self.rarely(len(members), 0, 1, 2, 1 << 31)
        return self.record(
            kind=TRANSACTION, payload=struct.pack("<QII", size, count, 0), extension=b"", sow_key=b""
        ) + b"".join(members)

    def data(self) -> bytes:
        units, count = [], 0
        for _ in range(self.chance.randrange(5)):
            if self.chance.random() < 0.3:
                units.append(self.group())
                count += 1 + sum(1 for _ in members_of(units[-1]))
            else:
                units.append(self.record())
                count += 1
        made = struct.pack("<QII", self.rarely(1, 2), self.rarely(count, 0, count + 1), 0) + b"".join(units)
        return made[: self.rarely(len(made), max(0, len(made) - 8), len(made) - 1, 15)]


def members_of(group: bytes) -> list[bytes]:
    """The records behind the transaction record, as far as their lengths lead; only for counting."""
    at, found = 96, []
    while at + 80 <= len(group) and (length := struct.unpack_from("<I", group, at)[0]) >= 80:
        found.append(group[at : at + length])
        at += (length + 7) // 8 * 8
    return found


def run(seed: int) -> None:
    """Frames of one seed, and one acknowledgement. Raises Finding."""
    chance = random.Random(seed)
    maker, model, ring = Maker(chance), Model(9), Ring(1 << 16)
    sink = SinkFlow(
        ring, 1, 2, TopicTable(lambda topic, kind: (True, False, None, None)), UPSTREAM, HOP, lambda entry: True,
        lambda name_class, name_id, text: True, lambda record: True, lambda topic, kind: True, set(), 9,
    )  # fmt: skip
    for number in range(chance.randrange(2, 8)):
        kind = FRAME_NAMES if number == 0 or chance.random() < 0.2 else FRAME_DATA
        payload = maker.names() if kind == FRAME_NAMES else maker.data()
        if number == 0:
            payload = struct.pack("<QIIQ", 1, 0, 6, 0) + padded(b"json\tt")
        before = (model.journal, set(model.topics), set(model.paths), model.txid)
        try:
            expected: int | None = model.take(kind, payload)
        except Malformed:
            expected = None
        try:
            sink.take(kind, payload)
            ring.publish_pushed()
            found: int | None = len(ring.pop_all())
        except StreamError:
            found = None
            ring.publish_pushed()
            if ring.pop_all():
                raise Finding("a part of a refused frame is in the ring") from None
        if found != expected:
            raise Finding(
                f"frame {number}: {found} records, and {expected} by the model, after {before}: {payload!r}"
            )
        if expected is None:
            break
    run_acknowledgement(chance)


def run_acknowledgement(chance: random.Random) -> None:
    """One ACK frame."""
    through, at, ranges = chance.randrange(200), 0, []
    for _ in range(chance.randrange(4)):
        first = at + chance.choice([1, 2, 9, 0])
        at = first + chance.choice([0, 0, 5, -1])
        ranges.append((max(0, first), max(0, at)))
    count = chance.choice([len(ranges)] * 9 + [RANGES_MAX + 1])
    payload = struct.pack("<QII", through, count, 0) + b"".join(struct.pack("<QQ", *one) for one in ranges)
    ends = [0] + [last for _, last in ranges]
    right = count == len(ranges) and all(
        before < first <= last <= through for before, (first, last) in zip(ends, ranges, strict=False)
    )
    try:
        if TxidSet.from_payload(payload).exceptions != ranges or not right:
            raise Finding(f"an acknowledgement that is wrong was taken: {payload!r}")
    except StreamError:
        if right:
            raise Finding(f"an acknowledgement that is right was refused: {payload!r}") from None
