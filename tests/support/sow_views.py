"""What queries and subscriptions show of a topic of the state of the world (sow.md §§8, 10, 11, 13, 17, 18, 1.2).

The functions are pure: they compare the states of `SowModel` before and after a transaction. Rows and messages have
bodies with Python's numbers. The order of rows is that of the page, and otherwise by key.

Where sow.md leaves a choice, the model does this: all that one transaction does to a page is one step, out-of-focus
messages first, each kind in the order of the page.
"""

from dataclasses import dataclass
from typing import Any

from tests.support import sow_documents as documents
from tests.support.sow_documents import Document, path_of
from tests.support.sow_model import EXPIRY, Change, Predicate, SowModel, State

MATCH, DELETED, EXPIRED, ENTITLEMENT = "match", "deleted", "expired", "entitlement"


def everything(message: Any) -> bool:
    return True


@dataclass(frozen=True)
class OrderField:
    """A field of `orderby`."""

    path: str
    descending: bool = False
    as_text: bool = False


@dataclass(frozen=True)
class View:
    """A query, or a subscription with its options."""

    matches: Predicate = everything
    entitled: Predicate = everything
    oof: bool = False
    delta: bool = False
    no_empties: bool = False
    select: tuple[str, ...] = ()
    """Select lists, that of the entitlement first."""
    order_by: tuple[OrderField, ...] = ()
    top: int | None = None
    skip: int | None = None

    @property
    def is_page(self) -> bool:
        return self.top is not None and self.skip is not None


@dataclass(frozen=True)
class Row:
    """A message of kind `sow`."""

    key: int
    body: Any


@dataclass(frozen=True)
class Event:
    """A live message: `publish` without a reason, `oof` with one."""

    key: int
    body: Any
    reason: str | None = None


def rows(view: View, state: State) -> list[Row]:
    """The result of a query."""
    keys = members(view, state) if view.is_page else ordered(view, state)[: view.top]
    return [Row(key, _body(view, state[key])) for key in keys]


def ordered(view: View, state: State) -> list[int]:
    """The keys of all records in focus, in order (§10, D8)."""
    keys = sorted(key for key, document in state.items() if _in_focus(view, document))
    for field in reversed(view.order_by):
        keys.sort(key=lambda key: _rank(state[key], field), reverse=field.descending)
    return keys


def members(view: View, state: State) -> list[int]:
    """The keys of the records that exist for a subscription (§11)."""
    keys = ordered(view, state)
    if view.is_page:
        assert view.skip is not None
        assert view.top is not None
        return keys[view.skip : view.skip + view.top]
    return keys


def events(view: View, model: SowModel, txid: int) -> list[Event]:
    """The messages that a subscription gets for one transaction (§13, §17, D9, D10, D19, D29)."""
    before, after = model.state(txid), model.state(txid + 1)
    was, now = members(view, before), members(view, after)
    changed = {change.key: change for change in model.changes if change.txid == txid}
    found = [_left(view, key, changed.get(key), before) for key in was if key not in now] if view.oof else []
    for key in now:
        if key in changed:
            body = _update(view, model, changed[key], key in was)
            found += [] if body is None else [Event(key, body)]
        elif key not in was:
            found.append(Event(key, _body(view, after[key])))
    return found


def replaced(old: View, new: View, state: State) -> tuple[list[Row], list[Event]]:
    """What a replaced `sow_and_subscribe` sends: rows that are new to it, and records that left (§1.2)."""
    was, now = members(old, state), members(new, state)
    left = [Event(key, _body(new, state[key]), MATCH) for key in was if key not in now]
    return [Row(key, _body(new, state[key])) for key in now if key not in was], left if new.oof else []


def _left(view: View, key: int, change: Change | None, before: State) -> Event:
    if change is None:  # pushed out of the page by another record
        return Event(key, _body(view, before[key]), MATCH)
    if change.new is None:
        return Event(key, _body(view, before[key]), EXPIRED if change.kind == EXPIRY else DELETED)
    if not view.entitled(documents.plain(change.new)):
        return Event(key, _body(view, before[key]), ENTITLEMENT)
    return Event(key, _body(view, change.new), MATCH)


def _update(view: View, model: SowModel, change: Change, was_member: bool) -> Any | None:
    """The body for a record that was published and is in focus; None: nothing is sent."""
    assert change.new is not None
    comes_into_focus = not was_member and (view.oof or view.is_page)
    if not view.delta or change.old is None or comes_into_focus:
        return _body(view, change.new)
    whole, changed = documents.difference(change.old, change.new, model.key_paths)
    shown = _selected(view, changed)
    if view.no_empties and (not shown or (shown != changed and not documents.has_values(shown))):
        return None
    return _body(view, whole)


def _in_focus(view: View, document: Document) -> bool:
    message = documents.plain(document)
    return view.matches(message) and view.entitled(message)


def _selected(view: View, document: Document) -> Document:
    for directives in view.select:
        document = documents.select(document, directives)
    return document


def _body(view: View, document: Document) -> Any:
    return documents.plain(_selected(view, document))


def _rank(document: Document, field: OrderField) -> tuple[int, Any]:
    """NULL before numbers before texts; a boolean is a number (D8)."""
    value = documents.value_at(document, path_of(field.path))
    if isinstance(value, list):
        value = value[0] if value else None
    if documents.is_null(value) or isinstance(value, dict):
        return 0, 0
    if isinstance(value, str):
        return 2, value.encode()
    if field.as_text:
        return 2, documents.text_of(value).encode()
    return 1, float(documents.plain(value))
