"""A disk that can lose unsynced data.

It works on real files of a scratch directory, so that the code under test reads them as it always does. It also keeps
account of what a crash of the machine would take back. For each 512-byte sector written since the file's last sync it
keeps the bytes that are certainly on the device. For names it keeps the changes since the directory's last sync.

Crashes of the process   what was written stays, a write under way stays in part, at any byte
        of the machine   any subset of the unsynced sectors is lost, and the unsynced changes of names from some
                         point on

A file that is written through mapped memory (`open_mapped`) keeps the contents of its last sync. A crash of the machine
leaves each sector as it was then, or as it is; `write_back` moves some sectors to the device before, as the kernel
does.

A *fuse* lets the process die at the n-th call from now. A failed sync (EIO) loses its sectors for good unless they
are written again: the kernel takes the pages for clean although they never reached the device.
"""

import errno
import fcntl
import itertools
import mmap
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from amps.journal.disk import Disk

SECTOR_BYTES = 512


class Died(BaseException):
    """The process under test is dead. It derives from no exception of the code under test, so that nothing there
    catches it.
    """


class _Undo(Protocol):
    def __call__(self) -> None: ...


@dataclass
class _Inode:
    """One file, whatever its name. It maps sector numbers to the bytes on the device."""

    descriptor: int
    dirty: dict[int, bytes] = field(default_factory=dict)
    lost: dict[int, bytes] = field(default_factory=dict)

    def put_back(self, sector: int, before: bytes) -> None:
        """Restore the earlier contents of a sector. If it is the last one and partly beyond the end, the file does
        not grow.
        """
        room = os.fstat(self.descriptor).st_size - sector * SECTOR_BYTES
        if room > 0:
            os.pwrite(self.descriptor, before[:room], sector * SECTOR_BYTES)


@dataclass
class _Mapped:
    """A file that is written through mapped memory."""

    descriptor: int
    device: bytes
    """What is on the device."""

    def contents(self) -> bytes:
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)

    def mixed(self, chance: random.Random, keep: float) -> bytes:
        """Each sector as it is on the device, or, with this probability, as it is in memory."""
        now = self.contents()
        before = self.device.ljust(len(now), b"\0")
        mixed = bytearray(before)
        for at in range(0, len(now), SECTOR_BYTES):
            sector = now[at : at + SECTOR_BYTES]
            if sector != before[at : at + SECTOR_BYTES] and chance.random() < keep:
                mixed[at : at + SECTOR_BYTES] = sector
        return bytes(mixed)


@dataclass
class _Store:
    """A mapped file written by plain stores: any of its versions may be on the device."""

    memory: mmap.mmap
    versions: list[bytes]


class SimulatedDisk(Disk):
    """See the module. One object lives as long as the machine; processes come and go."""

    _kept_numbers = itertools.count()

    def __init__(self, scratch: Path, chance: random.Random) -> None:
        """`scratch`: an empty directory for files that have lost their name, beside all others that this disk has."""
        super().__init__()
        self._scratch = scratch
        self._root = scratch.parent
        self._chance = chance
        self._inodes: dict[int, _Inode] = {}
        self._open: dict[int, int] = {}  # descriptor -> inode number
        self._names: dict[Path, list[_Undo]] = {}
        self._stores: list[_Store] = []
        self._mapped: dict[int, _Mapped] = {}
        self._fuse: int | None = None
        self.dead = False
        self.full = False
        self.read_only = False
        self.failing_syncs = 0
        self.calls = 0

    # Faults that the world injects

    def arm(self, calls: int) -> None:
        """Let the process die at the `calls`-th call from now."""
        self._fuse = calls

    def calm(self) -> None:
        """Switch off all faults."""
        self._fuse = None
        self.full = self.read_only = False
        self.failing_syncs = 0

    def process_ended(self) -> None:
        """The process has ended: close its descriptors, so that a new process can begin."""
        for descriptor in list(self._open):
            self.close(descriptor)
        self._fuse = None
        self.dead = False
        self.failing_syncs = 0

    def machine_crashed(self) -> None:
        """Lose any part of the unsynced data. The process must have ended."""
        assert not self._open
        keep = self._chance.choice([0.0, 0.5, 0.9, 1.0])
        for inode in self._inodes.values():
            for sector, before in inode.lost.items():
                inode.put_back(sector, before)
            for sector, before in inode.dirty.items():
                if self._chance.random() >= keep:
                    inode.put_back(sector, before)
            os.close(inode.descriptor)
        self._inodes.clear()
        for mapped in self._mapped.values():
            left = mapped.mixed(self._chance, self._chance.choice([0.0, 0.1, 0.5, 0.9]))
            os.pwrite(mapped.descriptor, left, 0)
            os.close(mapped.descriptor)
        self._mapped.clear()
        for store in self._stores:
            version = self._chance.choice(store.versions)
            store.memory[: len(version)] = version
        self._stores.clear()
        for undos in self._names.values():
            survived = self._chance.randint(0, len(undos))
            for undo in reversed(undos[survived:]):
                undo()
        self._names.clear()

    def release(self) -> None:
        """Close everything: the end of the simulation."""
        self.process_ended()
        for inode in self._inodes.values():
            os.close(inode.descriptor)
        self._inodes.clear()
        for mapped in self._mapped.values():
            os.close(mapped.descriptor)
        self._mapped.clear()
        self._stores.clear()

    def write_back(self) -> None:
        """Some changes of mapped files reach the device."""
        for mapped in self._mapped.values():
            mapped.device = mapped.mixed(self._chance, self._chance.choice([0.1, 0.5]))

    # The interface that the code under test calls

    def open(self, path: Path, flags: int) -> int:
        self._call()
        self._refuse_changes()
        created = not path.exists()
        descriptor = super().open(path, flags)
        number = os.fstat(descriptor).st_ino
        self._open[descriptor] = number
        if number not in self._inodes:
            self._inodes[number] = _Inode(os.dup(descriptor))
        if created:
            self._names.setdefault(path.parent, []).append(lambda: path.unlink())
        return descriptor

    def open_mapped(self, path: Path, flags: int) -> int:
        descriptor = self.open(path, flags)
        number = self._open[descriptor]
        inode = self._inodes.pop(number)
        if number in self._mapped:
            os.close(inode.descriptor)
        else:
            self._mapped[number] = _Mapped(inode.descriptor, b"")
            if os.fstat(descriptor).st_size:
                self._mapped[number].device = self._mapped[number].contents()
        return descriptor

    def close(self, descriptor: int) -> None:
        if self._open.pop(descriptor, None) is not None:
            # The machine holds the file open too (`_inodes`), so that a lock would outlive this descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        self._call()
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(descriptor, size_bytes)

    def fill(self, descriptor: int, offset: int, size_bytes: int) -> None:
        self.write(descriptor, memoryview(bytes(size_bytes)), offset)

    def write(self, descriptor: int, data: memoryview, offset: int, zeros: int = 0) -> None:
        data = memoryview(bytes(data) + bytes(zeros))
        dies = self._burns()
        if dies:
            data = data[: self._chance.randint(0, len(data))]
        if len(data):
            self._remember(self._inodes[self._open[descriptor]], offset, offset + len(data))
            super().write(descriptor, data, offset)
        if dies:
            self._die()

    def store(self, memory: mmap.mmap, data: bytes) -> None:
        self._call()
        for known in self._stores:
            if known.memory is memory:
                known.versions.append(data)
                del known.versions[1:-8]
                break
        else:
            self._stores.append(_Store(memory, [bytes(memory[: len(data)]), data]))
        super().store(memory, data)

    def sync(self, descriptor: int) -> None:
        dies = self._burns()
        if dies and self._chance.random() < 0.5:
            self._die()
        mapped = self._mapped.get(self._open[descriptor])
        if mapped is not None:
            if self.failing_syncs:
                self.failing_syncs -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            mapped.device = mapped.contents()
            if dies:
                self._die()
            return
        inode = self._inodes[self._open[descriptor]]
        if self.failing_syncs:
            self.failing_syncs -= 1
            inode.lost = {**inode.dirty, **inode.lost}
            inode.dirty.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        inode.dirty.clear()
        if dies:
            self._die()

    def _refuse_changes(self) -> None:
        """Behave as a file system that was remounted, or whose permissions were taken away: only open files can be
        written.
        """
        if self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def rename(self, source: Path, target: Path) -> None:
        self._call()
        self._refuse_changes()
        replaced = self._keep(target)
        super().rename(source, target)

        def undo() -> None:
            target.rename(source)
            if replaced is not None:
                replaced.rename(target)

        self._names.setdefault(target.parent, []).append(undo)

    def unlink(self, path: Path) -> None:
        self._call()
        self._refuse_changes()
        kept = self._keep(path)
        super().unlink(path)
        if kept is not None:
            found = kept

            def undo() -> None:
                found.rename(path)

            self._names.setdefault(path.parent, []).append(undo)

    def sync_directory(self, directory: Path) -> None:
        if not directory.is_relative_to(self._root):
            return  # the depth of the place where the world is must not change what happens in it
        self._call()
        self._names.pop(directory, None)

    # Inside

    def _burns(self) -> bool:
        """Count one call. Return True if the process dies in it."""
        if self.dead:
            raise Died
        self.calls += 1
        if self._fuse is not None:
            self._fuse -= 1
            return self._fuse <= 0
        return False

    def _call(self) -> None:
        if self._burns():
            self._die()

    def _die(self) -> None:
        self.dead = True
        raise Died

    def _remember(self, inode: _Inode, begin: int, end: int) -> None:
        """Keep the bytes that are on the device for the sectors that are about to be written."""
        for sector in range(begin // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES):
            if sector in inode.lost:
                inode.dirty[sector] = inode.lost.pop(sector)
            elif sector not in inode.dirty:
                before = os.pread(inode.descriptor, SECTOR_BYTES, sector * SECTOR_BYTES)
                inode.dirty[sector] = before.ljust(SECTOR_BYTES, b"\0")

    def _keep(self, path: Path) -> Path | None:
        """Give a second name to a file that is about to lose its own."""
        if not path.exists():
            return None
        kept = self._scratch / str(next(self._kept_numbers))
        os.link(path, kept)
        return kept
