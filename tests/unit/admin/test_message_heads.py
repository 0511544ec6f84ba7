"""Lookup of messages in the log by position: in a journal in use, archived, compressed or removed."""

from dataclasses import replace
from pathlib import Path

import pytest

from amps._core.journal.reader import LogCursor, Record
from amps.config import ServerConfig
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.journal.names import compressed_path
from amps.server.admin.message_heads import MessageHead, read_heads
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.records import RecordParts
from tests.support.services import loaded

NAME = "journal"  # the name that Feeder gives its journal


class Log:
    """A log of several journals, with the records in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.archive = path / "archive"
        self.archive.mkdir()
        self.feeder = Feeder(path, 16384)
        for number in range(1, 120):
            self.feeder.push(Feed(0, number, "T", RecordParts(payload=bytes(400))))
            self.feeder.turn(1000 + number, 0)
        self.end = self.feeder.journal.position
        self.records = read_all(LogCursor(directory_of(self.feeder.journal_storage), 0, 0, True), self.end)
        self.numbers = sorted(self.feeder.journal_storage.numbers)
        assert len(self.numbers) >= 4
        directory = directory_of(self.feeder.journal_storage)
        self.starts = {number: directory.start_position(number) for number in self.numbers}
        config = loaded(log=True).config
        assert config.transaction_log is not None
        self.config: ServerConfig = replace(
            config,
            name=NAME,
            transaction_log=replace(
                config.transaction_log, journal_directory=path, journal_archive_directory=self.archive
            ),
        )

    def journal(self, number: int) -> Path:
        return self.path / f"{NAME}.{number:010d}.journal"

    def read(self, *positions: int) -> dict[int, MessageHead | None]:
        return read_heads(self.config, self.feeder.control, positions)

    def number_of(self, record: Record) -> int:
        return max(number for number, start in self.starts.items() if start <= record.position)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_messages_of_all_journals(log: Log) -> None:
    found = log.read(*[record.position for record in reversed(log.records)])
    assert found == {
        record.position: MessageHead(
            record.txid, record.timestamp_ns, str(log.journal(log.number_of(record)))
        )
        for record in log.records
    }


def test_journals_that_are_compressed_or_archived(log: Log) -> None:
    first, second = log.numbers[:2]
    for _ in compress_journal(Disk(), log.journal(first), compressed_path(log.path, NAME, first)):
        pass
    moved = log.archive / log.journal(second).name
    log.journal(second).rename(moved)
    found = log.read(*[record.position for record in log.records])
    assert {position: head.txid for position, head in found.items() if head is not None} == {
        record.position: record.txid for record in log.records
    }
    heads = [head.path for head in found.values() if head is not None]
    assert heads[0] == str(compressed_path(log.path, NAME, first))
    assert str(moved) in heads


def test_a_journal_that_has_vanished(log: Log) -> None:
    """Messages of the missing journal are not found. All other messages are either right or not found."""
    gone = log.numbers[1]
    log.journal(gone).unlink()
    found = log.read(*[record.position for record in log.records])
    for record in log.records:
        head = found[record.position]
        assert head is None or (head.txid == record.txid and log.number_of(record) != gone)
    assert any(head is not None for head in found.values())


def test_journals_that_were_removed_in_order(log: Log) -> None:
    log.journal(log.numbers[0]).unlink()
    log.feeder.control.first_journal_number = log.numbers[1]
    found = log.read(*[record.position for record in log.records])
    for record in log.records:
        assert (found[record.position] is None) == (log.number_of(record) == log.numbers[0])


def test_a_place_where_no_message_begins(log: Log) -> None:
    position = log.records[3].position
    assert log.read(position + 8) == {position + 8: None}


def test_a_message_that_is_not_written_yet_is_left_out(log: Log) -> None:
    position = log.records[0].position
    found = log.read(position, log.end, log.end + 1000)
    assert list(found) == [position]


def test_nothing_to_look_up(log: Log) -> None:
    assert log.read() == {}
