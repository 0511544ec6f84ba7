"""The flusher: the thread that makes the journal durable and says so.

Group commit: a sync covers whatever has been written since the last one. It is due at once when somebody waits for it
(a publisher for an acknowledgement, a subscriber for durable messages), when a batch of BATCH_BYTES has collected, and
in any case FlushInterval after the first message it will cover. Between two syncs the flusher rests as long as a sync
took, so that a quick stream of small messages does not cost a sync each.

Order after a sync: first the watermark file (survives the death of the process, and tells recovery which records
must be there), then the durable watermark (which releases acknowledgements), then the doorbells.

A failed sync is final: the kernel may have dropped the pages, so nothing after it can be believed. The error goes to
the control page and the core stops. That is also why nobody else syncs the files in use: the kernel reports an
error once, and it must be this module that hears of it.
"""

import os
import threading
import time

from amps.journal.disk import Disk
from amps.journal.watermark import WatermarkFile
from amps.server.runtime import Runtime

BATCH_BYTES = 4 << 20


class SyncFailed(OSError):
    """What was written may not be on the device; nothing more can be promised."""


class Flusher:
    """Syncs the journal's files in the order in which they were written."""

    def __init__(
        self,
        runtime: Runtime,
        flush_interval_s: float,
        watermark_file: WatermarkFile,
        disk: Disk,
        background: bool = True,
    ) -> None:
        """`background`: sync in a thread. Else the caller does every `step`, as the simulation does."""
        self._runtime = runtime
        self._flush_interval_s = flush_interval_s
        self._watermark_file = watermark_file
        self._disk = disk
        self._background = background
        self._wake = threading.Condition()
        self._target = 0
        self._synced = 0
        self._files: list[int] = []
        self._idle = False
        self._urgent = False
        self._wanted = 0
        self._dirty_since_s = 0.0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self, durable: int) -> None:
        """Begin; everything before log position `durable` is on the device."""
        self._target = self._synced = durable
        # The promise must be on record before the first acknowledgement that rests on it.
        self._watermark_file.write(durable)
        self._runtime.control.durable = durable
        if self._background:
            self._thread.start()

    def use_file(self, descriptor: int) -> None:
        """What is written from now on goes to that file; earlier ones are synced once more, then closed."""
        with self._wake:
            self._files.append(descriptor)

    def written(self, position: int, wanted: int) -> None:
        """The core has written up to `position`; somebody waits for durability up to `wanted`."""
        if self._target <= self._synced:
            self._dirty_since_s = time.monotonic()
            changed = True
        else:
            changed = wanted > self._wanted or position - self._synced >= BATCH_BYTES
        self._wanted = wanted
        self._target = position
        if changed and self._idle:
            with self._wake:
                self._wake.notify_all()

    def demand(self, wanted: int) -> None:
        """Somebody waits for durability up to that log position."""
        if wanted > self._wanted:
            self._wanted = wanted
            if self._idle:
                with self._wake:
                    self._wake.notify_all()

    def wait_until_synced(self, position: int) -> None:
        """Sync everything written so far, which ends at `position`; return when that is done. Raises SyncFailed."""
        self._target = max(self._target, position)
        if not self._background:
            while self._synced < position and not self.failed:
                self.step()
        with self._wake:
            self._urgent = True
            self._wake.notify_all()
            while self._synced < position and not self.failed:
                # The timeout covers the moment between the thread's setting `failed` and this wait.
                self._wake.wait(0.05)
            self._urgent = False
        if self.failed:
            raise SyncFailed(self.failed, f"syncing a journal failed: {os.strerror(self.failed)}")

    def drain(self) -> None:
        """Sync everything and end."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        if not self._background:
            self.step()

    @property
    def failed(self) -> int:
        """errno of a failed sync, 0 = none."""
        return int(self._runtime.control.flush_failed)

    def step(self) -> bool:
        """Sync what was written since the last step. False: there was nothing to do, or the sync failed."""
        if self.failed:
            return False
        with self._wake:
            files = list(self._files)
            target = self._target
        if target <= self._synced:
            return False
        began_ns = time.monotonic_ns()
        try:
            for descriptor in files:
                self._disk.sync(descriptor)
        except OSError as error:
            self._runtime.control.flush_failed = error.errno or -1
            self._runtime.core_bell.ring()
            return False
        latency_us = (time.monotonic_ns() - began_ns) // 1000
        self._runtime.write_statistics.note(latency_us, target - self._synced)
        with self._wake:
            # The file in use stays; those before it are complete and durable.
            for descriptor in files[:-1]:
                self._files.remove(descriptor)
                self._disk.close(descriptor)
        self._publish(target)
        with self._wake:
            self._synced = target
            self._wake.notify_all()
        return True

    def _run(self) -> None:
        while True:
            with self._wake:
                self._idle = True
                while not self._stopping and (rest_s := self._rest_s()) > 0:
                    self._wake.wait(rest_s)
                self._idle = False
                if self._target <= self._synced:
                    return
            began = time.monotonic()
            if not self.step():
                return
            rest_s = min(time.monotonic() - began, self._flush_interval_s)
            with self._wake:
                self._wake.wait_for(lambda: self._urgent or self._stopping, rest_s)

    def _rest_s(self) -> float:
        """How long the next sync may wait; 0 = it is due."""
        if self._target <= self._synced:
            # Nothing to do. Whoever writes wakes us; the limit only guards against a lost wake-up.
            return 0.05
        if self._urgent or self._wanted > self._synced or self._target - self._synced >= BATCH_BYTES:
            return 0.0
        return max(0.0, self._dirty_since_s + self._flush_interval_s - time.monotonic())

    def _publish(self, position: int) -> None:
        self._watermark_file.write(position)
        control = self._runtime.control
        control.durable = position
        sleeping = control.sleeping_transports(len(self._runtime.transport_bells))
        for index, bell in enumerate(self._runtime.transport_bells):
            if sleeping >> index & 1:
                bell.ring()
