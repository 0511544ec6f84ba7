"""The handling of full journals while the server runs: listing, archiving, compressing, removing.

A request *marks* journals, by age or up to a number, and is answered at once. The housekeeping thread of `JournalFiles`
does the work, one part of a few milliseconds at a time, so that making spare files never waits for it. Marks are kept
in memory. Work that is unfinished when the process dies is cleaned up or completed by recovery.

Journals are removed from the oldest on, without gaps, never the current journal, and only when they are not needed:

1. `blockers` return the oldest journal that is needed permanently (by queues, by destinations). Journals from there on
   stay, and every reader may read them.
2. `first_journal_number` in the control page is raised to the first journal that will remain: new readers begin there.
3. Then the words of the transports are read, each of which is the oldest journal that the transport may read. Journals
   older than all of these are removed; the others wait.

A reader (shared/journal_floor.py) uses the opposite order: it lowers its word, then reads `first_journal_number`. Both
sides have a full fence between their store and their load. So when a reader and a remover meet, at least one of them
sees the other: the reader sees that it is too late and begins again, or the remover sees the word and waits. A word is
raised only to the number of a journal that the transport holds open. That journal and later ones were never below the
word before, so they exist.

Before a journal is removed, `clients.ack` covers it: the last sequences of its publishers must not be lost with it. The
file is written only for durable messages, since after a crash of the machine it must not know more than the log.
"""

import math
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgpack

from amps._core.journal.reader import LogDamaged
from amps._core.journal.writer import IndexBuilder, IndexReader
from amps._core.shm.memory import ControlPage
from amps._core.values.value import derived_publisher_id, publisher_id
from amps.journal.clients_ack import ClientsAck, summary_of, write_clients_ack
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.journal.files import JournalHeader, read_header
from amps.journal.listing import JournalEntry, make_entry, oldest_of_age, oldest_up_to
from amps.journal.moving import archive_journal, remove_journal
from amps.journal.names import (
    JournalPlace,
    clients_ack_path,
    compressed_path,
    journal_path,
)
from amps.server.eventlog import Report

ENTRIES_PER_DATAGRAM = 200
WAIT_S = 0.5
"""How often removing checks again whether a journal is still in use."""
VERBS = ("archive", "compress", "remove")


class RequestRefused(Exception):
    """A request that cannot be carried out; the text has the reason."""


class JournalRetention:
    """The full journals of a running server. Any thread may make requests; one thread calls `step`."""

    def __init__(
        self,
        directory: Path,
        archive: Path | None,
        instance_name: str,
        control: ControlPage,
        report: Report,
        disk: Disk,
        current_index_path: Callable[[int], Path],
    ) -> None:
        """`report(id, **values)` logs; `current_index_path(number)`: the path of the index of the journal in use."""
        self._directory = directory
        self._archive = archive
        self._instance_name = instance_name
        self._control = control
        self._report = report
        self._disk = disk
        self._current_index_path = current_index_path
        self.blockers: list[Callable[[], int]] = []
        """Each returns the number of the oldest journal that it needs; NO_JOURNAL if none."""
        self.explain: Callable[[int], str | None] = lambda number: None
        """explain(journal number): who still needs it, if an operator should know."""
        self.client_names: Iterable[str] = ()
        """Names of clients, for the table of publisher numbers in `clients.ack`; may grow."""
        self.refused_transactions: Callable[[], Mapping[int, Iterable[int]]] | None = None
        """Returns the first sequences of the refused transactions, by publisher id; any thread may call it. None: they
        are those of recovery.
        """
        self.wake: Callable[[], None] = lambda: None
        """Called when `step` has new work."""
        self._lock = threading.Lock()  # for the attributes from here to `_remove_through`
        self._entries: dict[int, JournalEntry] = {}
        self._to_compress: set[int] = set()
        self._to_archive: set[int] = set()
        self._remove_through = -1
        self._clients = ClientsAck()
        self._written_position = 0  # log position covered by the written `clients.ack`
        self._work: Iterator[int] | None = None
        self._finish: Callable[[], None] = lambda: None
        self._subject = ("", 0)  # what `_work` does, and to which journal
        self._waiting: tuple[Path, str] | None = None  # the last logged journal and reason why removing waits
        self._look_again_s = 0.0

    def start(self, journals: Iterable[JournalEntry], clients: ClientsAck) -> None:
        """Begin with the result of recovery: the full journals, and the last sequence of each publisher."""
        self._entries = {entry.number: entry for entry in journals}
        self._clients = clients
        if self._entries:
            clients.covers(list(self._entries.values())[-1].header)

    def journal_full(self, header: JournalHeader, index: bytes) -> None:
        """Add a full journal, whose index is written, unless that failed."""
        reader = IndexReader(index, True)
        path = journal_path(self._directory, self._instance_name, header.number)
        entry = make_entry(header, JournalPlace(header.number, path, False, False), reader)
        self._clients.take(reader.publishers())
        self._clients.covers(header)
        with self._lock:
            self._entries[header.number] = entry

    # --- requests -------------------------------------------------------------------------------------------

    def answer(self, data: bytes, now_ns: int) -> list[bytes]:
        """Answer one request. Returns datagrams to send, and raises nothing for any request."""
        identity: object = None
        try:
            request = msgpack.unpackb(data)
            if not isinstance(request, list) or not 2 <= len(request) <= 3:
                raise RequestRefused("a request is a list of an id, a verb and optional parameters")
            identity, verb = request[:2]
            if verb == "list":
                rows = self.rows()
                parts = [
                    rows[at : at + ENTRIES_PER_DATAGRAM] for at in range(0, len(rows), ENTRIES_PER_DATAGRAM)
                ]
                return [
                    *(msgpack.packb([identity, "more", part]) for part in parts[:-1]),
                    msgpack.packb([identity, "ok", parts[-1] if parts else []]),
                ]
            if verb not in VERBS:
                raise RequestRefused(f"unknown request {verb!r}; the requests are list, {', '.join(VERBS)}")
            marked = self.mark(verb, request[2] if len(request) == 3 else None, now_ns)
            return [msgpack.packb([identity, "ok", marked])]
        except RequestRefused as refused:
            return [msgpack.packb([identity, "error", str(refused)])]
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as problem:
            return [msgpack.packb([None, "error", f"the request cannot be understood: {problem}"])]

    def rows(self) -> list[dict[str, Any]]:
        """All journals in use, oldest first, the current one last."""
        with self._lock:
            entries = list(self._entries.values())
        current = self._current()
        if current is not None and (not entries or current.number > entries[-1].number):
            entries.append(current)
        return [
            {
                "number": entry.number,
                "path": str(entry.place.path),
                "archived": entry.place.archived,
                "compressed": entry.place.compressed,
                "full": entry.full,
                "min_timestamp_ns": entry.min_timestamp_ns,
                "max_timestamp_ns": entry.max_timestamp_ns,
                "size_bytes": entry.size_bytes,
            }
            for entry in entries
        ]

    def full_paths(self) -> list[Path]:
        """The paths of the full journals."""
        with self._lock:
            return [entry.place.path for entry in self._entries.values()]

    def number_at(self, position: int) -> int:
        """The journal that contains a log position; the oldest one for earlier positions."""
        with self._lock:
            for entry in self._entries.values():
                if position < entry.end_position:
                    return entry.number
        return int(self._control.watermarks()[3])

    @property
    def beginning(self) -> JournalHeader | None:
        """The header of the first journal that will remain; None: no journal is marked for removal."""
        with self._lock:
            remaining = [entry.header for number, entry in self._entries.items() if number > self._remove_through]
            if len(remaining) == len(self._entries):
                return None
        if remaining:
            return remaining[0]
        current = self._current()
        return None if current is None else current.header

    def _current(self) -> JournalEntry | None:
        number = self._control.watermarks()[3]
        place = JournalPlace(number, journal_path(self._directory, self._instance_name, number), False, False)
        index: IndexReader | None = None
        try:
            with self._current_index_path(number).open("rb") as file:
                index = IndexReader(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ), False)
        except (OSError, ValueError):
            index = None
        try:
            entry = make_entry(read_header(place.path), place, index)
        except (OSError, LogDamaged):
            return None
        entry.full = False
        return entry

    def mark(self, verb: str, options: object, now_ns: int) -> list[int]:
        """Mark journals, and return their numbers. Raises RequestRefused."""
        if verb == "archive" and self._archive is None:
            raise RequestRefused(
                "there is no JournalArchiveDirectory in the configuration: nowhere to archive to"
            )
        with self._lock:
            chosen = _chosen(list(self._entries.values()), self._control.watermarks()[3], options, now_ns)
            if verb == "remove":
                numbers = [entry.number for entry in chosen]
                self._remove_through = max(self._remove_through, *numbers, -1)
            elif verb == "archive":
                numbers = [entry.number for entry in chosen if not entry.place.archived]
                self._to_archive.update(numbers)
            else:
                numbers = [entry.number for entry in chosen if not entry.place.compressed]
                self._to_compress.update(numbers)
        self._look_again_s = 0.0
        self.wake()
        return numbers

    # --- the work -------------------------------------------------------------------------------------------

    def due(self) -> bool:
        """Whether `step` has work now."""
        if self._work is not None or self._clients_ack_is_due():
            return True
        with self._lock:
            if self._to_compress or self._to_archive:
                return True
            return self._removing() and time.monotonic() >= self._look_again_s

    def _removing(self) -> bool:
        return bool(self._entries) and min(self._entries) <= self._remove_through

    def step(self) -> bool:
        """Do one part of the work. False: there was nothing to do now."""
        if self._work is None:
            if self._clients_ack_is_due():
                self._write_clients_ack(self._clients)
                return True
            if self._removing() and time.monotonic() >= self._look_again_s and self._remove_oldest():
                return True
            if not self._begin():
                return False
        assert self._work is not None
        try:
            if next(self._work, None) is None:
                self._work = None
                self._finish()
        except (OSError, LogDamaged) as problem:
            self._work = None
            verb, number = self._subject
            reason = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else problem
            path = self._entries[number].place.path
            self._report("2C-0009", path=path, verb=verb, reason=reason, kept="the file")
        return True

    def abandon(self) -> None:
        """Abandon work in progress: the process ends."""
        work, self._work = self._work, None
        if work is not None:
            work.close()  # type: ignore[attr-defined]

    def stop(self, header: JournalHeader, index: IndexBuilder, position: int) -> None:
        """Write `clients.ack` at an orderly stop: everything before `position`, in the journal in use, is durable."""
        clients = self._clients
        clients.take(summary_of(index.publishers_seen()))
        clients.covers(header)
        clients.position = position
        self._write_clients_ack(clients)

    def _clients_ack_is_due(self) -> bool:
        position = self._clients.position
        return self._written_position < position <= self._control.durable

    def _write_clients_ack(self, clients: ClientsAck) -> bool:
        path = clients_ack_path(self._directory, self._instance_name)
        for name in list(self.client_names):
            if publisher_id(name) not in clients.names:
                clients.names[publisher_id(name)] = name
                clients.names[derived_publisher_id(name, self._instance_name)] = name
        if self.refused_transactions is not None:
            clients.set_refused(self.refused_transactions())
        # A failed write is not repeated before there is more to write: recovery does not depend on the file.
        self._written_position = clients.position
        try:
            write_clients_ack(self._disk, path, clients)
        except OSError as error:
            self._report("2C-0010", path=path, reason=error)
            return False
        return True

    def _begin(self) -> bool:
        """Begin work on the next marked journal: compressing first, so that less has to be moved."""
        with self._lock:
            # Drop marks of journals that are removed or done already, because they were marked again meanwhile.
            self._to_compress = {
                n for n in self._to_compress & self._entries.keys() if not self._entries[n].place.compressed
            }
            self._to_archive = {
                n for n in self._to_archive & self._entries.keys() if not self._entries[n].place.archived
            }
            compressing = bool(self._to_compress)
            marks = self._to_compress or self._to_archive
            if not marks:
                return False
            number = min(marks)
            marks.discard(number)
        if compressing:
            self._begin_compressing(self._entries[number])
        else:
            self._begin_archiving(self._entries[number])
        return True

    def _begin_compressing(self, entry: JournalEntry) -> None:
        source, before = entry.place, entry.size_bytes
        target = compressed_path(source.path.parent, self._instance_name, entry.number)

        def finish() -> None:
            entry.moved(JournalPlace(entry.number, target, source.archived, True))
            self._report("2C-0006", path=source.path, before=before, after=entry.size_bytes)

        self._subject = "compressed", entry.number
        self._finish = finish
        self._work = compress_journal(self._disk, source.path, target)

    def _begin_archiving(self, entry: JournalEntry) -> None:
        archive, source = self._archive, entry.place
        assert archive is not None

        def finish() -> None:
            target = archive / source.path.name
            entry.moved(JournalPlace(entry.number, target, True, source.compressed))
            self._report("2C-0005", path=source.path, directory=archive)

        self._subject = "archived", entry.number
        self._finish = finish
        self._work = archive_journal(self._disk, self._instance_name, source, archive)

    def _remove_oldest(self) -> bool:
        """Remove the oldest journal if it is not needed. False: it must wait."""
        with self._lock:
            number = min(self._entries)
            target = self._remove_through + 1
        needed = min([blocker() for blocker in self.blockers], default=target)
        allowed = min(target, needed)
        if allowed > self._control.first_journal_number:
            self._control.first_journal_number = allowed
        path = self._entries[number].place.path
        if number >= allowed:
            return self._wait(path, "messages in it are still needed", self.explain(number))
        if self._control.lowest_journal_floor() <= number:
            return self._wait(path, "a replay still reads it")
        clients = self._clients
        if self._written_position < clients.position and not self._write_clients_ack(clients):
            return self._give_up(path, "clients.ack cannot be written first")
        try:
            remove_journal(self._disk, self._directory, self._archive, self._instance_name, number)
        except OSError as error:
            return self._give_up(path, os.strerror(error.errno or 0))
        with self._lock:
            del self._entries[number]
        self._waiting = None
        self._report("2C-0007", path=path)
        return True

    def _wait(self, path: Path, reason: str, holders: str | None = None) -> bool:
        self._look_again_s = time.monotonic() + WAIT_S
        if (path, holders or reason) != self._waiting:
            self._waiting = path, holders or reason
            if holders is None:
                self._report("2C-0008", path=path, reason=reason)
            else:
                self._report("2C-0014", path=path, holders=holders)
        return False

    def _give_up(self, path: Path, reason: str) -> bool:
        with self._lock:
            self._remove_through = -1
        self._report("2C-0009", path=path, verb="removed", reason=reason)
        return False


def _chosen(entries: list[JournalEntry], current: int, options: object, now_ns: int) -> list[JournalEntry]:
    """The full journals that a request selects: the oldest ones, up to an age or a number. Raises RequestRefused."""
    if not isinstance(options, dict) or len(options) != 1:
        raise RequestRefused('select journals by {"age_s": seconds} or {"up_to": number}')
    name, value = next(iter(options.items()))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise RequestRefused(f"{name} must be a number that is not negative, not {value!r}")
    if name == "age_s":
        return oldest_of_age(entries, now_ns, value)
    if name != "up_to":
        raise RequestRefused(f"{name!r} is unknown; use age_s or up_to")
    try:
        return oldest_up_to(entries, int(value), current)
    except ValueError as problem:
        raise RequestRefused(str(problem)) from None
