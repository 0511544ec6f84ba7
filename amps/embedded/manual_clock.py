"""Advancing the clock of an embedded server: the program's side. The server's side is amps/server/clock.py.

The offset is in a file of the server's directory, so a restart keeps it. Only the server writes it. Requests go over a
connection to its first process: `advance <number> <nanoseconds>` in, `<number> ok` or `<number> failed <reason>` out.
"""

import socket
import struct
import time
from pathlib import Path

ADVANCE_S_MAX = 60 * 366 * 86400.0
"""The limit of one call."""
OFFSET_NS_MAX = 1 << 62
"""The server refuses a time after this one, of the year 2116: sums of times must fit 64 bits."""
_ANSWER_TIMEOUT_S = 60.0
_FILE = struct.Struct("<8sQ")
_MAGIC = b"AMPSCLK1"


class ClockConnection:
    """The connection of one start of a server. `theirs` is the end for the server."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.settimeout(_ANSWER_TIMEOUT_S)
        self._number = 0

    def advance(self, seconds: float) -> None:
        """Advance the time, and wait until it is passed. Raises ValueError, TypeError, OSError."""
        if not 0 <= seconds <= ADVANCE_S_MAX:  # not true of NaN, either
            raise ValueError(f"the time can be advanced by 0 to {ADVANCE_S_MAX:.0f} seconds, not {seconds!r:.50}")
        self._number += 1
        self._ours.sendall(b"advance %d %d" % (self._number, round(seconds * 1e9)))
        while True:
            answer = self._ours.recv(4096)
            if not answer:
                raise ConnectionError("the server has ended")
            number, _, text = answer.decode().partition(" ")
            if int(number) == self._number:  # an earlier one was interrupted in the program
                break
        if text != "ok":
            raise OSError(text.removeprefix("failed "))

    def close(self) -> None:
        """Close the connection."""
        self._ours.close()
        self.theirs.close()


def check_limit(offset_ns: int, seconds: float) -> None:
    """Raise ValueError if the server would refuse to advance its time that far."""
    if offset_ns + seconds * 1e9 > OFFSET_NS_MAX - time.time_ns():
        raise ValueError(
            f"the time of the server would be too large: it is {offset_ns / 1e9:.0f} s ahead already, and cannot be "
            "after the year 2116"
        )


def read_offset_ns(path: Path) -> int:
    """Return how far a server's clock is ahead of the system's; 0 without its file. Raises OSError for another file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    if len(data) < _FILE.size or not data.startswith(_MAGIC):
        raise OSError(
            f"{path} is damaged: it is not the file of a clock, which has how far the server's time is ahead. Restore "
            "it, or remove the whole directory: its log has times of the future"
        )
    return int(_FILE.unpack_from(data)[1])
