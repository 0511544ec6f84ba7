"""`Actions`: from the elements to what happens when (operations.md §9).

Everything that can be known of an action before it runs is checked here, with file and line: its modules, their
options, the values of options without variables, filters, expressions, message types and what a module needs elsewhere
in the configuration.
"""

from collections.abc import Mapping

from amps.config.action_modules import (
    ALIASES,
    CONDITIONS,
    EVENTS,
    STEPS,
    VARIABLE,
    ModuleDescription,
    OptionProblem,
    read_option,
)
from amps.config.document import Node
from amps.config.findings import Severity
from amps.config.model import ActionConfig, ActionModule
from amps.config.schema import Block, Checker, Leaf, NotSupportedYet, Options, Section
from amps.config.units import shown
from amps.expressions import ExpressionError, Functions, Usage, compile_expression
from amps.messages import TypeSettings


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
    ) -> None:
        self._root = root
        self._message_types = message_types
        self._functions = functions
        self._checker = checker

    def read(self) -> tuple[ActionConfig, ...]:
        """The actions, in the order of the file."""
        container = self._root.first("Actions")
        actions = container.all("Action") if container is not None else []
        return tuple(self._action(section) for section in actions)

    def _action(self, section: Section) -> ActionConfig:
        events = [self._module(use, EVENTS) for use in section.all("On")]
        uses = {id(use.node): (use, STEPS) for use in section.all("Do")}
        uses.update({id(use.node): (use, CONDITIONS) for use in section.all("If")})
        # Do and If take effect in the order of the file, whichever they are.
        steps = [self._module(*uses[id(node)]) for node in section.node.children if id(node) in uses]
        action = ActionConfig(
            events=tuple(event for event in events if event is not None),
            steps=tuple(step for step in steps if step is not None),
            place=_place(section.node),
        )
        self._warn_of_commands(section, action)
        return action

    def _module(self, use: Section, known: Mapping[str, ModuleDescription]) -> ActionModule | None:
        name = use.first("Module")
        if name is None:
            return None
        options = self._options(use, name, known[name])
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
        """What the value of an option refers to."""
        if node.name == "MessageType" and value not in self._message_types:
            known = ", ".join(self._message_types)
            self._checker.error(node, f"unknown message type {shown(str(value))}; write one of {known}")
        if node.name == "Condition":
            self._check_expression(node, str(value), Usage.FILTER, "this condition")
        if module == "amps-action-do-extract-values" and isinstance(value, tuple):
            self._check_expression(node, value[1], Usage.FIELD, "this value")

    def _check_expression(self, node: Node, text: str, usage: Usage, what: str) -> None:
        try:
            compile_expression(text, usage, self._functions)
        except ExpressionError as error:
            self._checker.error(node, f"{what} cannot be used: {error}")

    def _check_needs(self, use: Section, module: str, options: Mapping[str, tuple[str, ...]]) -> None:
        """What a module needs besides its own options."""
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
        if module == "amps-action-do-execute-event" and len({"Event", "EventVariable"} & set(options)) != 1:
            checker.error(node, "give exactly one of the options Event and EventVariable")
        if module == "amps-action-on-admin":
            admin = self._root.first("Admin")
            if admin is None or admin.first("InetAddr") is None:
                checker.note(
                    node,
                    Severity.WARNING,
                    "without Admin/InetAddr nobody can ask for this action; add it, or choose another event",
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
                    "a command is made of variables here, which whoever asks for the action can choose, and with them "
                    "what the shell does; let only those use the path who may run commands as the server's user",
                )


def _place(node: Node) -> str:
    return f"{node.origin.file}:{node.origin.line}"
