"""A journal without a next file: refusals by the sequencer, earlier refusals by the ingress, and their end.

transaction_log.md §20 item 35.
"""

from pathlib import Path

import pytest

from amps._core.journal.reader import LogCursor
from amps._core.shm.memory import ControlPage, Ring
from amps._core.wire import ingress as inbound
from amps._core.wire.framing import encode_frame
from amps._core.wire.ingress import Ingress
from amps._core.wire.topics import TopicTable
from tests.support.feed import SERIAL, UNLOGGED_PREFIX, Feed, Feeder, directory_of, read_all
from tests.support.records import RecordParts

FILE_BYTES = 16384
BODY_BYTES = 1000
UNLOGGED = f"{UNLOGGED_PREFIX}u"


class StubbornFeeder(Feeder):
    """A feeder whose journal gets no second file while `full` is set; with `large_only`, none larger than usual."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, FILE_BYTES)
        self.full = True
        self.large_only = False
        self.journal_storage.prepare_file = self._prepare  # type: ignore[method-assign]

    def _prepare(self, number: int, minimum_bytes: int) -> int | None:  # type: ignore[override]
        if self.large_only:
            return minimum_bytes if minimum_bytes > FILE_BYTES else None
        return 0 if self.full else None

    def publish(self, publisher: int, sequence: int, topic: str = "t", size: int = BODY_BYTES) -> None:
        body = b"%d:%d:" % (publisher, sequence)
        self.push(Feed(publisher, sequence, topic, RecordParts(payload=body.ljust(size, b"."))))
        self.turn(0, 0)

    def refused(self) -> list[tuple[int, int]]:
        """The (slot, serial) of sessions refused since the last call."""
        return [(reply[1], reply[2]) for _, reply in self.sequencer.take_replies() if reply[0] == "refused"]

    def stored(self) -> list[tuple[int, int]]:
        """The (publisher, sequence) of every recorded message."""
        directory = directory_of(self.journal_storage)
        records = read_all(LogCursor(directory, 0, 0, True), self.journal.position)
        return [tuple(map(int, record.payload.split(b":")[:2])) for record in records]  # type: ignore[misc]


@pytest.fixture
def feeder(tmp_path: Path) -> StubbornFeeder:
    return StubbornFeeder(tmp_path)


def test_refusals_begin_when_the_journal_is_full_and_end_with_the_next(feeder: StubbornFeeder) -> None:
    sequence = 0
    while not feeder.sequencer.refuses:
        sequence += 1
        feeder.publish(0, sequence)
    assert feeder.refused() == [(0, SERIAL)]
    assert feeder.control.refused_from_bytes == 0
    assert feeder.stored() == [(0, n) for n in range(1, sequence)]
    assert not feeder.sequencer.try_next_journal()
    feeder.full = False
    assert feeder.sequencer.try_next_journal()
    feeder.publish(1, 1)
    assert feeder.control.refused_from_bytes is None
    assert feeder.stored()[-1] == (1, 1)


def test_refusals_no_message_of_a_refused_session_follows_the_refused_one(
    feeder: StubbornFeeder,
) -> None:
    """This includes topics that need no journal: the later number would make the refused message a duplicate."""
    sequence = 0
    while not feeder.sequencer.refuses:
        sequence += 1
        feeder.publish(0, sequence)
    position = feeder.transient.position
    feeder.publish(0, sequence + 1, topic=UNLOGGED)
    feeder.full = False
    feeder.sequencer.try_next_journal()
    feeder.publish(0, sequence + 2)
    assert feeder.transient.position == position
    assert feeder.stored()[-1] == (0, sequence - 1)
    assert feeder.sequencer.fenced == 3


def test_refusals_other_sessions_go_on_with_topics_that_are_not_recorded(feeder: StubbornFeeder) -> None:
    sequence = 0
    while not feeder.sequencer.refuses:
        sequence += 1
        feeder.publish(0, sequence)
    position = feeder.transient.position
    feeder.publish(1, 1, topic=UNLOGGED)
    assert feeder.transient.position > position
    feeder.publish(2, 1)
    assert feeder.refused() == [(0, SERIAL), (2, SERIAL)]


def test_refusals_of_a_large_message_only(feeder: StubbornFeeder) -> None:
    feeder.large_only = True
    feeder.publish(0, 1, size=2 * FILE_BYTES)
    assert feeder.refused() == [(0, SERIAL)]
    least = feeder.control.refused_from_bytes
    assert least is not None
    assert least > 2 * FILE_BYTES
    for sequence in range(1, 40):
        feeder.publish(1, sequence)
    assert feeder.stored() == [(1, n) for n in range(1, 40)]


def test_refusals_the_journal_can_be_left_before_it_is_full(feeder: StubbornFeeder) -> None:
    feeder.publish(0, 1)
    assert not feeder.sequencer.change_journal()
    assert feeder.sequencer.refuses
    feeder.full = False
    assert feeder.sequencer.change_journal()
    feeder.publish(1, 1)
    assert feeder.journal.number == 1
    assert feeder.stored() == [(0, 1), (1, 1)]


class Entrance:
    """An ingress with a control page on which refusals are announced."""

    def __init__(self) -> None:
        self.feeder: StubbornFeeder
        self.control = ControlPage()
        self.ring = Ring(1 << 16)
        table = TopicTable(lambda topic, message_type: (topic != "plain", False, None, None))
        for topic in ("t", "plain"):
            table.entry(topic, "json").mark_declared()
        self.ingress = Ingress(0, 1, self.ring, self.control, table, 1 << 20)
        self.ingress.log_on("json", 7, 8, b"user", True, True, False, True)

    def publish(self, topic: str, sequence: int, size: int = 10) -> int:
        fields: dict[str, str | int] = {"cmd": "publish", "topic": topic}
        if sequence:
            fields |= {"seq": sequence, "ack_type": "persisted"}
        data = encode_frame(fields, b"." * size)
        buffer = self.ingress.receive_buffer()
        buffer[: len(data)] = data
        self.ingress.received(len(data))
        result = int(self.ingress.parse())
        assert result == inbound.NEED_MORE or self.ingress.sequence == sequence
        self.ingress.discard(0)
        self.ingress.keep()
        return result


def refuse(entrance: Entrance, directory: Path, *, large: bool) -> None:
    """Let a sequencer announce on the control page of the entrance that it refuses messages."""
    feeder = StubbornFeeder(directory)
    feeder.control = entrance.control
    feeder.large_only = large
    if large:
        feeder.publish(0, 1, size=2 * FILE_BYTES)
    else:
        feeder.sequencer.change_journal()
        feeder.sequencer.publish_watermarks(entrance.control)
    entrance.feeder = feeder


def accept(entrance: Entrance) -> None:
    entrance.feeder.full = False
    entrance.feeder.sequencer.try_next_journal()
    entrance.feeder.sequencer.publish_watermarks(entrance.control)


def test_refusals_by_the_ingress_until_the_connection_ends(tmp_path: Path) -> None:
    """See wire/publishes.pxi: without an answer, a publisher would take the refused message for recorded."""
    entrance = Entrance()
    assert entrance.publish("t", 1) == inbound.NEED_MORE
    refuse(entrance, tmp_path, large=False)
    assert entrance.publish("plain", 2) == inbound.NEED_MORE
    assert entrance.publish("t", 3) == inbound.NO_STORAGE
    assert entrance.publish("plain", 4) == inbound.NO_STORAGE
    assert entrance.publish("plain", 0) == inbound.NEED_MORE
    assert entrance.publish("t", 0) == inbound.NO_STORAGE
    pushed = entrance.ring.pushed
    accept(entrance)
    assert entrance.publish("t", 5) == inbound.AFTER_REFUSAL
    assert entrance.publish("plain", 6) == inbound.AFTER_REFUSAL
    assert entrance.ring.pushed == pushed
    assert entrance.publish("t", 0) == inbound.NEED_MORE


def test_refusals_by_the_ingress_without_a_number_leave_no_trace(tmp_path: Path) -> None:
    entrance = Entrance()
    refuse(entrance, tmp_path, large=False)
    assert entrance.publish("t", 0) == inbound.NO_STORAGE
    accept(entrance)
    assert entrance.publish("t", 1) == inbound.NEED_MORE


def test_refusals_by_the_ingress_of_large_messages_only(tmp_path: Path) -> None:
    entrance = Entrance()
    refuse(entrance, tmp_path, large=True)
    assert entrance.publish("t", 1) == inbound.NEED_MORE
    assert entrance.publish("t", 2, size=3 * FILE_BYTES) == inbound.NO_STORAGE
    assert entrance.publish("t", 3) == inbound.AFTER_REFUSAL


def test_a_publish_that_the_log_has_is_not_refused(tmp_path: Path) -> None:
    """replication.md 25.85: a store repeats what is logged and not persisted everywhere. It needs no room, and a
    failure would say that it is in no log.
    """
    entrance = Entrance()
    entrance.ingress.logged_sequence = 5
    refuse(entrance, tmp_path, large=False)
    assert entrance.publish("t", 4) == inbound.NEED_MORE
    assert entrance.publish("t", 5) == inbound.NEED_MORE
    assert entrance.publish("t", 0) == inbound.NO_STORAGE
    assert entrance.publish("t", 6) == inbound.NO_STORAGE
