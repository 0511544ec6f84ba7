"""Word between instances that all of a log is there (replication.md 25.94, docs/replication.md).

A sink asks its source now and then, and the source answers when all that was in its log at the moment of the question
was sent: also what was not durable at that moment. So when the sink has the answer, it knows that all is there that was
in the log when it asked. It measures that time itself: how long frames were on their way does not matter. The sink
passes this on to its core, with the names of its partners. The core needs it to refuse transactions that another
instance may have recorded.

Nothing here does input or output: positions and times are passed in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from amps.server.replication.frames import ProtocolError
from amps.server.replication.hello import Identity
from amps.server.replication.instance_config import InstanceConfig

QUESTION_INTERVAL_S = 5.0


@dataclass(slots=True)
class Questions:
    """The sink's side, of one flow. One question at a time is on its way."""

    _next_s: float = 0.0
    _asked_s: float | None = None

    def due(self, now_s: float) -> bool:
        """Whether to ask now."""
        if self._asked_s is not None or now_s < self._next_s:
            return False
        self._asked_s, self._next_s = now_s, now_s + QUESTION_INTERVAL_S
        return True

    def answered(self, now_s: float) -> float:
        """The age in seconds of the moment whose whole log was taken. Raises ProtocolError: nobody has asked."""
        if self._asked_s is None:
            raise ProtocolError("a COMPLETE that was not asked for")
        age_s, self._asked_s = now_s - self._asked_s, None
        return age_s


@dataclass(slots=True)
class Answers:
    """The source's side, of one flow."""

    _position: int | None = None

    def asked(self, written: int) -> None:
        """The sink has asked. `written`: the end of the log, read now. Raises ProtocolError: the last answer is due."""
        if self._position is not None:
            raise ProtocolError("a second COMPLETE before the answer to the first one")
        self._position = written

    def due(self, sent: int) -> bool:
        """Whether to answer now. `sent`: all that goes there before this log position was sent."""
        if self._position is None or sent < self._position:
            return False
        self._position = None
        return True


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
