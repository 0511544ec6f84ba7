"""Access to the disk in a running server.

A `WatchedDisk` announces calls that may take long to the supervisor: a core that waits for a slow device must not be
considered stuck.
"""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from amps.journal.disk import Disk
from amps.server.health import DISK_SLOTS, DiskActivity

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def watched(
    call: Callable[Concatenate[Disk, Parameters], Result],
) -> Callable[Concatenate["WatchedDisk", Parameters], Result]:
    """Wrap a call so that its begin and its end are announced."""

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
    """Publishes in shared memory which threads wait for the device, and since when."""

    def __init__(self, activity: DiskActivity) -> None:
        super().__init__()
        self.activity = activity
        self._slots: dict[int, int] = {}
        self._adding = threading.Lock()

    def slot(self) -> int:
        """The calling thread's slot of the activity."""
        thread = threading.get_ident()
        slot = self._slots.get(thread)
        if slot is None:
            with self._adding:
                slot = self._slots[thread] = min(len(self._slots), DISK_SLOTS - 1)
        return slot

    def words(self) -> memoryview:
        """The memory in which the calling thread announces calls itself, as `DiskActivity.begin` and `end` do."""
        return self.activity.words(self.slot())

    expect = watched(Disk.expect)
    check = watched(Disk.check)
    open = watched(Disk.open)
    open_mapped = watched(Disk.open_mapped)
    close = watched(Disk.close)
    allocate = watched(Disk.allocate)
    fill = watched(Disk.fill)
    write = watched(Disk.write)
    sync = watched(Disk.sync)
    set_times = watched(Disk.set_times)
    rename = watched(Disk.rename)
    unlink = watched(Disk.unlink)
    sync_directory = watched(Disk.sync_directory)
