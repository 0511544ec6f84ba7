"""Subscriptions of one worker: who gets messages of which topic.

A Subscription is one entry of one connection. Where it stands:
    LIVE     in the live group: ordinary subscriptions, and bookmark subscriptions with `live` after their replay
    DURABLE  in the durable group: bookmark subscriptions that have caught up
    REPLAY   with a tailer of its own (replay.py)
A SubscriptionSet holds the members of one group, literal topics by name and expressions in a list, and works out the
routes of a topic when a tailer first meets it.
"""

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amps._core.delivery import PACED, WANT_BOOKMARK, WANT_TIMESTAMP, Group, Route
from amps._core.topic_table import TopicEntry
from amps.server.transport.options import Options

if TYPE_CHECKING:
    from amps.server.transport.connection import Connection
    from amps.server.transport.replay import Replay


class Place(enum.Enum):
    """Which tailer serves a subscription."""

    LIVE = "live"
    DURABLE = "durable"
    REPLAY = "replay"


@dataclass(slots=True, eq=False)
class Subscription:
    """One subscription. `predicate` is None for a literal topic."""

    connection: "Connection"
    sub_id: str
    topic: str
    predicate: Callable[[str], bool] | None
    options: Options
    bookmark: str | None = None
    send_ids: bool = True
    place: Place = Place.LIVE
    replay: "Replay | None" = None
    # periodic persisted acknowledgements of bookmark subscriptions
    wants_persisted: bool = False
    persisted_sent: tuple[int, int] = (0, 0)
    start_bookmark: tuple[int, int] = (0, 0)
    _allowed: dict[int, bool] = field(default_factory=dict)

    def matches(self, entry: TopicEntry) -> bool:
        """Whether it gets messages of that topic: type, name, permission; recorded topics only, if by bookmark."""
        if entry.message_type != self.connection.message_type or (
            self.bookmark is not None and not entry.logged
        ):
            return False
        if self.predicate is None:
            return entry.name == self.topic
        if not self.predicate(entry.name):
            return False
        allowed = self._allowed.get(entry.number)
        if allowed is None:
            allowed = self._allowed[entry.number] = self.connection.may("read", entry.name)
        return allowed

    def flags(self, entry: TopicEntry) -> int:
        """Route flags for that topic."""
        bookmark = entry.logged and (self.options.bookmark or self.bookmark is not None)
        return (WANT_BOOKMARK if bookmark else 0) | (WANT_TIMESTAMP if self.options.timestamp else 0)

    def become(self, other: "Subscription") -> None:
        """Take over topic and options of a replacing command; the place stays."""
        self.topic = other.topic
        self.predicate = other.predicate
        self.options = other.options
        self.send_ids = other.send_ids
        self._allowed = {}


def route_prefix(entry: TopicEntry, subscriptions: list[Subscription]) -> bytes:
    """The constant beginning of a delivery's header; ids only of those that want them (`send_matching_ids`)."""
    prefix = b'{"c":"p","t":' + entry.json_name
    sub_ids = [subscription.sub_id for subscription in subscriptions if subscription.send_ids]
    if sub_ids:
        prefix += b',"sids":' + json.dumps(",".join(sub_ids), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
    return prefix


class SubscriptionSet:
    """Members of one group. `combine`: one message per connection with all its matching ids (protocol.md §4)."""

    def __init__(self, combine: bool) -> None:
        self.group = Group(self._routes)
        self._combine = combine
        self._literal: dict[str, dict[Subscription, None]] = {}
        self._expressions: dict[Subscription, None] = {}

    def __len__(self) -> int:
        return len(self._expressions) + sum(len(members) for members in self._literal.values())

    def __bool__(self) -> bool:
        return bool(self._expressions or self._literal)

    def add(self, subscription: Subscription) -> None:
        """Let a subscription have what the tailer meets from now on."""
        if subscription.predicate is None:
            self._literal.setdefault(subscription.topic, {})[subscription] = None
        else:
            self._expressions[subscription] = None
        self.group.changed()

    def remove(self, subscription: Subscription) -> None:
        """A subscription gets nothing more from here."""
        if subscription.predicate is None:
            members = self._literal.get(subscription.topic)
            if members is not None:
                members.pop(subscription, None)
                if not members:
                    del self._literal[subscription.topic]
        else:
            self._expressions.pop(subscription, None)
        self.group.changed()

    def members(self) -> list[Subscription]:
        """Everybody in the set."""
        return [*self._expressions, *(s for members in self._literal.values() for s in members)]

    def _routes(self, entry: TopicEntry) -> list[Route]:
        matching = [s for s in self._literal.get(entry.name, ()) if s.matches(entry)]
        matching += [s for s in self._expressions if s.matches(entry)]
        if not self._combine:
            return [single_route(subscription, entry) for subscription in matching]
        by_connection: dict[Connection, list[Subscription]] = {}
        for subscription in matching:
            by_connection.setdefault(subscription.connection, []).append(subscription)
        routes = []
        for connection, subscriptions in by_connection.items():
            flags = 0
            for subscription in subscriptions:
                flags |= subscription.flags(entry)
            routes.append(Route(connection.outlet, route_prefix(entry, subscriptions), flags))
        return routes


def single_route(subscription: Subscription, entry: TopicEntry) -> Route:
    """The route of a bookmark subscription, by itself: it is served as fast as its connection takes it."""
    prefix = route_prefix(entry, [subscription])
    return Route(subscription.connection.outlet, prefix, subscription.flags(entry) | PACED)
