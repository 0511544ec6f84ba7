"""Requests to the replication process: downgrade, upgrade and reconnect destinations (replication.md §8, §17).

The services process asks, for the administration interface and for actions (services/replication_requests.py). The
replication process waits for `fileno()` to become readable and calls `answer_requests`. One msgpack list per datagram,
in the form of services/requests.py. The channel outlives both processes: a request that waits while the replication
process is started anew is answered by the new one.

The rules which destinations change are here, as pure functions of what the replication process knows of its links, so
that a decision and its effect are one step of that process. Invariants: a destination configured `async` never changes;
an action never upgrades a destination that is not connected (25.19); a downgrade by an action leaves at least
`min_sync_destinations` in sync mode (25.5).
"""

import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgpack

from amps._core.shm.memory import MODE_ASYNC, MODE_DOWNGRADED, MODE_SYNC

DOWNGRADE: Final = "downgrade"
UPGRADE: Final = "upgrade"
RECONNECT: Final = "reconnect"
DOWNGRADE_OLDER: Final = "downgrade older"
UPGRADE_YOUNGER: Final = "upgrade younger"
_DATAGRAM_BYTES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class LinkState:
    """What the rules need of a destination.

    `mode`: of the control page. `unacknowledged_s`: age of the oldest message that the destination has not
    acknowledged, from its time in the local log, on a clock that never goes back; 0.0 if there is none (25.17).
    """

    mode: int
    is_connected: bool
    unacknowledged_s: float


class Links(Protocol):
    """The destinations of the replication process, by their numbers."""

    def states(self) -> Sequence[LinkState]:
        """The state of each destination."""

    def downgrade(self, destination: int, unacknowledged_s: float | None) -> None:
        """Change a destination from sync to async: nothing waits for it any more. `unacknowledged_s`: the reason of an
        action; None: an operator did it.
        """

    def upgrade(self, destination: int) -> None:
        """Change a downgraded destination back to sync, for messages from now on."""

    def reconnect(self, destination: int) -> bool:
        """Close the connection, and begin to connect. Return whether there was one."""


def to_downgrade(states: Sequence[LinkState], age_s: float, min_sync: int | None) -> list[int]:
    """Return the destinations that an action downgrades, in the order of the configuration."""
    in_sync = sum(state.mode == MODE_SYNC for state in states)
    spare = in_sync - (min_sync or 0)
    old = [
        index
        for index, state in enumerate(states)
        if state.mode == MODE_SYNC and state.unacknowledged_s > age_s
    ]
    return old[: max(0, spare)]


def to_upgrade(states: Sequence[LinkState], age_s: float) -> list[int]:
    """Return the destinations that an action upgrades."""
    return [
        index
        for index, state in enumerate(states)
        if state.mode == MODE_DOWNGRADED and state.is_connected and state.unacknowledged_s < age_s
    ]


class BadRequest(Exception):
    """A request that cannot be carried out; the text tells why, and what to do."""


class ReplicationRequests:
    """The answering side, in the replication process."""

    def __init__(self, channel: socket.socket, min_sync: int | None) -> None:
        """`channel`: not blocking. `min_sync`: `Tuning/Replication/MinSyncDestinations`."""
        self._channel = channel
        self._min_sync = min_sync

    def fileno(self) -> int:
        """The descriptor that becomes readable when requests wait."""
        return self._channel.fileno()

    def answer_requests(self, links: Links) -> None:
        """Carry out the requests that wait, and answer them. An answer has the numbers of the changed destinations."""
        while True:
            try:
                data = self._channel.recv(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            if not data:
                return
            number, verb, *rest = msgpack.unpackb(data)
            try:
                answer = [number, "ok", self._carry_out(links, verb, rest)]
            except BadRequest as problem:
                answer = [number, "error", str(problem)]
            # A full channel: the process that asked has ended. It gets no answer, and asks again.
            with contextlib.suppress(BlockingIOError):
                self._channel.send(msgpack.packb(answer))

    def _carry_out(self, links: Links, verb: str, rest: Sequence[Any]) -> list[int]:
        if verb == DOWNGRADE_OLDER:
            states = links.states()
            changed = to_downgrade(states, float(rest[0]), self._min_sync)
            for index in changed:
                links.downgrade(index, states[index].unacknowledged_s)
            return changed
        if verb == UPGRADE_YOUNGER:
            changed = to_upgrade(links.states(), float(rest[0]))
            for index in changed:
                links.upgrade(index)
            return changed
        index = int(rest[0])
        mode = links.states()[index].mode
        if verb == DOWNGRADE:
            if mode != MODE_SYNC:
                return []
            links.downgrade(index, None)
        elif verb == UPGRADE:
            if mode == MODE_ASYNC:
                raise BadRequest(
                    "the destination is configured async, so it cannot become sync; change its SyncType and restart"
                )
            if mode == MODE_SYNC:
                return []
            links.upgrade(index)
        elif verb == RECONNECT:
            return [index] if links.reconnect(index) else []
        else:
            raise BadRequest(f"the replication process knows no request {verb!r}")
        return [index]
