"""Monitoring the files of a running log: a file may be removed, or its file system unmounted.

Every LOOK_INTERVAL_S the housekeeping thread checks whether the files are in their places.

- The journal in use is missing: its records were acknowledged, and exist only as long as the process. `lost` has its
  number, and the core continues in the next journal. Whenever the core leaves a journal it checks this too, and hands
  over the open descriptor of a missing one (`keep`). The file is then copied to its place, complete, with its
  end-of-file record. Readers have the old file mapped and are not affected.
- An older journal is missing, or a directory: this can only be reported. Replays that come to it end with an error;
  they never skip it. When it is there again, they find it.

Spares are not monitored: one that is missing when it is needed is made again.
"""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from amps.journal.disk import DirectoryGone, Disk, Identity, whole_file
from amps.journal.names import journal_path
from amps.server import remedies
from amps.server.eventlog import Report

LOOK_INTERVAL_S = 1.0
COPY_BYTES = 1 << 20
PATHS_REPORTED_MAX = 10


class StorageMonitor:
    """The missing files, and the restoring of those that can be restored."""

    def __init__(
        self,
        directory: Path,
        archive: Path | None,
        instance_name: str,
        disk: Disk,
        report: Report,
        full_journals: Callable[[], Iterable[Path]],
        wake_core: Callable[[], None],
    ) -> None:
        """`full_journals` returns the paths of the full journals; `report(id, **values)` logs."""
        self._directory = directory
        self._directories = [directory] if archive is None else [directory, archive]
        self._instance_name = instance_name
        self._disk = disk
        self._report = report
        self._full_journals = full_journals
        self._wake_core = wake_core
        self._in_use: tuple[int, Identity] | None = None
        self._kept: dict[int, int] = {}  # journal -> descriptor of the file to be restored
        self._missing: set[Path] = set()
        self._look_at_s = time.monotonic() + LOOK_INTERVAL_S
        self._restore_failed: tuple[Path, str] | None = None  # the last logged failure
        self.lost: int | None = None
        """The journal in use, if its file is missing."""

    # --- the core -----------------------------------------------------------------------------------------

    def use(self, number: int, descriptor: int) -> None:
        """Note that a journal is in use now."""
        found = os.fstat(descriptor)
        self._in_use = number, (found.st_dev, found.st_ino)

    def is_in_place(self) -> bool:
        """Whether the journal in use is in its place, or its directory is missing as a whole."""
        if self._in_use is None:
            return True
        number, identity = self._in_use
        path = journal_path(self._directory, self._instance_name, number)
        try:
            found = os.stat(path)
        except OSError:
            pass
        else:
            if (found.st_dev, found.st_ino) == identity:
                return True
        try:
            # If the directory itself is missing, there may be no room for a copy: that is reported separately.
            self._disk.check(self._directory)
        except OSError:
            return True
        return False

    def keep(self, number: int, descriptor: int) -> None:
        """Restore a lost journal, which is complete. The monitor owns `descriptor`, the only copy, from now on."""
        path = journal_path(self._directory, self._instance_name, number)
        self._report("1D-0016", path=path)
        self._kept[number] = descriptor
        self.lost = None
        self._look_at_s = 0.0

    # --- the housekeeping thread --------------------------------------------------------------------------

    def due(self) -> bool:
        """Whether `step` should be called now."""
        return time.monotonic() >= self._look_at_s

    def step(self) -> bool:
        """Check all files, and restore one that can be restored. True: one was restored."""
        self._look_at_s = time.monotonic() + LOOK_INTERVAL_S
        restored = self.restore()
        self._look_at_current()
        self._look_at_full()
        return restored

    def _look_at_current(self) -> None:
        in_use = self._in_use
        if self.is_in_place():
            self.lost = None
        elif in_use is not None and in_use == self._in_use:
            self.lost = in_use[0]
            self._wake_core()

    def _look_at_full(self) -> None:
        missing: set[Path] = set()
        for directory in self._directories:
            try:
                self._disk.check(directory)
            except DirectoryGone:
                missing.add(directory)
            except OSError:
                return  # the state is unknown for now
        for path in self._full_journals():
            if path.parent not in missing and not path.exists():
                missing.add(path)
        for path in sorted(missing - self._missing)[:PATHS_REPORTED_MAX]:
            kind = "the directory" if path in self._directories else "journal"
            self._report("1D-0017", kind=kind, path=path)
        for path in sorted(self._missing - missing)[:PATHS_REPORTED_MAX]:
            if path.exists():
                self._report("1D-0018", path=path)
        self._missing = missing

    def restore(self) -> bool:
        """Restore a journal that the core has handed over. False: there is none, or it cannot be restored now."""
        for number, descriptor in list(self._kept.items()):
            path = journal_path(self._directory, self._instance_name, number)
            try:
                self._copy(descriptor, path)
            except OSError as error:
                failure = path, f"{error.strerror}; {remedies.for_files(error.errno)}"
                if failure != self._restore_failed:
                    self._restore_failed = failure
                    self._report("1D-0019", path=path, reason=failure[1])
                return False
            os.close(self._kept.pop(number))
            self._restore_failed = None
            self._report("1D-0018", path=path, content="all its records")
            return True
        return False

    def _copy(self, source: int, path: Path) -> None:
        size = os.fstat(source).st_size
        with whole_file(self._disk, path) as descriptor:
            self._disk.allocate(descriptor, size)
            for offset in range(0, size, COPY_BYTES):
                self._disk.write(descriptor, memoryview(os.pread(source, COPY_BYTES, offset)), offset)

    def close(self) -> None:
        """Make a last attempt to restore, at the end of the process."""
        while self.restore():
            continue
        for number, descriptor in self._kept.items():
            self._report("1D-0025", journal=number)
            os.close(descriptor)
        self._kept.clear()
