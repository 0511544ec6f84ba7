"""beanstalkd with its binlog, from Debian.

`-f 50`, the default, syncs the binlog at most every 50 ms; `-f 0` syncs every write. A consumer reserves its jobs
one by one, but sends its requests together. Each deletion is answered.
"""

import re
import shutil
import socket
import subprocess
from collections.abc import Sequence

from perf.consuming import ACK_BATCH, PREFETCH, Consumer, Demand
from perf.load import PAYLOAD_BYTES, build
from perf.peers.queueing import QueuePeer
from perf.pump import Lane, PeerError, connect, receive_exactly_until

ALLOWED_IN_ANSWERS = b"INSERTED 0123456789\r\n"
JOBS_LEFT = re.compile(rb"current-jobs-(?:ready|reserved|delayed|buried): (\d+)")


def count_inserted(received: memoryview) -> int:
    """The number of inserted jobs. Each has a line such as `INSERTED 7`."""
    data = received.tobytes()
    if data.translate(None, ALLOWED_IN_ANSWERS):
        raise PeerError(f"beanstalkd refused: {data[:300]!r}")
    return data.count(b"\n")


class ReservingConsumer(Consumer):
    """A handle is the number of a job."""

    pattern = re.compile(rb"RESERVED (\d+) %d\r\n.{%d}" % (PAYLOAD_BYTES, PAYLOAD_BYTES), re.DOTALL)

    def __init__(self, sock: socket.socket, demand: Demand) -> None:
        super().__init__(sock)
        self.demand = demand
        self.deleted = 0
        self.acknowledged = 0

    def start(self) -> None:
        self.reserve(PREFETCH)

    def reserve(self, count: int) -> None:
        self.outgoing += b"reserve\r\n" * self.demand.take(count)

    def see(self, data: memoryview) -> None:
        self.deleted += bytes(data).count(b"DELETED\r\n")

    def acknowledge(self, handles: Sequence[bytes]) -> None:
        self.acknowledged += len(handles)
        self.outgoing += b"delete %s\r\n" % b"\r\ndelete ".join(handles)
        if not self.finishing:
            self.reserve(ACK_BATCH)

    def ask_for_confirmation(self) -> None:
        """Nothing to send: each deletion is answered."""

    def is_confirmed(self) -> bool:
        return self.deleted + self.rest.count(b"DELETED\r\n") == self.acknowledged


class Beanstalkd(QueuePeer):
    name = "beanstalkd"
    title = "beanstalkd (binlog synced every 50 ms)"
    window = 8_000
    pace = 35_000
    sync_ms = 50

    def version(self) -> str:
        found = shutil.which("beanstalkd")
        if not found:
            raise PeerError("beanstalkd is not installed: apt-get install beanstalkd")
        return subprocess.run([found, "-v"], capture_output=True, text=True, check=True).stdout.strip()

    def command(self) -> list[str]:
        binlog = self.directory / "binlog"
        binlog.mkdir()
        address = ["-l", "127.0.0.1", "-p", str(self.port)]
        return ["beanstalkd", *address, "-b", str(binlog), "-f", str(self.sync_ms)]

    def prepare(self) -> None:
        """Nothing to prepare: the default tube always exists."""

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        put = b"put 0 0 3600 %d\r\n" % PAYLOAD_BYTES
        return [
            Lane(
                connect(self.port),
                build(put, b"\r\n", messages // connections),
                count_inserted,
                self.window // connections,
            )
            for _ in range(connections)
        ]

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        demand = Demand(messages)
        return [ReservingConsumer(connect(self.port), demand) for _ in range(count)]

    def left(self) -> int:
        with connect(self.port) as sock:
            sock.sendall(b"stats-tube default\r\n")
            answer = receive_exactly_until(sock, b"pause-time-left")
        return sum(map(int, JOBS_LEFT.findall(answer)))


class BeanstalkdAlways(Beanstalkd):
    name = "beanstalkd-always"
    title = "beanstalkd (binlog synced at every write)"
    pace = 4_000
    sync_ms = 0
