"""Servers that keep copies of the same messages: several processes on this machine, measured as one peer.

Load goes to the *leader*, which may be any member. A group confirms a publish when as many copies exist as its
configuration demands. `stored_copies` counts what the member that is behind has, so that a run whose confirmations
promise too much gives no result. All members are started by `running` and stopped with it, whatever happens.
"""

import contextlib
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import psutil

from perf.consuming import Consumer
from perf.peers.queueing import QueuePeer
from perf.peers.server import START_S, ServerPeer
from perf.pump import Lane, PeerError


class ServerGroup(QueuePeer):
    """Several servers. A group without a queue takes part only in scenarios that publish."""

    members: Sequence[ServerPeer] = ()
    copies_limit_s = START_S
    """So long `stored_copies` waits."""
    leader: ServerPeer

    @abstractmethod
    def make_members(self) -> Sequence[ServerPeer]:
        """New members, not started; the first is the leader, unless `prepare` changes that."""

    @abstractmethod
    def connect_members(self) -> None:
        """Configure the members, which have their directories and ports, to find each other."""

    @abstractmethod
    def stored_copies(self, messages: int) -> int:
        """The number of messages that the member with the fewest has, after up to `copies_limit_s` for `messages`."""

    def command(self) -> list[str]:
        raise NotImplementedError("a group is several processes")

    def version(self) -> str:
        return self.make_members()[0].version()

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Self]:
        self.directory = directory
        self.members = self.make_members()
        self.leader = self.members[0]
        for number, member in enumerate(self.members, 1):
            (directory / f"member-{number}").mkdir()
            member.place(directory / f"member-{number}")
        self.connect_members()
        with contextlib.ExitStack() as stack:
            for member in self.members:
                stack.callback(member.stop)
                member.launch()
            for member in self.members:
                member.wait_for_port()
            self.prepare()
            self.settle()
            yield self

    def processes(self) -> list[psutil.Process]:
        return [
            process for member in self.members if member.process is not None for process in member.processes()
        ]

    def output(self) -> str:
        return "\n".join(member.output() for member in self.members)

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        self.leader.payload_bytes = self.payload_bytes
        self.leader.window = self.window
        return self.leader.publish_lanes(connections, messages)

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        return self._queue().consumers(count, messages)

    def left(self) -> int:
        return self._queue().left()

    def _queue(self) -> QueuePeer:
        assert isinstance(self.leader, QueuePeer), f"{self.name} has no queue"
        return self.leader


def until_true(what: str, limit_s: float = START_S) -> Iterator[None]:
    """Yield again and again, with pauses, until the caller leaves the loop. PeerError after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        yield
        time.sleep(0.05)
    raise PeerError(f"{what}: not after {limit_s:g} s")
