"""Statistics of the destinations of replication (replication.md §17), in memory that the instance's processes share.

The replication process writes them, the services process reports them. Numbers are counted since the instance was
started; a new replication process goes on counting. Whether a destination is sync at the moment is on the control page.

Invariant: one writer. Texts change only when a connection begins; their checksum shows a reader that it has read half
of a change, and it reads again.
"""

import mmap
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import msgpack

_WORDS: Final = 8
_CONNECTED, _MESSAGES, _BYTES, _DISCONNECTS, _CONNECT_NS, _DISCONNECT_NS, _BEHIND_NS, _CHECK = range(_WORDS)
_TEXTS_BYTES: Final = 4096 - 8 * _WORDS
_TEXT_BYTES_MAX: Final = 512
_READS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Peer:
    """The instance at the other end of a connection, as it named itself, and the connection.

    `client_name`: the form of replication.md §6. `authenticated_id`: the user under which this instance logged on
    there.
    """

    name: str = ""
    group: str = ""
    admin_address: str = ""
    client_name: str = ""
    authenticated_id: str = ""


@dataclass(frozen=True, slots=True)
class DestinationFacts:
    """One reading of a destination's statistics. Times are UNIX nanoseconds, 0: never.

    `peer`: of the current connection, else of the last one.
    """

    is_connected: bool
    messages_out: int
    bytes_out: int
    disconnect_count: int
    connect_time_ns: int
    disconnect_time_ns: int
    behind_ns: int
    peer: Peer


class DestinationStatistics:
    """The statistics of one destination."""

    def __init__(self, memory: memoryview) -> None:
        self._words = memory[: 8 * _WORDS].cast("Q")
        self._texts = memory[8 * _WORDS :]

    # --- the replication process ----------------------------------------------------------------------------

    def begin(self, now_ns: int) -> None:
        """Begin with a new replication process: a connection of the one before is lost."""
        self.disconnected(now_ns)

    def connected(self, peer: Peer, now_ns: int) -> None:
        """Note a new connection."""
        texts = (peer.name, peer.group, peer.admin_address, peer.client_name, peer.authenticated_id)
        packed = msgpack.packb([text.encode()[:_TEXT_BYTES_MAX].decode(errors="ignore") for text in texts])
        self._texts[: len(packed)] = packed
        self._words[_CHECK] = crc32(packed) << 32 | len(packed)
        self._words[_CONNECT_NS] = now_ns
        self._words[_CONNECTED] = 1

    def disconnected(self, now_ns: int) -> None:
        """Note the end of the connection. Nothing changes if there is none."""
        if self._words[_CONNECTED]:
            self._words[_DISCONNECT_NS] = now_ns
            self._words[_DISCONNECTS] += 1
            self._words[_CONNECTED] = 0

    def count(self, messages: int, size_bytes: int) -> None:
        """Count records that were sent."""
        self._words[_MESSAGES] += messages
        self._words[_BYTES] += size_bytes

    def set_behind(self, behind_ns: int) -> None:
        """Set the log time between the newest record and the last acknowledged one (replication.md 25.38)."""
        self._words[_BEHIND_NS] = max(0, behind_ns)

    # --- readers --------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return bool(self._words[_CONNECTED])

    def read(self) -> DestinationFacts:
        """Read the statistics."""
        words = self._words.tolist()
        return DestinationFacts(
            is_connected=bool(words[_CONNECTED]),
            messages_out=words[_MESSAGES],
            bytes_out=words[_BYTES],
            disconnect_count=words[_DISCONNECTS],
            connect_time_ns=words[_CONNECT_NS],
            disconnect_time_ns=words[_DISCONNECT_NS],
            behind_ns=words[_BEHIND_NS],
            peer=self._peer(),
        )

    def _peer(self) -> Peer:
        for _ in range(_READS_MAX):
            check = self._words[_CHECK]
            packed = bytes(self._texts[: check & 0xFFFFFFFF])
            if check == 0:
                return Peer()
            if crc32(packed) == check >> 32:
                return Peer(*msgpack.unpackb(packed))
        return Peer()  # the writer ended in the middle of a change


class ReplicationStatistics:
    """The statistics of all destinations, by their numbers."""

    def __init__(self, destinations: int) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE * max(1, destinations))
        whole = memoryview(self._memory)
        self.destinations = [
            DestinationStatistics(whole[mmap.PAGESIZE * index :][: 8 * _WORDS + _TEXTS_BYTES])
            for index in range(destinations)
        ]

    def reset(self) -> None:
        """Begin anew, with a new tree of processes."""
        self._memory[:] = bytes(len(self._memory))
