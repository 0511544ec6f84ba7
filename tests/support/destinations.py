"""A log and the destinations of replication that it goes to, as the replication process shows them to transports.

There are no links: a test says what the destinations scan and acknowledge. The control page and the pending tables are
the real ones. `World` keeps every record, and so knows what must be waited for.
"""

from dataclasses import dataclass, field

from amps._core.shm.memory import MODE_DOWNGRADED, MODE_SYNC, ControlPage, PendingTable
from amps._core.wire.persisted import Destinations

RECORD_BYTES = 100
PUBLISHERS = (101, 102, 103)


@dataclass(slots=True)
class Record:
    """A record of the log, and the destinations that are to get it and have not acknowledged it."""

    publisher: int
    sequence: int
    position: int
    lacking: set[int]


@dataclass
class Destination:
    """A destination as the replication process keeps it."""

    mode: int = MODE_SYNC
    scanned: int = 0
    upgraded_at: int = 0
    settled: int = 0


@dataclass
class World:
    """Log, destinations, and what the replication process writes into shared memory."""

    count: int
    capacity: int = 64
    records: list[Record] = field(default_factory=list)
    end: int = 0

    def __post_init__(self) -> None:
        self.control = ControlPage()
        self.control.destinations = self.count
        self.tables = [PendingTable(self.capacity) for _ in range(self.count)]
        self.states = [Destination() for _ in range(self.count)]
        for index in range(self.count):
            self.control.begin_destination(index, True)
        self.destinations = Destinations(self.control, self.tables)

    def publish(self, publisher: int, carried: set[int]) -> None:
        sequence = 1 + sum(1 for record in self.records if record.publisher == publisher)
        self.records.append(Record(publisher, sequence, self.end, carried & set(range(self.count))))
        self.end += RECORD_BYTES

    def acked(self, index: int) -> int:
        """The position before which the destination has everything, as far as it is scanned."""
        scanned = self.states[index].scanned
        return min((r.position for r in self.records if index in r.lacking and r.position < scanned), default=scanned)

    def scan(self, index: int, records: int) -> None:
        """Let the replication process read more of the log."""
        state = self.states[index]
        for record in self.records:
            if record.position >= state.scanned and records:
                records -= 1
                if index in record.lacking:
                    replicated = self.control.destination(index)[3]
                    self.tables[index].note_record(record.publisher, record.position, record.sequence, replicated)
                state.scanned = record.position + RECORD_BYTES
        self.tell(index)

    def acknowledge(self, index: int, records: int, publisher: int | None = None) -> None:
        """Let a destination acknowledge its oldest records; those of one publisher only: the others are exceptions."""
        state = self.states[index]
        for record in self.records:
            if publisher in (None, record.publisher) and record.position < state.scanned and index in record.lacking:
                if records == 0:
                    break
                records -= 1
                record.lacking.discard(index)
        if publisher is not None:
            self.rewrite(index)
            state.settled += 1
        self.tell(index)

    def rewrite(self, index: int) -> None:
        """Make the table say what is pending, no more."""
        table = self.tables[index]
        table.begin()
        for record in self.records:
            if index in record.lacking and record.position < self.states[index].scanned:
                table.note_record(record.publisher, record.position, record.sequence, 0)

    def restart(self, index: int) -> None:
        """The replication process starts anew, and scans from what was acknowledged."""
        self.tables[index].begin()
        self.states[index].scanned = self.acked(index)
        self.states[index].settled += 1
        self.tell(index)

    def change_mode(self, index: int) -> None:
        state = self.states[index]
        if state.mode == MODE_SYNC:
            state.mode = MODE_DOWNGRADED
        else:
            state.mode, state.upgraded_at = MODE_SYNC, self.end
        self.tell(index)

    def tell(self, index: int) -> None:
        state = self.states[index]
        self.control.set_destination(
            index, state.mode, self.acked(index), state.upgraded_at, state.scanned, state.settled
        )

    def lacks(self, publisher: int, before: int) -> bool:
        """Whether a sync destination lacks a message of a publisher before a position: it must be waited for."""
        return any(
            record.publisher == publisher
            and record.position < before
            and any(
                self.states[index].mode == MODE_SYNC and record.position >= self.states[index].upgraded_at
                for index in record.lacking
            )
            for record in self.records
        )

    def settle(self) -> None:
        """Let all destinations have everything."""
        for index in range(self.count):
            self.scan(index, len(self.records))
            self.acknowledge(index, len(self.records))

    def event(self, name: str, index: int, number: int, publisher: int) -> None:
        index %= self.count
        if name == "publish":
            self.publish(publisher, {one for one in range(2) if number >> one & 1})
        elif name == "scan":
            self.scan(index, number)
        elif name == "acknowledge":
            self.acknowledge(index, number)
        elif name == "except":
            self.acknowledge(index, number, publisher)
        elif name == "restart":
            self.restart(index)
        elif name == "mode":
            self.change_mode(index)
