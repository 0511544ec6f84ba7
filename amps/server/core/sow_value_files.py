"""The value file of a SOW topic as the core has it open: its name, its lock, its syncs. amps/journal/value_file.py has
the header page.

A file that cannot be used is renamed and kept; the topic then begins with a new one. Only a file that this module has
just made, and whose header is not complete, is written over.

The page also says from which transaction id on the past can be read (`begin_txid`). It is written, and synced, before
values are carried over: from then on the links of older records may lead to values that are gone.
"""

import fcntl
import os
import time
from pathlib import Path

from amps._core.sow.table import VALUE_FILE_HEADER_BYTES, slab_bytes
from amps.config.model_sow import SowTopicConfig
from amps.journal.disk import Disk
from amps.journal.value_file import (
    NEVER,
    LogPlace,
    ValueFileHeader,
    ValueFileUnusable,
    check_identity,
    read_begin,
    write_begin,
    write_log_place,
)
from amps.server.core.older import RecoveryRefused


class TopicFile:
    """An open value file, locked for this process."""

    def __init__(
        self, path: Path, config: SowTopicConfig, definition: int, disk: Disk | None, now_ns: int
    ) -> None:
        """Open the file, or make it. disk: of a persistent topic; None: the file is in memory. now_ns: UNIX time, at
        which a topic begins whose file is made, if its RecoveryPoint says so.

        Raises RecoveryRefused if another process has the file, OSError.
        """
        self.path = path
        self.set_aside: str | None = None
        """The new name of an earlier file that is not used, and the reason."""
        self.begin_ns = _begin_ns(config, now_ns)
        """UNIX time from which on records of the log belong to the topic (sow.md §4, RecoveryPoint)."""
        self._disk = disk
        header = ValueFileHeader(
            config.name, config.message_type, config.slab_size_bytes, definition, self.begin_ns
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        self.descriptor = self._open(config)
        problem = self._problem(header)
        if problem is not None:
            self.begin_ns = _begin_ns(config, now_ns)
            self.set_aside = f"{path} is not used: {problem}; it was renamed to {self.rename().name}"
            self.descriptor = self._open(config)
        if self.size < VALUE_FILE_HEADER_BYTES:
            os.pwrite(self.descriptor, header.to_bytes().ljust(VALUE_FILE_HEADER_BYTES, b"\0"), 0)
            if disk is not None:
                disk.sync(self.descriptor)
                disk.sync_directory(path.parent)
            slabs = config.initial_slab_count * slab_bytes(config.slab_size_bytes)
            self.allocate(VALUE_FILE_HEADER_BYTES, slabs)

    def _open(self, config: SowTopicConfig) -> int:
        flags = os.O_RDWR | os.O_CREAT
        if self._disk is None:
            descriptor = os.open(self.path, flags | os.O_CLOEXEC, 0o640)
        else:
            descriptor = self._disk.open_mapped(self.path, flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise RecoveryRefused(
                f"another process uses {self.path}, the FileName of SOW topic {config.name!r}: give each instance its "
                "own"
            ) from None
        return descriptor

    def _problem(self, header: ValueFileHeader) -> str | None:
        """Why the file cannot be used; None: it can, or is to be made."""
        found = os.pread(self.descriptor, VALUE_FILE_HEADER_BYTES, 0)
        if len(found) < VALUE_FILE_HEADER_BYTES and header.to_bytes().startswith(found):
            return None
        try:
            self.begin_ns = check_identity(found, header)
        except ValueFileUnusable as problem:
            return str(problem)
        return None

    @property
    def size(self) -> int:
        """Size in bytes."""
        return os.fstat(self.descriptor).st_size

    def allocate(self, offset: int, length: int) -> None:
        """Reserve a part of the file. Raises OSError."""
        os.posix_fallocate(self.descriptor, offset, length)

    def rename(self) -> Path:
        """Give the file, which is not used any more, another name. Returns it. Raises OSError."""
        aside = set_aside(self.path)
        if self._disk is None:
            os.close(self.descriptor)
        else:
            self._disk.close(self.descriptor)
        return aside

    def begin_txid(self) -> int | None:
        """From which transaction id on the past can be read, as the file knows it; None: it was torn, or the topic was
        not recorded.
        """
        begin = read_begin(os.pread(self.descriptor, VALUE_FILE_HEADER_BYTES, 0))
        return None if begin == NEVER else begin

    def write_begin(self, txid: int | None) -> None:
        """Write from which transaction id on the past can be read, durably; None: it cannot. Raises OSError."""
        if self.begin_txid() != txid:
            write_begin(self.descriptor, NEVER if txid is None else txid)
            self.sync()

    def write_log_place(self, place: LogPlace | None) -> None:
        """Write where the journals of the topic are, for tools; None: it is not recorded. Raises OSError."""
        write_log_place(self.descriptor, place)

    def write_header_again(self) -> None:
        """Let the next sync write the header page, after one that failed. Raises OSError."""
        os.pwrite(self.descriptor, os.pread(self.descriptor, VALUE_FILE_HEADER_BYTES, 0), 0)

    def sync(self) -> None:
        """Return when the contents are on the disk, if the topic is persistent. Raises OSError."""
        if self._disk is not None:
            self._disk.sync(self.descriptor)


def set_aside(path: Path) -> Path:
    """Rename an unusable file. Returns its new name. Raises OSError."""
    aside = path.with_name(f"{path.name}.unusable-{time.time_ns()}")
    path.rename(aside)
    return aside


def _begin_ns(config: SowTopicConfig, now_ns: int) -> int:
    point = config.recovery_point
    return now_ns if point.kind == "now" else point.time_ns or 0
