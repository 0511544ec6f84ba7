"""The journal's files on disk: the storage that the sequencer's journal writer uses.

Three parties work here. The core thread writes with `pwrite` into the file in use and changes files. The
*preallocator* thread makes spare files ahead of need, filled with zeros and synced, so that appending never waits
for the file system to find blocks. The *flusher* thread (flusher.py) syncs. Who owns what: the file in use belongs
to the core thread; `_spares`, `_request` and `_failure` are shared under `_changed`.

A crash may come anywhere, of the process or of the machine; after the latter any part of what was not synced may be
there. So: a spare is made under another name and renamed when it is whole and synced; a journal name always denotes a
full-size file. A file comes into use by its header, and that is synced before the first record is written; so a spare
holds nothing but zeros, and nothing old can ever follow what is new. Before that, the predecessor is synced to its
end; so only the newest journal can have a torn tail. The index of a full journal is written under a temporary name
and renamed; without it the journal is scanned.

What becomes of full journals is the keeper's (journal_keeper.py). Its work is done by the housekeeping thread when that
has nothing more urgent to do: indexes come first, then spares; topic indexes come last.
"""

import contextlib
import errno
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from amps._core.bookmark_index import IndexBuilder, index_bytes
from amps._core.identity import publisher_id
from amps._core.log_reader import LogDamaged, build_file_header
from amps.journal.disk import Disk
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
from amps.server.core.journal_keeper import WAIT_S, JournalKeeper
from amps.server.runtime import Runtime

MIB = 1 << 20
ZEROS = bytes(MIB)


class StorageFailure(Exception):
    """The journal's device refuses: the core must stop, nothing more may be acknowledged."""


def make_spare(disk: Disk, directory: Path, instance_name: str, number: int, size_bytes: int) -> None:
    """Make one journal file, full of zeros and synced, under its final name. Raises OSError."""
    path = journal_path(directory, instance_name, number)
    unfinished = unfinished_path(path)
    descriptor = disk.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        # First ask for all blocks, so that a full disk is noticed before half of it is written.
        disk.allocate(descriptor, size_bytes)
        for offset in range(0, size_bytes, MIB):
            disk.write(descriptor, memoryview(ZEROS)[: size_bytes - offset], offset)
            if offset % (16 * MIB) == 15 * MIB:
                # Syncing piecemeal keeps the device free for the journal in use.
                disk.sync(descriptor)
        header = build_file_header(
            number, size_bytes, 0, 0, time.time_ns(), publisher_id(instance_name), instance_name, False
        )
        disk.write(descriptor, memoryview(header), 0)
        disk.sync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            disk.unlink(unfinished)
        raise
    finally:
        disk.close(descriptor)
    disk.rename(unfinished, path)
    disk.sync_directory(directory)


class JournalFiles:
    """Storage for the sequencer's journal writer; see `amps._core.sequencer` for the interface."""

    def __init__(
        self,
        directory: Path,
        instance_name: str,
        size_bytes: int,
        preallocated: int,
        runtime: Runtime,
        flusher: Flusher,
        report: Callable[[str, str], None],
        disk: Disk,
        background: bool = True,
        archive: Path | None = None,
        topic_index: bool = False,
    ) -> None:
        """`report(id, text)` logs; `size_bytes` is a multiple of 1 MiB; `preallocated` counts the file in use;
        `archive`: where full journals may be moved to.

        `background`: make spares and indexes in a thread. Else the caller does every `step`, as the simulation does.
        `topic_index`: give full journals a topic index each.
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
        self._changed = threading.Condition()
        self._spares: set[int] = set()
        self._failure: OSError | None = None
        self._request: int | None = None
        self._indexes: list[tuple[int, IndexBuilder]] = []
        self._headers: dict[
            int, JournalHeader
        ] = {}  # of the file in use, and of full ones without an index yet
        self._archive = archive
        self._topic_index = topic_index
        self._without_topic_index: list[int] = []
        self._topic_index_work: Iterator[None] | None = None
        self._stopping = False
        self.keeper = JournalKeeper(
            directory, archive, instance_name, runtime.control, report, disk, runtime.index_path
        )
        self.keeper.wake = self._wake
        self._thread = threading.Thread(target=self._housekeeping, name="journal-files", daemon=True)

    def start(self, spares: set[int], in_use: int) -> None:
        """Begin preallocating; `spares` exist already, `in_use` is the file in use (-1: none yet)."""
        self._spares = self._usable(spares)
        self._number = in_use
        if self._background:
            self._thread.start()

    def _usable(self, spares: set[int]) -> set[int]:
        """Spares of the configured size. Others (the size was changed, or was meant for a large message) are removed,
        and with them all that follow: from the last one on, so that a crash leaves no gap in the numbers.
        """
        paths = {number: journal_path(self.directory, self.instance_name, number) for number in spares}
        wrong = [number for number, path in paths.items() if path.stat().st_size != self.size_bytes]
        if not wrong:
            return set(spares)
        for number in sorted(spares, reverse=True):
            if number >= min(wrong):
                self._disk.unlink(paths[number])
                self._disk.sync_directory(self.directory)
        return {number for number in spares if number < min(wrong)}

    def wait_for_spares(self) -> None:
        """Wait until as many files exist as configured. Raises StorageFailure."""
        if not self._background:
            while self._missing_spare() is not None:
                if not self.step():
                    self._raise_failure()
        with self._changed:
            while self._missing_spare() is not None:
                self._raise_failure()
                self._changed.wait()

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
        self.keeper.abandon()

    def write_publishers(self, index: IndexBuilder, position: int) -> None:
        """After `stop`: write down the last message of each publisher up to `position`, where the log ends."""
        self.keeper.stop(self._headers[self._number], index, position)

    def resume(self, header: JournalHeader) -> None:
        """Open the file that recovery found in use."""
        self._descriptor = self._disk.open(
            journal_path(self.directory, self.instance_name, header.number), os.O_RDWR
        )
        self._number = header.number
        self._headers[header.number] = header
        self._flusher.use_file(self._descriptor)

    # --- the writer's interface ---------------------------------------------------------------------------

    def next_file(
        self, number: int, start_position: int, minimum_bytes: int, first_txid: int
    ) -> tuple[int, mmap.mmap]:
        """Bring journal `number` into use; waits for the preallocator. Raises StorageFailure."""
        disk = self._disk
        path = journal_path(self.directory, self.instance_name, number)
        size = self.size_bytes
        try:
            if self._descriptor >= 0:
                self._flusher.wait_until_synced(start_position)
            with self._changed:
                self._wait_for(number)
            if minimum_bytes > size:
                # A message larger than a journal gets one big enough (transaction_log.md §20, 28).
                size = (minimum_bytes + MIB - 1) // MIB * MIB
                make_spare(disk, self.directory, self.instance_name, number, size)
            with self._changed:
                self._spares.discard(number)
                self._number = number
                self._changed.notify_all()
            # An index left over from a log that was removed must not pass for this journal's.
            disk.unlink(index_path(self.directory, self.instance_name, number))
            disk.unlink(topic_index_path(self.directory, self.instance_name, number))
            descriptor = disk.open(path, os.O_RDWR)
            header = build_file_header(
                number,
                size,
                start_position,
                first_txid,
                time.time_ns(),
                publisher_id(self.instance_name),
                self.instance_name,
                True,
            )
            disk.write(descriptor, memoryview(header), 0)
            disk.sync(descriptor)
        except OSError as error:
            raise StorageFailure(f"journal {number} cannot be brought into use: {error}") from error
        self._descriptor = descriptor
        self._headers[number] = JournalHeader(
            number, size, start_position, first_txid, self.instance_name, True
        )
        self._flusher.use_file(descriptor)
        return size, self.index_memory(number, size)

    def index_memory(self, number: int, size_bytes: int) -> mmap.mmap:
        """Shared memory for the index of the file in use, readable by transports."""
        path = self._runtime.index_path(number)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # All blocks at once: a store into a hole of a full tmpfs would kill the process.
            os.posix_fallocate(descriptor, 0, index_bytes(size_bytes))
            return mmap.mmap(descriptor, index_bytes(size_bytes))
        except OSError as error:
            raise StorageFailure(f"no memory for the journal index at {path}: {error}") from error
        finally:
            os.close(descriptor)

    def write(self, offset: int, data: memoryview) -> None:
        """Append to the file in use. Raises StorageFailure."""
        try:
            self._disk.write(self._descriptor, data, offset)
        except OSError as error:
            raise StorageFailure(f"writing to journal {self._number} failed: {error}") from error

    def finish_recovered(self, header: JournalHeader, index: IndexBuilder) -> None:
        """The file that recovery found in use is full already."""
        self._headers[header.number] = header
        self.finish_file(header.number, index)

    def finish_file(self, number: int, index: IndexBuilder) -> None:
        """Journal `number` is full: have its index written in the background."""
        with self._changed:
            self._indexes.append((number, index))
            if self._topic_index:
                self._without_topic_index.append(number)
            self._changed.notify_all()

    def make_missing_topic_indexes(self, first_number: int, end_number: int) -> None:
        """Have topic indexes made for those of the full journals in this range that have none."""
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

    def _wait_for(self, number: int) -> None:
        """Ask for a spare and wait until it exists; the caller holds `_changed`."""
        self._request = number
        self._changed.notify_all()
        while number not in self._spares:
            self._raise_failure()
            if self._background:
                self._changed.wait()
            else:
                self.step()
        self._request = None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise StorageFailure(f"no further journal can be made: {self._failure}") from self._failure

    def _missing_spare(self) -> int | None:
        """Number of the next file to make: what the core waits for, else what is configured to lie ready."""
        if self._request is not None and self._request not in self._spares:
            return self._request
        if self._number < 0:
            return None
        ahead = range(self._number + 1, self._number + self.preallocated)
        return next((number for number in ahead if number not in self._spares), None)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _idle(self) -> bool:
        return (
            not (self._indexes or self._without_topic_index)
            and self._missing_spare() is None
            and not self.keeper.due()
        )

    def _housekeeping(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and self._idle():
                    self._changed.wait(WAIT_S if self.keeper.waits() else None)
                if self._stopping and not self._indexes:
                    return
            if not self.step() and self._failure is not None:
                time.sleep(1)

    def step(self) -> bool:
        """Do one piece of the housekeeping: write an index, make a spare, or what the keeper has to do. False: there
        was nothing to do, or nothing could be done.
        """
        with self._changed:
            full = self._indexes.pop(0) if self._indexes else None
            missing = self._missing_spare()
        if full is not None:
            self._write_index(*full)
            return True
        if self._stopping:
            return False
        if missing is not None and self._make_spare(missing):
            return True
        # On a full disk too: what it removes makes room.
        return self.keeper.step() or self._step_topic_index()

    def _make_spare(self, number: int) -> bool:
        try:
            make_spare(self._disk, self.directory, self.instance_name, number, self.size_bytes)
        except OSError as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            self._report(
                "2C-0003",
                f"journal {number} cannot be preallocated in {self.directory}: {os.strerror(error.errno or 0)}"
                + ("; free some space" if error.errno == errno.ENOSPC else ""),
            )
            return False
        with self._changed:
            self._failure = None
            self._spares.add(number)
            self._changed.notify_all()
        return True

    def _write_index(self, number: int, index: IndexBuilder) -> None:
        path = index_path(self.directory, self.instance_name, number)
        data = index.to_bytes()
        try:
            write_index(self._disk, path, data)
        except OSError as error:
            self._report(
                "2C-0004", f"index {path} cannot be written ({error}); it is rebuilt at the next start"
            )
        else:
            with contextlib.suppress(OSError):
                self._runtime.index_path(number).unlink()
        self.keeper.journal_full(self._headers.pop(number), data)

    def _step_topic_index(self) -> bool:
        """Go on with a topic index, last of all: nothing waits for one. False: there was nothing to do."""
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
            self._report("2C-0004", f"topic index {path} cannot be written ({error}); replays do without it")
        self._topic_index_work = None
        with self._changed:
            self._without_topic_index.remove(number)
        return True

    def _place_of(self, number: int) -> Path:
        """Where journal `number` lies. Raises FileNotFoundError."""
        for prefix, suffix in reading_places(self.directory, self._archive, self.instance_name):
            path = Path(f"{prefix}{number:010d}{suffix}")
            if path.exists():
                return path
        raise FileNotFoundError(f"there is no journal {number:010d}")


def write_index(disk: Disk, path: Path, data: bytes) -> None:
    """Write the index of a full journal. Raises OSError. Not synced: its checksum tells whether it is whole."""
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
