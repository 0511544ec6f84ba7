"""The core's turn: release of records, and replacement of a dead transport."""

import random
import select
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from amps._core.sequencer.sequencer import CoreTurns
from amps._core.shm.memory import ControlPage, InstanceView, Ring
from amps.server.core import transient_files
from amps.server.records import KIND_DECLARE_TOPIC, KIND_LOGON, control_payload, control_record
from amps.server.runtime import WakeUp
from tests.simulation.disk import SimulatedDisk
from tests.simulation.server import Server, Settings, configured
from tests.support.records import RecordParts, ring_position


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A core with two transports, on a simulated disk."""
    monkeypatch.setattr(transient_files, "TRANSIENT_BYTES_MAX", transient_files.TRANSIENT_BYTES_MAX)
    monkeypatch.setattr(transient_files, "SEGMENT_BYTES", 65536)
    graves = tmp_path / "graves"
    graves.mkdir()
    disk = SimulatedDisk(graves, random.Random(1))
    settings = Settings(configured(65536, 2), 65536, lambda: 1_700_000_000 * 10**9, lambda text: None)
    server = Server(settings, tmp_path / "journal", tmp_path / "archive", disk, tmp_path / "run")
    server.core.open()
    yield server
    server.end()
    disk.release()


def log_on(server: Server, transport: int, slot: int, name: str = "name", serial: int = 1) -> None:
    assert server.runtime.ingress[transport].push(control_record((name, "user"), KIND_LOGON, slot, serial))


def declare(server: Server, transport: int, topic: str) -> None:
    record = control_record((topic.encode(), b"json"), KIND_DECLARE_TOPIC, topic=0)
    assert server.runtime.ingress[transport].push(record)


def publish(
    server: Server, transport: int, slot: int, sequence: int, serial: int = 1, size: int = 10
) -> bool:
    parts = RecordParts(
        payload=b"x" * size, publisher_id=5, sequence=sequence, position=ring_position(slot, serial)
    )
    return bool(server.runtime.ingress[transport].push(parts.to_bytes()))


def answers(server: Server, transport: int) -> list[list[object]]:
    found = [control_payload(record) for record in server.runtime.egress[transport].pop_all()]
    assert all(isinstance(answer, list) for answer in found)
    return found  # type: ignore[return-value]


def test_core_answers_before_it_releases(server: Server) -> None:
    """A transport whose egress ring is full keeps its records as not consumed until the answers are written.

    An answer may end a session, after which the records that the session published are dropped.
    """
    ring = server.runtime.ingress[0]
    for slot in range(90):
        log_on(server, 0, slot, f"client-{slot}")
    assert server.core.turn()
    assert ring.tail == 0
    while server.core.turn():
        pass
    assert ring.tail == 0
    served = len(answers(server, 0))
    assert 0 < served < 90
    while served < 90:
        server.core.turn()
        served += len(answers(server, 0))
    server.core.turn()
    assert ring.tail == ring.head


def test_core_a_blocked_transport_blocks_no_other(server: Server) -> None:
    for slot in range(90):
        log_on(server, 0, slot, f"client-{slot}")
    server.core.turn()
    log_on(server, 1, 0)
    assert server.core.turn()
    assert [answer[0] for answer in answers(server, 1)] == ["logon"]
    assert server.runtime.ingress[1].tail == server.runtime.ingress[1].head
    assert server.runtime.ingress[0].tail == 0


def test_core_a_dead_transport_is_replaced_when_its_ring_is_empty(server: Server) -> None:
    """Its published records count, its client names become free, and unread answers block nothing."""
    for slot in range(90):
        log_on(server, 0, slot, f"client-{slot}")
    server.core.turn()
    declare(server, 0, "orders")
    for sequence in (1, 2, 3):
        assert publish(server, 0, 7, sequence)
    server.supervisor.to_core.append(msgpack.packb(["transport died", 0]))
    server.core.look()
    assert server.supervisor.from_core == []
    while server.core.turn():
        pass
    server.core.look()
    assert server.supervisor.from_core == [["transport drained", 0]]
    assert server.core.sequencer.accepted == 3
    answers(server, 0)
    # The successor begins without topics and sessions.
    log_on(server, 0, 0, "client-7", serial=50)
    server.core.turn()
    journal = server.core.sequencer.journal
    assert journal is not None
    assert answers(server, 0) == [["logon", 0, 50, True, 3, journal.position]]


def test_core_a_dead_transport_waits_for_room_in_the_transient_log(server: Server) -> None:
    """The dead transport is not replaced while records are left in its ring, even if other transports do not read."""
    transient_files.SEGMENT_BYTES = 65536
    transient_files.TRANSIENT_BYTES_MAX = 2 * 65536
    control = server.runtime.control
    control.set_transport_alive(1, True)
    control.set_transient_read(1, 0)
    log_on(server, 0, 0)
    declare(server, 0, "plain")
    sequence = 0
    for _ in range(400):
        while publish(server, 0, 0, sequence + 1, size=1000):
            sequence += 1
        server.core.turn()
    ring = server.runtime.ingress[0]
    assert ring.tail != ring.head, "the transient log is not full"
    server.supervisor.to_core.append(msgpack.packb(["transport died", 0]))
    server.core.look()
    server.core.turn()
    server.core.look()
    assert server.supervisor.from_core == []
    while ring.tail != ring.head:
        control.set_transient_read(1, control.watermarks()[1])
        server.core.turn()
    server.core.look()
    assert server.supervisor.from_core == [["transport drained", 0]]
    assert server.core.sequencer.accepted == sequence


def test_core_a_name_taken_over_fences_its_old_session(server: Server) -> None:
    """transaction_log.md §6: records of the old session left in its ring are dropped, after it was notified."""
    log_on(server, 0, 0)
    declare(server, 0, "orders")
    assert publish(server, 0, 0, 1)
    server.core.turn()
    answers(server, 0)
    log_on(server, 1, 3, serial=9)
    server.core.turn()
    assert answers(server, 0) == [["kick", 0, 1, "name", "user"]]
    assert answers(server, 1)[0][:5] == ["logon", 3, 9, True, 1]
    assert publish(server, 0, 0, 2)
    server.core.turn()
    assert (server.core.sequencer.accepted, server.core.sequencer.fenced) == (1, 1)


def test_core_a_reused_slot_is_another_session(server: Server) -> None:
    """A record of a closed connection is dropped when its slot has a new owner."""
    log_on(server, 0, 0, "first", serial=1)
    declare(server, 0, "orders")
    log_on(server, 0, 0, "second", serial=2)
    assert publish(server, 0, 0, 1, serial=1)
    assert publish(server, 0, 0, 1, serial=2)
    server.core.turn()
    assert (server.core.sequencer.accepted, server.core.sequencer.fenced) == (1, 1)


class DecidingSequencer:
    """In every turn it decides to deliver a message that is not durable yet."""

    has_replies = False

    def __init__(self, position: int, durable_awaited: int) -> None:
        self.journal = SimpleNamespace(position=position)
        self.durable_awaited = durable_awaited

    def turn(self, *about: object) -> bool:
        return True

    def release(self, blocked: object) -> bool:
        return False


@pytest.mark.parametrize(("awaited", "wanted"), [(0, 0), (300, 0), (300, 200), (200, 300)])
def test_core_demands_a_sync_for_deliveries_and_waiting_transports(awaited: int, wanted: int) -> None:
    """The core demands a sync for messages to deliver, and for positions that transports wait for."""
    told = []
    control = ControlPage()
    turns = CoreTurns(control, [Ring(4096)], [-1], -1, -1, -1, 4096, lambda answer: b"")
    sequencer: Any = DecidingSequencer(500, awaited)
    turns.begin(
        sequencer, lambda: True, lambda position, wanted: told.append((position, wanted)), lambda: None
    )
    InstanceView(control, Ring(4096), Ring(4096), 0).want_durable(wanted)
    assert turns.turn(1)
    assert told == [(500, max(awaited, wanted))]


class AnsweringSequencer:
    """A sequencer without work in its turns, with these answers for the first transport."""

    def __init__(self, answers: list[bytes]) -> None:
        self.journal = None
        self.answers = answers

    @property
    def has_replies(self) -> bool:
        return bool(self.answers)

    def take_replies(self) -> list[tuple[int, bytes]]:
        answers, self.answers = self.answers, []
        return [(0, answer) for answer in answers]

    def turn(self, *about: object) -> bool:
        return False

    def release(self, blocked: object) -> bool:
        return False


def test_core_wakes_a_transport_for_answers_that_had_to_wait_for_room() -> None:
    """The transport has read the whole ring and sleeps, so only the wake-up tells it of further answers."""
    answer = RecordParts(payload=b"x" * 1000).to_bytes()
    control, ring, wake_up = ControlPage(), Ring(4096), WakeUp()
    turns = CoreTurns(control, [ring], [wake_up.fd], -1, -1, -1, 4096, lambda answer: b"")
    sequencer: Any = AnsweringSequencer([answer] * 10)
    turns.begin(sequencer, lambda: True, None, lambda: None)
    control.set_transport_sleeping(0, True)
    served = 0
    while served < 10:
        turns.turn(1)
        assert select.select([wake_up.fd], [], [], 0)[0], f"it is not told that there is more than {served}"
        wake_up.clear()
        served += len(ring.pop_all())
    turns.turn(1)
    assert not select.select([wake_up.fd], [], [], 0)[0]


class WaitingSequencer:
    """A sequencer that reports work at the call of `pending` with that number."""

    def __init__(self, found_at: int) -> None:
        self.looks = 0
        self.found_at = found_at

    def pending(self) -> bool:
        self.looks += 1
        return self.looks >= self.found_at


def test_core_polls_until_there_is_work() -> None:
    turns = CoreTurns(ControlPage(), [Ring(4096)], [-1], -1, -1, -1, 4096, lambda answer: b"")
    sequencer: Any = WaitingSequencer(20)
    turns.sequencer = sequencer
    turns.busy_poll(60_000_000_000)
    assert sequencer.looks == 20


def test_core_polls_for_a_limited_time() -> None:
    turns = CoreTurns(ControlPage(), [Ring(4096)], [-1], -1, -1, -1, 4096, lambda answer: b"")
    sequencer: Any = WaitingSequencer(1 << 60)
    turns.sequencer = sequencer
    turns.busy_poll(1000)
    assert sequencer.looks


def test_core_lets_other_threads_run_while_it_polls() -> None:
    """The thread that syncs the journal needs the interpreter."""
    turns = CoreTurns(ControlPage(), [Ring(4096)], [-1], -1, -1, -1, 4096, lambda answer: b"")
    work: list[int] = []
    # No Python code runs in it, which would release the interpreter by itself.
    sequencer: Any = SimpleNamespace(pending=work.__len__)
    turns.sequencer = sequencer
    other = threading.Thread(target=lambda: work.append(1))
    other.start()
    turns.busy_poll(60_000_000_000)
    other.join()
