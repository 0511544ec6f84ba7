"""Subscriptions of one worker: which ones get messages of which topic.

A SubscriptionSet holds the members of one group: literal topics by name, and expressions as patterns (patterns.py). It
computes the routes of a topic when a tailer meets the topic first. After that, only changes are applied. A literal
subscription is added to the routes of its topic, and removed from them, at once. An expression starts a new generation;
each topic, when it is met again, applies the additions and removals since its last update.
"""

import json
from collections.abc import Callable, Iterator

from amps._core.delivery.delivery import Conflation, Group, LiveConflation, TopicRoutes
from amps._core.delivery.output import (
    PACED,
    WANT_BOOKMARK,
    WANT_DELTA,
    WANT_NO_EMPTIES,
    WANT_OUT_OF_FOCUS,
    WANT_SOW_KEY,
    WANT_TIMESTAMP,
)
from amps._core.values.documents import Documents
from amps._core.wire.topics import TopicEntry, TopicTable
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.transport.patterns import Pattern, PatternIndex
from amps.server.transport.session import Membership, Subscription
from amps.server.transport.sow_state import SowStates

SHOWN_CHARACTERS = 500
"""Filters and names are shortened to so many characters in the administration interface."""

# Shared by most topics, never changed.
NO_PATTERNS: list[Pattern] = []
NO_ROUTES = TopicRoutes()


def shown_text(text: str) -> str:
    """A text of a client, shortened and made valid UTF-8 for the administration interface."""
    return text[:SHOWN_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def shown_id(subscription: Subscription) -> bytes | None:
    """An id as it stands in a delivery's header; None if the client does not want ids (`send_matching_ids`)."""
    if not subscription.send_ids:
        return None
    return json.dumps(subscription.sub_id, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")


class SubscriptionSet:
    """Members of one group. `combine`: one message per connection with all its matching ids (protocol.md §4)."""

    def __init__(
        self,
        topics: TopicTable,
        evaluations: EvaluationContexts,
        combine: bool,
        live: bool,
        holds: Callable[[Subscription], object] | None = None,
        states: SowStates | None = None,
    ) -> None:
        """`live`: messages are delivered when they are published, not when a replay reads them. `holds` is called when
        conflation begins to hold a message of a subscription; None: conflation is done by the members' tailers only.
        `states`: for members with `oof` and deltas; None: they get neither.
        """
        self._holds = holds
        self._states = states
        self.group = Group(self._find_routes, live)
        self._topics = topics
        self._evaluations = evaluations
        self._combine = combine
        self._literal: dict[tuple[str, str], dict[Membership, None]] = {}  # by topic and message type
        self._patterns = PatternIndex()
        self._matched: dict[int, list[Pattern]] = {}  # by topic number, as of the topic's last update
        self._routes: dict[int, TopicRoutes] = {}  # by topic number, if the topic has subscriptions
        self._paginated: set[Subscription] = set()  # which are on no routes (pages.py)

    def __bool__(self) -> bool:
        return bool(self._patterns or self._literal or self.group.is_followed)

    def add(self, subscription: Subscription) -> None:
        """Add a subscription, which gets the messages that the tailer meets from now on."""
        if self._holds is not None and subscription.options.conflating is not None:
            subscription.conflation = self._make_conflation(subscription, self._holds)
        if subscription.page is not None:
            self._paginated.add(subscription)
            subscription.page.open(subscription)
            return
        member = subscription.membership = Membership(subscription, subscription.topic)
        if subscription.predicate is not None:
            self.group.changed()
            self._patterns.add(member, subscription.predicate, self.group.generation)
            return
        key = subscription.topic, subscription.connection.message_type
        self._literal.setdefault(key, {})[member] = None
        for entry in self._entries(*key):
            routes = self._routes.get(entry.number)
            if routes is None:
                self.group.changed(entry)
            else:
                self._enter(routes, entry, member)

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription, which gets no more messages from here."""
        if subscription in self._paginated and subscription.page is not None:
            self._paginated.remove(subscription)
            subscription.conflation = None
            subscription.page.close()
            return
        member = subscription.membership
        if member is None:
            return
        subscription.membership = None
        subscription.conflation = None
        if subscription.predicate is not None:
            self.group.changed()
            self._patterns.remove(member, self.group.generation)
        else:
            self._remove_literal(member, subscription.connection.message_type)
        if not self:
            self._matched.clear()
            self._routes.clear()
            self.group.forget()

    def _remove_literal(self, member: Membership, message_type: str) -> None:
        key = member.topic, message_type
        members = self._literal.get(key)
        if members is not None:
            members.pop(member, None)
            if not members:
                del self._literal[key]
        for entry in self._entries(*key):
            routes = self._routes.get(entry.number)
            if routes is not None and member in routes:
                routes.remove(member)

    def _make_conflation(
        self, subscription: Subscription, holds: Callable[[Subscription], object]
    ) -> LiveConflation:
        connection, options = subscription.connection, subscription.options
        assert options.conflating is not None
        evaluation = self._evaluations.of_type(connection.message_type)
        flags = (WANT_TIMESTAMP if options.timestamp else 0) | (0 if options.no_sowkey else WANT_SOW_KEY)
        flags |= (WANT_OUT_OF_FOCUS if options.oof else 0) | (WANT_DELTA if options.delta else 0)
        flags |= WANT_NO_EMPTIES if options.no_empties else 0
        return LiveConflation(
            Conflation(evaluation, options.conflating.paths, options.conflating.interval_s),
            connection.output,
            shown_id(subscription),
            flags,
            flags | (WANT_BOOKMARK if options.bookmark else 0),
            lambda _: holds(subscription),
            self._evaluations.documents_of(connection.message_type),
            options.select,
        )

    def _entries(self, topic: str, message_type: str) -> Iterator[TopicEntry]:
        """The entries of a name: both parts of a topic that is recorded in part."""
        entry = self._topics.known(topic, message_type)
        if entry is not None:
            yield entry
            if entry.unrecorded is not None:
                yield entry.unrecorded

    def _find_routes(self, entry: TopicEntry, since: int, current: TopicRoutes | None) -> TopicRoutes:
        matched = self._matched.get(entry.number, NO_PATTERNS)
        found = self._patterns.matching(entry.name, since)
        changed = [pattern for pattern in matched if pattern.changed > since]
        if current is not None and not found and not changed:
            return current
        left = [pattern.left_since(since) for pattern in changed]
        matched = [pattern for pattern in matched if pattern.members] + found
        if matched:
            self._matched[entry.number] = matched
        else:
            self._matched.pop(entry.number, None)
        routes = self._routes.get(entry.number)
        if current is None or routes is None or None in left:
            return self._new_routes(entry, matched)
        for leavers in left:
            for member in leavers or ():
                if member in routes:
                    routes.remove(member)
        for pattern in changed:
            for member in pattern.came_since(since):
                self._enter(routes, entry, member)
        for pattern in found:
            for member in pattern.members:
                self._enter(routes, entry, member)
        return routes if len(routes) else self._nobody(entry)

    def _new_routes(self, entry: TopicEntry, matched: list[Pattern]) -> TopicRoutes:
        routes = TopicRoutes(entry, self._evaluations.of_type(entry.message_type))
        for member in self._literal.get((entry.name, entry.message_type), ()):
            self._enter(routes, entry, member)
        for pattern in matched:
            for member in pattern.members:
                self._enter(routes, entry, member)
        if not len(routes):
            return self._nobody(entry)
        self._routes[entry.number] = routes
        return routes

    def _nobody(self, entry: TopicEntry) -> TopicRoutes:
        self._routes.pop(entry.number, None)
        return NO_ROUTES

    def _enter(self, routes: TopicRoutes, entry: TopicEntry, member: Membership) -> None:
        subscription = member.subscription
        if subscription.takes(entry):
            # Messages held by conflation share no frames with others.
            shared = self._combine and subscription.conflation is None
            flags = subscription.flags(entry)
            if flags & (WANT_OUT_OF_FOCUS | WANT_DELTA):
                if self._states is None or entry.sow is None:
                    raise AssertionError("out-of-focus messages and deltas of a topic without state")
                routes.follow(self._states.reader(entry.sow.number))
            enter_routes(
                routes,
                flags | (0 if self._combine else PACED),
                subscription,
                member,
                subscription.connection if shared else member,
                self._evaluations.documents_of(entry.message_type),
            )


def enter_routes(
    routes: TopicRoutes,
    flags: int,
    subscription: Subscription,
    key: object,
    receiver: object,
    documents: Documents | None,
) -> None:
    """Add the route of a topic's messages to a subscription, in the receiver's frames. One frame has one body, so each
    select list of a receiver has frames of its own. `documents`: of the message type.
    """
    select = subscription.options.select
    routes.add(
        key,
        receiver if select is None else (receiver, select.directives),
        subscription.connection.output,
        shown_id(subscription),
        flags,
        subscription.filter,
        subscription.conflation,
        select,
        documents,
    )
