"""The state of SOW topics as a worker reads it: one `StateReader` for each topic, and the worker's floor.

A reader maps the key table and the value file of its topic when they are needed first, and reads values of recorded
topics in the journals. Reading a value may wait for the disk. Who must not wait has to check first whether the pages
are in memory. The live tailer does not check: it reads the value before the current one, and values that change are in
the page cache nearly always.

The *floor* is the transaction id from which on this worker follows links of records (`ControlPage.set_state_floor`).
The core uses memory of removed values again only when all floors have passed. Each user holds a transaction id, and the
lowest one is the floor. A user holds it before it reads the watermarks whose snapshot it uses.
"""

import mmap
import os
from collections.abc import Callable
from itertools import count
from typing import Any

from amps._core.journal.reader import LogDirectory
from amps._core.shm.memory import ControlPage
from amps._core.sow.table import JournalPlaces, KeyMemory, StateReader, ValueFile
from amps.config import ServerConfig
from amps.config.model_sow import SowTopicConfig
from amps.config.sow_topics import SowTopics
from amps.server.runtime import Runtime
from amps.server.shared.core_link import CoreLink
from amps.server.shared.sow_topics import LogicalNames, logical_names_path, value_path

EVERY_JOURNAL = 1 << 63
IDLE_S = 2.0


class StateFloor:
    """The floor of one worker."""

    def __init__(self, control: ControlPage, index: int) -> None:
        """`index`: of the worker."""
        self._control = control
        self._index = index
        self._tokens = count(1)
        self._held: dict[int, int] = {}
        self._floor = 0
        control.set_state_floor(index, 0)

    def hold(self, txid: int) -> int:
        """Hold a transaction id, of watermarks that were read before. Returns a token for `move` and `release`."""
        token = next(self._tokens)
        self._held[token] = txid
        self._publish()
        return token

    def move(self, token: int, txid: int) -> None:
        """Hold a higher transaction id in place of a held one."""
        if self._held[token] != txid:
            self._held[token] = txid
            self._publish()

    def release(self, token: int) -> None:
        """Hold a transaction id no more."""
        del self._held[token]
        self._publish()

    def _publish(self) -> None:
        floor = min(self._held.values(), default=0)
        if floor != self._floor:
            self._floor = floor
            self._control.set_state_floor(self._index, floor)


class Snapshot:
    """The state before a transaction id, whose links may be followed until `end`. A context manager.

    `txid` is at first one that is surely not too high: the caller then reads the watermarks, and sets it to their
    transaction id.
    """

    def __init__(self, floor: StateFloor, txid: int, ended: Callable[[], None]) -> None:
        """`ended` is called at the end."""
        self._floor = floor
        self._ended = ended
        self._held: int | None = floor.hold(txid)
        self.txid = txid

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(self, *raised: Any) -> None:
        self.end()

    def end(self) -> None:
        """Follow no more links for it."""
        if self._held is not None:
            self._floor.release(self._held)
            self._held = None
            self._ended()


class SowStates:
    """The readers of one worker, by the number of the SOW topic in the configuration."""

    def __init__(
        self, config: ServerConfig, runtime: Runtime, core: CoreLink, directory: LogDirectory | None
    ) -> None:
        """`directory`: the journals; None: the instance has none."""
        self.names = SowTopics(config)
        self._topics = config.sow_topics
        self._core = core
        self._runtime = runtime
        self._used = False
        self._running = 0  # snapshots
        self._idle_since_s = 0.0
        self._readers: dict[int, StateReader] = {}
        self._logical: dict[int, LogicalNames] = {}
        control = runtime.control
        self.floor = StateFloor(control, core.index)
        self.places: JournalPlaces | None = None
        if directory is not None:
            self.places = JournalPlaces(
                directory, lambda: (control.first_journal_number, control.watermarks()[3])
            )

    def reader(self, number: int) -> StateReader:
        """The reader of a SOW topic. Raises OSError if its files cannot be mapped."""
        self._used = True
        found = self._readers.get(number)
        if found is None:
            found = self._readers[number] = self._open(self._topics[number])
        return found

    def logical_topics(self, number: int) -> list[str]:
        """The names of the logical topics of a topic with `Pattern`, by their numbers in slots. Raises OSError,
        ValueError.
        """
        known = self._logical.get(number)
        if known is None:
            known = self._logical[number] = LogicalNames(
                logical_names_path(self._topics[number], self._runtime)
            )
        else:
            known.read()
        return known.names

    def _open(self, topic: SowTopicConfig) -> StateReader:
        with self._runtime.sow_keys_path(topic.number).open("rb") as file:
            keys = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        descriptor = os.open(value_path(topic, self._runtime), os.O_RDONLY | os.O_CLOEXEC)
        try:
            values = ValueFile(descriptor, topic.slab_size_bytes, False)
        finally:
            os.close(descriptor)
        return StateReader(KeyMemory(keys, False), values, self.places)

    def snapshot(self) -> Snapshot:
        """Begin a snapshot."""
        self._running += 1
        return Snapshot(self.floor, self._core.view.next_txid, self._snapshot_ended)

    def snapshot_at(self, txid: int) -> Snapshot:
        """Begin a snapshot at a transaction id that is held already."""
        self._running += 1
        return Snapshot(self.floor, txid, self._snapshot_ended)

    def _snapshot_ended(self) -> None:
        self._running -= 1
        self._used = True

    def release_journals(self, now_s: float) -> None:
        """Close the journals that are about to be removed, and all of them when no value was read for IDLE_S: a journal
        that is opened anew is mapped anew. Called from time to time.
        """
        if self.places is None:
            return
        if self._used or self._running:
            self._used = False
            self._idle_since_s = now_s
        idle = now_s - self._idle_since_s >= IDLE_S
        self.places.forget(EVERY_JOURNAL if idle else self._runtime.control.first_journal_number)
