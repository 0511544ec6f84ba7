"""The `o` header: options of a command (protocol.md §10).

Options are separated by commas. A list stands in brackets and may contain commas. Blanks around items and `=` are
ignored, and so are empty items. An unknown option fails the command with `invalid options`, and so does a documented
conflict (D12). Documented options of features that are not built yet fail with a reason that names the feature.
"""

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amps._core.delivery.delivery import PACE_BYTES, PACE_MESSAGES, PACE_SPEED
from amps._core.values.documents import Selection
from amps.config.units import DELAY_MAX_S
from amps.expressions import ExpressionError, parse_field, parse_select_list
from amps.expressions.syntax import Path
from amps.server.transport.failures import BAD_DELAY, CommandFailure, not_supported_yet

# Commands by the letters of protocol.md §10.
COLUMNS = {
    "subscribe": "S",
    "delta_subscribe": "D",
    "sow": "Q",
    "sow_and_subscribe": "B",
    "sow_and_delta_subscribe": "E",
    "sow_delete": "X",
    "logon": "L",
    "heartbeat": "H",
}

# token -> (columns where it is documented, takes a value)
TOKENS: dict[str, tuple[str, bool]] = {
    "none": ("SDQBEXLH", False),
    "replace": ("SDQBE", False),
    "pause": ("SDB", False),
    "resume": ("SDB", False),
    "bookmark": ("SDBE", False),
    "bookmark_not_found": ("SB", True),
    "fully_durable": ("SB", False),
    "live": ("SDBE", False),
    "rate": ("SDB", True),
    "rate_max_gap": ("SB", True),
    "conflation": ("SDBE", True),
    "conflation_key": ("SDBE", True),
    "oof": ("SDQBE", False),
    "timestamp": ("SDQBE", False),
    "no_sowkey": ("SDQBE", False),
    "send_keys": ("DQBE", False),
    "no_empties": ("DE", False),
    "non_regex_topic": ("SDQBEX", False),
    "select": ("SDQBE", True),
    "top_n": ("QBE", True),
    "skip_n": ("QBE", True),
    "grouping": ("QBE", True),
    "projection": ("QBE", True),
    "max_backlog": ("SDBE", True),
    "cancel": ("X", False),
    "expire": ("X", False),
    "lease_extension": ("X", True),
    "delay": ("X", True),
    "ack_conflation": ("L", True),
    "pretty": ("L", False),
}

LEGACY_HEADERS = (
    ("send_keys", True, "send_keys"),
    ("send_oof", True, "oof"),
    ("send_empty", False, "no_empties"),
)
"""Headers that today are options: name, value, option (protocol.md §3.1)."""

DELTA_COMMANDS = ("delta_subscribe", "sow_and_delta_subscribe")

CONFLATION_S_MIN = 0.001

INTERVAL_S_MAX = 100 * 365 * 86400.0
"""A hundred years: longer than any useful interval, and in nanoseconds it fits into every counter."""

BACKLOG_MAX = 0xFFFFFFFF
"""More than a subscription can ever hold."""

_INTERVAL_S = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_INTERVAL = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)", re.ASCII)
_RATE = re.compile(r"(\d{1,18}(?:\.\d*)?|\.\d+)\s*(x|[kmg]b?)?", re.ASCII)
_COUNT = re.compile("[0-9]{1,18}")
_DIGITS = re.compile("[0-9]+")


class RateKind(enum.Enum):
    """The unit of a rate."""

    MESSAGES = PACE_MESSAGES
    BYTES = PACE_BYTES
    SPEED = PACE_SPEED


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit for a replay: messages or bytes per second, or a multiple of the original speed. `gap_max_s`: the longest
    wait for a message at a multiple of the original speed (None: no limit).
    """

    kind: RateKind
    value: float
    gap_max_s: float | None = None


@dataclass(frozen=True, slots=True)
class Conflating:
    """The conflation of a subscription. `interval_s` None: `auto`. `paths`: the fields that make the key; None: the key
    is that of the SOW topic.
    """

    interval_s: float | None
    paths: tuple[Path, ...] | None


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of one command. Options that have no effect without a SOW are accepted. `delta`: the command
    asks for changes only. `select`: None for whole messages.
    """

    replace: bool = False
    bookmark: bool = False
    timestamp: bool = False
    oof: bool = False
    delta: bool = False
    no_empties: bool = False
    no_sowkey: bool = False
    select: Selection | None = None
    non_regex_topic: bool = False
    live: bool = False
    fully_durable: bool = False
    bookmark_not_found: str = "now"
    pause: bool = False
    resume: bool = False
    rate: Rate | None = None
    conflating: Conflating | None = None
    ack_conflation_s: float = 1.0
    max_backlog: int = 1

    def on_same_terms(self, other: "Options") -> bool:
        """Whether other options have no rate or conflation that differs from these."""
        return other.rate in (None, self.rate) and other.conflating in (None, self.conflating)


def split_options(text: str) -> Iterator[str]:
    """The items of an option string, stripped. Commas in brackets, parentheses and quotes do not separate."""
    depth = 0
    quote = ""
    item: list[str] = []
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[(":
            depth += 1
        elif character in "])":
            depth = max(0, depth - 1)
        elif character == "," and depth == 0:
            yield "".join(item).strip()
            item = []
            continue
        item.append(character)
    yield "".join(item).strip()


def parse_interval(text: str) -> float:
    """Seconds of an interval such as `500ms`, at most INTERVAL_S_MAX. A number without a unit is seconds (D34).

    Raises ValueError.
    """
    match = _INTERVAL.fullmatch(text.strip().lower())
    if match is None or (match[2] and match[2] not in _INTERVAL_S):
        raise ValueError(f"{text[:100]!r} is no interval")
    interval_s = float(match[1]) * _INTERVAL_S[match[2] or "s"]
    if interval_s > INTERVAL_S_MAX:
        raise ValueError(f"{text[:100]!r} is longer than a hundred years")
    return interval_s


def option_text(header: Mapping[str, Any]) -> str:
    """The options of a subscription or query, including those that it has as legacy headers."""
    text = str(header.get("opts") or "")
    said = [option for name, value, option in LEGACY_HEADERS if header.get(name) is value]
    if "skip_n" in text and "top_n" not in text and header.get("top_n") is not None:
        said.append(f"top_n={header['top_n']}")
    return ",".join([text, *said])


def tokenize(text: str, command: str) -> dict[str, str]:
    """Option name → value, checked against TOKENS. Raises CommandFailure."""
    column = COLUMNS[command]
    found: dict[str, str] = {}
    for item in split_options(text):
        if not item:
            continue
        name, equals, value = (part.strip() for part in item.partition("="))
        known = TOKENS.get(name)
        if known is None or column not in known[0]:
            raise CommandFailure("invalid options", f"{command} has no option {name!r}")
        if known[1] and not value:
            raise CommandFailure("invalid options", f"option {name!r} needs a value")
        if equals and not known[1] and name != "pretty":
            raise CommandFailure("invalid options", f"option {name!r} takes no value")
        found[name] = value
    return found


def lasting_options(text: str, of_queues: bool) -> str:
    """Those of checked options that describe a subscription, and not a change that a command made to it. `of_queues`:
    leave out the requested backlog, because the core determines the effective one.
    """
    passing = {"", "none", "replace", "pause", "resume"} | ({"max_backlog"} if of_queues else set())
    return ",".join(item for item in split_options(text) if item.partition("=")[0].strip() not in passing)


def page_options(text: str, command: str) -> tuple[int, int | None]:
    """How many records a query skips, and how many it returns at most (None: all). Raises CommandFailure."""
    found = tokenize(text, command)
    for name in ("skip_n", "top_n"):
        if name in found and not _COUNT.fullmatch(found[name]):
            raise CommandFailure("invalid options", f"{name}={found[name]}")
    return int(found.get("skip_n", "0")), int(found["top_n"]) if "top_n" in found else None


def parse_options(text: str, command: str, bookmark: bool, pages: bool = False) -> Options:
    """Options of a subscription or query command. `bookmark`: the command has one, or changes a subscription that has
    one. `pages`: the command supports `top_n` and `skip_n` (`page_options`). Raises CommandFailure.
    """
    found = tokenize(text, command)
    _check_conflicts(found, bookmark)
    not_found = found.get("bookmark_not_found", "now")
    if not_found not in ("epoch", "now", "fail"):
        raise CommandFailure("invalid options", f"bookmark_not_found={not_found}")
    if "max_backlog" in found and not _DIGITS.fullmatch(found["max_backlog"]):
        raise CommandFailure("invalid options", f"max_backlog={found['max_backlog']}")
    for name, what in (
        ("top_n", "pagination"),
        ("grouping", "aggregated subscriptions"),
    ):
        if name in found and not (pages and name == "top_n"):
            raise not_supported_yet(what)
    return Options(
        replace="replace" in found,
        bookmark="bookmark" in found,
        timestamp="timestamp" in found,
        oof="oof" in found,
        delta=command in DELTA_COMMANDS,
        no_empties="no_empties" in found,
        no_sowkey="no_sowkey" in found,
        select=_selection(found),
        fully_durable="fully_durable" in found,
        non_regex_topic="non_regex_topic" in found,
        live="live" in found and bookmark,
        bookmark_not_found=not_found,
        pause="pause" in found,
        resume="resume" in found,
        rate=_rate(found),
        conflating=_conflating(found),
        max_backlog=min(int(found.get("max_backlog", "1")), BACKLOG_MAX),
    )


def check_queue_options(found: dict[str, str]) -> None:
    """Refuse options of ordinary subscriptions that a subscription to a queue may not have (queues.md §22, D-24).
    `found`: the result of `tokenize`. Raises CommandFailure.
    """
    for name in ("conflation", "conflation_key", "pause", "resume"):
        if name in found and (name, found[name].lower()) != ("conflation", "none"):
            raise CommandFailure("invalid options", f"{name} is not for queues")


class Acknowledgement(enum.Enum):
    """The effect of an acknowledgement on messages of a queue (queues.md §8.2)."""

    ACKNOWLEDGE = ""
    CANCEL = "cancel"
    EXPIRE = "expire"
    EXTEND_LEASE = "lease_extension"


@dataclass(frozen=True, slots=True)
class AcknowledgementOptions:
    """Options of a `sow_delete`. `extension_s`: how long an extended lease lasts from now on. `delay_s`: after which
    time cancelled messages come back; None: as the queue says.
    """

    action: Acknowledgement = Acknowledgement.ACKNOWLEDGE
    extension_s: float = 0.0
    delay_s: float | None = None
    non_regex_topic: bool = False


def parse_acknowledgement_options(text: str) -> AcknowledgementOptions:
    """Options of a `sow_delete` on a queue: at most one action (D-08, D-31). Raises CommandFailure."""
    found = tokenize(text, "sow_delete")
    actions = [action for action in Acknowledgement if action.value in found]
    if len(actions) > 1:
        raise CommandFailure("invalid options", " with ".join(action.value for action in actions))
    extends = actions == [Acknowledgement.EXTEND_LEASE]
    delay_s = _cancel_delay_s(found, actions) if "delay" in found else None
    return AcknowledgementOptions(
        actions[0] if actions else Acknowledgement.ACKNOWLEDGE,
        _interval(found, Acknowledgement.EXTEND_LEASE.value) if extends else 0.0,
        delay_s,
        "non_regex_topic" in found,
    )


def _cancel_delay_s(found: dict[str, str], actions: Sequence[Acknowledgement]) -> float:
    """The delay of a cancel (docs/spec/queue_guarantees.md §2). Raises CommandFailure."""
    if actions != [Acknowledgement.CANCEL]:
        raise CommandFailure(BAD_DELAY, "the option delay needs cancel beside it")
    try:
        delay_s = parse_interval(found["delay"])
    except ValueError as error:
        raise CommandFailure(BAD_DELAY, str(error)) from error
    if delay_s > DELAY_MAX_S:
        raise CommandFailure(BAD_DELAY, f"{found['delay'][:100]!r} is longer than ten years")
    return delay_s


def _check_conflicts(found: dict[str, str], bookmark: bool) -> None:
    """Refuse documented conflicts of options (protocol.md §10; transaction_log.md §20, 22). Raises CommandFailure."""
    conflicts = [
        ("live", "rate"),
        ("live", "pause"),
        ("live", "resume"),
        ("live", "fully_durable"),
        ("pause", "resume"),
        ("select", "projection"),
    ]
    for first, second in conflicts:
        if first in found and second in found:
            raise CommandFailure("invalid options", f"{first} with {second}")
    if not bookmark:
        for name in ("rate", "fully_durable", "bookmark_not_found"):
            if name in found:
                raise CommandFailure("invalid options", f"{name} is for bookmark subscriptions")
    for name, needed in (
        ("rate_max_gap", "rate"),
        ("grouping", "projection"),
        ("projection", "grouping"),
        ("skip_n", "top_n"),
        ("conflation_key", "conflation"),
    ):
        if name in found and needed not in found:
            raise CommandFailure("invalid options", f"{name} without {needed}")
    if bookmark and "projection" in found:
        raise CommandFailure("invalid options", "projection on a bookmark subscription")


def _rate(found: dict[str, str]) -> Rate | None:
    """The rate among the options, if any (transaction_log.md §8; §20, 21 and 22). Raises CommandFailure."""
    text = found.get("rate")
    if text is None:
        return None
    match = _RATE.fullmatch(text.lower())
    value = float(match[1]) if match is not None else 0.0
    if match is None or value <= 0:
        raise CommandFailure("invalid options", f"rate={text}")
    gap_max_s = _interval(found, "rate_max_gap") if "rate_max_gap" in found else None
    unit = match[2]
    if unit is None:
        return Rate(RateKind.MESSAGES, value, gap_max_s)
    if unit == "x":
        return Rate(RateKind.SPEED, value, gap_max_s)
    return Rate(RateKind.BYTES, value * 1024 ** ("kmg".index(unit[0]) + 1), gap_max_s)


def _interval(found: dict[str, str], name: str) -> float:
    try:
        return parse_interval(found[name])
    except ValueError as error:
        raise CommandFailure("invalid options", f"{name}: {error}") from error


def _conflating(found: dict[str, str]) -> Conflating | None:
    """The conflation among the options, if any. Raises CommandFailure."""
    text = found.get("conflation", "none").lower()
    if text == "none":
        return None
    interval_s = None if text == "auto" else _interval(found, "conflation")
    if interval_s is not None and interval_s < CONFLATION_S_MIN:
        raise CommandFailure("invalid options", f"conflation={text}: it is shorter than a millisecond")
    keys = found.get("conflation_key")
    if keys is None:
        return Conflating(interval_s, None)
    if keys[:1] != "[" or keys[-1:] != "]":
        raise CommandFailure("invalid options", f"conflation_key={keys}: fields must stand in brackets")
    paths = []
    for key in split_options(keys[1:-1]):
        try:
            paths.append(parse_field(key))
        except ExpressionError as error:
            raise CommandFailure("invalid options", f"conflation_key: {error}") from error
    return Conflating(interval_s, tuple(paths))


def _selection(found: dict[str, str]) -> Selection | None:
    """The select list among the options, if any (sow.md §18, D30). Raises CommandFailure."""
    if "select" not in found:
        return None
    try:
        return parse_select_list(found["select"])
    except ValueError as error:
        raise CommandFailure("invalid options", str(error)) from error


def parse_logon_options(text: str) -> Options:
    """Options of logon. Raises CommandFailure."""
    found = tokenize(text, "logon")
    return Options(ack_conflation_s=_interval({"ack_conflation": "1s"} | found, "ack_conflation"))
