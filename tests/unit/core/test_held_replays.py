"""Fully durable replays, held at messages that a sync destination of replication lacks (replication.md §7)."""

from collections.abc import Callable

from amps._core.delivery.delivery import REPLAY_HELD, REPLAY_REACHED, Conflation, ReplayTailer
from amps._core.delivery.output import OutputBuffer
from amps._core.shm.memory import MODE_DOWNGRADED, MODE_SYNC, ControlPage, PendingTable
from amps._core.wire.persisted import ALL_DESTINATIONS, Destinations
from tests.unit.core.test_replay_terms import START_US, Log, Message, bookmarks, log_of


class Replicated:
    """A destination of replication for the messages of a log, all of which it is to get."""

    def __init__(self, log: Log) -> None:
        self.control = ControlPage()
        self.control.destinations = 1
        self.control.begin_destination(0, True)
        self.table = PendingTable(64)
        for message in log.messages:
            self.table.note_record(message.point[0], message.position, message.sequence, 0)
        self.mode = MODE_SYNC
        self.end = log.end
        self.acknowledge(0)

    def acknowledge(self, position: int) -> None:
        """The destination has everything before a log position."""
        self.control.set_destination(0, self.mode, position, 0, self.end)

    def destinations(self, carriers: Callable[[str, str], int] | None = None) -> Destinations:
        return Destinations(self.control, [self.table], carriers)


def held_run(tailer: ReplayTailer, output: OutputBuffer, limit: int) -> int:
    return tailer.run_on_terms(limit, 1 << 30, output, 1 << 30, 0, 0)


def three_messages() -> list[Message]:
    return [Message(START_US + number, number % 2, 1 + number // 2, number) for number in range(4)]


def test_replication_26_8_messages_behind_the_history_wait_for_the_destination() -> None:
    """replication.md §7, §26 behaviour 8: `fully_durable`: history is delivered, later messages when a destination has
    them, and in the order of the log.
    """
    with log_of(three_messages()) as log:
        replicated = Replicated(log)
        first, second, third, fourth = log.messages
        tailer, output = log.replay(destinations=replicated.destinations(), held_from=second.position)
        assert held_run(tailer, output, log.end) == REPLAY_HELD
        assert bookmarks(output) == [first.bookmark]
        assert tailer.awaited == (second.point[0], second.position + 1, ALL_DESTINATIONS)
        assert held_run(tailer, output, log.end) == REPLAY_HELD
        replicated.acknowledge(third.position)
        assert held_run(tailer, output, log.end) == REPLAY_HELD
        assert bookmarks(output) == [second.bookmark]
        assert (tailer.last_publisher_id, tailer.last_sequence) == second.point
        replicated.mode = MODE_DOWNGRADED
        replicated.acknowledge(third.position)
        assert held_run(tailer, output, log.end) == REPLAY_REACHED
        assert bookmarks(output) == [third.bookmark, fourth.bookmark]


def test_replication_26_8_a_topic_that_no_destination_carries_is_not_held() -> None:
    """replication.md §26 behaviour 8."""
    with log_of(three_messages()) as log:
        replicated = Replicated(log)
        tailer, output = log.replay(destinations=replicated.destinations(lambda topic, of_type: 0), held_from=0)
        assert held_run(tailer, output, log.end) == REPLAY_REACHED
        assert len(bookmarks(output)) == 4


def test_messages_that_do_not_match_are_passed_while_a_destination_lacks_them() -> None:
    with log_of(three_messages()) as log:
        replicated = Replicated(log)
        tailer, output = log.replay(
            filter_text="/k = 3", destinations=replicated.destinations(), held_from=0
        )
        assert held_run(tailer, output, log.end) == REPLAY_HELD
        assert tailer.position == log.messages[3].position
        replicated.acknowledge(log.end)
        assert held_run(tailer, output, log.end) == REPLAY_REACHED
        assert bookmarks(output) == [log.messages[3].bookmark]


def test_nothing_is_held_before_the_end_of_the_history_is_known() -> None:
    with log_of(three_messages()) as log:
        replicated = Replicated(log)
        tailer, output = log.replay(destinations=replicated.destinations())
        assert held_run(tailer, output, log.messages[2].position) == REPLAY_REACHED
        tailer.hold_from(tailer.position)
        assert held_run(tailer, output, log.end) == REPLAY_HELD
        assert len(bookmarks(output)) == 2


def test_a_held_replay_sends_what_conflation_holds_by_the_clock() -> None:
    """The time of the held message says nothing about now."""
    with log_of(three_messages()) as log:
        replicated = Replicated(log)
        conflation = Conflation(log.evaluation, [(b"k",)], 1.0)
        second = log.messages[1]
        tailer, output = log.replay(
            conflation=conflation, destinations=replicated.destinations(), held_from=second.position
        )
        assert held_run(tailer, output, log.end) == REPLAY_HELD
        assert bookmarks(output) == []
        late_ns = (START_US + 2_000_000) * 1000
        assert tailer.run_on_terms(log.end, 1 << 30, output, 1 << 30, 0, late_ns) == REPLAY_HELD
        assert bookmarks(output) == [log.messages[0].bookmark]
