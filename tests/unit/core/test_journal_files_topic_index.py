"""Topic indexes made by the core's housekeeping: order of writes, and state after crashes, removals and full disks."""

import errno
import os
from pathlib import Path

import pytest

from amps.journal.names import journal_path, topic_index_path, unfinished_path
from amps.journal.topic_index import make_topic_index
from amps.server.core.journal_files import JournalFiles
from tests.support.journals import journal
from tests.support.records import RecordParts
from tests.support.reports import Reports
from tests.unit.core.test_journal_files import NAME, ScriptedDisk, Setting

SIZE = 16 << 20


class Full(ScriptedDisk):
    """A disk that refuses writes to a topic index."""

    def write(self, descriptor: int, data: memoryview, offset: int) -> None:
        if "topic.index" in self._name(descriptor):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(descriptor, data, offset)


@pytest.fixture(scope="module")
def full() -> bytes:
    """A full journal. Its checksums are computed bit by bit, which takes seconds."""
    records = [RecordParts(bytes(1000), topic_id=n % 2, txid=n + 1) for n in range(13_000)]
    return journal(records, SIZE, finished=True)


@pytest.fixture
def files(tmp_path: Path, full: bytes) -> JournalFiles:
    setting = Setting(tmp_path, preallocated=1, size=SIZE)
    setting.files._topic_index = True
    full_journal(setting.files).write_bytes(full)
    setting.files._number = 4
    setting.files.make_missing_topic_indexes(3, 4)
    return setting.files


def full_journal(files: JournalFiles) -> Path:
    return journal_path(files.directory, NAME, 3)


def index_of(files: JournalFiles) -> Path:
    return topic_index_path(files.directory, NAME, 3)


def test_it_is_made_in_steps_and_is_synced_before_it_has_its_name(files: JournalFiles) -> None:
    steps = 0
    while files.step():
        steps += 1
        if not index_of(files).exists():
            assert files._without_topic_index == [3]
    assert steps > 3
    assert index_of(files).read_bytes() == make_topic_index(full_journal(files))
    calls = files._disk.calls  # type: ignore[attr-defined]
    assert calls[-3:] == [
        ("sync", unfinished_path(index_of(files)).name),
        ("rename", index_of(files).name),
        ("sync", "directory"),
    ]
    assert not unfinished_path(index_of(files)).exists()
    files.make_missing_topic_indexes(3, 4)
    assert not files.step()


def test_a_journal_that_is_removed_meanwhile_leaves_no_index(files: JournalFiles) -> None:
    assert files.step()
    full_journal(files).unlink()
    while files.step():
        pass
    assert not index_of(files).exists()
    assert not unfinished_path(index_of(files)).exists()


def test_a_full_disk_is_reported_and_leaves_no_file(files: JournalFiles) -> None:
    files._disk = Full()
    files._report = reports = Reports()
    while files.step():
        pass
    assert reports.ids == ["2C-0013"]
    assert "No space left" in reports[0][1]
    assert not unfinished_path(index_of(files)).exists()


def test_a_damaged_journal_is_reported(files: JournalFiles) -> None:
    data = bytearray(full_journal(files).read_bytes())
    data[5000] ^= 1
    full_journal(files).write_bytes(data)
    files._report = reports = Reports()
    while files.step():
        pass
    assert reports.ids == ["2C-0013"]
    assert "damaged at offset" in reports[0][1]
    assert not index_of(files).exists()
