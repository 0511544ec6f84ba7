"""Looking after the files of a running log: somebody may remove one, or unmount their file system.

Every LOOK_INTERVAL_S the housekeeping thread looks whether the files are where they should be.

- The journal in use is gone: what is in it was acknowledged, and lives only as long as the process. `lost` says so, and
  the core goes on in the next journal. Whenever it leaves one it looks too, and hands over what it still has open of
  one that is gone (`keep`): that is copied to where it was, whole, with its end-of-file record. Readers have the old
  one mapped and need not notice.
- An older journal is gone, or a directory: nothing can be done but say so. Replays that come to it end with an error,
  they never skip it. When it is there again they find it.

Spares need nobody to look after them: one that is gone when it is wanted is made anew.
"""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from amps.journal.disk import DirectoryGone, Disk, Identity, whole_file
from amps.journal.names import journal_path
from amps.server import remedies

LOOK_INTERVAL_S = 1.0
COPY_BYTES = 1 << 20
PATHS_REPORTED_MAX = 10

Report = Callable[[str, str], None]


class StorageMonitor:
    """What is missing, and the putting back of what can be."""

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
        """`full_journals` gives the paths of the full ones; `report(id, text)` logs."""
        self._directory = directory
        self._directories = [directory] if archive is None else [directory, archive]
        self._instance_name = instance_name
        self._disk = disk
        self._report = report
        self._full_journals = full_journals
        self._wake_core = wake_core
        self._in_use: tuple[int, Identity] | None = None
        self._kept: dict[int, int] = {}  # journal -> descriptor of what is to be restored
        self._missing: set[Path] = set()
        self._look_at_s = time.monotonic() + LOOK_INTERVAL_S
        self._restore_failed = ""
        self.lost: int | None = None
        """The journal in use, if its file is gone."""

    # --- the core -----------------------------------------------------------------------------------------

    def use(self, number: int, descriptor: int) -> None:
        """That journal is in use now."""
        found = os.fstat(descriptor)
        self._in_use = number, (found.st_dev, found.st_ino)

    def is_in_place(self) -> bool:
        """Whether the journal in use is where it should be, or its directory is gone as a whole."""
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
            # Where the directory itself is gone, so may be the room for a copy: that is reported as such.
            self._disk.check(self._directory)
        except OSError:
            return True
        return False

    def keep(self, number: int, descriptor: int) -> None:
        """A lost journal is complete; `descriptor`, which is the monitor's from now on, is all that is left of it."""
        path = journal_path(self._directory, self._instance_name, number)
        self._report(
            "1D-0016", f"journal {path} was removed while it was in use; it is copied back to where it was"
        )
        self._kept[number] = descriptor
        self.lost = None
        self._look_at_s = 0.0

    # --- the housekeeping thread --------------------------------------------------------------------------

    def due(self) -> bool:
        """Whether `step` should be called now."""
        return time.monotonic() >= self._look_at_s

    def step(self) -> bool:
        """Look at everything, restore what can be. True: something was restored."""
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
                return  # nothing can be said for now
        for path in self._full_journals():
            if path.parent not in missing and not path.exists():
                missing.add(path)
        for path in sorted(missing - self._missing)[:PATHS_REPORTED_MAX]:
            what = "the directory" if path in self._directories else "journal"
            self._report(
                "1D-0017",
                f"{what} {path} is not there any more, although it is part of the log (removed, moved, or its file "
                "system unmounted?); put it back: until then what needs it is refused",
            )
        for path in sorted(self._missing - missing)[:PATHS_REPORTED_MAX]:
            if path.exists():
                self._report("1D-0018", f"{path} is there again")
        self._missing = missing

    def restore(self) -> bool:
        """Put back what the core has handed over. False: there was nothing to do, or it cannot be done now."""
        for number, descriptor in list(self._kept.items()):
            path = journal_path(self._directory, self._instance_name, number)
            try:
                self._copy(descriptor, path)
            except OSError as error:
                text = f"{path} cannot be restored: {error.strerror}; {remedies.for_files(error.errno)}"
                if text != self._restore_failed:
                    self._restore_failed = text
                    self._report("1D-0019", text)
                return False
            os.close(self._kept.pop(number))
            self._restore_failed = ""
            self._report("1D-0018", f"{path} is there again, with all that was in it")
            return True
        return False

    def _copy(self, source: int, path: Path) -> None:
        size = os.fstat(source).st_size
        with whole_file(self._disk, path) as descriptor:
            self._disk.allocate(descriptor, size)
            for offset in range(0, size, COPY_BYTES):
                self._disk.write(descriptor, memoryview(os.pread(source, COPY_BYTES, offset)), offset)

    def close(self) -> None:
        """The process ends: a last attempt to restore."""
        while self.restore():
            continue
        for number, descriptor in self._kept.items():
            self._report(
                "1D-0019", f"journal {number} was removed and cannot be restored; its messages are lost"
            )
            os.close(descriptor)
        self._kept.clear()
