"""Recovery of a journal directory, against a plain list of the records written, and after every kind of crash."""

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps._core.journal.reader import FILE_HEADER_SIZE, LogCursor, LogFile, build_file_header
from amps._core.journal.writer import scan_file
from amps._core.values.value import publisher_id
from amps.journal.disk import Disk
from amps.journal.names import (
    index_path,
    watermark_path,
)
from amps.journal.watermark import read_watermark
from amps.server.core.older import RecoveryRefused
from amps.server.core.recovery import Recovered, recover
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.log_directories import FILE_BYTES, NAME, Directory, check
from tests.support.records import RecordParts


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path).fill(1, 200)


@pytest.fixture
def small(tmp_path: Path) -> Directory:
    """One journal that is not full."""
    return Directory(tmp_path).fill(2, 20)


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
        # The second recovery finds everything unchanged, and the indexes exist.
        check(directory.recover(), directory, directory.records, directory.end)
        assert directory.reports == []


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 300), st.integers(0, 1 << 30))
def test_recovery_cuts_a_torn_tail(cut: int, garbage: int, seed: int) -> None:
    """The end may be missing, or any bytes may be there. Exactly the whole records remain."""
    with tempfile.TemporaryDirectory() as path:
        directory = Directory(Path(path)).fill(2, 20)
        image = directory.journal(0).read_bytes()
        torn_at = max(FILE_HEADER_SIZE, directory.end - cut)
        rest = random.Random(seed).randbytes(garbage)
        directory.journal(0).write_bytes((image[:torn_at] + rest).ljust(FILE_BYTES, b"\0"))
        # The last padding may be cut off without loss.
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
def test_recovery_refuses_when_a_durable_record_is_missing(small: Directory, place: int) -> None:
    """The watermark file shows that it was durable. The refusal changes no file."""
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
    # Records behind the watermark were never durable, so this is a torn tail.
    small.promise(victim.position)
    small.recover()
    assert small.reports[0][0] == "1D-0005"


def test_recovery_later_records_prove_the_watermark(tmp_path: Path) -> None:
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


# Directories as a crash may leave them


def test_recovery_knows_the_names_in_the_newest_journal(directory: Directory) -> None:
    """A core that goes on in it does not write them again."""
    newest = LogFile(str(directory.journal(directory.numbers[-1])))
    assert directory.recover().name_ids == scan_file(newest, newest.start_position).name_ids != set()


def test_recovery_of_nothing(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    assert directory.recover() == Recovered()
    assert directory.reports == []


def test_recovery_starts_a_new_log_when_the_journals_were_removed(small: Directory) -> None:
    """A second start must not find the old watermark again."""
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


def test_recovery_recognises_spares(small: Directory) -> None:
    small.add_spare()
    small.add_spare()
    found = small.recover()
    assert found.spares == {1, 2}
    check(found, small, small.records, small.end)


def test_recovery_of_spares_alone(tmp_path: Path) -> None:
    """The server was killed after preallocation, before the first file came into use."""
    directory = Directory(tmp_path)
    header = build_file_header(5, FILE_BYTES, 0, 0, 1, 2, NAME, False)
    directory.journal(5).write_bytes(header.ljust(FILE_BYTES, b"\0"))
    found = directory.recover()
    assert (found.active, found.spares, found.first_number) == (None, {5}, 5)


@pytest.mark.parametrize("torn", ["zeros", "half", "flipped"])
def test_recovery_of_a_torn_header(small: Directory, torn: str) -> None:
    """The torn file and the spares behind it are made anew, since no record was in them."""
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
    """This is damage in the newest file with anything behind it, in an older file, and in two files at once."""
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


def test_recovery_refuses_a_watermark_in_a_torn_file(small: Directory) -> None:
    """The file's header was durable once, so the damage is not from a crash."""
    small.add_spare().write_bytes(bytes(FILE_BYTES))
    small.promise(FILE_BYTES + FILE_HEADER_SIZE)
    with pytest.raises(RecoveryRefused, match="acknowledged"):
        small.recover()
    assert small.numbers == [0, 1]


def test_recovery_after_the_end_of_file_record(directory: Directory) -> None:
    """Killed between the end of one journal and the header of the next: nothing is missing, with any watermark."""
    for number in directory.numbers[2:]:
        directory.journal(number).unlink()
    size = directory.journal(0).stat().st_size + directory.journal(1).stat().st_size
    directory.promise(size)
    found = directory.recover()
    assert found.finished
    assert found.active is not None
    assert found.active.number == 1
    assert found.active.start_position + found.active.size == size


def test_recovery_removes_unfinished_files_and_nothing_else(small: Directory) -> None:
    """This includes names that look like patterns, or like those of this instance."""
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
    """The index is from another log with the same number, start and length."""
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
    """A disk that records the calls that write or sync."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, object]] = []

    def write(self, descriptor: int, data: memoryview, offset: int, zeros: int = 0) -> None:
        self.calls.append(("write", (offset, offset + len(data))))
        super().write(descriptor, data, offset, zeros)

    def sync(self, descriptor: int) -> None:
        self.calls.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        super().sync(descriptor)

    def sync_directory(self, directory: Path) -> None:
        self.calls.append(("sync directory", str(directory)))
        super().sync_directory(directory)


def test_recovery_leaves_everything_on_the_device(small: Directory) -> None:
    """Names are synced too.

    Records behind the watermark are written again: a failed sync may have left clean pages unwritten.
    """
    promised = small.records[10].position
    small.promise(promised)
    disk = RecordingDisk()
    small.recover(disk)
    assert ("sync directory", str(small.path)) in disk.calls
    assert disk.calls[-1] == ("sync", str(small.journal(0)))
    written = [place for call, place in disk.calls if call == "write"]
    assert (0, FILE_HEADER_SIZE) in written
    assert (promised, small.end) in written
