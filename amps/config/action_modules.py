"""The modules of actions and their options (operations.md §9.2, §9.3).

There are three tables, for `On`, `Do` and `If`. A module with `later` is known and refused. A module with `unused` is
accepted with a warning that names the missing feature, and ignored. To build a module, remove its mark, describe its
options, and add its class to `amps.server.services.actions`. The reader of an option converts its text. It is
called when the configuration is read, unless the text contains variables, and again when a step runs, after
the variables were replaced.
"""

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from amps.config.readers import off_or_later, read_text
from amps.config.schedules import read_schedule
from amps.config.schema import NotSupportedYet
from amps.config.units import read_count, read_delay, read_fraction, read_interval, shown


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a module. `default`: its value when it is absent; a repeatable option's value is a tuple."""

    read: Callable[[str], Any] = read_text
    required: bool = False
    repeatable: bool = False
    default: Any = None
    may_be_empty: bool = False


@dataclass(frozen=True, slots=True)
class ModuleDescription:
    """One module: its options by name; `later`, the missing feature, or `unused`, the reason why it has no effect."""

    options: Mapping[str, Option] = field(default_factory=dict)
    later: str = ""
    unused: str = ""


_SIGNALS: Final = (
    "SIGHUP",
    "SIGINT",
    "SIGTERM",
    "SIGUSR1",
    "SIGUSR2",
    "SIGALRM",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGURG",
    "SIGIO",
    "SIGPWR",
)
VARIABLE: Final = re.compile(r"\{\{([^{}]*)\}\}")
"""The pattern of a variable in the text of an option."""


def read_signal(text: str) -> str:
    """Read the name of a signal that an action may have; return it with SIG."""
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    if name == "SIGQUIT":
        raise ValueError("SIGQUIT is reserved for minidumps; choose another signal, such as SIGUSR1")
    if name not in _SIGNALS or not hasattr(signal, name):
        raise ValueError(
            f"{shown(text)} is no signal that can have an action; write one of {', '.join(_SIGNALS)}"
        )
    return name


def read_admin_path(text: str) -> str:
    """Read the last part of an address below `/amps/administrator/actions`."""
    if "/" in text or text in (".", "..") or not text.isprintable():
        raise ValueError(
            f"{shown(text)} is no part of an address; write a name without /, such as archive_now"
        )
    return read_text(text)


def read_variable_name(text: str) -> str:
    """Read the name of a variable that a step sets."""
    if not re.fullmatch(r"[^\s{}=]{1,255}", text):
        raise ValueError(f"{shown(text)} is no name of a variable; write a word such as MY_VALUE")
    return text


def read_assignment(text: str) -> tuple[str, str]:
    """Read `VARIABLE = expression`."""
    name, equals, expression = text.partition("=")
    if not equals or not expression.strip():
        raise ValueError(f"{shown(text)} is not of the form VARIABLE=expression, such as ID=/order/id")
    return read_variable_name(name.strip()), expression.strip()


MESSAGE_SOURCES: Final = ("all", "local", "replicated")
"""Whose messages run an action: those published here, those that another instance sent, or both."""


def read_message_source(text: str) -> str:
    """Read one of MESSAGE_SOURCES."""
    if text not in MESSAGE_SOURCES:
        raise ValueError(f"{shown(text)} is no source of messages; write one of {', '.join(MESSAGE_SOURCES)}")
    return text


def read_subscribe_options(text: str) -> str:
    """Read options of the subscription of an event; those without a meaning for an action are accepted."""
    for option in (part.strip() for part in text.split(",")):
        if option in ("bookmark", "live", "fully_durable", "replace", "pause", "resume"):
            raise ValueError(f"{shown(option)} belongs to a subscription of a client; leave it out")
        if option not in ("", "none", "timestamp"):
            raise NotSupportedYet(f"the option {shown(option)} of the subscription of an action")
    return text


def read_case(text: str) -> tuple[str, str]:
    """Read `from=to`; the text after the first equals sign is the result."""
    value, equals, result = text.partition("=")
    if not equals:
        raise ValueError(f"{shown(text)} is not of the form from=to, such as B=buy")
    return value.strip(), result.strip()


REASONS: Final = ("time_limit", "forced_expire", "max_cancels", "max_deliveries")
"""The reasons for the expiry of a queue message, in the order in which several are listed (queues.md §15, D-25)."""


def read_reasons(text: str) -> frozenset[str]:
    """Read a comma-separated list of REASONS."""
    found = [reason.strip() for reason in text.split(",")]
    for reason in found:
        if reason not in REASONS:
            raise ValueError(
                f"{shown(reason)} is no reason; write one or more of {', '.join(REASONS)}, with commas between them"
            )
    return frozenset(found)


_T: Final = {"Topic": Option(required=True), "MessageType": Option(required=True)}
_AGE: Final = {"Age": Option(read_interval, required=True)}
_FILES: Final = {
    "Age": Option(read_interval, required=True),
    "Pattern": Option(required=True),
    "Keep": Option(read_count),
    "Count": Option(read_count),
}
_VALUE: Final = Option(read_variable_name, required=True)
_TEXT: Final = Option(str, required=True, may_be_empty=True)

_SOW = "SOW topics"
_NO_MINIDUMPS = "there are no minidumps; failures are in the log"
_NO_OFFLINING = "a slow client's messages are not kept on disk; it is disconnected at the memory limits"
_NO_STATISTICS = "there is no statistics database"
_CLIENT_EVENTS = "actions on events of clients"
_MESSAGE_EVENTS = "actions on messages"


def _event(name: str) -> str:
    return f"amps-action-on-{name}"


def _step(name: str) -> str:
    return f"amps-action-do-{name}"


EVENTS: Final[Mapping[str, ModuleDescription]] = {
    _event("schedule"): ModuleDescription(
        {"Every": Option(read_schedule, required=True), "Name": Option(default="unknown")}
    ),
    _event("startup"): ModuleDescription(),
    _event("shutdown"): ModuleDescription(),
    _event("signal"): ModuleDescription({"Signal": Option(read_signal, required=True)}),
    _event("admin"): ModuleDescription(
        {
            "Path": Option(read_admin_path, required=True),
            "RequiredParameter": Option(repeatable=True),
            "Name": Option(may_be_empty=True),
            "Description": Option(may_be_empty=True),
        }
    ),
    _event("execute-event"): ModuleDescription({"Event": Option(required=True)}),
    _event("minidump"): ModuleDescription(unused=_NO_MINIDUMPS),
    **{
        _event(name): ModuleDescription(later=_CLIENT_EVENTS)
        for name in (
            "connect-client",
            "disconnect-client",
            "logon-client",
            "subscribe",
            "unsubscribe",
        )
    },
    **{_event(name): ModuleDescription(unused=_NO_OFFLINING) for name in ("offline-start", "offline-stop")},
    **{
        _event(name): ModuleDescription()
        for name in (
            "connect-incoming-replication",
            "disconnect-incoming-replication",
            "connect-replication",
            "disconnect-replication",
            "replication-resync-complete",
            "upgrade-replication",
            "downgrade-replication",
        )
    },
    **{
        _event(name): ModuleDescription(later=_MESSAGE_EVENTS)
        for name in ("deliver-message", "message-affinity")
    },
    _event("publish-message"): ModuleDescription(
        {
            **_T,
            "MessageSource": Option(read_message_source, default="all"),
            "Filter": Option(),
            "Options": Option(read_subscribe_options, may_be_empty=True),
        }
    ),
    # For queues only: amps.config.actions refuses SOW topics.
    _event("sow-expire-message"): ModuleDescription({**_T, "Reason": Option(read_reasons)}),
    _event("sow-delete-message"): ModuleDescription(_T),
    **{
        _event(name): ModuleDescription(later=_SOW)
        for name in ("oof-message", "message-condition-timeout", "alert")
    },
}

STEPS: Final[Mapping[str, ModuleDescription]] = {
    _step("archive-journal"): ModuleDescription(_AGE),
    _step("compress-journal"): ModuleDescription(_AGE),
    _step("remove-journal"): ModuleDescription(_AGE),
    _step("rotate-logs"): ModuleDescription(),
    _step("compress-files"): ModuleDescription(_FILES),
    _step("remove-files"): ModuleDescription(_FILES),
    _step("publish-message"): ModuleDescription(
        {
            **_T,
            "Data": _TEXT,
            "Delay": Option(read_delay),
            "Delta": Option(off_or_later("delta publishes, which need SOW topics")),
            "UpdateOnly": Option(off_or_later("delta publishes, which need SOW topics")),
        }
    ),
    _step("echo-message"): ModuleDescription({"Message": _TEXT}),
    _step("execute-event"): ModuleDescription(
        {"Event": Option(), "EventVariable": Option(read_variable_name)}
    ),
    _step("execute-system"): ModuleDescription({"Command": Option(required=True)}),
    _step("increment-counter"): ModuleDescription({"Key": _TEXT, "Value": _VALUE}),
    _step("translate-data"): ModuleDescription(
        {
            "Data": _TEXT,
            "Value": _VALUE,
            "Case": Option(read_case, repeatable=True),
            "Default": Option(str, may_be_empty=True),
        }
    ),
    _step("extract-values"): ModuleDescription(
        {
            "MessageType": Option(required=True),
            "Value": Option(read_assignment, required=True, repeatable=True),
            "Data": Option(str, may_be_empty=True),
        }
    ),
    _step("nothing"): ModuleDescription(),
    _step("shutdown"): ModuleDescription(),
    _step("minidump"): ModuleDescription(unused=_NO_MINIDUMPS),
    _step("truncate-statistics"): ModuleDescription(_AGE, unused=_NO_STATISTICS),
    _step("vacuum-statistics"): ModuleDescription(unused=_NO_STATISTICS),
    # For queues only, as above.
    _step("delete-sow"): ModuleDescription({**_T, "Filter": Option(required=True)}),
    **{_step(name): ModuleDescription(later=_SOW) for name in ("compact-sow", "query-sow")},
    _step("disable-authentication"): ModuleDescription(),
    _step("enable-authentication"): ModuleDescription(),
    _step("disable-entitlement"): ModuleDescription(),
    _step("enable-entitlement"): ModuleDescription(),
    **{
        _step(name): ModuleDescription(later="resetting authentication and entitlement")
        for name in ("reset-authentication", "reset-entitlement")
    },
    **{
        _step(name): ModuleDescription(later="switching transports while the server runs")
        for name in ("enable-transport", "disable-transport")
    },
    **{
        _step(name): ModuleDescription({**_AGE, "GracePeriod": Option(read_interval, default=0.0)})
        for name in ("downgrade-replication", "upgrade-replication")
    },
    # For queues of several instances only: amps.config.actions refuses others.
    _step("enable-proxied-transfer"): ModuleDescription(_T),
    _step("disable-proxied-transfer"): ModuleDescription(_T),
}

CONDITIONS: Final[Mapping[str, ModuleDescription]] = {
    "amps-action-if-condition": ModuleDescription({"Condition": Option(required=True)}),
    "amps-action-if-file-system-usage": ModuleDescription(
        {"Path": Option(required=True), "GreaterThan": Option(read_fraction, required=True)}
    ),
}

ALIASES: Final[Mapping[str, str]] = {
    _event("execute"): _event("execute-event"),
    _step("archive-journals"): _step("archive-journal"),
    _step("compress-journals"): _step("compress-journal"),
    _step("remove-journals"): _step("remove-journal"),
    _step("delete-files"): _step("remove-files"),
    _step("event"): _step("execute-event"),
    _step("enable-entitlements"): _step("enable-entitlement"),
    _step("disable-entitlements"): _step("disable-entitlement"),
    "amps-do-disable-entitlements": _step("disable-entitlement"),
}
"""Other names that the documents use (operations.md §9.7)."""

QUEUE_EVENTS: Final = (_event("sow-expire-message"), _event("sow-delete-message"))
"""The events of messages of queues."""
PUBLISH_EVENT: Final = _event("publish-message")
"""The event of a published message."""
INCOMING_REPLICATION: Final = tuple(
    _event(f"{what}-incoming-replication") for what in ("connect", "disconnect")
)
"""The events of connections of other instances."""
OUTGOING_REPLICATION: Final = (
    *(_event(f"{what}-replication") for what in ("connect", "disconnect", "upgrade", "downgrade")),
    _event("replication-resync-complete"),
    _step("downgrade-replication"),
    _step("upgrade-replication"),
)
"""The events and steps of destinations."""
PROXIED_TRANSFER: Final = (_step("enable-proxied-transfer"), _step("disable-proxied-transfer"))
NEVER_ON_QUEUES: Final = (_event("alert"), _event("message-condition-timeout"))
"""Events that queues do not have (queues.md §15, D-36)."""
PUBLISHES_PER_MESSAGE_MAX: Final = 32
"""Limit of the messages that the actions on one queue event publish; the number of each follows from its place."""


class OptionProblem(ValueError):
    """An invalid option; the text names it."""


def read_options(description: ModuleDescription, texts: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return the values of a module's options, whose texts contain no variables. Raises OptionProblem."""
    values: dict[str, Any] = {}
    for name, option in description.options.items():
        read = tuple(read_option(name, option, text) for text in texts.get(name, ()))
        if option.repeatable:
            values[name] = read
        else:
            values[name] = read[0] if read else option.default
    return values


def read_option(name: str, option: Option, text: str) -> Any:
    """Return the value of one option. Raises OptionProblem; NotSupportedYet for a feature that is not built."""
    if not text and not option.may_be_empty:
        raise OptionProblem(f"{name}: it is empty; write a value")
    try:
        return option.read(text)
    except ValueError as error:
        raise OptionProblem(f"{name}: {error}") from None
