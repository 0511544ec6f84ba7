"""`Actions`: conversion of the elements to actions (operations.md §9).

All properties of an action that are known before it runs are checked here, with file and line: its modules, their
options, the values of options without variables, filters, expressions, message types, and the other elements that a
module needs.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from amps.config.action_modules import (
    ALIASES,
    CONDITIONS,
    EVENTS,
    INCOMING_REPLICATION,
    NEVER_ON_QUEUES,
    OUTGOING_REPLICATION,
    PROXIED_TRANSFER,
    PUBLISH_EVENT,
    PUBLISHES_PER_MESSAGE_MAX,
    QUEUE_EVENTS,
    STEPS,
    VARIABLE,
    ModuleDescription,
    OptionProblem,
    read_option,
)
from amps.config.document import Node
from amps.config.findings import Severity
from amps.config.model import ActionConfig, ActionModule
from amps.config.model_queues import QueueConfig
from amps.config.model_sow import SowTopicConfig
from amps.config.schema import Block, Checker, Leaf, NotSupportedYet, Options, Section
from amps.config.units import read_interval, shown
from amps.expressions import ExpressionError, Functions, Usage, compile_expression
from amps.messages import TypeSettings
from amps.topic_expressions import (
    BadTopicExpression,
    has_regex_characters,
    pattern_predicate,
    topic_predicate,
)

_DOWNGRADE = "amps-action-do-downgrade-replication"
_UPGRADE = "amps-action-do-upgrade-replication"
_ON_SCHEDULE = "amps-action-on-schedule"


def _module(known: Mapping[str, ModuleDescription], kind: str) -> Leaf:
    def read(text: str) -> str:
        name = ALIASES.get(text, text)
        if name not in known:
            raise ValueError(f"{shown(text)} is no {kind} module; write one such as {min(known)}")
        if known[name].later:
            raise NotSupportedYet(known[name].later)
        return name

    return Leaf(read, required=True)


def _use(known: Mapping[str, ModuleDescription], kind: str, required: bool = False) -> Block:
    return Block({"Module": _module(known, kind), "Options": Options()}, required=required, repeatable=True)


ACTIONS = Block(
    {
        "Action": Block(
            {
                "On": _use(EVENTS, "event", required=True),
                "Do": _use(STEPS, "step"),
                "If": _use(CONDITIONS, "condition"),
            },
            repeatable=True,
        )
    }
)


class ActionReader:
    """Reads the actions of one configuration."""

    def __init__(
        self,
        root: Section,
        message_types: Mapping[str, TypeSettings],
        functions: Functions,
        checker: Checker,
        queues: Sequence[QueueConfig] = (),
        has_destinations: bool = False,
        accepts_instances: bool = False,
        sow_topics: Sequence[SowTopicConfig] = (),
    ) -> None:
        """`has_destinations` and `accepts_instances`: whether this instance replicates to others, and others to it."""
        self._root = root
        self._has_destinations = has_destinations
        self._accepts_instances = accepts_instances
        self._queues = {(queue.name, queue.message_type): queue.kind for queue in queues}
        self._sow_topics = sow_topics
        self._message_types = message_types
        self._functions = functions
        self._checker = checker
        self._publishes: Counter[tuple[str, ...]] = Counter()  # by queue event

    def read(self) -> tuple[ActionConfig, ...]:
        """Return the actions, in the order of the file."""
        container = self._root.first("Actions")
        sections = container.all("Action") if container is not None else []
        actions = tuple(self._action(section) for section in sections)
        self._warn_of_flapping(sections, actions)
        return actions

    def _action(self, section: Section) -> ActionConfig:
        events = [self._module(use, EVENTS) for use in section.all("On")]
        uses = {id(use.node): (use, STEPS) for use in section.all("Do")}
        uses.update({id(use.node): (use, CONDITIONS) for use in section.all("If")})
        # Do and If run in the order of the file.
        steps = [self._module(*uses[id(node)]) for node in section.node.children if id(node) in uses]
        action = ActionConfig(
            events=tuple(event for event in events if event is not None),
            steps=tuple(step for step in steps if step is not None),
            place=_place(section.node),
        )
        self._warn_of_commands(section, action)
        self._check_publishes(section, action)
        return action

    def _module(self, use: Section, known: Mapping[str, ModuleDescription]) -> ActionModule | None:
        name = use.first("Module")
        if name is None:
            self._check_never_on_queues(use)
            return None
        options = self._options(use, name, known[name])
        if known[name].unused:
            self._checker.has_no_effect(use.where("Module"), known[name].unused)
            return None
        self._check_needs(use, name, options)
        return ActionModule(name, options, _place(use.node))

    def _options(
        self, use: Section, module: str, description: ModuleDescription
    ) -> Mapping[str, tuple[str, ...]]:
        checker, found = self._checker, use.all("Options")
        texts: dict[str, list[str]] = {}
        for node in found[0].children if found else []:
            option = description.options.get(node.name)
            if option is None:
                known = ", ".join(description.options) or "none"
                checker.note(
                    node, checker.lenient_severity, f"unknown option; the options of {module}: {known}"
                )
                continue
            if node.children:
                checker.error(node, "an option holds a text, not elements; write its value")
                continue
            earlier = texts.setdefault(node.name, [])
            if earlier and not option.repeatable:
                checker.error(node, "given twice; keep one of them")
                continue
            earlier.append(node.text)
            if module.startswith("amps-action-on-") or not VARIABLE.search(node.text):
                try:
                    value = read_option(node.name, option, node.text)
                    self._check_value(node, module, value)
                except NotSupportedYet as feature:
                    checker.not_yet(node, str(feature))
                except OptionProblem as problem:
                    checker.error(node, str(problem).removeprefix(f"{node.name}: "))
        for name, option in description.options.items():
            if option.required and name not in texts:
                place = found[0] if found else use.node
                checker.error(place, f"the option {name} of {module} is missing; add it to Options")
        return {name: tuple(values) for name, values in texts.items()}

    def _check_value(self, node: Node, module: str, value: object) -> None:
        """Check the value of an option that refers to other elements or contains an expression."""
        if node.name == "MessageType" and value not in self._message_types:
            known = ", ".join(self._message_types)
            self._checker.error(node, f"unknown message type {shown(str(value))}; write one of {known}")
        if node.name == "Condition":
            self._check_expression(node, str(value), Usage.FILTER, "this condition")
        if module in ("amps-action-do-delete-sow", PUBLISH_EVENT) and node.name == "Filter":
            self._check_expression(node, str(value), Usage.FILTER, "this filter")
        if module == "amps-action-do-extract-values" and isinstance(value, tuple):
            self._check_expression(node, value[1], Usage.FIELD, "this value")

    def _check_expression(self, node: Node, text: str, usage: Usage, what: str) -> None:
        try:
            compile_expression(text, usage, self._functions)
        except ExpressionError as error:
            self._checker.error(node, f"{what} cannot be used: {error}")

    def _check_needs(self, use: Section, module: str, options: Mapping[str, tuple[str, ...]]) -> None:
        """Check the elements that a module needs besides its own options."""
        checker, node = self._checker, use.where("Module")
        if module.endswith("-journal"):
            log = self._root.first("TransactionLog")
            if log is None:
                checker.error(
                    node, "there are no journals without TransactionLog; add it, or remove this step"
                )
            elif "archive" in module and log.first("JournalArchiveDirectory") is None:
                checker.error(
                    node,
                    "archiving needs a place; add JournalArchiveDirectory to TransactionLog, or remove this step",
                )
        if module in (*QUEUE_EVENTS, "amps-action-do-delete-sow"):
            self._check_queue(use, module, options)
        if module == PUBLISH_EVENT:
            self._check_published(use, options)
        if module in PROXIED_TRANSFER:
            self._check_proxied_transfer(use, options)
        if module in OUTGOING_REPLICATION and not self._has_destinations:
            checker.has_no_effect(node, "there is no Replication/Destination; add one, or remove this action")
        if module in INCOMING_REPLICATION and not self._accepts_instances:
            checker.has_no_effect(
                node, "no Transport is of the type amps-replication; add one, or remove this action"
            )
        if module == "amps-action-do-execute-event" and len({"Event", "EventVariable"} & set(options)) != 1:
            checker.error(node, "give exactly one of the options Event and EventVariable")
        if module == "amps-action-on-admin":
            admin = self._root.first("Admin")
            if admin is None or admin.first("InetAddr") is None:
                checker.note(
                    node,
                    Severity.WARNING,
                    "without Admin/InetAddr this action cannot be requested; add it, or choose another event",
                )

    def _check_queue(self, use: Section, module: str, options: Mapping[str, tuple[str, ...]]) -> None:
        """Check the topic: for an event it is a queue; for a step it may be an expression, and stand for SOW topics."""
        (topic,), (message_type,) = options.get("Topic", ("",)), options.get("MessageType", ("",))
        if not topic or not message_type or VARIABLE.search(topic + message_type):
            return
        node = next((child for child in use.all("Options")[0].children if child.name == "Topic"), use.node)
        predicate = None
        if module not in QUEUE_EVENTS:
            try:
                predicate = topic_predicate(topic, self._root.first("RegexTopicSupport"))
            except BadTopicExpression as problem:
                self._checker.error(node, f"this expression for topics cannot be used: {problem}")
                return
        elif (topic, message_type) not in self._queues and has_regex_characters(topic):
            self._checker.error(
                node,
                f"{shown(topic)} is no queue of message type {message_type}; the topic of this event is a name, "
                "write one On for each queue",
            )
            return
        if any(
            kind == message_type and (name == topic if predicate is None else predicate(name))
            for name, kind in self._queues
        ):
            return
        if module in QUEUE_EVENTS:
            self._checker.not_yet(node, "SOW topics")
        elif not any(
            one.message_type == message_type and _stands_for(topic, predicate, one) for one in self._sow_topics
        ):
            self._checker.error(
                node, f"{shown(topic)} is neither a SOW topic nor a queue of message type {message_type}"
            )

    def _check_published(self, use: Section, options: Mapping[str, tuple[str, ...]]) -> None:
        """Check that the topic, a name or an expression, is no queue: nothing is published under a queue's name."""
        (topic,), (message_type,) = options.get("Topic", ("",)), options.get("MessageType", ("",))
        if not topic:
            return
        node = next((child for child in use.all("Options")[0].children if child.name == "Topic"), use.node)
        if (topic, message_type) in self._queues:
            self._checker.error(
                node, f"{shown(topic)} is a queue, whose messages this would lease; name its underlying topic"
            )
            return
        try:
            topic_predicate(topic, self._root.first("RegexTopicSupport"))
        except BadTopicExpression as problem:
            self._checker.error(node, f"this expression for topics cannot be used: {problem}")

    def _check_proxied_transfer(self, use: Section, options: Mapping[str, tuple[str, ...]]) -> None:
        """Check that the topic is a queue whose messages other instances may own (replication.md §14.4)."""
        (topic,), (message_type,) = options.get("Topic", ("",)), options.get("MessageType", ("",))
        if not topic or not message_type or VARIABLE.search(topic + message_type):
            return
        node = next((child for child in use.all("Options")[0].children if child.name == "Topic"), use.node)
        kind = self._queues.get((topic, message_type))
        if kind is None:
            self._checker.error(
                node,
                f"{shown(topic)} is no queue of message type {message_type}; name a Queue or GroupLocalQueue",
            )
        elif kind == "LocalQueue":
            self._checker.error(
                node,
                f"{shown(topic)} is a LocalQueue, whose messages no other instance owns; remove this step",
            )
        elif not (self._has_destinations or self._accepts_instances):
            self._checker.has_no_effect(
                use.where("Module"),
                "without replication no message is owned by another instance; add Replication",
            )

    def _check_never_on_queues(self, use: Section) -> None:
        """Refuse an event that queues do not have; unlike an unsupported feature, it is an error (queues.md D-36)."""
        modules = [child.text for child in use.node.children if child.name == "Module"]
        if not modules or ALIASES.get(modules[0], modules[0]) not in NEVER_ON_QUEUES:
            return
        texts = {child.name: child for options in use.all("Options") for child in options.children}
        topic, message_type = texts.get("Topic"), texts.get("MessageType")
        if topic is not None and message_type is not None and (topic.text, message_type.text) in self._queues:
            self._checker.error(
                topic,
                f"{shown(topic.text)} is a queue, which has no such event; choose a SOW topic or another event",
            )

    def _check_publishes(self, section: Section, action: ActionConfig) -> None:
        """Check the number of messages that are published for one message of a queue: their places number them."""
        count = sum(step.module == "amps-action-do-publish-message" for step in action.steps)
        for event in {
            (event.module, *event.options.get("Topic", ()), *event.options.get("MessageType", ()))
            for event in action.events
            if event.module in QUEUE_EVENTS
        }:
            before = self._publishes[event]
            self._publishes[event] += count
            if before <= PUBLISHES_PER_MESSAGE_MAX < self._publishes[event]:
                self._checker.error(
                    section.node,
                    f"the actions on this event of the queue publish more than {PUBLISHES_PER_MESSAGE_MAX} messages; "
                    "remove some of these steps",
                )

    def _warn_of_flapping(self, sections: Sequence[Section], actions: Sequence[ActionConfig]) -> None:
        """Warn of an action that upgrades destinations that another one downgrades at once (replication.md §8)."""
        ages: dict[str, list[tuple[float, Section]]] = {name: [] for name in (_DOWNGRADE, _UPGRADE)}
        for section, action in zip(sections, actions, strict=True):
            for step in action.steps:
                (age,) = step.options.get("Age", ("",))[:1]
                if step.module in ages and _ON_SCHEDULE in (event.module for event in action.events):
                    with contextlib.suppress(ValueError):  # a variable, or already reported
                        ages[step.module].append((read_interval(age), section))
        down_s = min((age_s for age_s, _ in ages[_DOWNGRADE]), default=None)
        for age_s, section in ages[_UPGRADE]:
            if down_s is not None and age_s >= down_s:
                self._checker.note(
                    section.node,
                    Severity.WARNING,
                    f"this action upgrades destinations that lag by up to {age_s:g} s, and another one downgrades "
                    f"those that lag by more than {down_s:g} s, so one that lags changes again and again; write half "
                    f"of that for Age here, {down_s / 2:g}s",
                )

    def _warn_of_commands(self, section: Section, action: ActionConfig) -> None:
        if not any(event.module == "amps-action-on-admin" for event in action.events):
            return
        for step in action.steps:
            commands = step.options.get("Command", ())
            if any(VARIABLE.search(command) for command in commands):
                self._checker.note(
                    section.node,
                    Severity.WARNING,
                    "this command contains variables, which the request for the action sets, so the request can "
                    "change the commands of the shell; entitle only users who may run commands as the server's user",
                )


def _place(node: Node) -> str:
    return f"{node.origin.file}:{node.origin.line}"


def _stands_for(topic: str, predicate: Callable[[str], bool] | None, definition: SowTopicConfig) -> bool:
    """Whether a topic, or an expression with its predicate, may stand for topics of a SOW definition."""
    if predicate is None:
        return topic == definition.name or (
            definition.pattern is not None and pattern_predicate(definition.pattern)(topic)
        )
    return definition.pattern is not None or predicate(definition.name)
