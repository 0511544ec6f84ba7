"""SOW topics: conversion of the elements to the model, and all rules between them (sow.md §§2, 3, 7, 9, 15).

A topic that breaks a rule would lose or mix up records. So breaking a rule is an error, regardless of
`ConfigValidation`; that applies only to the checks of the element tables. What keeps records, but not as their operator
may expect, is a warning.

Message types are made once more here, to ask them whether they can read and write the fields of a topic.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from amps.config.definitions import Definition, place
from amps.config.document import Node
from amps.config.findings import Severity
from amps.config.message_types import check_message_type
from amps.config.model import TransactionLogConfig
from amps.config.model_base import OptionValue
from amps.config.model_sow import ChainingConfig, History, SowTopicConfig
from amps.config.modules import DeclaredModule, resolve_key_generator
from amps.config.schema import Checker, Section
from amps.config.topics import LoggedTopics
from amps.config.units import read_boolean, shown
from amps.expressions import ExpressionError, Functions, Usage, parse_field, parse_field_constructor
from amps.messages import MessageType, TypeSettings, make_message_type
from amps.topic_expressions import RESERVED_PREFIX, BadTopicExpression, has_regex_characters

_WITHOUT_FIELDS: Final = ("binary",)
_EVENT_TOPICS: Final = ("/AMPS/ClientStatus", "/AMPS/SOWStats")
_STAGES: Final = (("Preprocessing", Usage.FIELD), ("Enrichment", Usage.ENRICHMENT))


class SowTopicReader:
    """Reads the SOW topics of one configuration."""

    def __init__(
        self,
        defined: Sequence[Definition],
        log: TransactionLogConfig | None,
        regex_topic_support: bool,
        message_types: Mapping[str, TypeSettings],
        functions: Functions,
        declared: Mapping[str, DeclaredModule],
        checker: Checker,
    ) -> None:
        """`defined`: all definitions in `SOW`. `log`: None also if it could not be read, which is then reported."""
        self._sections = [section for kind, section in defined if kind == "Topic"]
        self._message_types = message_types
        self._functions = functions
        self._declared = declared
        self._checker = checker
        self._logged = _logged_topics(log, regex_topic_support)
        self._files: dict[Path, Node] = {}
        self._made: dict[str, MessageType] = {}

    def read(self) -> tuple[SowTopicConfig, ...]:
        """Return the topics, in the order of the file."""
        topics: list[SowTopicConfig] = []
        for section in self._sections:
            topic = self._topic(section, len(topics))
            if topic is not None:
                topics.append(topic)
        return tuple(topics)

    def _topic(self, section: Section, number: int) -> SowTopicConfig | None:
        check_message_type(section, self._message_types, self._checker)
        self._check_name(section)
        self._check_combinations(section)
        keys = self._fields(section.nodes.get("Key", ()), section)
        file_name = self._file_name(section)
        generator = self._key_generator(section)
        hash_indexes = tuple(
            self._fields(index.nodes.get("Key", ()), section) for index in section.all("HashIndex")
        )
        indexes = tuple(
            text for node in section.all("Index") for text in self._fields(self._index(node), section)
        )
        stages = {name: self._stage(section, name, usage) for name, usage in _STAGES}
        self._check_recovery(section)
        name, message_type = section.first("Name"), section.first("MessageType")
        if name is None or message_type not in self._message_types:
            return None
        history = section.first("History")
        window_s = granularity_s = None
        if history is not None:
            window_s, granularity_s = history.first("Window"), history.first("Granularity")
        return SowTopicConfig(
            name=name,
            message_type=message_type,
            keys=keys,
            key_domain=section.first("KeyDomain"),
            key_generator=generator,
            file_name=file_name,
            durability=section.first("Durability"),
            recovery_point=section.first("RecoveryPoint"),
            expiration=section.first("Expiration"),
            slab_size_bytes=section.first("SlabSize"),
            initial_slab_count=section.first("InitialSlabCount"),
            hash_indexes=hash_indexes,
            indexes=indexes,
            expected_keys=section.first("ExpectedKeyCountHint"),
            history=None if window_s is None or granularity_s is None else History(window_s, granularity_s),
            preprocessing=stages["Preprocessing"],
            enrichment=stages["Enrichment"],
            pattern=section.first("Pattern"),
            number=number,
            place=place(section.node),
        )

    def _check_name(self, section: Section) -> None:
        name = section.first("Name")
        if name is None:
            return
        node = section.where("Name")
        if name in _EVENT_TOPICS:
            self._checker.not_yet(node, "event topics")
        elif name.startswith(RESERVED_PREFIX):
            self._checker.error(
                node, f"names that begin with {RESERVED_PREFIX} belong to the server; choose another"
            )
        elif has_regex_characters(name):
            self._checker.note(
                node,
                Severity.WARNING,
                f"{shown(name)} holds characters of regular expressions, which have no meaning here; subscribers need "
                "the option non_regex_topic to name this topic",
            )

    def _check_combinations(self, section: Section) -> None:
        checker = self._checker

        def refuse(element: str, other: str, reason: str) -> None:
            if section.nodes.get(element) and section.nodes.get(other):
                checker.error(section.where(element), f"{reason}; remove {element} or {other}")

        if section.first("Expiration") is not None:
            refuse("Expiration", "History", "the records of a topic with History do not expire")
        refuse("Pattern", "History", "a topic with Pattern keeps no History")
        refuse("KeyGenerator", "Key", "a topic makes its keys in one way")
        if section.nodes.get("KeyDomain") and not section.nodes.get("Key"):
            checker.error(
                section.where("KeyDomain"),
                "KeyDomain is a part of the keys that are made of fields, and this topic has no Key; add Key, or "
                "remove KeyDomain",
            )

    def _file_name(self, section: Section) -> Path | None:
        name, message_type = section.first("Name"), section.first("MessageType")
        written: str | None = section.first("FileName")
        if section.first("Durability") == "transient":
            if written is not None:
                self._checker.has_no_effect(
                    section.where("FileName"),
                    "a transient topic has no file; remove FileName, or make the topic persistent",
                )
            return None
        if written is None:
            if not section.nodes.get("FileName"):
                self._checker.error(
                    section.node,
                    "a persistent topic needs FileName; add it, such as ./sow/%n.sow, or add Durability transient",
                )
            return None
        if "%n" in written:
            if name is None or message_type is None:
                return None
            if "/" in name:
                self._checker.note(
                    section.where("FileName"),
                    Severity.WARNING,
                    f"%n stands for {shown(f'{name}.{message_type}')}, whose / leads to other directories; write the "
                    "name of the file without %n",
                )
            written = written.replace("%n", f"{name}.{message_type}")
        return self._own_file(Path(written), section.where("FileName"))

    def _own_file(self, path: Path, node: Node) -> Path:
        """Check that no other topic uses a file."""
        first = self._files.setdefault(path.absolute(), node)
        if first is not node:
            self._checker.error(
                node, f"the file {shown(str(path))} is used at {place(first)} as well; give each its own"
            )
        return path

    def _check_recovery(self, section: Section) -> None:
        name, message_type = section.first("Name"), section.first("MessageType")
        if self._logged is None or name is None or message_type is None or not section.has("RecoveryPoint"):
            return
        if not self._logged.is_logged(name, message_type):
            self._checker.has_no_effect(
                section.where("RecoveryPoint"),
                "the transaction log does not record this topic, so it is not rebuilt from there; add a Topic for it "
                "to TransactionLog, or remove RecoveryPoint",
            )

    # --- fields ---

    def _index(self, node: Node) -> Sequence[Node]:
        """Return the elements that hold the fields of an `Index` (sow.md D31)."""
        if node.children and not node.text and all(child.name == "Key" for child in node.children):
            return node.children
        if node.children or not node.text:
            self._checker.error(node, "Index holds a field, such as /price; write it")
            return ()
        return (node,)

    def _fields(self, nodes: Iterable[Node], section: Section) -> tuple[str, ...]:
        """Return the texts of elements that name fields."""
        texts = []
        for node in nodes:
            if not node.text:
                continue  # reported by the element table
            if self._module(section) in _WITHOUT_FIELDS:
                self._checker.error(
                    node,
                    f"messages of the type {section.first('MessageType')} have no fields; remove {node.name}"
                    + (", and let publishers provide the keys" if node.name == "Key" else ""),
                )
                continue
            try:
                parse_field(node.text)
            except ExpressionError as error:
                self._checker.error(node, f"{shown(node.text)} is no field, such as /id: {error}")
                continue
            texts.append(node.text)
        return tuple(texts)

    def _stage(self, section: Section, name: str, usage: Usage) -> tuple[str, ...]:
        stage = section.first(name)
        if stage is None:
            return ()
        texts = []
        destinations = []
        for node in stage.nodes.get("Field", ()):
            if not node.text:
                continue  # reported by the element table
            try:
                made = parse_field_constructor(node.text, usage, self._functions)
            except ExpressionError as error:
                self._checker.error(node, f"this field cannot be used: {error}")
                continue
            texts.append(node.text)
            destinations.append(tuple(step for step in made.destination if isinstance(step, bytes)))
        message_type = self._message_type(section)
        if message_type is not None:
            try:
                message_type.builder(destinations)
            except ValueError as error:
                self._checker.error(
                    section.where(name), f"messages of this topic cannot have these fields: {error}"
                )
        return tuple(texts)

    def _module(self, section: Section) -> str:
        settings = self._message_types.get(section.first("MessageType"))
        return "" if settings is None else settings.module

    def _message_type(self, section: Section) -> MessageType | None:
        """Return the type of a topic's messages; None if it is not valid, which is reported."""
        name = section.first("MessageType")
        if name not in self._message_types:
            return None
        if not self._made:
            for settings in self._message_types.values():
                try:
                    self._made[settings.name] = make_message_type(settings, self._made)
                except (ValueError, KeyError):
                    continue  # reported with the declaration of the type
        return self._made.get(name)

    # --- key generators ---

    def _key_generator(self, section: Section) -> ChainingConfig | None:
        use: Section | None = section.first("KeyGenerator")
        module = resolve_key_generator(use, self._declared, self._checker)
        if use is None or module is None:
            return None
        nodes = use.all("Options")
        node: Node = nodes[0] if nodes else use.node
        keys, primaries, secondaries = (
            _texts(module.options.get(name)) for name in ("Key", "Primary", "Secondary")
        )
        if not primaries:
            primaries, keys = keys[:1], keys[1:]
        secondaries = keys + secondaries
        if len(primaries) != 1 or not secondaries:
            self._checker.error(
                node,
                "chains need one primary field and at least one secondary field; write Primary once and Secondary, or "
                "Key at least twice",
            )
            return None
        if self._module(section) in _WITHOUT_FIELDS:
            self._checker.error(
                use.where("Module"),
                f"messages of the type {section.first('MessageType')} have no fields; remove KeyGenerator, and let "
                "publishers provide the keys",
            )
            return None
        for text in primaries + secondaries:
            try:
                parse_field(text)
            except ExpressionError as error:
                self._checker.error(node, f"{shown(text)} is no field, such as /id: {error}")
                return None
        files = _texts(module.options.get("FileName"))
        if not files and section.first("Durability") == "persistent":
            self._checker.note(
                node,
                Severity.WARNING,
                "without FileName the chains are forgotten at a restart, but not the records; add FileName to Options",
            )
        if len(files) > 1:
            self._checker.error(node, "FileName is given more than once; keep one of them")
        validation = _texts(module.options.get("Validation"))
        return ChainingConfig(
            primaries[0],
            tuple(secondaries),
            self._own_file(Path(files[0]), node) if files else None,
            bool(validation) and _is_true(validation[-1]),
        )


def _texts(option: OptionValue | None) -> list[str]:
    """Return the texts of an option: none, one or several."""
    if option is None:
        return []
    return [option] if isinstance(option, str) else list(option)


def _is_true(text: str) -> bool:
    try:
        return read_boolean(text)
    except ValueError:  # reported with the options
        return False


def _logged_topics(log: TransactionLogConfig | None, regex_topic_support: bool) -> LoggedTopics | None:
    """Return the recorded topics; None after errors, which are already reported."""
    try:
        return LoggedTopics(log.topics if log is not None else (), regex_topic_support)
    except BadTopicExpression:
        return None
