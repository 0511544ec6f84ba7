"""The checks of both sides' configurations before one replicates to the other (replication.md §16).

The source of a flow makes them, for each `Topic` of its destination. "Here" is the source, "there" the instance at the
other end, which is taken as a full partner for each replicated topic: what is less than that must be excluded by name.
Pure functions of two configurations. A violation tells what to change.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pcre2

from amps.config.model_replication import CHECKS, MANDATORY_CHECKS
from amps.server.replication.instance_config import Destination, InstanceConfig, SentTopics, SharedQueue
from amps.server.replication.topic_cover import Topics, covers, may_overlap

VIOLATIONS_MAX: Final = 1000
"""How many violations are reported for one flow."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A check that fails for a topic. `detail`: what differs and what to change."""

    check: str
    topic: str
    type: str
    detail: str

    def __str__(self) -> str:
        return f"{self.check}: topic {self.topic}, message type {self.type}: {self.detail}"


def validate(here: InstanceConfig, destination: int, there: InstanceConfig) -> list[Violation]:
    """Return the violations of a destination of `here` that is connected to `there`: none if it may replicate."""
    found: list[Violation] = []
    for sent in here.destinations[destination].sent:
        link = _Link(here, there, sent)
        for check in CHECKS:
            if check in sent.excluded:
                continue
            for detail in _CHECKS[check](link):
                advice = "" if check in MANDATORY_CHECKS else f", or add {check} to ExcludeValidation"
                found.append(Violation(check, sent.topics.name, sent.topics.message_type, detail + advice))
                if len(found) == VIOLATIONS_MAX:
                    return found
    return found


def result_frame(violations: list[Violation]) -> dict[str, Any]:
    """Return the object of the CONFIG_RESULT frame."""
    return {"ok": not violations, "violations": [asdict(violation) for violation in violations]}


@dataclass(frozen=True, slots=True)
class _Link:
    """One `Topic` of the destination, and both instances."""

    here: InstanceConfig
    there: InstanceConfig
    sent: SentTopics

    @property
    def back(self) -> list[Destination]:
        """The destinations there that lead to this instance."""
        return [one for one in self.there.destinations if one.leads_to(self.here.name, self.here.group)]

    @property
    def queues(self) -> list[SharedQueue]:
        """The queues here whose names are among the topics, without local ones, which are never replicated."""
        return [
            queue
            for queue in self.here.queues
            if queue.kind != "LocalQueue"
            and self.sent.topics.matches(queue.name, queue.underlying.message_type)
        ]

    def queue_there(self, queue: SharedQueue) -> SharedQueue | None:
        """The queue of the same name there."""
        message_type = queue.underlying.message_type
        for other in self.there.queues:
            if (other.name, other.underlying.message_type) == (queue.name, message_type):
                return other
        return None


def _txlog(link: _Link) -> Iterator[str]:
    ours = link.sent.topics
    # The name of a queue stands for its acknowledgements, which are recorded wherever the queue is.
    queues = [Topics(queue.name, queue.underlying.message_type) for queue in link.there.queues]
    if not covers([*link.there.logged, *queues], ours, link.here.known_topics(ours.message_type)):
        yield f"{link.there.name} does not record it; add a Topic for it to TransactionLog there"


def _replicate(link: _Link) -> Iterator[str]:
    ours = link.sent.topics
    if not link.back:
        yield (
            f"{link.there.name} has no Replication/Destination for {link.here.name} or the group {link.here.group}; "
            "add one there, with this Topic"
        )
        return
    theirs = [sent.topics for destination in link.back for sent in destination.sent]
    if not covers(theirs, ours, link.here.known_topics(ours.message_type)):
        yield (
            f"{link.there.name} does not replicate it back; add this Topic to its Destination {link.back[0].label}"
        )


def _sow(link: _Link) -> Iterator[str]:
    theirs = {(topic.name, topic.message_type) for topic in link.there.sow}
    for topic in link.here.sow:
        if (
            link.sent.topics.matches(topic.name, topic.message_type)
            and (topic.name, topic.message_type) not in theirs
        ):
            yield f"{topic.name} is a SOW/Topic on {link.here.name} only; define it on {link.there.name}, too"


def _keys(link: _Link) -> Iterator[str]:
    theirs = {(topic.name, topic.message_type): topic.keys for topic in link.there.sow}
    for topic in link.here.sow:
        if not link.sent.topics.matches(topic.name, topic.message_type):
            continue
        keys = theirs.get((topic.name, topic.message_type))
        if keys is None:
            yield f"{topic.name} has keys on {link.here.name}, but is no SOW/Topic on {link.there.name}; define it"
        elif keys != topic.keys:
            yield (
                f"the keys of {topic.name} are {', '.join(topic.keys)} on {link.here.name}, but {', '.join(keys)} on "
                f"{link.there.name}; make them equal"
            )


def _cascade(link: _Link) -> Iterator[str]:
    # Excluding only `cascade` makes nothing less strict but the check of a later hop (replication.md §16).
    for destination in link.there.destinations:
        for sent in destination.sent:
            looser = sorted(sent.excluded - link.sent.excluded - {"cascade"})
            if looser and may_overlap(sent.topics, link.sent.topics):
                yield (
                    f"{link.there.name} excludes {', '.join(looser)} for {sent.topics.name} to its Destination "
                    f"{destination.label}; remove that from ExcludeValidation there, or add it here"
                )


def _queue(link: _Link) -> Iterator[str]:
    for queue in link.queues:
        other = link.queue_there(queue)
        if other is None:
            yield f"{queue.name} is a {queue.kind} on {link.here.name} only; define it on {link.there.name}, too"
        elif other.kind != queue.kind:
            yield (
                f"{queue.name} is a {queue.kind} on {link.here.name}, but a {other.kind} on {link.there.name}; make "
                "both the same"
            )


def _queue_underlying(link: _Link) -> Iterator[str]:
    for queue in link.queues:
        other = link.queue_there(queue)
        # Group local queues of different domains are different queues.
        if other is None or other.kind != queue.kind or other.domain != queue.domain:
            continue
        for what, ours, theirs in (
            ("UnderlyingTopic", queue.underlying.name, other.underlying.name),
            ("Filter", queue.filter, other.filter),
            ("InitialOwner", queue.initial_owner, other.initial_owner),
        ):
            if ours != theirs:
                yield (
                    f"{what} of {queue.name} is {ours or 'absent'} on {link.here.name}, but {theirs or 'absent'} on "
                    f"{link.there.name}; make them equal"
                )


def _replicate_filter(link: _Link) -> Iterator[str]:
    if link.sent.filter is None:
        return
    for destination in link.back:
        for sent in destination.sent:
            if may_overlap(sent.topics, link.sent.topics) and sent.filter != link.sent.filter:
                yield (
                    f"the filter here is {link.sent.filter}, but {link.there.name} replicates "
                    f"{sent.topics.name} back with {sent.filter or 'no filter'}; make them equal"
                )


def _queue_passthrough(link: _Link) -> Iterator[str]:
    group = link.here.group
    for queue in link.queues:
        for destination in link.there.destinations:
            if destination.name == link.here.name and destination.leads_to(link.here.name, group):
                continue  # it stands for this instance alone, which has its own messages
            carries = any(
                sent.topics.matches(queue.name, queue.underlying.message_type) for sent in destination.sent
            )
            if carries and not _passes(destination.pass_through, group):
                yield (
                    f"{link.there.name} does not pass messages of the group {group} on to its Destination "
                    f"{destination.label}, which gets the queue {queue.name}; let PassThrough there match {group}"
                )


def _passes(pass_through: str | None, group: str) -> bool:
    if pass_through is None:
        return False
    with contextlib.suppress(pcre2.LibraryError, pcre2.PatternError, UnicodeError, ValueError):
        return pcre2.compile(pass_through).search(group) is not None
    return False


_CHECKS: Final[Mapping[str, Callable[[_Link], Iterator[str]]]] = {
    "txlog": _txlog,
    "replicate": _replicate,
    "sow": _sow,
    "cascade": _cascade,
    "queue": _queue,
    "keys": _keys,
    "replicate_filter": _replicate_filter,
    "queue_passthrough": _queue_passthrough,
    "queue_underlying": _queue_underlying,
}
