"""Limiting log records about events that may occur again and again.

The first event of a kind is logged at once. Later ones are counted, and the count is logged after an interval that
doubles each time: a client that is refused every second causes a few records in an hour. The kind is usually the cause
of the events. The number of kinds is bounded; all further ones are counted as one kind. A kind without events for long
enough is forgotten.
"""

import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

INTERVAL_S_MIN = 10.0
INTERVAL_S_MAX = 3600.0
KINDS_MAX = 500

Key = TypeVar("Key")


@dataclass(slots=True)
class _Kind:
    """The events not logged yet: how many since `said_s`, and the last one."""

    said_s: float
    interval_s: float = INTERVAL_S_MIN
    count: int = 0
    last_s: float = 0.0
    last: dict[str, Any] | None = None


class Repeats(Generic[Key]):
    """Events of one sort, by kind."""

    def __init__(
        self,
        say_first: Callable[[dict[str, Any]], None],
        say_more: Callable[[int, float, dict[str, Any]], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say_first(values)`, `say_more(count, seconds, values)`: log a record with the last event's values."""
        self._say_first = say_first
        self._say_more = say_more
        self._now_s = now_s
        self._kinds: dict[Key | None, _Kind] = {}

    def happened(self, key: Key, **values: Any) -> None:
        """Count one event. `key`: its kind."""
        place: Key | None = key
        if key not in self._kinds and len(self._kinds) >= KINDS_MAX:
            place = None
        now_s = self._now_s()
        kind = self._kinds.get(place)
        if kind is None:
            self._kinds[place] = _Kind(said_s=now_s, last_s=now_s)
            self._say_first(values)
            return
        kind.count += 1
        kind.last_s = now_s
        kind.last = values
        self._say_if_due(kind, now_s)

    def look_around(self) -> None:
        """Log counts that are due, and forget kinds without events; to be called at intervals."""
        now_s = self._now_s()
        for key, kind in list(self._kinds.items()):
            self._say_if_due(kind, now_s)
            if not kind.count and now_s - kind.last_s >= INTERVAL_S_MAX:
                del self._kinds[key]

    def end(self) -> None:
        """Log the remaining counts."""
        now_s = self._now_s()
        for kind in self._kinds.values():
            self._say(kind, now_s)

    def _say_if_due(self, kind: _Kind, now_s: float) -> None:
        if now_s - kind.said_s >= kind.interval_s:
            self._say(kind, now_s)

    def _say(self, kind: _Kind, now_s: float) -> None:
        if kind.last is None:
            return
        self._say_more(kind.count, now_s - kind.said_s, kind.last)
        kind.interval_s = min(kind.interval_s * 2, INTERVAL_S_MAX)
        kind.said_s, kind.count, kind.last = now_s, 0, None


def peer_of(address: str) -> str:
    """The peer with an address `host:port`: the host; for IPv6 the network, in which a host may have any address."""
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return host
    if parsed.version == 6:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return host
