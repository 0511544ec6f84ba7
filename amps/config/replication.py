"""Replication: conversion of `Replication/Destination` to the model, and all rules between its elements.

The rules are those of replication.md §23. A destination that breaks one would replicate other messages than its
operator expects, or none; so breaking a rule is an error, regardless of `ConfigValidation`. What depends on the other
instance is checked when a connection is made (amps/server/replication/validation.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from amps.config.findings import Severity
from amps.config.message_types import check_message_type
from amps.config.model import TransactionLogConfig, TransportConfig
from amps.config.model_base import ModuleUse
from amps.config.model_queues import QueueConfig
from amps.config.model_replication import (
    DESTINATIONS_MAX,
    RECONNECT_TIMEOUTS_S,
    Compression,
    DestinationConfig,
    DestinationTransport,
    ReplicatedTopic,
)
from amps.config.modules import (
    AUTHENTICATION_MODULES,
    ENTITLEMENT_MODULES,
    DeclaredModule,
    resolve_authenticator,
    resolve_use,
)
from amps.config.schema import Checker, Section
from amps.config.tls import read_client_tls
from amps.config.topics import LoggedTopics
from amps.config.units import shown
from amps.expressions import ExpressionError, Functions, Usage, compile_expression
from amps.messages import TypeSettings
from amps.topic_expressions import BadTopicExpression, has_regex_characters, topic_predicate

_NAME_BYTES_MAX = 200


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rules need of the rest of a configuration. `log`: None also after errors, which are already reported."""

    log: TransactionLogConfig | None
    queues: tuple[QueueConfig, ...]
    message_types: Mapping[str, TypeSettings]
    functions: Functions
    declared: Mapping[str, DeclaredModule]


@dataclass(slots=True)
class DestinationReader:
    """Reads the destinations of one configuration."""

    root: Section
    surroundings: Surroundings
    incoming: TransportConfig | None
    checker: Checker
    _sections: list[Section] = field(default_factory=list)

    def read(self) -> tuple[DestinationConfig, ...]:
        """Return the destinations, in the order of the file."""
        replication = self.root.first("Replication")
        self._sections = replication.all("Destination") if replication is not None else []
        if self._sections and self.root.first("TransactionLog") is None:
            self.checker.error(
                replication.node,
                "only messages in the transaction log are replicated; add TransactionLog, with a Topic for each "
                "replicated topic, or remove Replication",
            )
        if len(self._sections) > DESTINATIONS_MAX:
            self.checker.error(
                self._sections[DESTINATIONS_MAX].node,
                f"an instance has at most {DESTINATIONS_MAX} destinations; remove some, or let other instances send on",
            )
        if self._sections or self.incoming is not None:
            self._check_own_names()
        destinations: list[DestinationConfig] = []
        places: dict[str, Section] = {}
        for section in self._sections:
            destination = self._destination(section)
            if destination is None:
                continue
            for other in destinations:
                if other.label == destination.label:
                    self.checker.error(
                        section.where("Name"),
                        f"two destinations are called {shown(destination.label)}, the first one at {other.place}; give "
                        "each its own Name",
                    )
            destinations.append(destination)
            places[destination.place] = section
        self._warn_of_partial_paths(destinations, places)
        return tuple(destinations)

    def _check_own_names(self) -> None:
        """What other instances store in their logs. How long Name may be is checked for all instances."""
        for element in ("Name", "Group"):
            text = self.root.first(element)
            too_long = element == "Group" and text is not None and len(text.encode()) > _NAME_BYTES_MAX
            if text is not None and (too_long or any(ord(character) < 32 for character in text)):
                self.checker.error(
                    self.root.where(element),
                    f"{shown(text)} cannot be the {element} of an instance that replicates; leave out tabs and other "
                    f"control characters, and keep it below {_NAME_BYTES_MAX} bytes",
                )

    def _destination(self, section: Section) -> DestinationConfig | None:
        name, group = section.first("Name"), section.first("Group")
        topics = tuple(
            topic for topic in (self._topic(one) for one in section.all("Topic")) if topic is not None
        )
        transports = tuple(
            transport
            for transport in (self._transport(one, section) for one in section.all("Transport"))
            if transport is not None
        )
        if name is None and group is None:
            self.checker.error(
                section.node,
                "Name and Group are missing; add Name with the name of the other instance, or Group with its group, "
                "or both",
            )
            return None
        for text in (name, group):
            if text is not None and (len(text.encode()) > _NAME_BYTES_MAX or "\n" in text or "\t" in text):
                self.checker.error(
                    section.where("Name" if text is name else "Group"),
                    f"{shown(text)} is no name of an instance or group; leave out tabs, and keep it below "
                    f"{_NAME_BYTES_MAX} bytes",
                )
        if name is not None and name == (self.root.first("Name") or "AMPS"):
            self.checker.note(
                section.where("Name"),
                Severity.WARNING,
                f"this destination has the name of the instance itself, {shown(name)}, and nothing is sent to oneself; "
                "write the Name of the other instance",
            )
        if section.first("SyncType") is None or not topics or not transports:
            return None  # already reported
        self._warn_of_filtered_queues(section, topics)
        is_dialled = any(transport.nodes.get("InetAddr") for transport in section.all("Transport"))
        if not is_dialled and self.incoming is None:
            self.checker.error(
                section.node,
                "this destination has no InetAddr, so it waits for a connection of the other instance, but no "
                "transport accepts one; add InetAddr here, or a Transport of the type amps-replication",
            )
        origin = section.node.origin
        return DestinationConfig(
            label=name or group,
            name=name,
            group=group,
            is_sync=section.first("SyncType") == "sync",
            topics=topics,
            transports=transports,
            pass_through=section.first("PassThrough"),
            ack_conflation_s=section.first("AckConflationInterval"),
            place=f"{origin.file}:{origin.line}",
        )

    def _topic(self, section: Section) -> ReplicatedTopic | None:
        check_message_type(section, self.surroundings.message_types, self.checker)
        name, message_type = section.first("Name"), section.first("MessageType")
        if name is None or message_type is None:
            return None
        is_regex = self.root.first("RegexTopicSupport") and has_regex_characters(name)
        content_filter = section.first("Filter")
        if content_filter is not None:
            try:
                compile_expression(
                    content_filter, Usage.FILTER | Usage.DETERMINISTIC, self.surroundings.functions
                )
            except ExpressionError as error:
                self.checker.error(section.where("Filter"), f"this filter cannot be used: {error}")
        topic = ReplicatedTopic(
            name, message_type, is_regex, content_filter, frozenset(section.first("ExcludeValidation"))
        )
        try:
            matches = topic_predicate(name, is_regex)
        except BadTopicExpression as error:
            self.checker.error(
                section.where("Name"), f"this is not a regular expression: {error}; correct it"
            )
            return None
        if message_type in self.surroundings.message_types:
            self._check_recorded(section, topic, matches)
        return topic

    def _warn_of_filtered_queues(self, section: Section, topics: Sequence[ReplicatedTopic]) -> None:
        """Warn of a `Filter` on a queue that goes to a destination, or on its messages (replication.md §14.5, 7)."""
        for queue in self.surroundings.queues:
            of_type = [topic for topic in topics if topic.message_type == queue.message_type]
            if queue.kind == "LocalQueue" or not any(_carries(topic, queue.name, False) for topic in of_type):
                continue  # a copy without the queue may be filtered
            for topic in of_type:
                if topic.filter is None or not (
                    _carries(topic, queue.name, False)
                    or _carries(topic, queue.underlying_topic, queue.underlying_is_regex)
                ):
                    continue
                self.checker.note(
                    next(
                        one.where("Filter")
                        for one in section.all("Topic")
                        if one.first("Name") == topic.name and one.first("Filter") == topic.filter
                    ),
                    Severity.WARNING,
                    f"messages of the queue {shown(queue.name)} that do not match stay on the instance to which they "
                    "were published: no other one delivers them, or has them if this one is lost; remove the Filter",
                )

    def _check_recorded(self, section: Section, topic: ReplicatedTopic, matches: object) -> None:
        """Check that something of the topic is in the log: rule 9.1 would else never hold."""
        log = self.surroundings.log
        if log is None:
            return
        of_type = [entry for entry in log.topics if entry.message_type == topic.message_type]
        queues = [
            queue.name for queue in self.surroundings.queues if queue.message_type == topic.message_type
        ]
        if callable(matches):
            # Whether two expressions have a topic in common is not known before messages arrive.
            if any(has_regex_characters(entry.name) or matches(entry.name) for entry in of_type):
                return
            is_known = any(matches(queue) for queue in queues)
        else:
            try:
                logged = LoggedTopics(log.topics, self.root.first("RegexTopicSupport"))
            except BadTopicExpression:
                return  # already reported
            is_known = topic.name in queues or logged.is_logged(topic.name, topic.message_type)
        if not is_known:
            self.checker.error(
                section.where("Name"),
                f"the topic {shown(topic.name)} of the message type {topic.message_type} is not recorded, so it is "
                "never replicated; add a Topic for it to TransactionLog, or remove it here",
            )

    def _transport(self, section: Section, destination: Section) -> DestinationTransport | None:
        checker, declared = self.checker, self.surroundings.declared
        kind = section.first("Type")
        authenticator = resolve_authenticator(section.first("Authenticator"), declared, checker)
        authentication = resolve_use(
            section.first("Authentication"), "authentication", AUTHENTICATION_MODULES, declared, checker
        )
        entitlement = resolve_use(
            section.first("Entitlement"), "entitlement", ENTITLEMENT_MODULES, declared, checker
        )
        if kind is None:
            return None
        own = section.has("CompressionType")
        compression: Compression = (section if own else destination).first("CompressionType") or "none"
        if compression == "lz4" and find_spec("lz4") is None:
            checker.error(
                (section if own else destination).where("CompressionType"),
                "the compression lz4 needs a package that is missing: pip install 'amps-server[lz4]', or write zstd",
            )
        addresses = tuple(address for group in section.all("InetAddr") for address in group)
        for address in addresses:
            if addresses.count(address) > 1:
                checker.error(
                    section.where("InetAddr"),
                    f"the address {address[0]}:{address[1]} is given twice; keep one of them",
                )
                break
        return DestinationTransport(
            name=section.first("Name") or kind,
            type=kind,
            addresses=addresses,
            reconnect_timeouts_s=section.first("ReconnectTimeout") or RECONNECT_TIMEOUTS_S,
            authenticator=authenticator,
            authentication=authentication,
            entitlement=entitlement,
            tls=read_client_tls(section, checker),
            compression=compression,
            prefers_ipv6=section.first("IPProtocolPrefer") == "ipv6",
        )

    def _warn_of_partial_paths(
        self, destinations: Sequence[DestinationConfig], places: Mapping[str, Section]
    ) -> None:
        """Warn if two destinations to one group get different topics (replication.md 25.9)."""
        first: dict[str, DestinationConfig] = {}
        for destination in destinations:
            if destination.group is None:
                continue
            other = first.setdefault(destination.group, destination)
            if other is destination or _extent(other) == _extent(destination):
                continue
            self.checker.note(
                places[destination.place].node,
                Severity.WARNING,
                f"this destination and {shown(other.label)} ({other.place}) lead to the group "
                f"{shown(destination.group)} with different topics; a message that comes late by one way, after a "
                "newer one of its publisher by another, is dropped as a duplicate; list the same topics in both",
            )


def _carries(topic: ReplicatedTopic, name: str, is_regex: bool) -> bool:
    """Whether messages of a topic go to a destination as this one. Of two expressions only equal ones are known to have
    topics in common.
    """
    if topic.name == name:
        return True
    try:
        if is_regex:
            matches = None if topic.is_regex else topic_predicate(name, True)
            return matches is not None and matches(topic.name)
        matches = topic_predicate(topic.name, topic.is_regex)
        return matches is not None and matches(name)
    except BadTopicExpression:
        return False  # already reported


def read_min_sync_destinations(
    root: Section, destinations: Sequence[DestinationConfig], checker: Checker
) -> int | None:
    """Return `Tuning/Replication/MinSyncDestinations`; None if absent."""
    tuning = root.first("Tuning")
    section = tuning.first("Replication") if tuning is not None else None
    minimum: int | None = section.first("MinSyncDestinations") if section is not None else None
    sync = sum(destination.is_sync for destination in destinations)
    if section is not None and minimum is not None and minimum > sync:
        checker.note(
            section.where("MinSyncDestinations"),
            Severity.WARNING,
            f"only {sync} destinations are sync, so no action can downgrade one, and this instance is never ready; "
            f"write {sync} or less"
            if sync
            else "no destination is sync, so this instance is never ready; leave the "
            "element out, or write SyncType sync in a Destination",
        )
    return minimum


def read_authenticator(
    root: Section,
    declared: Mapping[str, DeclaredModule],
    destinations: Sequence[DestinationConfig],
    checker: Checker,
) -> ModuleUse | None:
    """Return the instance's `Authenticator`, which has the credentials for outgoing connections."""
    use = root.first("Authenticator")
    resolved = resolve_authenticator(use, declared, checker)
    if use is not None and not destinations:
        checker.has_no_effect(
            use.node, "there is no Replication/Destination, so there are no outgoing connections"
        )
    return resolved


def _extent(destination: DestinationConfig) -> frozenset[tuple[str, str, str | None]]:
    return frozenset((topic.name, topic.message_type, topic.filter) for topic in destination.topics)
