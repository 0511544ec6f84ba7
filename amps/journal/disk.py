"""The interface to the disk: every call that changes a file of a journal directory goes through one small object.

So all calls of the device are in one place, and the simulation can replace the object. The simulation tracks the state
that a crash of the machine would leave, and lets the process die between any two calls.

`whole_file` makes a file that is written as a whole: a reader finds the complete file or none.
"""

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from amps._core.journal.reader import LogDamaged
from amps.journal.names import unfinished_path

Identity = tuple[int, int]
"""Device and inode number of a directory."""

FILE_MODE = 0o640
"""Of all files of a journal directory: they hold messages, or tell of them."""
PAGE_BYTES = 4096
FILL_BYTES = 4 << 20
_ZEROS = mmap.mmap(-1, FILL_BYTES)  # page-aligned, as writing past the page cache requires


class DirectoryGone(OSError):
    """A directory was replaced: its file system was unmounted, or it was moved or removed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            errno.ESTALE,
            f"{directory} is not the directory that it was (moved, removed, or its file system unmounted)",
        )


class Disk:
    """The real disk. Every method raises OSError.

    No file is created in an expected directory (`expect`) while another directory has its path. The mount point of an
    unmounted file system is such a directory, and a file created there would be missing from the log.
    """

    def __init__(self) -> None:
        self._identities: dict[Path, Identity] = {}

    def expect(self, directory: Path, identity: Identity | None = None) -> Identity:
        """Require that a directory keeps its current identity, or the given one. Returns it. Raises DirectoryGone."""
        if identity is None:
            found = os.stat(directory)
            identity = found.st_dev, found.st_ino
        self._identities[directory] = identity
        Disk.check(self, directory)
        return identity

    def check(self, directory: Path) -> None:
        """Raise DirectoryGone if an expected directory was replaced."""
        identity = self._identities.get(directory)
        if identity is None:
            return
        try:
            found = os.stat(directory)
        except (FileNotFoundError, NotADirectoryError):
            raise DirectoryGone(directory) from None
        if (found.st_dev, found.st_ino) != identity:
            raise DirectoryGone(directory)

    def open(self, path: Path, flags: int) -> int:
        """Open a file; new ones are readable by owner and group."""
        if flags & os.O_CREAT:
            Disk.check(self, path.parent)  # not self.check, so that subclasses that watch calls see one call
        return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)

    def open_mapped(self, path: Path, flags: int) -> int:
        """Open a file whose contents are changed through mapped memory, beside calls; `sync` makes them durable."""
        return self.open(path, flags)

    def close(self, descriptor: int) -> None:
        """Close a file without a sync."""
        os.close(descriptor)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Allocate all blocks of a file up to a size."""
        os.posix_fallocate(descriptor, 0, size_bytes)

    def fill(self, descriptor: int, offset: int, size_bytes: int) -> None:
        """Write zeros, past the page cache if the file system supports it and both numbers are multiples of PAGE_BYTES.

        That takes a tenth of the processor time, and no memory. Otherwise the file is synced here in pieces, which
        keeps the device free for other work.
        """
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        direct = True
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        except OSError:
            direct = False
        end = offset + size_bytes
        try:
            while offset < end:
                try:
                    offset += os.pwrite(descriptor, memoryview(_ZEROS)[: end - offset], offset)
                except OSError as error:
                    if not direct or error.errno != errno.EINVAL:
                        raise
                    direct = False
                    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
                    continue
                if not direct:
                    os.fdatasync(descriptor)
        finally:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)

    def write(self, descriptor: int, data: memoryview, offset: int, zeros: int = 0) -> None:
        """Write everything, and up to PAGE_BYTES zeros behind it."""
        if zeros:
            written = os.pwritev(descriptor, (data, memoryview(_ZEROS)[:zeros]), offset)
        else:
            written = os.pwrite(descriptor, data, offset)
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], offset + written)

    def store(self, memory: mmap.mmap, data: bytes) -> None:
        """Write bytes to the beginning of a mapped file. They are visible at once, and reach the device later."""
        memory[: len(data)] = data

    def sync(self, descriptor: int) -> None:
        """Return when everything written to the file is on the device."""
        os.fdatasync(descriptor)

    def set_times(self, descriptor: int, modified_ns: int) -> None:
        """Set the time of a file's last change, to that of the file from which it was made."""
        os.utime(descriptor, ns=(modified_ns, modified_ns))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name, replacing any file of that name; durable after `sync_directory`."""
        source.rename(target)

    def unlink(self, path: Path) -> None:
        """Remove a file if it exists; durable after `sync_directory`."""
        path.unlink(missing_ok=True)

    def sync_directory(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def whole_file(disk: Disk, path: Path) -> Iterator[int]:
    """Write a file, or replace one, so that it is complete and on the device before it gets its name.

    Yields the descriptor of an empty file under its unfinished name, for writing within the block. At the end of the
    block it gets its name, durably. If OSError or LogDamaged (the written content is wrong) ends the block, the file is
    removed. If the process dies, the unfinished file is left, and the next start removes it. Raises OSError.
    """
    unfinished = unfinished_path(path)
    try:
        descriptor = disk.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            yield descriptor
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)
        disk.rename(unfinished, path)
    except (OSError, LogDamaged):
        with contextlib.suppress(OSError):
            disk.unlink(unfinished)
        raise
    disk.sync_directory(path.parent)
