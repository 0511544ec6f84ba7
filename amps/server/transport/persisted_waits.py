"""Waiting until messages are fully persisted: durable here, and acknowledged by the destinations that are sync
(replication.md §7).

An action waits first for the durable watermark (core_link.py), then for the destinations. A wait for a destination
costs nothing until a watermark of that destination moves (wire/destination_waits.pxi). Without destinations there is no
second step: `destinations` is None, and so is everything that belongs to it.

A connection that ends gives back its waits: a stopped destination may otherwise collect those of many connections.
"""

from collections.abc import Callable
from functools import partial

from amps._core.wire.persisted import ALL_DESTINATIONS, Destinations, DestinationWaits
from amps.config import ServerConfig
from amps.config.model_replication import DestinationConfig
from amps.server.runtime import Runtime
from amps.server.shared.core_link import CoreLink
from amps.server.topics import RESERVED_PREFIX, topic_predicate
from amps.server.transport.session import Session


def make_destinations(config: ServerConfig, runtime: Runtime) -> Destinations | None:
    """The destinations of replication as a transport sees them; None if there are none."""
    if not runtime.control.destinations:
        return None
    tests = [_topic_test(destination) for destination in config.destinations]

    def carriers(topic: str, message_type: str) -> int:
        return sum(1 << number for number, test in enumerate(tests) if test(topic, message_type))

    return Destinations(runtime.control, runtime.pending_tables, carriers)


def _topic_test(destination: DestinationConfig) -> Callable[[str, str], bool]:
    """A test whether a destination may get messages of a topic and message type."""
    topics = [
        (one.message_type, one.name, topic_predicate(one.name, one.is_regex)) for one in destination.topics
    ]

    def test(topic: str, message_type: str) -> bool:
        return not topic.startswith(RESERVED_PREFIX) and any(
            of_type == message_type and (topic == name if predicate is None else predicate(topic))
            for of_type, name, predicate in topics
        )

    return test


class PersistedWaits:
    """The actions of one worker that wait for persistence."""

    def __init__(
        self, core: CoreLink, destinations: Destinations | None, schedule: Callable[[], None]
    ) -> None:
        """`schedule` requests a turn of the worker."""
        self.destinations = destinations
        self._core = core
        self._schedule = schedule
        self._waits = None if destinations is None else DestinationWaits(destinations)
        self._actions: dict[int, tuple[Session, Callable[[], None]]] = {}
        self._tokens: dict[Session, set[int]] = {}

    @property
    def durable_awaited(self) -> bool:
        """Whether an action waits for a destination. A destination gets records when they are durable here."""
        return bool(self._actions)

    def when_persisted(self, connection: Session, position: int, action: Callable[[], None]) -> None:
        """Call `action` once all messages of a connection's publisher before a log position are fully persisted, those
        without a sequence included; at once if they are. It may not be called if the connection ends before.
        """
        then = (
            action if self._waits is None else partial(self._when_acknowledged, connection, position, action)
        )
        self._core.when_durable(position, then)

    def _when_acknowledged(self, connection: Session, position: int, action: Callable[[], None]) -> None:
        self.when_acknowledged(
            connection, connection.publisher_id, position, action, derived_id=connection.derived_id
        )

    def when_acknowledged(
        self,
        connection: Session,
        publisher_id: int,
        position: int,
        action: Callable[[], None],
        *,
        derived_id: int = 0,
        carriers: int = ALL_DESTINATIONS,
        known_only: bool = False,
    ) -> int | None:
        """Call `action` once no sync destination is waited for by a publisher's messages before a log position. Returns
        a token for `give_up`; None if the action was called at once. See DestinationWaits.add for the other arguments.
        """
        token: int | None = None
        if self._waits is not None:
            token = self._waits.add(publisher_id, position, derived_id, carriers, known_only)
        if token is None:
            action()
        else:
            self._actions[token] = connection, action
            self._tokens.setdefault(connection, set()).add(token)
        return token

    def give_up(self, connection: Session, token: int) -> None:
        """Do not call the action of a connection's wait, unless it was called already."""
        if token in self._tokens.get(connection, ()):
            assert self._waits is not None
            self._waits.remove(token)
            self._forget_token(token)

    def run(self) -> None:
        """Call the actions that the destinations allow now."""
        if self._waits is None or not self._actions:
            return
        passed = [self._forget_token(token) for token in self._waits.passed()]
        for action in passed:
            action()

    def _forget_token(self, token: int) -> Callable[[], None]:
        connection, action = self._actions.pop(token)
        tokens = self._tokens[connection]
        tokens.discard(token)
        if not tokens:
            del self._tokens[connection]
        return action

    def forget(self, connection: Session) -> None:
        """Drop the waits of a connection that has ended."""
        for token in self._tokens.pop(connection, ()):
            assert self._waits is not None
            self._waits.remove(token)
            del self._actions[token]
