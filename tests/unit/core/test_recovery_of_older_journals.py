"""Recovery with compressed, archived or removed journals; indexes, and `clients.ack`."""

import contextlib
import errno
import re
import shutil
from pathlib import Path

import pytest
import zstandard

from amps.journal.clients_ack import ClientsAck, summary_of, write_clients_ack
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.journal.files import read_header
from amps.journal.moving import archive_journal, remove_journal
from amps.journal.names import (
    JournalPlace,
    clients_ack_path,
    compressed_path,
    index_path,
    removals_path,
)
from amps.journal.removals import note_removal
from amps.journal.verify import verify_instance
from amps.server.core import older
from amps.server.core.older import RecoveryRefused
from tests.support.log_directories import NAME, Directory, check


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path).fill(1, 200)


@pytest.fixture
def small(tmp_path: Path) -> Directory:
    """One journal that is not full."""
    return Directory(tmp_path).fill(2, 20)


def compress(directory: Directory, number: int) -> Path:
    target = compressed_path(directory.path, NAME, number)
    sum(compress_journal(Disk(), directory.journal(number), target))
    return target


def test_recovery_finds_journals_in_every_place_and_form(directory: Directory, tmp_path: Path) -> None:
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


def test_recovery_reports_a_missing_archive(directory: Directory, tmp_path: Path) -> None:
    """transaction_log.md §12: the log can be used without its oldest journals, but the gap must be reported."""
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


def test_recovery_recognises_journals_removed_on_purpose(directory: Directory) -> None:
    for number in (0, 1):
        remove_journal(Disk(), directory.path, None, NAME, number)
        directory.recover()
        assert not directory.reports
    directory.journal(2).unlink()
    index_path(directory.path, NAME, 2).unlink()
    directory.recover()
    assert "journals 0000000002 to 0000000002 are not in" in directory.reports[0][1]
    # 'amps journal remove' notes removals like this when the files are already gone.
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
    found = re.search(r"(zstd -dc .* > .*) \(ignore an error", str(refused.value))
    assert found is not None
    assert found[1] in report.problems[0]
    assert found[1] == f"zstd -dc {packed} > {directory.journal(1)}"
    # The effect of the remedy: frame after frame is written, until there is none.
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
    """A crash occurred after the compressed journal had its name, and before the plain one was removed."""
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


def test_recovery_requires_the_newest_journal_plain(small: Directory) -> None:
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
    """The content of `clients.ack` when the journal with that number is the last full one."""
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
    """transaction_log.md §12: for any damaged byte, and the progress is reported."""
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


def test_recovery_ignores_another_logs_clients_ack(directory: Directory) -> None:
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
    """transaction_log.md §20 40: this applies to publishers known from any source."""
    write_clients_ack(Disk(), clients_ack_path(directory.path, NAME), clients_of(directory, 2))
    times = {record.publisher_id: record.timestamp_ns for record in directory.records}
    latest = max(times.values())
    directory.forget_before_ns = latest
    assert set(directory.recover().publishers) == {p for p, time in times.items() if time == latest}
    directory.forget_before_ns = latest + 1
    assert directory.recover().publishers == {}
