"""What a conflated subscription to a topic of the state of the world gets, and when (sow.md §16, D13).

The first message for a record opens an interval of its own, and is held; later ones take its place. At the end of the
interval the last one is delivered. The messages are those of `sow_views.events`; the rows of a query are not held.

Where sow.md leaves a choice, the model does this: of deltas, the out-of-focus message has the whole record as it was
when the subscriber got its last delta. Intervals that end at one moment end in the order in which they began.
"""

from collections.abc import Iterable
from typing import Any

from tests.support import sow_documents as documents
from tests.support.sow_model import Change, SowModel
from tests.support.sow_views import Event, View, events, rows

Delivery = tuple[float, Event]
"""The time of a delivery, and the message."""


class Conflation:
    """A subscription that begins with the state before a transaction."""

    def __init__(self, view: View, model: SowModel, interval_s: float) -> None:
        self._view = view
        self._model = model
        self._interval_s = interval_s
        self._known: dict[int, Any] = {row.key: row.body for row in rows(view, model.state())}
        self._held: dict[int, list[Event]] = {}
        self._began_s: dict[int, float] = {}

    def see(self, changes: Iterable[Change]) -> list[Delivery]:
        """Changes of the topic, after those before; returns what is delivered until their time."""
        delivered: list[Delivery] = []
        for txid, time_s in sorted({(change.txid, change.time_s) for change in changes}):
            delivered += self.pass_time(time_s)
            for event in events(self._view, self._model, txid):
                self._began_s.setdefault(event.key, time_s)
                self._held.setdefault(event.key, []).append(event)
        return delivered

    def pass_time(self, now_s: float) -> list[Delivery]:
        """What is delivered until this time, and at it."""
        delivered: list[Delivery] = []
        for key, began_s in sorted(self._began_s.items(), key=lambda item: item[1]):
            if began_s + self._interval_s <= now_s:
                del self._began_s[key]
                event = self._end(key, self._held.pop(key), began_s + self._interval_s)
                delivered += [] if event is None else [(began_s + self._interval_s, event)]
        return delivered

    def _end(self, key: int, held: list[Event], end_s: float) -> Event | None:
        last = held[-1]
        if last.reason is not None:
            known = self._known.pop(key, None)
            return None if known is None else Event(key, known, last.reason)
        body = last.body
        if self._view.delta:
            body = joined(held)
            (row,) = [row for row in rows(self._view, self._model.state_at(end_s)) if row.key == key]
            self._known[key] = row.body
        else:
            self._known[key] = body
        return Event(key, body)


def joined(held: list[Event]) -> Any:
    """All fields of the held messages, with their last values."""
    body: Any = {}
    for event in held:
        body = documents.laid_over(body, event.body)
    return body
