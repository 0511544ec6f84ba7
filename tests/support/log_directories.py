"""Journal directories that a feeder has filled, and their recovery."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from amps._core.journal.reader import FILE_HEADER_SIZE, LogCursor, Record, build_file_header
from amps._core.journal.writer import IndexBuilder
from amps._core.values.value import publisher_id
from amps.journal.disk import Disk
from amps.journal.files import JournalHeader
from amps.journal.names import (
    index_path,
    journal_path,
    watermark_path,
)
from amps.journal.watermark import WatermarkFile
from amps.server.core.recovery import Recovered, recover
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.records import RecordParts
from tests.support.reports import Reports

FILE_BYTES = 16384
NAME = "journal"  # Feeder's name for its journal


@dataclass
class Directory:
    """A journal directory that a feeder has filled, and its records."""

    path: Path
    records: list[Record] = field(default_factory=list)
    end: int = FILE_HEADER_SIZE
    reports: Reports = field(default_factory=Reports)
    archive: Path | None = None
    forget_before_ns: int = 0

    def fill(self, seed: int, count: int) -> "Directory":
        chance = random.Random(seed)
        feeder = Feeder(self.path, FILE_BYTES)
        last = [0, 0, 0, 0]
        for _ in range(count):
            slot = chance.randrange(4)
            last[slot] += chance.randrange(1, 4)
            size = chance.randrange(600) if chance.random() < 0.98 else 20_000
            parts = RecordParts(payload=chance.randbytes(size), publisher_id=publisher_id(f"p{slot}"))
            feeder.push(Feed(slot, last[slot], f"topic-{chance.randrange(9)}", parts))
            feeder.turn(chance.randrange(1 << 60), 0)
        storage = feeder.journal_storage
        for number, index in storage.indexes.items():
            index_path(self.path, NAME, number).write_bytes(index)
        self.end = feeder.journal.position
        self.records = read_all(LogCursor(directory_of(storage), 0, 0, True), self.end)
        for path in self.path.glob("transient.*"):
            path.unlink()
        return self

    @property
    def numbers(self) -> list[int]:
        return sorted(int(path.name.split(".")[1]) for path in self.path.glob(f"{NAME}.*.journal"))

    def journal(self, number: int) -> Path:
        return journal_path(self.path, NAME, number)

    def promise(self, position: int) -> None:
        WatermarkFile(watermark_path(self.path, NAME), Disk()).write(position)

    def recover(self, disk: Disk | None = None) -> Recovered:
        def make_index(info: JournalHeader) -> IndexBuilder:
            return IndexBuilder(None, info.number, info.start_position, info.size)

        self.reports.clear()
        return recover(
            self.path,
            NAME,
            make_index,
            self.reports,
            disk or Disk(),
            self.archive,
            self.forget_before_ns,
        )

    def add_spare(self, size: int = FILE_BYTES) -> Path:
        number = self.numbers[-1] + 1
        header = build_file_header(number, size, 0, 0, 1, 2, NAME, False)
        self.journal(number).write_bytes(header.ljust(size, b"\0"))
        return self.journal(number)


def check(found: Recovered, directory: Directory, records: list[Record], end: int) -> None:
    """Check the result of recovery of a log that holds these records and ends there."""
    highest: dict[int, int] = {}
    for record in records:
        highest[record.publisher_id] = record.sequence
    assert found.publishers == highest
    assert found.position == end
    assert found.active is not None
    last = records[-1]
    assert found.last_txid >= last.txid
    assert found.last_timestamp_ns == last.timestamp_ns
    inside = [r for r in records if r.position >= found.active.start_position]
    assert {r.topic for r in inside} <= set(found.topics)
