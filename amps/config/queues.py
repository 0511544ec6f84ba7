"""Message queues: conversion of the elements in `SOW` to the model, and all rules between them (queues.md §2.2).

A queue that breaks a rule would silently lose messages, or deliver other messages than its operator expects.
So breaking a rule is an error (D-01), regardless of `ConfigValidation`; that applies only to the checks of the element
tables. Two properties are not checked, because they are not known before messages arrive: whether the topics that an
expression will match are recorded, and whether the instance that `InitialOwner` names exists.

A topic with regex characters is an expression, as in all elements (`amps.topic_expressions`). But a topic that equals
the queue's own name, given or by default, is that name.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from amps.config.definitions import Definition, place
from amps.config.findings import Severity
from amps.config.message_types import check_message_type
from amps.config.model import TransactionLogConfig
from amps.config.model_queues import CANCEL_DELAY_MAX_S, QueueConfig, QueueKind
from amps.config.schema import Checker, Section
from amps.config.topics import LoggedTopics
from amps.config.units import shown
from amps.expressions import ExpressionError, Functions, Usage, compile_expression
from amps.messages import TypeSettings
from amps.topic_expressions import RESERVED_PREFIX, BadTopicExpression, topic_predicate

_KINDS: tuple[QueueKind, ...] = ("Queue", "LocalQueue", "GroupLocalQueue")
_NEVER_RECORDED = ("View", "ConflatedTopic")
_OF_GROUPS = ("InitialOwner", "GroupLocalQueueDomain")
_EXCLUSIVE = (
    ("Priority", "BarrierExpression"),
    ("TargetQueueDepth", "Priority"),
    ("TargetQueueDepth", "BarrierExpression"),
)
_AT_LEAST_ONCE_ONLY = ("LeasePeriod", "Leasing", "MaxDeliveries", "MaxCancels")
_OF_CANCELS = ("CancelDelay", "CancelDelayFactor", "CancelDelayMax")
_EXPRESSIONS = (
    ("Filter", Usage.FILTER, "this filter"),
    ("BarrierExpression", Usage.FILTER, "this barrier expression"),
    ("Priority", Usage.FIELD, "this priority"),
    ("OrderingKey", Usage.FIELD, "this key"),
)


class QueueReader:
    """Reads the queues of one configuration."""

    def __init__(
        self,
        root: Section,
        defined: Sequence[Definition],
        instance_name: str,
        group: str,
        replicates: bool,
        log: TransactionLogConfig | None,
        message_types: Mapping[str, TypeSettings],
        functions: Functions,
        checker: Checker,
    ) -> None:
        """`defined`: all definitions in `SOW`. `log`: None also if it could not be read, which is already reported.
        `group` is that of the instance. `replicates`: whether it is connected to others.
        """
        self._root = root
        self._instance_name = instance_name
        self._group = group
        self._replicates = replicates
        self._message_types = message_types
        self._functions = functions
        self._checker = checker
        self._regex_topic_support: bool = root.first("RegexTopicSupport")
        self._queues = [
            (known, section) for kind, section in defined for known in _KINDS if kind == known
        ]
        self._never_recorded = {
            (section.first("Name"), section.first("MessageType")): kind
            for kind, section in defined
            if kind in _NEVER_RECORDED
        }
        self._logged = _logged_topics(log, self._regex_topic_support)

    def read(self) -> tuple[QueueConfig, ...]:
        """Return the queues, in the order of the file."""
        queues: dict[tuple[str, str], QueueConfig] = {}
        for kind, section in self._queues:
            queue = self._queue(kind, section)
            if queue is not None:
                queues[queue.name, queue.message_type] = queue
        self._check_replication([queue for queue in queues.values() if queue.kind == "LocalQueue"])
        for _, section in self._queues:
            self._warn_of_detour(section, queues)
        return tuple(queues.values())

    def _queue(self, kind: QueueKind, section: Section) -> QueueConfig | None:
        checker = self._checker
        check_message_type(section, self._message_types, checker)
        self._check_owner(kind, section)
        self._check_combinations(section)
        for element, usage, what in _EXPRESSIONS:
            self._check_expression(section, element, usage, what)
        name, message_type = section.first("Name"), section.first("MessageType")
        if name is None or message_type not in self._message_types:
            return None
        if name.startswith(RESERVED_PREFIX):
            checker.error(
                section.where("Name"),
                f"names that begin with {RESERVED_PREFIX} belong to the server; choose another",
            )
            return None
        underlying_topic, is_regex, target = self._topics(section, name)
        if target is None:
            return None
        self._check_recorded(
            section, target, message_type, "DefaultPublishTarget" if is_regex else "UnderlyingTopic"
        )
        at_least_once = section.first("Semantics") == "at-least-once"
        return QueueConfig(
            name=name,
            message_type=message_type,
            kind=kind,
            underlying_topic=underlying_topic,
            underlying_is_regex=is_regex,
            default_publish_target=target,
            semantics=section.first("Semantics"),
            lease_period_s=section.first("LeasePeriod"),
            max_backlog=section.first("MaxBacklog"),
            max_per_subscription_backlog=section.first("MaxPerSubscriptionBacklog"),
            expiration_s=section.first("Expiration"),
            expiration_model=section.first("ExpirationModel"),
            filter=section.first("Filter"),
            recovery_point=section.first("RecoveryPoint"),
            fairness_model=section.first("FairnessModel")
            or ("proportional" if at_least_once else "round-robin"),
            leasing=section.first("Leasing"),
            max_deliveries=section.first("MaxDeliveries"),
            max_cancels=section.first("MaxCancels"),
            cancel_delay_s=section.first("CancelDelay"),
            cancel_delay_factor=section.first("CancelDelayFactor") or 1.0,
            cancel_delay_max_s=section.first("CancelDelayMax") or CANCEL_DELAY_MAX_S,
            priority=section.first("Priority"),
            ordering_key=section.first("OrderingKey"),
            barrier_expression=section.first("BarrierExpression"),
            target_queue_depth=section.first("TargetQueueDepth"),
            deferred_ack_expiration_s=section.first("DeferredAckExpiration"),
            initial_owner=section.first("InitialOwner") if kind == "GroupLocalQueue" else None,
            domain=(section.first("GroupLocalQueueDomain") or self._group)
            if kind == "GroupLocalQueue"
            else None,
            place=place(section.node),
        )

    def _check_owner(self, kind: QueueKind, section: Section) -> None:
        if kind == "GroupLocalQueue":
            owner = section.first("InitialOwner")
            if owner is None:
                self._checker.error(
                    section.node,
                    "a GroupLocalQueue needs InitialOwner; add it, with the Name of the instance owning new messages",
                )
            elif owner != self._instance_name and not self._replicates:
                # No message of the queue would ever be delivered.
                self._checker.error(
                    section.where("InitialOwner"),
                    f"{shown(owner)} owns new messages of the queue, but this instance replicates to no other and from "
                    f"none; add Replication, or write {self._instance_name}, this instance's Name",
                )
            return
        for element in _OF_GROUPS:
            if section.nodes.get(element):
                self._checker.error(
                    section.where(element),
                    f"{element} belongs to a GroupLocalQueue only; remove it, or make this {kind} one",
                )

    def _check_combinations(self, section: Section) -> None:
        checker = self._checker
        for one, other in _EXCLUSIVE:
            if section.nodes.get(one) and section.nodes.get(other):
                checker.error(
                    section.where(one), f"{one} cannot be used together with {other}; remove one of them"
                )
        for element in _OF_CANCELS[1:]:
            if section.has(element) and not section.has("CancelDelay"):
                checker.error(
                    section.where(element),
                    f"{element} changes CancelDelay, which is missing; add that, or remove {element}",
                )
        if section.first("Semantics") != "at-most-once":
            return
        for element in _OF_CANCELS:
            if section.has(element):
                checker.error(
                    section.where(element),
                    f"{element} needs at-least-once: a message delivered at most once does not come back; remove it",
                )
        if section.first("FairnessModel") not in (None, "round-robin"):
            checker.error(
                section.where("FairnessModel"),
                "an at-most-once queue is always round-robin; write that, or leave the element out",
            )
        if section.has("OrderingKey"):
            checker.error(
                section.where("OrderingKey"),
                "an at-most-once queue has no order per key, because a message leaves when it is sent; leave "
                "OrderingKey out, or make the queue at-least-once",
            )
        for element in _AT_LEAST_ONCE_ONLY:
            if section.has(element):
                checker.note(
                    section.where(element),
                    Severity.WARNING,
                    f"{element} has no effect with at-most-once: a message leaves when it is sent; leave it out",
                )

    def _check_expression(self, section: Section, element: str, usage: Usage, what: str) -> None:
        text = section.first(element)
        if text is None:
            return
        try:
            compile_expression(text, usage | Usage.DETERMINISTIC, self._functions)
        except ExpressionError as error:
            self._checker.error(section.where(element), f"{what} cannot be used: {error}")

    def _topics(self, section: Section, name: str) -> tuple[str, bool, str | None]:
        """Return the underlying topic, whether it is an expression, and the target of publishes to the queue: None
        after an error.
        """
        underlying_topic: str = section.first("UnderlyingTopic") or name
        target: str | None = section.first("DefaultPublishTarget")
        where = section.where("UnderlyingTopic")
        matches: Callable[[str], bool] | None = None
        if underlying_topic != name:
            try:
                matches = topic_predicate(underlying_topic, self._regex_topic_support)
            except BadTopicExpression as error:
                self._checker.error(where, f"this is not a regular expression: {error}; correct it")
                return underlying_topic, True, None
        if matches is None:
            if target not in (None, underlying_topic):
                self._checker.error(
                    section.where("DefaultPublishTarget"),
                    f"{shown(str(target))} is not the one topic of this queue, {shown(underlying_topic)}; "
                    "leave DefaultPublishTarget out",
                )
                return underlying_topic, False, None
            return underlying_topic, False, underlying_topic
        if target is None:
            self._checker.error(
                where,
                f"{shown(underlying_topic)} has regex characters and may match several topics; add "
                "DefaultPublishTarget, with the topic for publishes to the queue's name",
            )
        elif not matches(target):
            self._checker.error(
                section.where("DefaultPublishTarget"),
                f"{shown(target)} is not matched by UnderlyingTopic, {shown(underlying_topic)}; "
                "name a topic that the queue takes",
            )
            return underlying_topic, True, None
        return underlying_topic, True, target

    def _check_recorded(self, section: Section, topic: str, message_type: str, element: str) -> None:
        """Check that the transaction log records a topic that the queue takes by name (queues.md §1.7, D-03)."""
        checker, node = self._checker, section.where(element)
        kind = self._never_recorded.get((topic, message_type))
        if kind is not None:
            checker.error(
                node,
                f"{shown(topic)} is a {kind}, which is never recorded; name a topic that publishers write to",
            )
        elif self._root.first("TransactionLog") is None:
            checker.error(
                section.node,
                f"a queue is kept in the transaction log; add TransactionLog, with a Topic for {shown(topic)}",
            )
        elif self._logged is not None and not self._logged.is_logged(topic, message_type):
            checker.error(
                node,
                f"the topic {shown(topic)} of the message type {message_type} is not recorded; add a Topic for it to "
                "TransactionLog, or name another",
            )

    def _check_replication(self, local_queues: Sequence[QueueConfig]) -> None:
        """Check that local queues are not replicated (queues.md §2); their underlying topics may be."""
        replication = self._root.first("Replication")
        destinations = replication.all("Destination") if replication is not None else []
        for topic in chain.from_iterable(destination.all("Topic") for destination in destinations):
            listed = topic.first("Name")
            try:
                matches = None if listed is None else topic_predicate(listed, self._regex_topic_support)
            except BadTopicExpression:
                continue
            for queue in local_queues:
                if topic.first("MessageType") != queue.message_type:
                    continue
                if queue.name == listed if matches is None else matches(queue.name):
                    self._checker.error(
                        topic.where("Name"),
                        f"{shown(listed)} takes the LocalQueue {shown(queue.name)} ({queue.place}), which cannot be "
                        "replicated; leave it out, or make it a Queue",
                    )

    def _warn_of_detour(self, section: Section, queues: Mapping[tuple[str, str], QueueConfig]) -> None:
        """Warn if the queue's target is the name of another queue: publishes to that one go to its own target."""
        queue = queues.get((section.first("Name"), section.first("MessageType")))
        other = queues.get((queue.default_publish_target, queue.message_type)) if queue is not None else None
        if queue is None or other is None or other is queue:
            return
        if other.default_publish_target != other.name:
            self._checker.note(
                section.where("DefaultPublishTarget" if queue.underlying_is_regex else "UnderlyingTopic"),
                Severity.WARNING,
                f"{shown(other.name)} is a queue ({other.place}); messages published to it are recorded as "
                f"{shown(other.default_publish_target)} and never enter this queue; name that topic",
            )


def _logged_topics(log: TransactionLogConfig | None, regex_topic_support: bool) -> LoggedTopics | None:
    """Return the recorded topics; None after errors, which are already reported."""
    if log is None:
        return None
    try:
        return LoggedTopics(log.topics, regex_topic_support)
    except BadTopicExpression:
        return None
