"""Explanations with the texts of the event log, found by id, by reason, or by words."""

import difflib
import re
from typing import NamedTuple

from amps.cli.explain.advice import Advice
from amps.cli.explain.log_events import LOG_EVENTS
from amps.cli.explain.reasons import REASONS
from amps.cli.explain.server_events import SERVER_EVENTS
from amps.server.eventlog.catalogue import CATALOGUE

EVENTS = {**SERVER_EVENTS, **LOG_EVENTS}
SUGGESTIONS_MAX = 5
NEAR = 0.6
_ID = re.compile(r"([0-9A-F]{2})-?([0-9A-F]{4})", re.IGNORECASE)
_RECORD = re.compile(r"\S+ \[\d+\] \w+: ([0-9A-F]{2}-[0-9A-F]{4})\b", re.IGNORECASE)
_OPTIONAL = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_FIELD = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"\w+")


class Explanation(NamedTuple):
    """An id or a reason with its explanation. `kind`: the level of an event, or where a reason occurs."""

    name: str
    kind: str
    text: str
    advice: Advice


def event(name: str) -> Explanation:
    """The explanation of an id of the catalogue."""
    entry = CATALOGUE[name]
    text = _FIELD.sub(r"<\1>", _OPTIONAL.sub(r"[\1]", entry.template))
    return Explanation(name, entry.level, text, EVENTS[name])


def reason(name: str) -> Explanation:
    """The explanation of a reason."""
    where, advice = REASONS[name]
    return Explanation(name, where, name, advice)


def everything() -> list[Explanation]:
    """All explanations: events by id, then reasons by name."""
    return [*map(event, sorted(CATALOGUE)), *map(reason, sorted(REASONS))]


def find(text: str) -> Explanation | None:
    """The explanation of an id, of a line of the event log, or of a reason, also one with a detail after a colon."""
    text = text.strip()
    found = _ID.fullmatch(text) or _RECORD.match(text)
    if found is not None:
        name = "-".join(found.groups()).upper()
        return event(name) if name in CATALOGUE else None
    lowered = text.lower().strip(" .'\"")
    for part in (lowered, *lowered.split(":")):
        if part.strip() in REASONS:
            return reason(part.strip())
    return None


def matching(pattern: str) -> list[Explanation]:
    """The explanations of the ids in which a regular expression is found: `00-` for category 00, `.` for all."""
    try:
        expression = re.compile(pattern, re.IGNORECASE)
    except re.error:
        return []
    return [event(name) for name in sorted(CATALOGUE) if expression.search(name)]


def look_up(text: str) -> list[Explanation]:
    """The explanations of an id, a record, a reason, or of all ids that match a regular expression."""
    found = find(text)
    return [found] if found is not None else matching(text)


def near(text: str) -> list[str]:
    """Names of ids and reasons that may be meant: similar names, and texts that have all words."""
    lowered = text.strip().lower()
    names = {name.lower(): name for name in (*CATALOGUE, *REASONS)}
    found = [names[name] for name in difflib.get_close_matches(lowered, names, SUGGESTIONS_MAX, NEAR)]
    words = set(_WORD.findall(lowered))
    if words and not _ID.fullmatch(lowered):
        for candidate in everything():
            if words <= set(_WORD.findall(f"{candidate.name} {candidate.text}".lower())):
                found.append(candidate.name)
    return list(dict.fromkeys(found))[:SUGGESTIONS_MAX]
