"""The flusher: the thread that syncs the journal and publishes the durable watermark.

Group commit: a sync covers everything written since the last one. It is due at once when a client waits for it (a
publisher for an acknowledgement, a subscriber for durable messages), when BATCH_BYTES have accumulated, and in any case
FlushInterval after the first message it will cover. Between two syncs the flusher rests as long as a sync took, so
that a fast stream of small messages does not cost a sync each.

Order after a sync: first the watermark file (survives the death of the process, and tells recovery which records
must be there), then the durable watermark (which releases acknowledgements), then the wake-ups.

The loop itself is in amps/_core/journal/group_commit.pxi, and does not use the interpreter.

A failed sync is final: the kernel may have dropped the pages, so that no later sync can be trusted. The error goes to
the control page and the core stops, as it does if this thread ends for any other reason. For the same reason no other
thread syncs the files in use: the kernel reports an error once, and this module must receive it.
"""

import errno
import os
import threading

from amps._core.journal.group_commit import GroupCommit, PageRelease
from amps.journal.disk import Disk
from amps.journal.watermark import WatermarkFile
from amps.server.core.disk import WatchedDisk
from amps.server.runtime import Runtime

BATCH_BYTES = 4 << 20
SECOND_NS = 1_000_000_000


class SyncFailed(OSError):
    """Written bytes may not be on the device; no further message may be acknowledged."""


class Flusher:
    """Syncs the journal's files in the order in which they were written."""

    def __init__(
        self,
        runtime: Runtime,
        flush_interval_s: float,
        watermark_file: WatermarkFile,
        disk: Disk,
        background: bool = True,
        keeps_pages: bool = True,
    ) -> None:
        """`background`: sync in a thread. Otherwise the caller calls `step`, as the simulation does.

        `keeps_pages`: durable pages stay in memory as long as the system keeps them; otherwise they are released, see
        amps/_core/journal/page_release.pxi.
        """
        self._runtime = runtime
        self._watermark_file = watermark_file
        self._disk = disk
        self._background = background
        plain = syncs_plainly(disk)
        self.pages = (
            None
            if keeps_pages or not plain
            else PageRelease(runtime.control, len(runtime.transport_wake_ups))
        )
        """Releases pages of the journal; None: they are not released."""
        self._commit = GroupCommit(
            runtime.control,
            runtime.core_wake_up.fd,
            [wake_up.fd for wake_up in runtime.transport_wake_ups],
            runtime.write_statistics.words,
            int(flush_interval_s * SECOND_NS),
            BATCH_BYTES,
            disk.close,
            None if plain else self._sync,
            None if plain else self._promise,
            watermark_file.memory if plain else None,
            self.pages,
        )
        self.written = self._commit.written
        """Called with the log position up to which the core has written, and the one whose durability is awaited."""
        self.demand = self._commit.demand
        """Called with a log position whose durability is awaited."""
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self, durable: int) -> None:
        """Begin; everything before log position `durable` has been synced."""
        self._commit.begin(durable)
        if self.pages is not None:
            self.pages.begin(durable)
        if self._background:
            self._thread.start()

    def use_file(self, descriptor: int, start_position: int) -> None:
        """Sync another file for bytes from that position on. Earlier files are synced once more, then closed."""
        self._commit.use_file(descriptor)
        if self.pages is not None:
            self.pages.use_file(descriptor, start_position)

    def wait_until_synced(self, position: int) -> None:
        """Sync everything written so far, up to `position`, and return when that is done. Raises SyncFailed."""
        self._commit.extend(position)
        if not self._background:
            while self._commit.synced_to < position and not self.failed:
                self.step()
        self._commit.wait_until_synced(position)
        if self.failed:
            raise SyncFailed(self.failed, f"syncing a journal failed: {os.strerror(self.failed)}")

    def drain(self) -> None:
        """Sync everything, and end."""
        self._commit.stop()
        if self._thread.is_alive():
            self._thread.join()
        if not self._background:
            self.step()

    @property
    def failed(self) -> int:
        """errno of a failed sync, 0 = none."""
        return int(self._runtime.control.flush_failed)

    def step(self) -> bool:
        """Sync the bytes written since the last step. False: there were none, or the sync failed."""
        return self._commit.step()

    def _run(self) -> None:
        disk = self._disk
        try:
            self._commit.run(disk.words() if isinstance(disk, WatchedDisk) and syncs_plainly(disk) else None)
        except OSError as problem:
            self._fail(problem.errno or errno.EIO)
        except BaseException:
            self._fail(errno.EIO)
            raise

    def _fail(self, number: int) -> None:
        """Publish the failure of this thread (a full file cannot be closed, or a defect): no record becomes durable any
        more.
        """
        self._runtime.control.flush_failed = number
        self._runtime.core_wake_up.send()

    def _sync(self, descriptor: int) -> None:
        self._disk.sync(descriptor)

    def _promise(self, position: int) -> None:
        self._watermark_file.write(position)


def syncs_plainly(disk: Disk) -> bool:
    """Whether this disk syncs by the system call, and stores into a mapped file by a plain store."""
    kind = type(disk)
    return kind.sync in (Disk.sync, WatchedDisk.sync) and kind.store is Disk.store
