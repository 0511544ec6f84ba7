"""Retention of full journals: which operations apply to which journals, in which order, and what they wait for."""

from pathlib import Path
from typing import Any

import msgpack
import pytest

from amps._core.journal.reader import LogCursor, LogFile, LogRemoved
from amps._core.journal.writer import IndexBuilder, scan_file
from amps._core.shm.memory import MODE_ASYNC, MODE_SYNC, NO_JOURNAL, ControlPage
from amps.journal.clients_ack import ClientsAck, read_clients_ack
from amps.journal.disk import Disk
from amps.journal.files import read_header
from amps.journal.names import clients_ack_path, index_path
from amps.server.core import journal_retention
from amps.server.core.destination_pins import DestinationPins
from amps.server.core.journal_retention import JournalRetention
from amps.server.shared.journal_floor import JournalFloor, SharedFloor
from tests.support.feed import Feed, Feeder, directory_of
from tests.support.records import RecordParts
from tests.support.reports import Reports

NAME = "journal"  # the name that Feeder gives its journal
FILE_BYTES = 16384


class Setting:
    """Four full journals and one in use."""

    def __init__(self, path: Path) -> None:
        self.path = path / "journal"
        self.archive = path / "archive"
        self.path.mkdir()
        self.archive.mkdir()
        feeder = Feeder(self.path, FILE_BYTES)
        number = 0
        while feeder.journal.number < 4:
            number += 1
            feeder.push(Feed(0, number, "t", RecordParts(payload=b"x" * 1000, publisher_id=5)))
            feeder.turn(1000, 0)
        self.storage = feeder.journal_storage
        self.control = ControlPage()
        self.control.set_watermarks(feeder.journal.position, 0, 1, 4, 0)
        self.control.durable = feeder.journal.position
        self.reports = Reports()
        self.retention = JournalRetention(
            self.path,
            self.archive,
            NAME,
            self.control,
            self.reports,
            Disk(),
            lambda number: path / "index",
        )
        self.retention.start([], ClientsAck())
        for full in range(4):
            file = LogFile(str(self.storage.path(full)))
            builder = IndexBuilder(None, full, file.start_position, file.size)
            scan_file(file, file.start_position, builder)
            index_path(self.path, NAME, full).write_bytes(builder.to_bytes())
            self.retention.journal_full(read_header(self.storage.path(full)), builder.to_bytes())

    def ask(self, *request: Any) -> list[list[Any]]:
        return [
            msgpack.unpackb(answer) for answer in self.retention.answer(msgpack.packb(list(request)), 1 << 62)
        ]

    def work(self) -> None:
        while self.retention.step():
            pass

    def files(self, directory: Path) -> list[str]:
        return sorted(path.name[len("journal.000000000") :] for path in directory.glob("journal.0*.journal*"))

    def events(self, event: str) -> int:
        return sum(found == event for found, _ in self.reports)


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    monkeypatch.setattr(journal_retention, "WAIT_S", 0.0)
    return Setting(tmp_path)


def test_retention_lists_in_parts(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_retention, "ENTRIES_PER_DATAGRAM", 2)
    answers = setting.ask("a", "list")
    assert [answer[:2] for answer in answers] == [["a", "more"], ["a", "more"], ["a", "ok"]]
    rows = [row for answer in answers for row in answer[2]]
    assert [row["number"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["full"] for row in rows] == [True] * 4 + [False]


def test_retention_compresses_archives_and_removes_index_and_all(setting: Setting) -> None:
    assert setting.ask(1, "compress", {"up_to": 1}) == [[1, "ok", [0, 1]]]
    assert setting.ask(2, "archive", {"up_to": 0}) == [[2, "ok", [0]]]
    setting.work()
    assert setting.files(setting.archive) == ["0.journal.gz"]
    assert setting.files(setting.path)[:2] == ["1.journal.gz", "2.journal"]
    assert index_path(setting.archive, NAME, 0).exists()
    assert not index_path(setting.path, NAME, 0).exists()
    assert setting.ask(3, "compress", {"up_to": 1}) == [[3, "ok", []]]
    assert setting.ask(4, "remove", {"up_to": 1}) == [[4, "ok", [0, 1]]]
    setting.work()
    assert setting.files(setting.archive) == []
    assert setting.files(setting.path)[0] == "2.journal"
    assert not list(setting.archive.iterdir())
    assert not index_path(setting.path, NAME, 1).exists()
    assert setting.control.first_journal_number == 2


def test_retention_records_publishers_before_it_removes(setting: Setting) -> None:
    """transaction_log.md §20 44; the entries must be durable first."""
    durable, setting.control.durable = setting.control.durable, 0
    setting.work()
    path = clients_ack_path(setting.path, NAME)
    assert not path.exists()
    setting.control.durable = durable
    setting.retention.client_names = ["p0"]
    setting.ask(1, "remove", {"age_s": 0})
    setting.work()
    found = read_clients_ack(path)
    assert found.journal_number == 3
    assert found.position == 4 * FILE_BYTES
    assert list(found.last_sequences()) == [5]


def test_retention_removes_nothing_when_publishers_cannot_be_recorded(setting: Setting) -> None:
    setting.work()
    clients_ack_path(setting.path, NAME).unlink()
    setting.retention._written_position = 0
    setting.control.durable = 0  # so that the attempt is made for the removal
    (setting.path / f"{NAME}.clients.ack.new").mkdir()
    setting.ask(1, "remove", {"up_to": 0})
    setting.work()
    assert "0.journal" in setting.files(setting.path)
    assert setting.events("2C-0009") == 1
    assert not setting.retention._removing()


def test_retention_waits_for_journals_still_needed(setting: Setting) -> None:
    """transaction_log.md §13.2: journals needed by queues and destinations are kept. Readers may still begin there."""
    needed = [2]
    setting.retention.blockers.append(lambda: needed[0])
    setting.ask(1, "remove", {"age_s": 0})
    setting.work()
    assert setting.control.first_journal_number == 2
    assert setting.files(setting.path)[0] == "2.journal"
    assert setting.retention._removing()
    assert setting.events("2C-0008") == 1
    setting.ask(1, "compress", {"age_s": 0})
    setting.work()
    assert setting.files(setting.path)[0] == "2.journal.gz"
    needed[0] = NO_JOURNAL
    setting.work()
    assert setting.files(setting.path)[0] == "4.journal"
    assert not setting.retention._removing()


def test_retention_and_readers_agree_on_the_first_journal(setting: Setting) -> None:
    """transaction_log.md §13.2: a reader's journal and later ones stay. A reader that starts later begins later."""
    control = setting.control
    control.set_transport_alive(3, True)
    floor = JournalFloor(control, 3)
    floor.enter(1)
    setting.ask(1, "remove", {"up_to": 2})
    setting.work()
    assert setting.files(setting.path)[0] == "1.journal"
    assert control.first_journal_number == 3
    late = JournalFloor(control, 4)
    control.set_transport_alive(4, True)
    with pytest.raises(LogRemoved):
        late.enter(2)
    late.enter(3)
    floor.enter(2)  # the reader itself goes on
    floor.release(2)
    setting.work()
    assert setting.files(setting.path)[0] == "2.journal"
    with pytest.raises(LogRemoved):
        floor.enter(1)
    floor.release(None)
    setting.work()
    assert setting.files(setting.path)[0] == "3.journal"
    control.set_transport_alive(4, False)  # the reader died, so its position does not count
    setting.ask(1, "remove", {"up_to": 3})
    setting.work()
    assert setting.files(setting.path)[0] == "4.journal"


def test_retention_keeps_what_any_view_of_a_process_reads(setting: Setting) -> None:
    """transaction_log.md §13.2: a process with two views of the journals has one word for both."""
    control = setting.control
    shared = SharedFloor(JournalFloor(control, 3))
    control.set_transport_alive(3, True)
    first, second = shared.share(), shared.share()
    second.enter(2)
    first.enter(1)
    first.enter(3)
    setting.ask(1, "remove", {"up_to": 3})
    setting.work()
    assert setting.files(setting.path)[0] == "1.journal"
    with pytest.raises(LogRemoved):
        second.check(0)
    second.release(2)
    setting.work()
    assert setting.files(setting.path)[0] == "1.journal"
    first.release(None)
    setting.work()
    assert setting.files(setting.path)[0] == "2.journal"
    second.release(None)
    setting.work()
    assert setting.files(setting.path)[0] == "4.journal"


def test_retention_leaves_a_damaged_journal_alone(setting: Setting) -> None:
    path = setting.storage.path(1)
    content = bytearray(path.read_bytes())
    content[9000] ^= 1
    path.write_bytes(bytes(content))
    setting.ask(1, "compress", {"age_s": 0})
    setting.work()
    assert path.read_bytes() == content
    assert setting.events("2C-0009") == 1
    assert setting.events("2C-0006") == 3


def test_retention_answers_any_request(setting: Setting) -> None:
    for data in (
        b"",
        b"\xc1",
        msgpack.packb(7),
        msgpack.packb([]),
        msgpack.packb({"a": 1}),
        b"\x93" * 50_000,
    ):
        (answer,) = setting.retention.answer(data, 0)
        assert msgpack.unpackb(answer)[1] == "error"
    for request in (
        ("x",), ("x", None), ("x", []), ("x", "remove", {"up_to": 4}), ("x", "remove", {"age_s": float("nan")}),
        ("x", "remove", {"age_s": 1, "up_to": 1}), ("x", "remove", {"up_to": 1 << 63}),
    ):  # fmt: skip
        assert setting.ask(*request)[0][1] == "error"
    setting.work()
    assert len(setting.files(setting.path)) == 5


def test_retention_a_reader_finds_a_journal_that_moves(setting: Setting) -> None:
    directory = directory_of(setting.storage)
    cursor = LogCursor(directory, 0, 0, True)
    setting.ask(1, "compress", {"age_s": 0})
    setting.work()
    assert cursor.step(4 * FILE_BYTES) is not None  # a file that is open stays readable


def test_a_journal_stays_until_each_destination_has_acknowledged_it(setting: Setting) -> None:
    """replication.md §13 and §26, 51: also for async destinations; archiving and compressing go on."""
    control, ends = setting.control, [number * FILE_BYTES for number in range(5)]
    control.destinations = 2
    pins = DestinationPins(control, ["B", "C"], setting.retention.number_at)
    setting.retention.blockers.append(pins.oldest_journal)
    setting.retention.explain = pins.explain
    setting.ask(1, "remove", {"up_to": 3})
    setting.ask(2, "compress", {"up_to": 0})
    setting.ask(3, "archive", {"up_to": 0})
    setting.work()
    assert setting.files(setting.archive) == ["0.journal.gz"]
    assert setting.files(setting.path) == ["1.journal", "2.journal", "3.journal", "4.journal"]
    text = dict(setting.reports)["2C-0014"]
    assert "B holds 4, C holds 4" in text
    for mode, destination, acked in ((MODE_ASYNC, 0, ends[3]), (MODE_SYNC, 1, ends[1] - 1)):
        control.set_destination(destination, mode, acked, 0, acked)
    setting.work()
    assert setting.files(setting.archive) == ["0.journal.gz"]
    assert "C holds 4." in setting.reports[-1][1]
    control.set_destination(1, MODE_SYNC, ends[1], 0, ends[1])
    setting.work()
    assert setting.files(setting.archive) == []
    assert setting.files(setting.path)[0] == "1.journal"
    control.set_destination(1, MODE_SYNC, ends[4], 0, ends[4])
    setting.work()
    assert setting.files(setting.path) == ["3.journal", "4.journal"]
    assert "B holds 1." in setting.reports[-1][1]
    control.set_destination(0, MODE_ASYNC, ends[4], 0, ends[4])
    setting.work()
    assert setting.files(setting.path) == ["4.journal"]
    assert pins.explain(4) == "B holds 0, C holds 0"
    assert pins.explain(3) is None


def test_without_destinations_no_journal_is_held(setting: Setting) -> None:
    assert DestinationPins(setting.control, [], setting.retention.number_at).oldest_journal() == NO_JOURNAL
