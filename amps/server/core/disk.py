"""The way to the disk: every call that changes a file of the journal directory goes through one small object.

So that all of the core's dealings with the device are in one place, and so that the simulation can stand in that place:
it keeps account of what a crash of the machine would leave, and lets the process die between any two calls.

In the running server it is a `WatchedDisk`: what may take long is announced to the supervisor, which must not take a
core for stuck that waits for a slow device.
"""

import mmap
import os
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from amps.server.health import DISK_SLOTS, DiskActivity

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Disk:
    """The real one. Every method raises OSError."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file; new ones are readable by owner and group."""
        return os.open(path, flags | os.O_CLOEXEC, 0o640)

    def close(self, descriptor: int) -> None:
        """Close a file; nothing is synced by that."""
        os.close(descriptor)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Give a file its size, with all blocks."""
        os.posix_fallocate(descriptor, 0, size_bytes)

    def write(self, descriptor: int, data: memoryview, offset: int) -> None:
        """Write everything."""
        written = os.pwrite(descriptor, data, offset)
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], offset + written)

    def store(self, memory: mmap.mmap, data: bytes) -> None:
        """Put bytes at the beginning of a mapped file: there at once, on the device at some time."""
        memory[: len(data)] = data

    def sync(self, descriptor: int) -> None:
        """Return when everything written to the file is on the device."""
        os.fdatasync(descriptor)

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


def watched(
    call: Callable[Concatenate[Disk, Parameters], Result],
) -> Callable[Concatenate["WatchedDisk", Parameters], Result]:
    """The same call, with its begin and its end announced."""

    @wraps(call)
    def announced(self: "WatchedDisk", /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        slot = self.slot()
        self.activity.begin(slot)
        try:
            return call(self, *args, **kwargs)
        finally:
            self.activity.end(slot)

    return announced


class WatchedDisk(Disk):
    """Says in shared memory which threads wait for the device, and since when."""

    def __init__(self, activity: DiskActivity) -> None:
        self.activity = activity
        self._slots: dict[int, int] = {}
        self._adding = threading.Lock()

    def slot(self) -> int:
        """The calling thread's own words of the activity."""
        thread = threading.get_ident()
        slot = self._slots.get(thread)
        if slot is None:
            with self._adding:
                slot = self._slots[thread] = min(len(self._slots), DISK_SLOTS - 1)
        return slot

    open = watched(Disk.open)
    close = watched(Disk.close)
    allocate = watched(Disk.allocate)
    write = watched(Disk.write)
    sync = watched(Disk.sync)
    rename = watched(Disk.rename)
    unlink = watched(Disk.unlink)
    sync_directory = watched(Disk.sync_directory)
