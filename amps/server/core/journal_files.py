"""The journal's files on disk: the storage that the sequencer's journal writer uses.

Three threads work here. The core thread writes with `pwrite` into the file in use, and changes files. The
*housekeeping* thread makes spare files ahead of need (spare_journals.py), so that appending never waits for the file
system to allocate blocks. The *flusher* thread (flusher.py) syncs. Ownership: the file in use and the prepared one
belong to the core thread; state of the housekeeping is shared under `_changed`.

The process or the machine may crash at any time; after a crash of the machine any part of the bytes not yet synced may
be on the disk. So: a journal name always denotes a full-size file. A file comes into use by its header, which is synced
before the first record is written; so a spare holds nothing but zeros, and old data can never follow new data. Before
that, the predecessor is synced to its end; so only the newest journal can have a torn tail. The index of a full journal
is written under a temporary name and renamed; without it the journal is scanned.

The disk may be full, or return errors, at any time. Every step for a new file that may fail is done before its
predecessor is closed (`prepare_file`), and a failure changes nothing: the core refuses messages and tries again. Once a
file is prepared, only a failing device can stop it (StorageFailure).

Journal retention (journal_retention.py) decides about full journals. The storage monitor (storage_monitor.py) checks
that the files stay in their places. The housekeeping thread does the work of both, in this order: files that the
monitor has to restore, indexes, spares, other chores, retention, topic indexes.
"""

import contextlib
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from amps._core.journal.reader import FORMAT_VERSION, LogDamaged, build_file_header
from amps._core.journal.writer import IndexBuilder, index_bytes
from amps._core.values.value import publisher_id
from amps.journal.disk import PAGE_BYTES, Disk
from amps.journal.files import JournalHeader
from amps.journal.names import (
    index_path,
    journal_path,
    reading_places,
    topic_index_path,
    topic_index_places,
    unfinished_path,
)
from amps.journal.topic_index import topic_index_file_steps
from amps.server.core.flusher import Flusher
from amps.server.core.journal_retention import WAIT_S, JournalRetention
from amps.server.core.lock import hold_journal
from amps.server.core.spare_journals import SpareJournals, make_spare
from amps.server.core.storage_monitor import StorageMonitor
from amps.server.eventlog import Report
from amps.server.runtime import Runtime

MIB = 1 << 20
_VERSION_OFFSET = 8  # in the header of a journal: docs/files.md


class StorageFailure(Exception):
    """The journal's device fails: the core must stop, and no further message may be acknowledged."""


class Chore(Protocol):
    """Other work for the housekeeping thread, done a few milliseconds at a time."""

    def due(self) -> bool:
        """Whether there is work to do now."""

    def step(self) -> bool:
        """Do a part of the work. False: there was nothing to do."""


class _Prepared(NamedTuple):
    """A spare that can be brought into use: open, with memory for its index."""

    number: int
    size: int
    descriptor: int
    index_memory: mmap.mmap


class JournalFiles:
    """Storage for the sequencer's journal writer; see amps/_core/journal/append.pxi for the interface."""

    def __init__(
        self,
        directory: Path,
        instance_name: str,
        size_bytes: int,
        preallocated: int,
        runtime: Runtime,
        flusher: Flusher,
        report: Report,
        disk: Disk,
        background: bool = True,
        archive: Path | None = None,
        topic_index: bool = False,
    ) -> None:
        """`report(id, **values)` logs; `size_bytes` is a multiple of 1 MiB; `preallocated` counts the file in use;
        `archive`: where full journals may be moved to.

        `background`: make spares and indexes in a thread. Otherwise the caller calls `step`, as the simulation does.
        `topic_index`: make a topic index for each full journal.
        """
        self.directory = directory
        self.instance_name = instance_name
        self.size_bytes = size_bytes
        self.preallocated = preallocated
        self._runtime = runtime
        self._flusher = flusher
        self._report = report
        self._disk = disk
        self._background = background
        self._descriptor = -1
        self._number = -1
        self._size_in_use = 0
        self._written_pages_end = 0  # of the file in use: offset behind the last page that was written whole
        self._changed = threading.Condition()
        self._spares = SpareJournals(
            directory,
            instance_name,
            size_bytes,
            preallocated,
            disk,
            report,
            self._changed,
            None if background else self.step,
        )
        self._prepared: _Prepared | None = None
        self.obstacle: OSError | None = None
        """The error of the last file that could not be prepared."""
        self._indexes: list[tuple[int, IndexBuilder]] = []
        self._headers: dict[
            int, JournalHeader
        ] = {}  # of the file in use, and of full ones without an index yet
        self._archive = archive
        self._topic_index = topic_index
        self._without_topic_index: list[int] = []
        self._topic_index_work: Iterator[None] | None = None
        self.chores: list[Chore] = []
        """May be extended. `wake` notifies the thread that a chore has work."""
        self._stopping = False
        self.retention = JournalRetention(
            directory, archive, instance_name, runtime.control, report, disk, runtime.index_path
        )
        self.retention.wake = self.wake
        self.monitor = StorageMonitor(
            directory,
            archive,
            instance_name,
            disk,
            report,
            self.retention.full_paths,
            runtime.core_wake_up.send,
        )
        self._thread = threading.Thread(target=self._housekeeping, name="journal-files", daemon=True)

    def start(self, spares: set[int], in_use: int) -> None:
        """Begin preallocating; `spares` exist already, `in_use` is the file in use (-1: none yet)."""
        self._spares.start(spares, in_use)
        self._number = in_use
        if self._background:
            self._thread.start()

    def wait_for_spares(self) -> None:
        """Wait until as many files exist as configured. Raises StorageFailure."""
        failure = self._spares.wait_until_complete()
        if failure is not None:
            raise StorageFailure(f"no further journal can be made: {failure.strerror}") from failure

    def stop(self) -> None:
        """End the housekeeping thread after its current work; indexes of full journals are written first."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        while self._indexes:  # without a thread
            self.step()
        self._topic_index_work = None
        self.retention.abandon()
        if self._background:
            self._keep_if_lost()
            self.monitor.close()

    def write_publishers(self, index: IndexBuilder, position: int) -> None:
        """Write the last message of each publisher up to `position`, the end of the log; called after `stop`."""
        self.retention.stop(self._headers[self._number], index, position)

    def resume(self, header: JournalHeader) -> None:
        """Open the file that recovery found in use, and give it the version of new files. Raises OSError."""
        path = journal_path(self.directory, self.instance_name, header.number)
        descriptor = self._disk.open(path, os.O_RDWR)
        version = FORMAT_VERSION.to_bytes(4, "little")
        if os.pread(descriptor, len(version), _VERSION_OFFSET) != version:
            # An older server must not read what is written from here on. The header's checksum excludes its version.
            self._disk.write(descriptor, memoryview(version), _VERSION_OFFSET)
            self._disk.sync(descriptor)
        self._headers[header.number] = header
        self._use(header.number, header.size, descriptor)

    @property
    def in_use(self) -> JournalHeader:
        """The header of the file in use."""
        return self._headers[self._number]

    # --- the writer's interface ---------------------------------------------------------------------------

    def prepare_file(self, number: int, minimum_bytes: int) -> int | None:
        """Check whether journal `number` can be brought into use, and wait while it is being made. None: it can.
        Otherwise the size of the smallest file that cannot be made; `obstacle` has the reason.
        """
        prepared = self._prepared
        if prepared is not None:
            if prepared.number == number and prepared.size >= minimum_bytes:
                return None
            self._discard_prepared()
        large = minimum_bytes > self.size_bytes
        # A message larger than a journal gets one big enough (transaction_log.md §20, 28).
        size = (minimum_bytes + MIB - 1) // MIB * MIB if large else self.size_bytes
        try:
            self._prepared = self._open_spare(number, size)
        except OSError as error:
            self.obstacle = error
            return minimum_bytes if large else 0
        return None

    def _open_spare(self, number: int, size: int) -> "_Prepared":
        """Do every step for a new file that may fail for lack of space or permission. Raises OSError."""
        disk = self._disk
        path = journal_path(self.directory, self.instance_name, number)
        while True:
            failure = self._spares.wait_for(number)
            if failure is not None:
                raise failure
            if size != self.size_bytes:
                make_spare(disk, self.directory, self.instance_name, number, size)
            disk.check(self.directory)
            # An index left over from a log that was removed must not be taken for this journal's.
            disk.unlink(index_path(self.directory, self.instance_name, number))
            disk.unlink(topic_index_path(self.directory, self.instance_name, number))
            try:
                descriptor = disk.open(path, os.O_RDWR)
            except FileNotFoundError:
                self._spares.unusable(number)  # it was removed
                continue
            if os.fstat(descriptor).st_size == size:
                break
            # Truncated from outside, or made for a large message that was not written.
            disk.close(descriptor)
            self._spares.unusable(number)
        try:
            return _Prepared(number, size, descriptor, self.index_memory(number, size))
        except OSError:
            disk.close(descriptor)
            raise

    def _discard_prepared(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            self._disk.close(prepared.descriptor)

    def next_file(
        self, number: int, start_position: int, minimum_bytes: int, first_txid: int
    ) -> tuple[int, mmap.mmap]:
        """Bring journal `number` into use. Raises StorageFailure."""
        if self.prepare_file(number, minimum_bytes) is not None:
            assert self.obstacle is not None
            raise StorageFailure(
                f"no further journal can be made: {self.obstacle.strerror}"
            ) from self.obstacle
        prepared, self._prepared = self._prepared, None
        assert prepared is not None
        descriptor, size = prepared.descriptor, prepared.size
        header = build_file_header(
            number,
            size,
            start_position,
            first_txid,
            self._runtime.clock.time_ns(),
            publisher_id(self.instance_name),
            self.instance_name,
            True,
        )
        try:
            if self._descriptor >= 0:
                self._flusher.wait_until_synced(start_position)
            self._disk.write(descriptor, memoryview(header), 0)
            self._disk.sync(descriptor)
        except OSError as error:
            raise StorageFailure(f"journal {number} cannot be brought into use: {error}") from error
        if self._descriptor >= 0:
            self._keep_if_lost()
        self._spares.used(number)
        self._headers[number] = JournalHeader(
            number, size, start_position, first_txid, self.instance_name, True
        )
        self._use(number, size, descriptor)
        return size, prepared.index_memory

    def _use(self, number: int, size: int, descriptor: int) -> None:
        self._descriptor = descriptor
        self._number = number
        self._size_in_use = size
        self._written_pages_end = 0
        hold_journal(descriptor)
        self._flusher.use_file(descriptor, self._headers[number].start_position)
        self.monitor.use(number, descriptor)

    def _keep_if_lost(self) -> None:
        """Keep the open file if the file in use was removed. No more is written to it, and no other copy exists."""
        if self._background and not self.monitor.is_in_place():
            self.monitor.keep(self._number, os.dup(self._descriptor))

    def index_memory(self, number: int, size_bytes: int) -> mmap.mmap:
        """Shared memory for the index of the file in use, readable by transports. Raises OSError."""
        path = self._runtime.index_path(number)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # All blocks at once: a store into a hole of a full tmpfs would kill the process.
            os.posix_fallocate(descriptor, 0, index_bytes(size_bytes))
            return mmap.mmap(descriptor, index_bytes(size_bytes))
        except OSError as error:
            raise OSError(
                error.errno, f"no memory for the journal index at {path}: {error.strerror}"
            ) from error
        finally:
            os.close(descriptor)

    def write(self, offset: int, data: memoryview) -> None:
        """Append to the file in use. Raises StorageFailure.

        Pages of a spare are on the device only. So that a page need not be read before a partial write, each page that
        is written for the first time is written as a whole, with zeros behind the data.
        """
        end = offset + len(data)
        zeros = 0
        if end > self._written_pages_end:
            zeros = min(-end % PAGE_BYTES, self._size_in_use - end)
            self._written_pages_end = end + zeros
        try:
            self._disk.write(self._descriptor, data, offset, zeros)
        except OSError as error:
            raise StorageFailure(f"writing to journal {self._number} failed: {error}") from error

    def finish_recovered(self, header: JournalHeader, index: IndexBuilder) -> None:
        """Finish the file that recovery found in use but full."""
        self._headers[header.number] = header
        self.finish_file(header.number, index)

    def finish_file(self, number: int, index: IndexBuilder) -> None:
        """Have the index of the full journal `number` written in the background."""
        with self._changed:
            self._indexes.append((number, index))
            if self._topic_index:
                self._without_topic_index.append(number)
            self._changed.notify_all()

    def make_missing_topic_indexes(self, first_number: int, end_number: int) -> None:
        """Have missing topic indexes made for the full journals in this range."""
        if not self._topic_index:
            return
        missing = [
            number
            for number in range(first_number, end_number)
            if not any(
                path.exists()
                for path in topic_index_places(self.directory, self._archive, self.instance_name, number)
            )
        ]
        with self._changed:
            self._without_topic_index += missing
            self._changed.notify_all()

    # --- housekeeping thread ------------------------------------------------------------------------------

    def wake(self) -> None:
        """Notify the housekeeping thread of work."""
        with self._changed:
            self._changed.notify_all()

    def _idle(self) -> bool:
        return (
            not (self._indexes or self._without_topic_index)
            and self._spares.due() is None
            and not self.retention.due()
            and not self.monitor.due()
            and not any(chore.due() for chore in self.chores)
        )

    def _housekeeping(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and self._idle():
                    self._changed.wait(WAIT_S)
                if self._stopping and not self._indexes:
                    return
            self.step()

    def step(self) -> bool:
        """Do one part of the housekeeping: restore a removed journal, write an index, make a spare, a part of a chore,
        or work of the retention. False: there was nothing to do, or nothing could be done.
        """
        if self._background and self.monitor.due() and self.monitor.step():
            return True
        with self._changed:
            full = self._indexes.pop(0) if self._indexes else None
            missing = self._spares.due()
        if full is not None:
            self._write_index(*full)
            return True
        if self._stopping:
            return False
        if missing is not None and self._spares.make(missing):
            return True
        if any(chore.step() for chore in self.chores):
            return True
        # Also on a full disk: the retention frees space.
        return self.retention.step() or self._step_topic_index()

    def _write_index(self, number: int, index: IndexBuilder) -> None:
        path = index_path(self.directory, self.instance_name, number)
        data = index.to_bytes()
        try:
            write_index(self._disk, path, data)
        except OSError as error:
            self._report("2C-0004", path=path, reason=error)
        else:
            with contextlib.suppress(OSError):
                self._runtime.index_path(number).unlink()
        self.retention.journal_full(self._headers.pop(number), data)

    def _step_topic_index(self) -> bool:
        """Continue a topic index, after all other work because nothing waits for it. False: there was nothing to do."""
        with self._changed:
            if not self._without_topic_index:
                return False
            number = self._without_topic_index[0]
        path = topic_index_path(self.directory, self.instance_name, number)
        try:
            if self._topic_index_work is None:
                self._topic_index_work = topic_index_file_steps(self._disk, self._place_of(number), path)
            if next(self._topic_index_work, True) is None:
                return True
            self._place_of(number)
        except FileNotFoundError:
            # The journal was removed meanwhile.
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
        except (OSError, LogDamaged, ValueError) as error:
            self._report("2C-0013", path=path, reason=error)
        self._topic_index_work = None
        with self._changed:
            self._without_topic_index.remove(number)
        return True

    def _place_of(self, number: int) -> Path:
        """The path of journal `number`. Raises FileNotFoundError."""
        for prefix, suffix in reading_places(self.directory, self._archive, self.instance_name):
            path = Path(f"{prefix}{number:010d}{suffix}")
            if path.exists():
                return path
        raise FileNotFoundError(f"there is no journal {number:010d}")


def write_index(disk: Disk, path: Path, data: bytes) -> None:
    """Write the index of a full journal. Raises OSError. It is not synced: the checksum shows whether it is whole."""
    unfinished = unfinished_path(path)
    descriptor = disk.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        disk.write(descriptor, memoryview(data), 0)
    except OSError:
        with contextlib.suppress(OSError):
            disk.unlink(unfinished)
        raise
    finally:
        disk.close(descriptor)
    disk.rename(unfinished, path)
