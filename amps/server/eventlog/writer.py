"""The log process: reads records from the channel and writes them to all targets.

It is the only process that writes to a target, so lines never mix and rotation needs no agreement. It works
in batches: all waiting records are passed to the targets, then flushed. So a busy log costs few system calls, and
records of an idle one are written at once.

It ends after the end record (`EventLog.finish`), or when every sender has ended, never before all records sent to it
are written. Signals for the server do not end it: its records are the last to be written.
"""

import contextlib
import mmap
import os
import select
import signal
import socket
import time
from array import array
from collections.abc import Callable, MutableSequence
from typing import cast

from amps.config import LogTargetConfig
from amps.server.eventlog.catalogue import CATALOGUE, LEVEL_NUMBERS, fill
from amps.server.eventlog.records import KIND_END, KIND_ROTATE, MAX_TEXT_BYTES, LineFormatter, Record, unpack
from amps.server.eventlog.targets import Target, open_targets

_PACKET_BYTES = MAX_TEXT_BYTES + 4096
_BATCH_RECORDS = 512
_ORPHAN_CHECK_MS = 500


def run_log_process(
    config: tuple[LogTargetConfig, ...],
    instance_name: str,
    receiver_socket: socket.socket,
    rotation_counters: MutableSequence[int] | None = None,
    now_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Write records until the end of the channel.

    `now_ns`: the time of its own records.

    `rotation_counters`, one number per target, should be in memory that survives this process if it may
    be restarted (`shared_counters`).
    """
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ):
        signal.signal(number, signal.SIG_IGN)
    _Writer(config, instance_name, receiver_socket, rotation_counters, now_ns).run()


def shared_counters(target_count: int) -> MutableSequence[int]:
    """Rotation counters in memory that is shared with processes forked later."""
    memory = memoryview(mmap.mmap(-1, max(8 * target_count, 8))).cast("q")
    return cast(MutableSequence[int], memory)


class _Writer:
    """The state of the log process."""

    def __init__(
        self,
        config: tuple[LogTargetConfig, ...],
        instance_name: str,
        receiver: socket.socket,
        counters: MutableSequence[int] | None,
        now_ns: Callable[[], int],
    ) -> None:
        self._receiver = receiver
        self._now_ns = now_ns
        self._formatter = LineFormatter()
        self._parent = os.getppid()
        self._reports: list[tuple[str, str, int]] = []
        if counters is None:
            counters = array("q", [0] * len(config))
        self._targets: list[Target] = open_targets(
            config, instance_name, counters, lambda *report: self._reports.append(report)
        )

    def run(self) -> None:
        """Read records to the end of the channel."""
        self._receiver.setblocking(False)
        poll = select.poll()
        poll.register(self._receiver, select.POLLIN)
        open_channel = True
        while open_channel:
            ready = poll.poll(_ORPHAN_CHECK_MS)
            if ready:
                open_channel = self._read_batch()
            elif os.getppid() != self._parent:
                open_channel = False  # the supervisor has ended, and no record waits any more
            for target in self._targets:
                target.flush()
            self._report_targets()
        for target in self._targets:
            target.close()

    def _read_batch(self) -> bool:
        """Pass waiting records to the targets; False at the end of the channel."""
        for _ in range(_BATCH_RECORDS):
            try:
                packet = self._receiver.recv(_PACKET_BYTES)
            except BlockingIOError:
                return True
            except InterruptedError:
                continue
            if not packet:
                return False
            record = unpack(packet)
            if record is None:
                continue
            if record.kind == KIND_END:
                return False
            if record.kind == KIND_ROTATE:
                for target in self._targets:
                    target.rotate()
                continue
            self._write(record)
        return True

    def _write(self, record: Record) -> None:
        line = None
        for target in self._targets:
            if target.wants(record.level_number, record.id):
                if line is None:
                    line = self._formatter.line(record)
                target.write(record.level_number, line)

    def _report_targets(self) -> None:
        """Report a target that has failed, or works again, to the other targets or to standard error."""
        reports, self._reports = self._reports, []
        for name, reason, lost in reports:
            record_id = "01-0032" if reason else "01-0033"
            entry = CATALOGUE[record_id]
            text = fill(entry.template, {"target": name, "reason": reason, "count": lost})
            record = Record(self._now_ns(), 0, LEVEL_NUMBERS[entry.level], record_id, text)
            for target in self._targets:
                # A target also reports its own gap, for its readers.
                if (target.name != name or not reason) and target.wants(record.level_number, record.id):
                    target.write(record.level_number, self._formatter.line(record))
                    target.flush()
            if name != "stderr" and reason:
                with contextlib.suppress(OSError):
                    os.write(2, (self._formatter.line(record) + "\n").encode())
