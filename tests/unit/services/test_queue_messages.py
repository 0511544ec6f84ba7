"""Reading messages that have left their queues: their places, and errors for missing ones."""

from pathlib import Path

import pytest

from amps._core.journal.reader import LogCursor, LogDamaged, LogMissing, LogRemoved
from amps._core.shm.memory import ControlPage
from amps.server.services.queue_messages import JOURNALS_OPEN_MAX, QueueMessages
from tests.support.feed import Feed, Feeder, directory_of
from tests.support.records import RecordParts


class Setting:
    """A log of several journals, the position of each of its messages, and its reader."""

    def __init__(self, path: Path) -> None:
        feeder = Feeder(path, 16384)
        for number in range(1, 100):
            parts = RecordParts(payload=b"%d" % number * 500, publisher_id=5, correlation_id=b"c")
            feeder.push(Feed(0, number, "t", parts))
            feeder.turn(1000, 0)
        self.last = feeder.journal.number
        self.control = ControlPage()
        self.control.set_watermarks(feeder.journal.position, 0, 1, self.last, 0)
        self.storage = feeder.journal_storage
        self.directory = directory_of(self.storage)
        cursor = LogCursor(self.directory, 0, 0, True)
        self.positions: list[int] = []
        while (record := cursor.step(feeder.journal.position)) is not None:
            self.positions.append(record.position)
        del cursor
        self.messages = QueueMessages(self, self.control)  # type: ignore[arg-type]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def test_messages_are_read_in_any_order(setting: Setting) -> None:
    assert setting.last > JOURNALS_OPEN_MAX
    for number, position in reversed(list(enumerate(setting.positions, 1))):
        record = setting.messages.read(position)
        assert (record.payload, record.correlation_id) == (b"%d" % number * 500, b"c")
    setting.messages.release()
    assert setting.messages.read(setting.positions[0]).payload == b"1" * 500


@pytest.mark.parametrize("offset", [8, -8])
def test_a_place_without_a_message(setting: Setting, offset: int) -> None:
    with pytest.raises(LogDamaged):
        setting.messages.read(setting.positions[5] + offset)


def test_a_journal_that_was_removed_on_purpose(setting: Setting) -> None:
    setting.control.first_journal_number = 2
    with pytest.raises(LogRemoved, match="was removed"):
        setting.messages.read(setting.positions[0])
    assert setting.messages.read(setting.positions[-1]).payload == b"99" * 500


def test_a_journal_that_is_missing(setting: Setting) -> None:
    setting.storage.path(0).rename(setting.storage.path(0).with_suffix(".away"))
    with pytest.raises(LogMissing, match="put it back"):
        setting.messages.read(setting.positions[0])
    setting.storage.path(0).with_suffix(".away").rename(setting.storage.path(0))
    assert setting.messages.read(setting.positions[0]).payload == b"1" * 500
