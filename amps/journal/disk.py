"""The way to the disk: every call that changes a file of a journal directory goes through one small object.

So that all dealings with the device are in one place, and so that the simulation can stand in that place: it keeps
account of what a crash of the machine would leave, and lets the process die between any two calls.

A file that is written as a whole is made by `whole_file`: whoever looks for it finds all of it or nothing.
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

PAGE_BYTES = 4096
FILL_BYTES = 4 << 20
_ZEROS = mmap.mmap(-1, FILL_BYTES)  # begins at a page, as writing past the page cache demands


class DirectoryGone(OSError):
    """A directory is not the one that it was. Its file system was unmounted, or it was moved or removed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            errno.ESTALE,
            f"{directory} is not the directory that it was (moved, removed, or its file system unmounted)",
        )


class Disk:
    """The real one. Every method raises OSError.

    Nothing is made in a directory that is `expect`ed while another one has its path: the mount point of a file system
    that was unmounted is such a directory, and what is put there would be missing from the log.
    """

    def __init__(self) -> None:
        self._identities: dict[Path, Identity] = {}

    def expect(self, directory: Path, identity: Identity | None = None) -> Identity:
        """That directory must stay the one that it is now, or that had this identity. Raises DirectoryGone."""
        if identity is None:
            found = os.stat(directory)
            identity = found.st_dev, found.st_ino
        self._identities[directory] = identity
        Disk.check(self, directory)
        return identity

    def check(self, directory: Path) -> None:
        """Raises DirectoryGone if an expected directory is not the one that it was."""
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
            Disk.check(self, path.parent)  # part of this call, for those that watch it
        return os.open(path, flags | os.O_CLOEXEC, 0o640)

    def close(self, descriptor: int) -> None:
        """Close a file; nothing is synced by that."""
        os.close(descriptor)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Give a file its size, with all blocks."""
        os.posix_fallocate(descriptor, 0, size_bytes)

    def fill(self, descriptor: int, offset: int, size_bytes: int) -> None:
        """Write zeros, past the page cache where the file system lets us and both numbers are multiples of PAGE_BYTES:
        that takes a tenth of the processor's time, and no memory. Else it is synced here, piece by piece, which keeps
        the device free for others.
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
        """Put bytes at the beginning of a mapped file: there at once, on the device at some time."""
        memory[: len(data)] = data

    def sync(self, descriptor: int) -> None:
        """Return when everything written to the file is on the device."""
        os.fdatasync(descriptor)

    def set_times(self, descriptor: int, modified_ns: int) -> None:
        """Give a file the time of its last change that another one had."""
        os.utime(descriptor, ns=(modified_ns, modified_ns))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name, replacing what had it; durable after `sync_directory`."""
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
    """Write a file, or replace one, so that it is whole and on the device before it has its name.

    Hands out the descriptor of an empty file under its unfinished name, to be written to within the block; at the end
    of the block it gets its name, durably. If OSError or LogDamaged (what was written is not what it must be) ends the
    block, nothing is left of it. A death leaves the unfinished file, which the next start removes. Raises OSError.
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
