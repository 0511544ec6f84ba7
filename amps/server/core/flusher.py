"""The flusher: the thread that makes the journal durable and says so.

Group commit: it syncs whatever has been written since its last sync, so the number of syncs adapts to the device and
each one covers all that arrived meanwhile. After a sync it rests as long as the sync took, at most FlushInterval, so that
a quick stream of small messages does not cost a sync each; nothing ever waits longer than that.

Order after a sync: first the watermark file (survives the death of the process, and tells recovery which records
must be there), then the durable watermark (which releases acknowledgements), then the doorbells.

A failed sync is final: the kernel may have dropped the pages, so nothing after it can be believed. The error goes to
the control page and the core stops.
"""

import mmap
import os
import struct
import threading
import time
from pathlib import Path

from amps.server.runtime import Runtime

WATERMARK_FILE_BYTES = 4096
WATERMARK_FORMAT = struct.Struct("<8sQQ")
WATERMARK_MAGIC = b"AMPSODUR"


def open_watermark_file(path: Path) -> mmap.mmap:
    """Map the watermark file, made if missing. It is written whole, so no later store needs a new block."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        if os.fstat(descriptor).st_size < WATERMARK_FILE_BYTES:
            os.pwrite(descriptor, bytes(WATERMARK_FILE_BYTES), 0)
            os.fsync(descriptor)
        return mmap.mmap(descriptor, WATERMARK_FILE_BYTES)
    finally:
        os.close(descriptor)


def read_watermark(path: Path) -> int:
    """Log position that was durable when the file was last written; 0 = nothing known."""
    try:
        data = path.read_bytes()[: WATERMARK_FORMAT.size]
    except FileNotFoundError:
        return 0
    if len(data) < WATERMARK_FORMAT.size:
        return 0
    magic, position, inverse = WATERMARK_FORMAT.unpack(data)
    # A store torn by a machine crash does not match its inverse: then nothing is known.
    return position if magic == WATERMARK_MAGIC and position ^ inverse == 0xFFFFFFFFFFFFFFFF else 0


class Flusher:
    """Syncs the journal's files in the order in which they were written."""

    def __init__(self, runtime: Runtime, flush_interval_s: float, watermark_file: mmap.mmap) -> None:
        self._runtime = runtime
        self._flush_interval_s = flush_interval_s
        self._watermark_file = watermark_file
        self._wake = threading.Condition()
        self._target = 0
        self._synced = 0
        self._files: list[int] = []
        self._idle = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)

    def start(self, durable: int, new_log: bool) -> None:
        """Begin; everything before log position `durable` is on the device.

        The watermark file keeps what an earlier process promised until this one has synced, unless the log is new.
        """
        self._target = self._synced = durable
        if new_log:
            self._write_watermark(durable)
        self._runtime.control.durable = durable
        self._thread.start()

    def use_file(self, descriptor: int) -> None:
        """What is written from now on goes to that file; earlier ones are synced once more, then closed."""
        with self._wake:
            self._files.append(descriptor)

    def written(self, position: int) -> None:
        """The core has written up to that log position."""
        self._target = position
        if self._idle:
            with self._wake:
                self._wake.notify()

    def drain(self) -> None:
        """Sync everything and end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def failed(self) -> int:
        """errno of a failed sync, 0 = none."""
        return int(self._runtime.control.flush_failed)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._idle = True
                while self._target <= self._synced and not self._stopping:
                    # The timeout covers the moment between the core's look at `_idle` and this wait.
                    self._wake.wait(0.05)
                self._idle = False
                if self._target <= self._synced:
                    return
                files = list(self._files)
                target = self._target
            began = time.monotonic()
            try:
                for descriptor in files:
                    os.fdatasync(descriptor)
            except OSError as error:
                self._runtime.control.flush_failed = error.errno or -1
                self._runtime.core_bell.ring()
                return
            with self._wake:
                # The file in use stays; those before it are complete and durable.
                for descriptor in files[:-1]:
                    self._files.remove(descriptor)
                    os.close(descriptor)
            self._synced = target
            self._publish(target)
            if not self._stopping:
                time.sleep(min(time.monotonic() - began, self._flush_interval_s))

    def _write_watermark(self, position: int) -> None:
        self._watermark_file[: WATERMARK_FORMAT.size] = WATERMARK_FORMAT.pack(
            WATERMARK_MAGIC, position, position ^ 0xFFFFFFFFFFFFFFFF
        )

    def _publish(self, position: int) -> None:
        self._write_watermark(position)
        control = self._runtime.control
        control.durable = position
        for index, bell in enumerate(self._runtime.transport_bells):
            if control.transport_sleeping(index):
                bell.ring()
