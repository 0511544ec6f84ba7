"""The sending side of the event log, used by every process of the server.

Theory of operation: all processes inherit one end of a packet socket pair that the supervisor made; the log
process reads the other end. A packet is one whole record, sent with one system call, and needs no lock. A
record of a level that no target selects costs a dictionary look-up and a comparison.

No record is lost under load: when the socket is full the sender waits, which slows the server down to the
speed of its log. The supervisor keeps both ends open, so a log process that dies leaves the records in the
socket for its successor. Only when the log process reads nothing for `SEND_TIMEOUT_S` is a record dropped, because
a server that hangs because of its log is worse. From then on records that cannot be sent at once are dropped too,
until one is sent; then the number of dropped records is logged.
"""

import contextlib
import socket
import struct
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from amps.config import LogTargetConfig
from amps.server.eventlog.catalogue import CATALOGUE, LEVEL_NUMBERS, NOTHING, fill
from amps.server.eventlog.records import KIND_END, KIND_ROTATE, pack
from amps.server.eventlog.targets import selects

SEND_TIMEOUT_S = 5
_SOCKET_BUFFER_BYTES = 2**20
_WHILE_DROPPING = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT

_LEVEL_AND_TEMPLATE = {key: (LEVEL_NUMBERS[entry.level], entry.template) for key, entry in CATALOGUE.items()}


class Report(Protocol):
    """Logs a message of the catalogue: `EventLog.log`, as passed to code that may run without an event log."""

    def __call__(self, record_id: str, /, **values: Any) -> None:
        """Log the message with the values that its template needs."""


def open_log_channel() -> tuple[socket.socket, socket.socket]:
    """The sending and the receiving end of a channel. Processes made by fork inherit them.

    Packets keep their bounds, and the receiver sees the end when every copy of the sending end is closed:
    the reading process has to close its inherited copy of it.
    """
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (sender, receiver):
        with contextlib.suppress(OSError):  # the system may allow less, which only means waiting sooner
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
    return sender, receiver


def minimum_level(targets: Iterable[LogTargetConfig]) -> int:
    """The number of the least severe level that any target selects; `NOTHING` if there is nothing to log.

    Ids included by name count with their own level: they must be sent so that a target can select them.
    """
    lowest = NOTHING
    for target in targets:
        for record_id, entry in CATALOGUE.items():
            number = LEVEL_NUMBERS[entry.level]
            if number < lowest and selects(target, number, record_id):
                lowest = number
        for name in target.levels:
            lowest = min(lowest, LEVEL_NUMBERS[name])
    return lowest


class EventLog:
    """Sends records. `thread_number` is the server's number for the thread, which each record contains.

    Without a socket nothing is sent; this is for tests and for servers without log targets.
    """

    def __init__(
        self,
        sender_socket: socket.socket | None,
        thread_number: int,
        minimum_level: int,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`now_ns`: the time of records, UNIX time in nanoseconds."""
        self._socket = sender_socket
        self._thread_number = thread_number
        self._minimum_level = minimum_level if sender_socket is not None else NOTHING
        self._now_ns = now_ns
        self._dropped_count = 0
        if sender_socket is not None:
            sender_socket.setblocking(True)
            sender_socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0)
            )

    def enabled(self, level_name: str) -> bool:
        """Whether records of this level are sent, to be checked before values are prepared at a cost."""
        return LEVEL_NUMBERS[level_name] >= self._minimum_level

    def log(self, record_id: str, /, text: str | None = None, **values: Any) -> None:
        """Log a message of the catalogue. `values` are substituted in its template.

        `text` is the value of `{text}`. For a template without it, a RuntimeWarning is issued (an exception in tests)
        and the text is ignored: logging never fails.
        """
        level_number, template = _LEVEL_AND_TEMPLATE.get(record_id) or (LEVEL_NUMBERS["error"], "{text}")
        if text is not None:
            if "{text}" in template:
                values["text"] = text
            else:
                warnings.warn(
                    f"{record_id}: its template in the catalogue has no {{text}}; give the template's values instead",
                    RuntimeWarning,
                    stacklevel=2,
                )
        if level_number >= self._minimum_level:
            self._send(level_number, record_id, fill(template, values))

    def with_thread(self, thread_number: int) -> "EventLog":
        """The same log under another thread number."""
        return EventLog(self._socket, thread_number, self._minimum_level, self._now_ns)

    def finish(self) -> None:
        """Tell the log process that nothing follows: it writes all records that it was sent, then ends."""
        if self._socket is not None:
            packet = pack(self._now_ns(), self._thread_number, LEVEL_NUMBERS["info"], "00-0000", "", KIND_END)
            with contextlib.suppress(OSError):  # without a reader there is nothing to end
                self._socket.send(packet)

    def rotate(self) -> None:
        """Make targets that rotate begin their next file, and others open theirs again. Records logged before go into
        the old file.
        """
        if self._socket is not None:
            packet = pack(
                self._now_ns(), self._thread_number, LEVEL_NUMBERS["info"], "00-0000", "", KIND_ROTATE
            )
            with contextlib.suppress(OSError):  # without a reader there are no files to rotate
                self._socket.send(packet)

    def _send(self, level_number: int, record_id: str, text: str) -> None:
        assert self._socket is not None
        packet = pack(self._now_ns(), self._thread_number, level_number, record_id, text)
        try:
            self._socket.send(packet, _WHILE_DROPPING if self._dropped_count else socket.MSG_NOSIGNAL)
        except OSError:  # the timeout has passed, or there is no reader any more
            self._dropped_count += 1
            return
        if self._dropped_count:
            dropped, self._dropped_count = self._dropped_count, 0
            self.log("01-0031", count=dropped)
