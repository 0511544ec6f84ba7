"""The journal's files on disk: the storage that the sequencer's journal writer uses.

Three parties work here. The core thread writes with `pwrite` into the file in use and changes files. The
*preallocator* thread makes spare files ahead of need, filled with zeros and synced, so that appending never waits
for the file system to find blocks. The *flusher* thread (flusher.py) syncs. Who owns what: the file in use belongs
to the core thread; `_spares`, `_request` and `_failure` are shared under `_changed`.

A crash may come anywhere. A spare is made under another name and renamed when it is whole, so a journal name always
denotes a full-size file. A file comes into use by its header, written and synced together with its first records.
The index of a full journal is written under a temporary name and renamed; without it the journal is scanned.
"""

import contextlib
import errno
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from amps._core.bookmark_index import IndexBuilder, index_bytes
from amps._core.identity import publisher_id
from amps._core.log_reader import build_file_header
from amps.server.core.flusher import Flusher
from amps.server.journal_names import NEW_SUFFIX, index_path, journal_path
from amps.server.runtime import Runtime

MIB = 1 << 20
ZEROS = bytes(MIB)


class StorageFailure(Exception):
    """The journal's device refuses: the core must stop, nothing more may be acknowledged."""


def write_whole(descriptor: int, data: memoryview, offset: int) -> None:
    """pwrite everything; raises OSError."""
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)


def sync_directory(directory: Path) -> None:
    """Make names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_spare(directory: Path, instance_name: str, number: int, size_bytes: int) -> None:
    """Make one journal file, full of zeros and synced, under its final name. Raises OSError."""
    path = journal_path(directory, instance_name, number)
    unfinished = path.with_suffix(NEW_SUFFIX)
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        # First ask for all blocks, so that a full disk is noticed before half of it is written.
        os.posix_fallocate(descriptor, 0, size_bytes)
        for offset in range(0, size_bytes, MIB):
            write_whole(descriptor, memoryview(ZEROS)[: size_bytes - offset], offset)
            if offset % (16 * MIB) == 15 * MIB:
                # Syncing piecemeal keeps the device free for the journal in use.
                os.fdatasync(descriptor)
        header = build_file_header(
            number, size_bytes, 0, 0, time.time_ns(), publisher_id(instance_name), instance_name, False
        )
        write_whole(descriptor, memoryview(header), 0)
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    finally:
        os.close(descriptor)
    unfinished.rename(path)
    sync_directory(directory)


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
    ) -> None:
        """`report(id, text)` logs; `size_bytes` is a multiple of 1 MiB; `preallocated` counts the file in use."""
        self.directory = directory
        self.instance_name = instance_name
        self.size_bytes = size_bytes
        self.preallocated = preallocated
        self._runtime = runtime
        self._flusher = flusher
        self._report = report
        self._descriptor = -1
        self._number = -1
        self._changed = threading.Condition()
        self._spares: set[int] = set()
        self._failure: OSError | None = None
        self._request: int | None = None
        self._indexes: list[tuple[int, IndexBuilder]] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._housekeeping, name="journal-files", daemon=True)

    def start(self, spares: set[int], in_use: int) -> None:
        """Begin preallocating; `spares` exist already, `in_use` is the file in use (-1: none yet)."""
        self._spares = set(spares)
        self._number = in_use
        self._thread.start()

    def wait_for_spares(self) -> None:
        """Wait until as many files exist as configured. Raises StorageFailure."""
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

    def resume(self, number: int) -> None:
        """Open the file that recovery found in use."""
        self._descriptor = os.open(
            journal_path(self.directory, self.instance_name, number), os.O_RDWR | os.O_CLOEXEC
        )
        self._number = number
        self._flusher.use_file(self._descriptor)

    # --- the writer's interface ---------------------------------------------------------------------------

    def next_file(
        self, number: int, start_position: int, minimum_bytes: int, first_txid: int
    ) -> tuple[int, mmap.mmap]:
        """Bring journal `number` into use; waits for the preallocator. Raises StorageFailure."""
        size = self.size_bytes
        try:
            if minimum_bytes > size:
                # A message larger than a journal gets one big enough (transaction_log.md §20, 28).
                size = (minimum_bytes + MIB - 1) // MIB * MIB
                with self._changed:
                    self._wait_for(number)  # so that the preallocator does not make the same number meanwhile
                make_spare(self.directory, self.instance_name, number, size)
            with self._changed:
                self._wait_for(number)
                self._spares.discard(number)
                self._number = number
                self._changed.notify_all()
            path = journal_path(self.directory, self.instance_name, number)
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
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
            write_whole(descriptor, memoryview(header), 0)
        except OSError as error:
            raise StorageFailure(f"journal {number} cannot be brought into use: {error}") from error
        self._descriptor = descriptor
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
            write_whole(self._descriptor, data, offset)
        except OSError as error:
            raise StorageFailure(f"writing to journal {self._number} failed: {error}") from error

    def finish_file(self, number: int, index: IndexBuilder) -> None:
        """Journal `number` is full: have its index written in the background."""
        with self._changed:
            self._indexes.append((number, index))
            self._changed.notify_all()

    # --- housekeeping thread ------------------------------------------------------------------------------

    def _wait_for(self, number: int) -> None:
        """Ask for a spare and wait until it exists; the caller holds `_changed`."""
        self._request = number
        self._changed.notify_all()
        while number not in self._spares:
            self._raise_failure()
            self._changed.wait()
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

    def _housekeeping(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and not self._indexes and self._missing_spare() is None:
                    self._changed.wait()
                if self._indexes:
                    number, index = self._indexes.pop(0)
                    missing = None
                elif self._stopping:
                    return
                else:
                    missing = self._missing_spare()
            if missing is None:
                self._write_index(number, index)
                continue
            try:
                make_spare(self.directory, self.instance_name, missing, self.size_bytes)
            except OSError as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                self._report(
                    "2C-0003",
                    f"journal {missing} cannot be preallocated in {self.directory}: {os.strerror(error.errno or 0)}"
                    + ("; free some space" if error.errno == errno.ENOSPC else ""),
                )
                time.sleep(1)
                continue
            with self._changed:
                self._failure = None
                self._spares.add(missing)
                self._changed.notify_all()

    def _write_index(self, number: int, index: IndexBuilder) -> None:
        path = index_path(self.directory, self.instance_name, number)
        unfinished = path.with_suffix(".index.new")
        try:
            unfinished.write_bytes(index.to_bytes())
            unfinished.rename(path)
        except OSError as error:
            self._report("2C-0004", f"index {path} cannot be written ({error}); it is rebuilt at the next start")
            with contextlib.suppress(OSError):
                unfinished.unlink()
            return
        with contextlib.suppress(OSError):
            self._runtime.index_path(number).unlink()
