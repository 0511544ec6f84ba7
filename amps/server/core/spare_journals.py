"""Spare journals: files that are ready, filled with zeros and synced, so that appending never waits for blocks.

Two threads share this class. The core waits for a file (`wait_for`) and reports which one it has taken (`used`). The
housekeeping thread makes files (`make`), and tries again every RETRY_S when the disk is full or returns errors. All
state is protected by `changed`, which is notified of every change.

A spare is made under another name, and renamed when it is complete and synced: a journal's name always denotes a
full-size file.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from amps._core.journal.reader import build_file_header
from amps._core.values.value import publisher_id
from amps.journal.disk import Disk, whole_file
from amps.journal.names import journal_path
from amps.server import remedies
from amps.server.eventlog import Report

STEP_BYTES = 16 << 20
RETRY_S = 1.0
REPORT_AGAIN_S = 60.0


def make_spare(disk: Disk, directory: Path, instance_name: str, number: int, size_bytes: int) -> None:
    """Make one journal file, full of zeros and synced, under its final name. Raises OSError."""
    with whole_file(disk, journal_path(directory, instance_name, number)) as descriptor:
        # Allocate all blocks first, so that a full disk is noticed before half of it is written.
        disk.allocate(descriptor, size_bytes)
        for offset in range(0, size_bytes, STEP_BYTES):
            disk.fill(descriptor, offset, min(STEP_BYTES, size_bytes - offset))
        header = build_file_header(
            number, size_bytes, 0, 0, time.time_ns(), publisher_id(instance_name), instance_name, False
        )
        disk.write(descriptor, memoryview(header), 0)


class SpareJournals:
    """The spare journals that are ready, and the making of more."""

    def __init__(
        self,
        directory: Path,
        instance_name: str,
        size_bytes: int,
        preallocated: int,
        disk: Disk,
        report: Report,
        changed: threading.Condition,
        make_one: Callable[[], object] | None,
    ) -> None:
        """`preallocated` counts the file in use; `report(id, **values)` logs. `make_one` is called instead of waiting
        for the housekeeping thread; None: there is that thread.
        """
        self._directory = directory
        self._instance_name = instance_name
        self._size_bytes = size_bytes
        self._preallocated = preallocated
        self._disk = disk
        self._report = report
        self._changed = changed
        self._make_one = make_one
        self._ready: set[int] = set()
        self._in_use = -1
        self._request: int | None = None
        self._retry_at_s = 0.0
        self._reported: tuple[tuple[int, str], float] | None = None  # the last logged failure, and its time
        self.failure: OSError | None = None
        """The error of the last spare that could not be made; None: it was made."""

    def start(self, found: set[int], in_use: int) -> None:
        """Begin with the spares that recovery found; `in_use` is the file in use (-1: none yet). Raises OSError."""
        self._ready = self._usable(found)
        self._in_use = in_use

    def _usable(self, found: set[int]) -> set[int]:
        """Keep spares of the configured size. Others (the size was changed, or was meant for a large message) are
        removed, and with them all that follow: from the last one on, so that a crash leaves no gap in the numbers.
        """
        paths = {number: journal_path(self._directory, self._instance_name, number) for number in found}
        wrong = [number for number, path in paths.items() if path.stat().st_size != self._size_bytes]
        if not wrong:
            return set(found)
        for number in sorted(found, reverse=True):
            if number >= min(wrong):
                self._disk.unlink(paths[number])
                self._disk.sync_directory(self._directory)
        return {number for number in found if number < min(wrong)}

    # --- the core -----------------------------------------------------------------------------------------

    def wait_until_complete(self) -> OSError | None:
        """Wait until as many files exist as configured, or return the error of one that cannot be made."""
        with self._changed:
            while self._missing() is not None and self.failure is None:
                self._wait()
            return self.failure

    def wait_for(self, number: int) -> OSError | None:
        """Request a journal and wait until it is ready, or return the error if it cannot be made."""
        with self._changed:
            self._request = number
            self._changed.notify_all()
            while number not in self._ready:
                if self.failure is not None:
                    return self.failure
                self._wait()
        return None

    def _wait(self) -> None:
        if self._make_one is None:
            self._changed.wait()
        else:
            self._make_one()

    def unusable(self, number: int) -> None:
        """Note that a spare is unusable or missing: it is made again."""
        with self._changed:
            self._ready.discard(number)
            self._changed.notify_all()

    def used(self, number: int) -> None:
        """Note that a journal is the file in use now."""
        with self._changed:
            self._ready.discard(number)
            self._in_use = number
            self._request = None
            self._changed.notify_all()

    # --- the housekeeping thread --------------------------------------------------------------------------

    def due(self) -> int | None:
        """Number of the next file to make now: one that the core waits for, else one that is configured to be ready."""
        if self.failure is not None and self._make_one is None and time.monotonic() < self._retry_at_s:
            return None
        return self._missing()

    def _missing(self) -> int | None:
        if self._request is not None and self._request not in self._ready:
            return self._request
        if self._in_use < 0:
            return None
        ahead = range(self._in_use + 1, self._in_use + self._preallocated)
        return next((number for number in ahead if number not in self._ready), None)

    def make(self, number: int) -> bool:
        """Make a spare. False: it cannot be made now, which is logged and kept in `failure`."""
        try:
            make_spare(self._disk, self._directory, self._instance_name, number, self._size_bytes)
        except OSError as error:
            with self._changed:
                self.failure = error
                self._retry_at_s = time.monotonic() + RETRY_S
                self._changed.notify_all()
            self._report_failure(number, error)
            return False
        with self._changed:
            self.failure = None
            self._reported = None
            self._ready.add(number)
            self._changed.notify_all()
        return True

    def _report_failure(self, number: int, error: OSError) -> None:
        """Log a failure, but repeat an unchanged one only once a minute: making is tried again all the time."""
        failure = number, f"{error.strerror}; {remedies.for_files(error.errno)}"
        now = time.monotonic()
        reported = self._reported
        if reported is None or failure != reported[0] or now >= reported[1] + REPORT_AGAIN_S:
            self._reported = failure, now
            self._report("2C-0003", journal=number, directory=self._directory, reason=failure[1])
