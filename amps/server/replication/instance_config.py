"""What two instances tell each other of their configurations: the CONFIG frame (replication.md §24.4).

`config_frame` makes the object that an instance sends, `read_config_frame` reads that of the other instance. Both give
an `InstanceConfig`, on which the checks work (validation.py), so an instance sees itself as the other one sees it. What
comes from the network is hostile: types, lengths and expressions are checked, and unknown keys are ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from amps.config import ChainingConfig, ServerConfig
from amps.config.model_replication import CHECKS
from amps.server.replication.topic_cover import Topics
from amps.topic_expressions import BadTopicExpression, has_regex_characters

ENTRIES_MAX: Final = 100_000
TEXT_CHARACTERS_MAX: Final = 64 * 1024
_QUEUE_KINDS: Final = ("Queue", "LocalQueue", "GroupLocalQueue")
_Item = TypeVar("_Item")


class BadConfigFrame(ValueError):
    """A CONFIG frame that breaks the protocol; the text tells where."""


@dataclass(frozen=True, slots=True)
class SowTopic:
    """A topic with a state of the world. `keys`: the texts of its `Key` elements, or of its key generator."""

    name: str
    message_type: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharedQueue:
    """A queue. `underlying`: the topics whose messages enter it."""

    kind: str
    name: str
    underlying: Topics
    filter: str | None
    initial_owner: str | None
    domain: str | None


@dataclass(frozen=True, slots=True)
class SentTopics:
    """Topics of a destination, with the filter for messages, and the checks that are skipped."""

    topics: Topics
    filter: str | None
    excluded: frozenset[str]


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination: whom it names, and what it gets."""

    name: str | None
    group: str | None
    pass_through: str | None
    sent: tuple[SentTopics, ...]

    @property
    def label(self) -> str:
        """Its name in texts."""
        return self.name or self.group or ""

    def leads_to(self, name: str, group: str) -> bool:
        """Whether an instance is one of its servers (replication.md 25.1)."""
        if self.group is not None:
            return self.group == group
        return self.name in (name, group)


@dataclass(frozen=True, slots=True)
class InstanceConfig:
    """The part of an instance's configuration that the other instance checks."""

    name: str
    group: str
    logged: tuple[Topics, ...]
    sow: tuple[SowTopic, ...]
    queues: tuple[SharedQueue, ...]
    destinations: tuple[Destination, ...]

    def known_topics(self, message_type: str) -> list[str]:
        """The concrete topics of a message type that the configuration names."""
        found = [
            topics.name
            for topics in self.logged
            if not topics.is_regex and topics.message_type == message_type
        ]
        found += [topic.name for topic in self.sow if topic.message_type == message_type]
        for queue in self.queues:
            if queue.underlying.message_type == message_type:
                found.append(queue.name)
                if not queue.underlying.is_regex:
                    found.append(queue.underlying.name)
        return found


def config_frame(config: ServerConfig) -> dict[str, Any]:
    """Return the object of the CONFIG frame of an instance."""
    logged = config.transaction_log.topics if config.transaction_log is not None else ()
    return {
        "txlog": [
            {"name": topic.name, "type": topic.message_type, "regex": _is_regex(config, topic.name)}
            for topic in logged
        ],
        "sow": [
            {
                "name": topic.name,
                "type": topic.message_type,
                "keys": list(topic.keys),
                "keygen": _generator(topic.key_generator),
            }
            for topic in config.sow_topics
        ],
        "queues": [
            {
                "kind": queue.kind,
                "name": queue.name,
                "type": queue.message_type,
                "underlying": queue.underlying_topic,
                "regex": queue.underlying_is_regex,
                "filter": queue.filter,
                "initial_owner": queue.initial_owner,
                "domain": queue.domain,
            }
            for queue in config.queues
        ],
        "destinations": [
            {
                "name": destination.name,
                "group": destination.group,
                "pass_through": destination.pass_through,
                "topics": [
                    {
                        "name": topic.name,
                        "type": topic.message_type,
                        "regex": topic.is_regex,
                        "filter": topic.filter,
                        "exclude": sorted(topic.excluded),
                    }
                    for topic in destination.topics
                ],
            }
            for destination in config.destinations
        ],
    }


def _generator(chaining: ChainingConfig | None) -> str | None:
    """What other instances compare of a key generator: a text, None without one."""
    return None if chaining is None else " ".join(("chaining", chaining.primary, *chaining.secondaries))


def own_config(config: ServerConfig) -> InstanceConfig:
    """Return an instance's own configuration as others see it."""
    return read_config_frame(config_frame(config), config.name, config.group)


def read_config_frame(frame: Mapping[str, Any], name: str, group: str) -> InstanceConfig:
    """Read a CONFIG frame of the instance with that name and group. Raises BadConfigFrame."""
    try:
        return InstanceConfig(
            name=name,
            group=group,
            logged=_list(frame, "txlog", _topics),
            sow=_list(frame, "sow", _sow_topic),
            queues=_list(frame, "queues", _queue),
            destinations=_list(frame, "destinations", _destination),
        )
    except BadTopicExpression as problem:
        raise BadConfigFrame(f"an expression for topics is not valid: {problem}") from None


def _is_regex(config: ServerConfig, name: str) -> bool:
    return config.regex_topic_support and has_regex_characters(name)


def _list(
    frame: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any]], _Item]
) -> tuple[_Item, ...]:
    entries = frame.get(key, [])
    if not isinstance(entries, list) or len(entries) > ENTRIES_MAX:
        raise BadConfigFrame(f"{key} is no list of at most {ENTRIES_MAX} entries")
    if not all(isinstance(entry, dict) for entry in entries):
        raise BadConfigFrame(f"an entry of {key} is no object")
    return tuple(read(entry) for entry in entries)


def _text(entry: Mapping[str, Any], key: str) -> str:
    text = entry.get(key)
    if not isinstance(text, str) or len(text) > TEXT_CHARACTERS_MAX:
        raise BadConfigFrame(f"{key} is no text of at most {TEXT_CHARACTERS_MAX} characters")
    return text


def _optional(entry: Mapping[str, Any], key: str) -> str | None:
    return None if entry.get(key) is None else _text(entry, key)


def _flag(entry: Mapping[str, Any], key: str) -> bool:
    flag = entry.get(key, False)
    if not isinstance(flag, bool):
        raise BadConfigFrame(f"{key} is neither true nor false")
    return flag


def _texts(entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
    texts = entry.get(key, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadConfigFrame(f"{key} is no list of texts")
    return tuple(texts)


def _topics(entry: Mapping[str, Any]) -> Topics:
    return Topics(_text(entry, "name"), _text(entry, "type"), _flag(entry, "regex"))


def _sow_topic(entry: Mapping[str, Any]) -> SowTopic:
    keys = _texts(entry, "keys") or (f"generator {_optional(entry, 'keygen')}",)
    return SowTopic(_text(entry, "name"), _text(entry, "type"), keys)


def _queue(entry: Mapping[str, Any]) -> SharedQueue:
    kind = _text(entry, "kind")
    if kind not in _QUEUE_KINDS:
        raise BadConfigFrame(f"{kind[:100]!r} is no kind of queue")
    return SharedQueue(
        kind=kind,
        name=_text(entry, "name"),
        underlying=Topics(_text(entry, "underlying"), _text(entry, "type"), _flag(entry, "regex")),
        filter=_optional(entry, "filter"),
        initial_owner=_optional(entry, "initial_owner"),
        domain=_optional(entry, "domain"),
    )


def _destination(entry: Mapping[str, Any]) -> Destination:
    return Destination(
        name=_optional(entry, "name"),
        group=_optional(entry, "group"),
        pass_through=_optional(entry, "pass_through"),
        sent=_list(entry, "topics", _sent),
    )


def _sent(entry: Mapping[str, Any]) -> SentTopics:
    # Checks that only a newer release knows are ignored: this one does not make them.
    excluded = frozenset(_texts(entry, "exclude")) & frozenset(CHECKS)
    return SentTopics(_topics(entry), _optional(entry, "filter"), excluded)
