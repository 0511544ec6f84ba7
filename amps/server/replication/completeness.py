"""Word between instances that all of a log is there (replication.md 25.94, docs/replication.md).

A source tells its sink now and then: "all that was in my log so long ago was sent before this frame". The age covers
what was in the log, but not durable, at that moment: it is sent when it is durable, and only then is it told. The sink
passes this on to its core, with the names of its partners. The core needs it to refuse transactions that another
instance may have recorded.

Nothing here does input or output: positions and times are passed in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from amps.server.replication.hello import Identity
from amps.server.replication.instance_config import InstanceConfig

STATEMENT_INTERVAL_S = 5.0


@dataclass(slots=True)
class Statements:
    """The source's side, of one flow. `next_s`: the time of the next moment about which it will say something."""

    next_s: float
    _position: int | None = None
    _noted_s: float = 0.0

    def due(self, written: int, sent: int, now_s: float) -> float | None:
        """The age in seconds of the moment whose whole log was sent, if that is to be told now.

        `written`: the end of the log. `sent`: all that goes there before this log position was sent.
        """
        if self._position is None:
            if now_s < self.next_s:
                return None
            self._position, self._noted_s = written, now_s
        if sent < self._position:
            return None
        self._position, self.next_s = None, now_s + STATEMENT_INTERVAL_S
        return now_s - self._noted_s


def partners(
    connected: Iterable[Identity | None],
    configs: Mapping[str, InstanceConfig],
    upstreams: Iterable[str],
    own: Identity,
) -> list[str] | None:
    """The names of the instances that send to this one what they have; None: one may, and is not connected.

    `connected`: the instance of each destination, None without a connection. `configs`: by uuid, those that are known.
    `upstreams`: the names of those whose flows run. A destination that does not replicate to this one is no partner:
    its log will never be here.
    """
    found = set(upstreams)
    for peer in connected:
        if peer is None:
            return None
        config = configs.get(peer.uuid)
        if config is None or any(each.leads_to(own.name, own.group) for each in config.destinations):
            found.add(peer.name)
    return sorted(found)
