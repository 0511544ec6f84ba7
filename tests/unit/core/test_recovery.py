"""Recovery of a journal directory, against a plain list of what was written, and of what a crash may leave there."""

import contextlib
import errno
import os
import random
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.bookmark_index import IndexBuilder
from amps._core.identity import publisher_id
from amps._core.log_reader import FILE_HEADER_SIZE, LogCursor, Record, build_file_header
from amps.journal.clients_ack import ClientsAck, summary_of, write_clients_ack
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.journal.files import JournalHeader, read_header
from amps.journal.moving import archive_journal, remove_journal
from amps.journal.names import (
    JournalPlace,
    clients_ack_path,
    compressed_path,
    index_path,
    journal_path,
    removals_path,
    watermark_path,
)
from amps.journal.removals import note_removal
from amps.journal.verify import verify_instance
from amps.journal.watermark import WatermarkFile, read_watermark
from amps.server.core import older
from amps.server.core.older import RecoveryRefused
from amps.server.core.recovery import Recovered, recover
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.records import RecordParts

FILE_BYTES = 16384
NAME = "journal"  # what Feeder calls its journal


@dataclass
class Directory:
    """A journal directory that a feeder has filled, and what is in it."""

    path: Path
    records: list[Record] = field(default_factory=list)
    end: int = FILE_HEADER_SIZE
    reports: list[tuple[str, str]] = field(default_factory=list)
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
            lambda *report: self.reports.append(report),
            disk or Disk(),
            self.archive,
            self.forget_before_ns,
        )

    def add_spare(self, size: int = FILE_BYTES) -> Path:
        number = self.numbers[-1] + 1
        header = build_file_header(number, size, 0, 0, 1, 2, NAME, False)
        self.journal(number).write_bytes(header.ljust(size, b"\0"))
        return self.journal(number)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path).fill(1, 200)


@pytest.fixture
def small(tmp_path: Path) -> Directory:
    """One journal, not full."""
    return Directory(tmp_path).fill(2, 20)


def check(found: Recovered, directory: Directory, records: list[Record], end: int) -> None:
    """What recovery says of a log that holds these records and ends there."""
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


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 250), st.booleans())
def test_recovery_of_an_orderly_log(seed: int, count: int, with_indexes: bool) -> None:
    with tempfile.TemporaryDirectory() as path:
        directory = Directory(Path(path)).fill(seed, count)
        if not with_indexes:
            for index in directory.path.glob("*.index"):
                index.unlink()
        directory.promise(directory.end)
        before = {number: directory.journal(number).read_bytes() for number in directory.numbers}
        check(directory.recover(), directory, directory.records, directory.end)
        assert {number: directory.journal(number).read_bytes() for number in directory.numbers} == before
        rebuilt = [text for event, text in directory.reports if event == "1D-0004"]
        assert len(rebuilt) == (0 if with_indexes else len(before) - 1)
        # The second time everything is as it was, and the indexes are there.
        check(directory.recover(), directory, directory.records, directory.end)
        assert directory.reports == []


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 300), st.integers(0, 1 << 30))
def test_recovery_cuts_a_torn_tail(cut: int, garbage: int, seed: int) -> None:
    """Anything may be missing at the end, and anything may stand there; what is left is exactly the whole records."""
    with tempfile.TemporaryDirectory() as path:
        directory = Directory(Path(path)).fill(2, 20)
        image = directory.journal(0).read_bytes()
        torn_at = max(FILE_HEADER_SIZE, directory.end - cut)
        rest = random.Random(seed).randbytes(garbage)
        directory.journal(0).write_bytes((image[:torn_at] + rest).ljust(FILE_BYTES, b"\0"))
        # The last padding is no loss.
        whole = [r for r in directory.records if r.position + r.length <= torn_at]
        if not whole:
            return
        end = whole[-1].position + (whole[-1].length + 7) // 8 * 8
        found = directory.recover()
        if found.position > end:  # a topic record after the last whole message survived
            end = found.position
            assert end <= torn_at + 7
        check(found, directory, whole, end)
        left = directory.journal(0).read_bytes()
        assert left[: end - 8] == image[: end - 8]
        assert not any(left[end:])
        was_damaged = any((image[:torn_at] + rest)[end:])
        assert [event for event, _ in directory.reports] == (["1D-0005"] if was_damaged else [])
        assert all(
            directory.journal(0).name in text and f"offset {end}" in text for _, text in directory.reports
        )
        check(directory.recover(), directory, whole, end)
        assert directory.reports == []


@pytest.mark.parametrize("place", [0, 5, -1])
def test_recovery_refuses_when_a_promised_record_is_gone(small: Directory, place: int) -> None:
    """The watermark file knows; nothing is changed by the refusal."""
    victim = small.records[place]
    image = bytearray(small.journal(0).read_bytes())
    image[victim.position + 100] ^= 1
    small.journal(0).write_bytes(image)
    small.promise(small.end)
    with pytest.raises(
        RecoveryRefused, match=f"{small.journal(0).name}: damaged at offset {victim.position}"
    ):
        small.recover()
    assert small.journal(0).read_bytes() == image
    # Up to there nothing was promised: then it is a torn tail.
    small.promise(victim.position)
    small.recover()
    assert small.reports[0][0] == "1D-0005"


def test_recovery_later_records_prove_what_was_promised(tmp_path: Path) -> None:
    """Without a watermark file: each record carries the watermark of its time."""
    feeder = Feeder(tmp_path, FILE_BYTES)
    for sequence in range(1, 11):
        feeder.push(Feed(0, sequence, "a", RecordParts(payload=b"x" * 50, publisher_id=publisher_id("p0"))))
        feeder.turn(sequence, feeder.journal.position)
    directory = Directory(tmp_path)
    image = bytearray(directory.journal(0).read_bytes())
    fifth = read_all(LogCursor(directory_of(feeder.journal_storage), 0, 0, True), feeder.journal.position)[4]
    image[fifth.position + 90] ^= 1
    directory.journal(0).write_bytes(image)
    with pytest.raises(RecoveryRefused, match=f"offset {fifth.position}"):
        directory.recover()


# What a crash may leave


def test_recovery_of_nothing(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    assert directory.recover() == Recovered()
    assert directory.reports == []


def test_recovery_begins_anew_when_the_journals_were_removed(small: Directory) -> None:
    """And keeps to that: a second start must not remember the old promise."""
    small.promise(small.end)
    small.journal(0).unlink()
    assert small.recover() == Recovered()
    assert [event for event, _ in small.reports] == ["1D-0007"]
    assert read_watermark(watermark_path(small.path, NAME)) == 0
    assert small.recover() == Recovered()
    assert small.reports == []


def test_recovery_refuses_when_only_a_spare_is_left(small: Directory) -> None:
    small.promise(small.end)
    small.add_spare()
    small.journal(0).unlink()
    with pytest.raises(RecoveryRefused, match="acknowledged"):
        small.recover()


def test_recovery_knows_spares(small: Directory) -> None:
    small.add_spare()
    small.add_spare()
    found = small.recover()
    assert found.spares == {1, 2}
    check(found, small, small.records, small.end)


def test_recovery_of_spares_alone(tmp_path: Path) -> None:
    """Killed after preallocation, before the first file came into use."""
    directory = Directory(tmp_path)
    header = build_file_header(5, FILE_BYTES, 0, 0, 1, 2, NAME, False)
    directory.journal(5).write_bytes(header.ljust(FILE_BYTES, b"\0"))
    found = directory.recover()
    assert (found.active, found.spares, found.first_number) == (None, {5}, 5)


@pytest.mark.parametrize("torn", ["zeros", "half", "flipped"])
def test_recovery_of_a_torn_header(small: Directory, torn: str) -> None:
    """Of the file coming into use: it and the spares behind it are made anew; nothing was in it."""
    coming = small.add_spare()
    small.add_spare()
    content = bytearray(coming.read_bytes())
    if torn == "zeros":
        content[:FILE_HEADER_SIZE] = bytes(FILE_HEADER_SIZE)
    elif torn == "half":
        content[:300] = build_file_header(1, FILE_BYTES, FILE_BYTES, 9, 9, 9, NAME, True)[:300]
        content[20] ^= 4
    else:
        content[30] ^= 1
    coming.write_bytes(content)
    found = small.recover()
    check(found, small, small.records, small.end)
    assert found.spares == set()
    assert small.numbers == [0]
    assert [event for event, _ in small.reports] == ["1D-0006"]


def test_recovery_of_a_torn_header_of_the_very_first_file(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory.journal(0).write_bytes(bytes(FILE_BYTES))
    found = directory.recover()
    assert (found.active, found.spares, found.first_number) == (None, set(), 0)
    assert directory.numbers == []


def test_recovery_refuses_a_torn_header_before_records(directory: Directory) -> None:
    """Then it is damage: in the newest, with anything behind it; in an older one; in two at once."""
    newest = directory.numbers[-1]
    for number in (0, 1, newest):
        image = directory.journal(number).read_bytes()
        directory.journal(number).write_bytes(bytes(FILE_HEADER_SIZE) + image[FILE_HEADER_SIZE:])
        with pytest.raises(RecoveryRefused, match=directory.journal(number).name):
            directory.recover()
        assert directory.journal(number).exists()
        directory.journal(number).write_bytes(image)
    first, second = directory.add_spare(), directory.add_spare()
    for spare in (first, second):
        spare.write_bytes(bytes(FILE_BYTES))
    with pytest.raises(RecoveryRefused, match=first.name):
        directory.recover()
    assert first.exists()
    assert second.exists()


def test_recovery_refuses_a_promise_in_a_torn_file(small: Directory) -> None:
    """Its header was durable once, so it is no crash that tore it."""
    small.add_spare().write_bytes(bytes(FILE_BYTES))
    small.promise(FILE_BYTES + FILE_HEADER_SIZE)
    with pytest.raises(RecoveryRefused, match="acknowledged"):
        small.recover()
    assert small.numbers == [0, 1]


def test_recovery_after_the_end_of_file_record(directory: Directory) -> None:
    """Killed between the end of one journal and the header of the next: nothing is missing, whoever promised."""
    for number in directory.numbers[2:]:
        directory.journal(number).unlink()
    size = directory.journal(0).stat().st_size + directory.journal(1).stat().st_size
    directory.promise(size)
    found = directory.recover()
    assert found.finished
    assert found.active is not None
    assert found.active.number == 1
    assert found.active.start_position + found.active.size == size


def test_recovery_removes_what_was_not_finished_and_nothing_else(small: Directory) -> None:
    """Also with names that look like patterns, or like those of this instance."""
    mine = [f"{NAME}.0000000007.journal.new", f"{NAME}.0000000000.index.new"]
    foreign = [
        f"{NAME}.b.0000000007.journal.new", f"{NAME}.b.0000000000.journal", "other.0000000007.journal.new",
        f"{NAME}.notes.new", f"{NAME}.0000000007.journal.new.bak", f"x{NAME}.0000000007.journal.new",
    ]  # fmt: skip
    for name in mine + foreign:
        (small.path / name).write_bytes(b"?")
    check(small.recover(), small, small.records, small.end)
    assert not [name for name in mine if (small.path / name).exists()]
    assert [name for name in foreign if (small.path / name).exists()] == foreign


def test_recovery_an_instance_name_is_no_pattern(tmp_path: Path) -> None:
    for name in ("a[1]", "a*", "a?"):
        (tmp_path / f"{name}.0000000003.journal.new").write_bytes(b"?")
        (tmp_path / "a1.0000000003.journal.new").write_bytes(b"?")
        found = recover(
            tmp_path, name, lambda info: pytest.fail("no file is in use"), lambda *report: None, Disk()
        )
        assert found == Recovered()
        assert [path.name for path in tmp_path.iterdir()] == ["a1.0000000003.journal.new"]


def test_recovery_refuses_gaps_and_foreign_files(directory: Directory) -> None:
    assert len(directory.numbers) > 3
    middle = directory.journal(1)
    content = middle.read_bytes()
    middle.unlink()
    with pytest.raises(RecoveryRefused, match=middle.name):
        directory.recover()
    middle.write_bytes(directory.journal(0).read_bytes())
    with pytest.raises(RecoveryRefused, match=middle.name):
        directory.recover()
    middle.write_bytes(content[:-8])
    with pytest.raises(RecoveryRefused, match=f"{middle.name}: damaged at offset {len(content) - 8}"):
        directory.recover()
    start = FILE_BYTES if directory.journal(0).stat().st_size == FILE_BYTES else 0
    header = build_file_header(1, len(content), start, 0, 0, 0, "other", True)
    middle.write_bytes(header + content[FILE_HEADER_SIZE:])
    with pytest.raises(RecoveryRefused, match="belongs to instance 'other'"):
        directory.recover()
    header = build_file_header(1, len(content), 77, 0, 0, 0, NAME, True)
    middle.write_bytes(header + content[FILE_HEADER_SIZE:])
    with pytest.raises(RecoveryRefused, match="starts at log position 77"):
        directory.recover()
    header = build_file_header(1, len(content), 0, 0, 0, 0, NAME, False)
    middle.write_bytes(header + content[FILE_HEADER_SIZE:])
    with pytest.raises(RecoveryRefused):
        directory.recover()


def test_recovery_an_index_must_fit_its_journal(tmp_path: Path) -> None:
    """Left over from another log of the same shape: same number, same start, same length."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    directory = Directory(mine).fill(6, 150)
    different = Directory(other).fill(7, 150)
    shutil.copy(index_path(other, NAME, 0), index_path(mine, NAME, 0))
    found = directory.recover()
    assert [event for event, _ in directory.reports] == ["1D-0004"]
    check(found, directory, directory.records, directory.end)
    assert different.numbers


class RecordingDisk(Disk):
    """Notes the calls that change or sync something."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, object]] = []

    def write(self, descriptor: int, data: memoryview, offset: int) -> None:
        self.calls.append(("write", (offset, offset + len(data))))
        super().write(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        self.calls.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        super().sync(descriptor)

    def sync_directory(self, directory: Path) -> None:
        self.calls.append(("sync directory", str(directory)))
        super().sync_directory(directory)


def test_recovery_leaves_everything_on_the_device(small: Directory) -> None:
    """Names too. What nobody promised is written once more: a sync that failed may have left clean pages unwritten."""
    promised = small.records[10].position
    small.promise(promised)
    disk = RecordingDisk()
    small.recover(disk)
    assert ("sync directory", str(small.path)) in disk.calls
    assert disk.calls[-1] == ("sync", str(small.journal(0)))
    written = [place for call, place in disk.calls if call == "write"]
    assert (0, FILE_HEADER_SIZE) in written
    assert (promised, small.end) in written


def compress(directory: Directory, number: int) -> Path:
    target = compressed_path(directory.path, NAME, number)
    sum(compress_journal(Disk(), directory.journal(number), target))
    return target


def test_recovery_finds_journals_wherever_they_lie(directory: Directory, tmp_path: Path) -> None:
    """transaction_log.md §12: archived, compressed, both; and their indexes."""
    directory.promise(directory.end)
    expected = directory.recover()
    directory.archive = tmp_path / "archive"
    directory.archive.mkdir()
    compress(directory, 1)
    for number in (0, 2):
        place = JournalPlace(number, directory.journal(number), False, False)
        sum(archive_journal(Disk(), NAME, place, directory.archive, copying=number == 0))
    shutil.move(compress(directory, 3), directory.archive)
    index_path(directory.path, NAME, 1).unlink()
    found = directory.recover()
    check(found, directory, directory.records, directory.end)
    assert found.last_txid == expected.last_txid
    assert [(e.place.archived, e.place.compressed) for e in found.journals[:4]] == [
        (True, False),
        (False, True),
        (True, False),
        (True, True),
    ]
    assert [event for event, _ in directory.reports] == ["1D-0004"]
    assert index_path(directory.path, NAME, 1).exists()
    (directory.archive / directory.journal(2).name).unlink()
    with pytest.raises(RecoveryRefused, match=directory.journal(2).name):
        directory.recover()


def test_recovery_tells_of_an_archive_that_is_not_there(directory: Directory, tmp_path: Path) -> None:
    """transaction_log.md §12: the log can be used without its oldest journals; nobody shall think that it is whole."""
    directory.archive = tmp_path / "archive"
    directory.archive.mkdir()
    for number in (0, 1):
        place = JournalPlace(number, directory.journal(number), False, False)
        sum(archive_journal(Disk(), NAME, place, directory.archive))
    directory.recover()
    mounted = directory.archive.rename(tmp_path / "elsewhere")
    directory.archive.mkdir()
    for _ in range(2):
        directory.recover()
        ((event, text),) = directory.reports
        assert event == "1D-0021"
        assert "begins with journal 0000000002: journals 0000000000 to 0000000001 are" in text
        assert str(directory.archive) in text
    directory.archive.rmdir()
    mounted.rename(directory.archive)
    check(directory.recover(), directory, directory.records, directory.end)
    assert not directory.reports


def test_recovery_knows_what_was_removed_on_purpose(directory: Directory) -> None:
    for number in (0, 1):
        remove_journal(Disk(), directory.path, None, NAME, number)
        directory.recover()
        assert not directory.reports
    directory.journal(2).unlink()
    index_path(directory.path, NAME, 2).unlink()
    directory.recover()
    assert "journals 0000000002 to 0000000002 are not in" in directory.reports[0][1]
    # As 'amps journal remove' does it when they are gone already.
    assert note_removal(Disk(), directory.path, NAME, 2)
    assert note_removal(Disk(), directory.path, NAME, 0)
    directory.recover()
    assert not directory.reports
    for number in directory.numbers:
        directory.journal(number).unlink()
    directory.recover()
    assert not removals_path(directory.path, NAME).exists()


def test_a_removal_on_a_full_disk_is_noted_when_there_is_room(directory: Directory) -> None:
    class Full(Disk):
        def open(self, path: Path, flags: int) -> int:
            if directory.journal(0).exists():
                raise OSError(errno.ENOSPC, "no space left on device")
            return super().open(path, flags)

    remove_journal(Full(), directory.path, None, NAME, 0)
    directory.recover()
    assert not directory.reports


@pytest.mark.parametrize("damage", ["footer", "entry", "end", "beginning"])
def test_the_remedy_for_a_damaged_seek_table_restores_the_journal(directory: Directory, damage: str) -> None:
    """transaction_log.md §12: its frames are whole, so nothing is lost."""
    content = directory.journal(1).read_bytes()
    packed = compress(directory, 1)
    data = bytearray(packed.read_bytes())
    table = data.rindex(b"\x5e\x2a\x4d\x18")
    if damage == "end":
        del data[-3:]
    else:
        data[{"footer": len(data) - 2, "entry": table + 10, "beginning": table}[damage]] ^= 0xFF
    packed.write_bytes(data)
    with pytest.raises(RecoveryRefused, match="zstd -dc") as refused:
        directory.recover()
    (report,) = (report for report in verify_instance(directory.path, NAME) if report.path == packed)
    found = re.search(r"(zstd -dc .* > .*) \(a complaint", str(refused.value))
    assert found is not None
    assert found[1] in report.problems[0]
    assert found[1] == f"zstd -dc {packed} > {directory.journal(1)}"
    # What that does: frame after frame is written, until there is none.
    left = bytes(data)
    with directory.journal(1).open("wb") as target, contextlib.suppress(zstandard.ZstdError):
        while left:
            frame = zstandard.ZstdDecompressor().decompressobj()
            target.write(frame.decompress(left))
            left = frame.unused_data
    assert directory.journal(1).read_bytes() == content
    packed.unlink()
    check(directory.recover(), directory, directory.records, directory.end)


def test_recovery_keeps_one_of_two_forms(directory: Directory) -> None:
    """A crash after the compressed journal had its name, and before the plain one was gone."""
    content = directory.journal(1).read_bytes()
    target = compress(directory, 1)
    directory.journal(1).write_bytes(content)
    (directory.path / f"{target.name}.new").write_bytes(b"unfinished")
    check(directory.recover(), directory, directory.records, directory.end)
    assert not target.exists()
    assert directory.journal(1).read_bytes() == content
    assert not list(directory.path.glob("*.new"))
    shutil.copy(directory.journal(2), target)
    with pytest.raises(RecoveryRefused, match="cannot both be journal 1"):
        directory.recover()


def test_recovery_wants_the_newest_journal_plain(small: Directory) -> None:
    """New messages always go to an uncompressed journal: transaction_log.md §3."""
    small.journal(0).rename(compressed_path(small.path, NAME, 0))
    with pytest.raises(RecoveryRefused, match="zstd -d"):
        small.recover()


def test_recovery_refuses_a_damaged_compressed_journal(directory: Directory) -> None:
    target = compress(directory, 1)
    target.write_bytes(target.read_bytes()[:-1])
    with pytest.raises(RecoveryRefused, match=target.name):
        directory.recover()


def clients_of(directory: Directory, number: int) -> ClientsAck:
    """What `clients.ack` says when the journal with that number is the last full one."""
    header = read_header(directory.journal(number))
    ack = ClientsAck()
    last: dict[int, tuple[int, int, int]] = {}
    for record in directory.records:
        if record.position < header.start_position + header.size:
            last[record.publisher_id] = (1, record.sequence, record.timestamp_ns)
    ack.take(summary_of(last))
    ack.covers(header)
    return ack


def test_recovery_with_clients_ack_reads_later_indexes_only(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transaction_log.md §20 44"""
    path = clients_ack_path(directory.path, NAME)
    write_clients_ack(Disk(), path, clients_of(directory, 2))
    read: list[str] = []
    open_journal = older.open_journal
    monkeypatch.setattr(older, "open_journal", lambda path: read.append(path.name) or open_journal(path))
    check(directory.recover(), directory, directory.records, directory.end)
    assert read
    assert min(read) == directory.journal(3).name
    for number in (0, 1):  # removed, as a server does it
        directory.journal(number).unlink()
        index_path(directory.path, NAME, number).unlink()
    check(directory.recover(), directory, directory.records, directory.end)


def test_recovery_rebuilds_a_damaged_index_that_clients_ack_covers(directory: Directory) -> None:
    """transaction_log.md §12: whatever byte it is, and its progress is told of."""
    write_clients_ack(Disk(), clients_ack_path(directory.path, NAME), clients_of(directory, 2))
    damaged = index_path(directory.path, NAME, 1)
    good = damaged.read_bytes()
    for offset in (*range(0, len(good), max(1, len(good) // 20)), len(good) - 1):
        damaged.write_bytes(good[:offset] + bytes([good[offset] ^ 1]) + good[offset + 1 :])
        directory.reports.clear()
        check(directory.recover(), directory, directory.records, directory.end)
        ((event, text),) = directory.reports
        assert event == "1D-0004"
        assert str(damaged) in text
        assert damaged.read_bytes() == good


def test_recovery_does_not_believe_another_logs_clients_ack(directory: Directory) -> None:
    path = clients_ack_path(directory.path, NAME)
    for wrong in ("first_txid", "position"):
        ack = clients_of(directory, 2)
        ack.rows["last_sequence"] += 1000
        setattr(ack, wrong, 1 << 40)
        write_clients_ack(Disk(), path, ack)
        check(directory.recover(), directory, directory.records, directory.end)
        assert [event for event, _ in directory.reports] == ["1D-0012"]
    for number in directory.numbers:
        directory.journal(number).unlink()
    directory.recover()
    assert not path.exists()


def test_recovery_forgets_publishers_that_stayed_away(directory: Directory) -> None:
    """transaction_log.md §20 40: whatever is known of them, and from where."""
    write_clients_ack(Disk(), clients_ack_path(directory.path, NAME), clients_of(directory, 2))
    times = {record.publisher_id: record.timestamp_ns for record in directory.records}
    latest = max(times.values())
    directory.forget_before_ns = latest
    assert set(directory.recover().publishers) == {p for p, time in times.items() if time == latest}
    directory.forget_before_ns = latest + 1
    assert directory.recover().publishers == {}
