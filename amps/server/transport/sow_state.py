"""The state of SOW topics as a worker reads it: key tables, value files, and values in the journal.

The files of a topic are opened when the worker needs them first. Values are read at *places* (amps/_core/sow/places.pxi)
straight from mapped memory. A journal stays open only while it is used, so that it can be removed.

A reader that follows links between records needs the memory of removed values to stay as it is. So it publishes a
*floor*: the lowest transaction id from which on it follows links. The floor of a worker is that of its running snapshots
and of its live tailer, which reads the values before those that it delivers.

Invariants: a floor is published before the watermarks are read whose transaction id a snapshot uses. A snapshot only uses
watermarks that were read after that.
"""

import mmap
import os
from typing import Any

from amps._core.sow.table import JournalPlaces, KeyMemory, StateReader, ValueFile, table_bytes
from amps.config import ServerConfig
from amps.config.sow_topics import SowTopics
from amps.server.runtime import Runtime
from amps.server.shared.core_link import CoreLink
from amps.server.shared.journal_view import JournalView
from amps.server.shared.sow_topics import value_path

ALL_JOURNALS = (1 << 63) - 1


class Snapshot:
    """The state before a transaction id, which readers may follow links to until `end`. A context manager."""

    def __init__(self, states: "SowStates", txid: int) -> None:
        self._states = states
        self.txid = txid

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(self, *raised: Any) -> None:
        self.end()

    def end(self) -> None:
        """Follow no more links for it."""
        self._states.ended(self)


class SowStates:
    """The SOW topics of one worker, by their number in the configuration."""

    def __init__(self, config: ServerConfig, runtime: Runtime, core: CoreLink, journal: JournalView | None) -> None:
        """`journal`: None on an instance without a transaction log."""
        self.names = SowTopics(config)
        self._runtime = runtime
        self._core = core
        self._readers: dict[int, StateReader] = {}
        self._snapshots: set[Snapshot] = set()
        self._live_txid = 0
        self._floor = 0
        self._used = False
        self.places: JournalPlaces | None = None
        if journal is not None and config.sow_topics:
            control = runtime.control
            self.places = JournalPlaces(
                journal.directory, lambda: (control.first_journal_number, control.watermarks()[3])
            )

    def reader(self, number: int) -> StateReader:
        """The reader of a topic. Raises OSError."""
        self._used = True
        found = self._readers.get(number)
        if found is None:
            config = self.names.topics[number]
            keys = _map(self._runtime.sow_keys_path(number))
            descriptor = os.open(value_path(config, self._runtime), os.O_RDONLY | os.O_CLOEXEC)
            try:
                values = ValueFile(descriptor, config.slab_size_bytes, False)
            finally:
                os.close(descriptor)
            found = self._readers[number] = StateReader(KeyMemory(keys, False), values, self.places)
        return found

    # --- the floor --------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Begin a snapshot. Its `txid` is one that is surely not too high: the caller then reads the watermarks, and sets
        it to their transaction id.
        """
        made = Snapshot(self, self._core.view.next_txid)
        self._snapshots.add(made)
        self._publish()
        return made

    def ended(self, snapshot: Snapshot) -> None:
        """Forget a snapshot."""
        self._snapshots.discard(snapshot)
        self._publish()

    def live_from(self, txid: int) -> None:
        """The live tailer has delivered everything before a transaction id; 0: there is none. It is published by the next
        `look_around`, but at once when the tailer begins.
        """
        begins = txid and not self._live_txid
        self._live_txid = txid
        if begins:
            self._publish()

    def _publish(self) -> None:
        floors = [snapshot.txid for snapshot in self._snapshots]
        if self._live_txid:
            floors.append(self._live_txid)
        floor = min(floors, default=0)
        if floor != self._floor:
            self._floor = floor
            self._runtime.control.set_state_floor(self._core.index, floor)

    def look_around(self) -> None:
        """Raise the floor, and let journals go that were not used since the last call. Called from time to time."""
        if self._readers:
            self._publish()
        if self.places is not None and not self._snapshots and not self._used:
            self.places.forget(ALL_JOURNALS)
        self._used = False


def _map(path: os.PathLike[str]) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return mmap.mmap(descriptor, table_bytes(), mmap.MAP_SHARED, mmap.PROT_READ)
    finally:
        os.close(descriptor)
