"""One topic of the state of the world, implemented in the simplest and slowest way: the reference for the server.

The model is written from sow.md §§3 to 6, 9 and D2 to D5, D23 alone. It is a list of changes, the log: each state is
found by walking over it from the beginning. Documents are in `sow_documents`, what subscribers see is in `sow_views`.

Invariants: changes are in the order of their transaction ids, and of their times. All changes of one command have one
transaction id. `old` of a change is the state that the changes before it leave.

Where sow.md leaves a choice, the model does this:

- A record expires when `now >= expiry`. All that is due at one moment leaves with one transaction id.
- Of a historical query, the newest kept version at the time counts, also if it was not current within the window.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from tests.support import sow_documents as documents
from tests.support.sow_documents import Document, Path

PUBLISH, DELTA, DELETE, EXPIRY = "publish", "delta", "delete", "expiry"
DISABLED, ENABLED = "disabled", "enabled"

Predicate = Callable[[Any], bool]
"""A filter: it gets the message with Python's numbers."""
State = dict[int, Document]
"""Documents by key."""


@dataclass(frozen=True)
class Change:
    """What happened to one record."""

    txid: int
    time_s: float
    kind: str
    key: int
    old: Document | None
    new: Document | None
    expires_s: float | None = None
    correlation_id: str | None = None
    name: str = ""
    """The publisher's key, where it provides one."""


@dataclass(frozen=True)
class Settings:
    """The configuration of a topic. Without `keys` publishers provide them."""

    name: str = "orders"
    keys: tuple[str, ...] = ("/id",)
    domain: str | None = None
    expiration: str | float = DISABLED
    """Or the lifetime in seconds."""
    window_s: float = 0.0
    """Together with `granularity_s`: the topic has a history."""
    granularity_s: float | None = None


def digest(text: bytes) -> int:
    """A key of the model. A test that compares keys passes the server's own function."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


class SowModel:
    """A topic. Every command gives the changes that it made."""

    def __init__(self, settings: Settings, hash_bytes: Callable[[bytes], int] = digest) -> None:
        self.settings = settings
        self.changes: list[Change] = []
        self.now_s = 0.0
        self._hash_bytes = hash_bytes
        self._next_txid = 1

    @property
    def key_paths(self) -> tuple[Path, ...]:
        return tuple(map(documents.path_of, self.settings.keys))

    # Commands

    def publish(
        self,
        text: str | bytes,
        lifetime_s: float | None = None,
        *,
        name: str | None = None,
        correlation_id: str | None = None,
    ) -> list[Change]:
        """A publish; `lifetime_s` is the header `expiration`. Raises ValueError if it is refused (§4, D5)."""
        document = documents.parse(text)
        key = self._key(document, name)
        return self._store(PUBLISH, key, document, lifetime_s, name, correlation_id)

    def delta_publish(
        self,
        text: str | bytes,
        lifetime_s: float | None = None,
        *,
        name: str | None = None,
        correlation_id: str | None = None,
    ) -> list[Change]:
        """A publish of some fields (§14). Raises ValueError."""
        document = documents.parse(text)
        key = self._key(document, name)
        last = self._last(key)
        if last is not None and last.new is not None:
            document = documents.merge(last.new, document, self.key_paths)
            correlation_id = correlation_id or last.correlation_id
        return self._store(DELTA, key, document, lifetime_s, name, correlation_id)

    def delete_keys(self, keys: Iterable[int]) -> list[Change]:
        """Delete by keys; unknown ones are no error (§6, D28)."""
        return self._remove(DELETE, keys)

    def delete_names(self, names: Iterable[str]) -> list[Change]:
        """Delete by keys that publishers have provided."""
        return self._remove(DELETE, map(self._key_of_name, names))

    def delete_where(self, predicate: Predicate) -> list[Change]:
        """Delete by filter."""
        matching = [key for key, document in self.state().items() if predicate(documents.plain(document))]
        return self._remove(DELETE, matching)

    def delete_data(self, text: str | bytes) -> list[Change]:
        """Delete by a message with the fields of the key."""
        return self._remove(DELETE, [self._key(documents.parse(text), None)])

    def pass_time(self, now_s: float) -> list[Change]:
        """Let time pass; what is due expires (§5)."""
        self.now_s = now_s
        return self._remove(EXPIRY, self.due())

    def restart(self, now_s: float, **settings: Any) -> list[Change]:
        """A start, with changed settings. Stored expiry times stay, and what is overdue goes."""
        self.settings = replace(self.settings, **settings)
        return self.pass_time(now_s)

    # States

    def state(self, txid: int | None = None) -> State:
        """The state that all changes before this transaction leave; None: all."""
        return self._after(change for change in self.changes if txid is None or change.txid < txid)

    def state_at(self, time_s: float) -> State:
        """The state of a moment, by all that happened until then, and then."""
        return self._after(change for change in self.changes if change.time_s <= time_s)

    def historical(self, time_s: float) -> State:
        """The answer to `sow` with a time as bookmark (§9, D23)."""
        if self.settings.granularity_s is None:
            return self.state()
        if time_s < self.now_s - self.settings.window_s:
            return {}
        return self._after(change for change in self._saved() if change.time_s <= time_s)

    def replay_from(self, time_s: float) -> tuple[State, list[Change]]:
        """What `sow_and_subscribe` with a time as bookmark begins with, and what it replays (D23)."""
        granularity_s = self.settings.granularity_s
        if granularity_s:
            time_s = math.floor(time_s / granularity_s) * granularity_s
        return self.state_at(time_s), [change for change in self.changes if change.time_s > time_s]

    def due(self) -> list[int]:
        """The keys of all records whose time is over."""
        if self.settings.expiration == DISABLED:
            return []
        last = {change.key: change for change in self.changes}
        return [
            key
            for key, change in last.items()
            if change.new is not None and change.expires_s is not None and change.expires_s <= self.now_s
        ]

    # Parts

    def _store(
        self,
        kind: str,
        key: int,
        document: Document,
        lifetime_s: float | None,
        name: str | None,
        correlation_id: str | None,
    ) -> list[Change]:
        expires_s = self._expiry(lifetime_s)
        return self._add(kind, {key: document}, expires_s, correlation_id, name or "")

    def _expiry(self, lifetime_s: float | None) -> float | None:
        if lifetime_s is not None:
            return self.now_s + lifetime_s if lifetime_s > 0 else None
        default = self.settings.expiration
        return None if isinstance(default, str) else self.now_s + default

    def _remove(self, kind: str, keys: Iterable[int]) -> list[Change]:
        present = self.state()
        return self._add(kind, {key: None for key in sorted(set(keys)) if key in present})

    def _add(
        self,
        kind: str,
        states: dict[int, Document | None],
        expires_s: float | None = None,
        correlation_id: str | None = None,
        name: str = "",
    ) -> list[Change]:
        txid, self._next_txid = self._next_txid, self._next_txid + bool(states)
        before = self.state()
        added = [
            Change(txid, self.now_s, kind, key, before.get(key), new, expires_s, correlation_id, name)
            for key, new in states.items()
        ]
        self.changes += added
        return added

    def _key(self, document: Document, name: str | None) -> int:
        if not self.settings.keys:
            if not name:
                raise ValueError("the topic has no key fields, and the publish has no sow_key")
            return self._key_of_name(name)
        texts = (documents.text_of(documents.value_at(document, path)) for path in self.key_paths)
        return self._hashed(texts)

    def _key_of_name(self, name: str) -> int:
        return self._hashed([name])

    def _hashed(self, texts: Iterable[str]) -> int:
        domain = self.settings.domain if self.settings.domain is not None else self.settings.name
        return self._hash_bytes("\x01".join((domain, *texts)).encode())

    def _last(self, key: int) -> Change | None:
        return next((change for change in reversed(self.changes) if change.key == key), None)

    def _after(self, changes: Iterable[Change]) -> State:
        last = {change.key: change.new for change in changes}
        return {key: document for key, document in last.items() if document is not None}

    def _saved(self) -> list[Change]:
        """The versions that the history keeps: of each record the last one of an interval, and the current one."""
        granularity_s = self.settings.granularity_s
        if not granularity_s:
            return self.changes
        last = {(change.key, change.time_s // granularity_s): change for change in self.changes}
        return list(last.values())
