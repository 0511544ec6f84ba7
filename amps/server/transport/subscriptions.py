"""Subscriptions of one worker: who gets messages of which topic.

A Subscription is one entry of one connection. Where it stands:
    LIVE     in the live group: ordinary subscriptions, and bookmark subscriptions with `live` after their replay
    DURABLE  in the durable group: bookmark subscriptions that have caught up
    REPLAY   with a tailer of its own (replay.py)
A SubscriptionSet holds the members of one group, literal topics by name and expressions as patterns (patterns.py), and
works out the routes of a topic when a tailer meets it and something has changed since it did so last. A change costs
nothing by itself: a literal subscription touches the routes of its topic, an expression starts a new generation, in
which each topic asks, when it is met, whether the patterns that came or changed since then concern it.
"""

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amps._core.delivery import PACED, WANT_BOOKMARK, WANT_TIMESTAMP, Group, Route
from amps._core.topic_table import TopicEntry, TopicTable
from amps.server.transport.options import Options
from amps.server.transport.patterns import Pattern, PatternIndex

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
    """One subscription. `predicate`, a function of `topic`, is None for a literal topic.

    `permitted`: False after a replacement by a topic that the client may not read; it gets nothing then.
    """

    connection: "Connection"
    sub_id: str
    topic: str
    predicate: Callable[[str], bool] | None
    options: Options
    bookmark: str | None = None
    send_ids: bool = True
    permitted: bool = True
    place: Place = Place.LIVE
    replay: "Replay | None" = None
    # periodic persisted acknowledgements of bookmark subscriptions
    wants_persisted: bool = False
    persisted_sent: tuple[int, int] = (0, 0)

    def matches(self, entry: TopicEntry) -> bool:
        """Whether it gets messages of that topic."""
        named = entry.name == self.topic if self.predicate is None else self.predicate(entry.name)
        return named and self.takes(entry)

    def takes(self, entry: TopicEntry) -> bool:
        """Whether it gets messages of a topic whose name matches: type, permission; recorded topics only, if by
        bookmark.
        """
        if entry.message_type != self.connection.message_type or (
            self.bookmark is not None and not entry.logged
        ):
            return False
        # A literal topic was checked when the command came.
        return self.permitted and (self.predicate is None or self.connection.may("read", entry.name))

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
        self.permitted = other.permitted


# What most topics have: shared, never changed.
NO_PATTERNS: list[Pattern] = []
NO_ROUTES: list[Route] = []


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

    def __init__(self, topics: TopicTable, combine: bool) -> None:
        self.group = Group(self._find_routes)
        self._topics = topics
        self._combine = combine
        self._literal: dict[tuple[str, str], dict[Subscription, None]] = {}  # by topic and message type
        self._patterns = PatternIndex()
        self._matched: dict[int, list[Pattern]] = {}  # by topic number, as of the topic's last question

    def __bool__(self) -> bool:
        return bool(self._patterns or self._literal)

    def add(self, subscription: Subscription) -> None:
        """Let a subscription have what the tailer meets from now on."""
        if subscription.predicate is None:
            key = subscription.topic, subscription.connection.message_type
            self._literal.setdefault(key, {})[subscription] = None
            self._touch(key)
        else:
            self.group.changed()
            self._patterns.add(subscription, subscription.predicate, self.group.generation)

    def remove(self, subscription: Subscription) -> None:
        """A subscription gets nothing more from here."""
        if subscription.predicate is None:
            key = subscription.topic, subscription.connection.message_type
            members = self._literal.get(key)
            if members is not None:
                members.pop(subscription, None)
                if not members:
                    del self._literal[key]
            self._touch(key)
        else:
            self.group.changed()
            self._patterns.remove(subscription, self.group.generation)
        if not self:
            self._matched.clear()
            self.group.forget()

    def _touch(self, key: tuple[str, str]) -> None:
        entry = self._topics.known(*key)
        if entry is not None:
            self.group.changed(entry)

    def _find_routes(self, entry: TopicEntry, since: int, current: list[Route] | None) -> list[Route]:
        matched = self._matched.get(entry.number, NO_PATTERNS)
        found = self._patterns.matching(entry.name, since)
        if current is not None and not found and all(pattern.changed <= since for pattern in matched):
            return current
        matched = [pattern for pattern in matched if pattern.members] + found
        if matched:
            self._matched[entry.number] = matched
        else:
            self._matched.pop(entry.number, None)
        members = list(self._literal.get((entry.name, entry.message_type), ()))
        members += [subscription for pattern in matched for subscription in pattern.members]
        return self._routes(entry, [subscription for subscription in members if subscription.takes(entry)])

    def _routes(self, entry: TopicEntry, matching: list[Subscription]) -> list[Route]:
        if not matching:
            return NO_ROUTES
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
