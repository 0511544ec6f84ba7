"""Recovery points, and the adapters that keep them outside a bookmark store.

A recovery point is the bookmark from which a subscription resumes in a new process (client.md §7). A store given an
adapter reads all points from it when it is created, and calls `update` whenever a point moves. The point of a message
that was discarded a moment before a crash may be missing: then messages repeat, and none is lost.

Here are the protocol, the adapter that conflates updates, and the one that keeps points in a SOW topic. What may not
live here: how a point is computed (`bookmark`).
"""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from amps.client.enums import Timeout
from amps.client.errors import AMPSException, StoreException
from amps.client.payloads.codecs import JsonCodec, json_loads

_logger = logging.getLogger(__name__)


class RecoveryPoint(NamedTuple):
    """The bookmark, list of bookmarks or range from which one subscription resumes."""

    sub_id: str
    """The id of the subscription."""
    bookmark: str
    """Where it resumes."""


class RecoveryPointAdapter(Protocol):
    """Keeps the newest recovery point of each subscription. Thread-safe; `update` should not wait.

    A bookmark store calls `update` while it holds its lock, so an adapter must not call the store. Exceptions of
    `update` reach the application from `discard`; the store repeats the update with its next one.
    """

    def load(self) -> Iterable[RecoveryPoint]:
        """Return the points kept, once for each subscription."""

    def update(self, point: RecoveryPoint) -> None:
        """Replace the point of a subscription."""

    def purge(self, sub_id: str | None = None) -> None:
        """Remove the point of one subscription, or of all."""

    def prune(self) -> None:
        """Free unused space."""

    def close(self) -> None:
        """Write what is still to be written; the adapter is not used afterwards."""


class AdapterFeed:
    """Passes recovery points to an adapter, and repeats an update that failed. Needs its caller's lock."""

    def __init__(self, adapter: RecoveryPointAdapter) -> None:
        self._adapter = adapter
        self._owed: dict[str, Callable[[], str | None]] = {}

    def load(self) -> Iterable[RecoveryPoint]:
        """Return the points that the adapter keeps."""
        return self._adapter.load()

    def update(self, sub_id: str, point: Callable[[], str | None]) -> None:
        """Pass on a point, after those that are owed. Raises the exceptions of the adapter."""
        self._owed[sub_id] = point
        self.settle()

    def note(self, sub_id: str, point: Callable[[], str | None]) -> None:
        """Pass on a point; if that fails, the next `update` repeats it. For callers that must not fail."""
        try:
            self.update(sub_id, point)
        except Exception as error:
            _logger.debug("the recovery point of %r waits for the next update: %s", sub_id, error)

    def settle(self) -> None:
        """Pass on the points that are owed."""
        for sub_id, point in list(self._owed.items()):
            text = point()
            if text is not None:
                self._adapter.update(RecoveryPoint(sub_id, text))
            del self._owed[sub_id]

    def purge(self, sub_id: str | None) -> None:
        """Remove one point, or all."""
        self._adapter.purge(sub_id)
        if sub_id is None:
            self._owed.clear()
        else:
            self._owed.pop(sub_id, None)

    def prune(self) -> None:
        """Prune the adapter, and pass on the points that are owed."""
        self._adapter.prune()
        self.settle()

    def close(self) -> None:
        """Pass on the points that are owed, and close the adapter."""
        try:
            self.settle()
        finally:
            self._adapter.close()


class ConflatingRecoveryPointAdapter:
    """Passes only the newest point of each subscription to another adapter, every `interval` seconds.

    A thread of its own calls the other adapter's `update`, so that discarding a message never waits for it. After a
    crash up to `interval` seconds of discarded messages repeat. `purge`, `prune` and `close` pass on what is pending
    first, in the calling thread; exceptions of the other adapter reach their caller. An update that fails is repeated
    after the interval and logged as a warning.
    """

    def __init__(self, adapter: RecoveryPointAdapter, *, interval: float = 1.0) -> None:
        if interval <= 0:
            raise ValueError(f"interval must be positive: {interval}")
        self._adapter = adapter
        self._interval_s = interval
        self._condition = threading.Condition()
        self._passing = threading.Lock()  # outer lock: one thread at a time passes points on, in their order
        self._pending: dict[str, RecoveryPoint] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def load(self) -> Iterable[RecoveryPoint]:
        """Return the points of the other adapter."""
        return self._adapter.load()

    def update(self, point: RecoveryPoint) -> None:
        """Note a point; it is passed on within the interval. StoreException after `close`."""
        with self._condition:
            if self._closed:
                raise StoreException("this recovery point adapter is closed")
            self._pending[point.sub_id] = point
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="amps-recovery-points", daemon=True)
                self._thread.start()
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._pending or self._closed)
                self._condition.wait_for(lambda: self._closed, self._interval_s)
                if self._closed:
                    return
            try:
                self._pass_on()
            except Exception as error:
                _logger.warning("recovery points could not be saved; trying again: %s", error)

    def _pass_on(self) -> None:
        with self._passing:
            with self._condition:
                points, self._pending = self._pending, {}
            try:
                while points:
                    sub_id = next(iter(points))
                    self._adapter.update(points[sub_id])
                    del points[sub_id]
            finally:
                with self._condition:
                    self._pending = {**points, **self._pending}

    def purge(self, sub_id: str | None = None) -> None:
        """Remove one point, or all, here and in the other adapter."""
        with self._passing:
            with self._condition:
                if sub_id is None:
                    self._pending.clear()
                else:
                    self._pending.pop(sub_id, None)
            self._adapter.purge(sub_id)

    def prune(self) -> None:
        """Pass on the pending points, then prune the other adapter."""
        self._pass_on()
        self._adapter.prune()

    def close(self) -> None:
        """Pass on the pending points and close the other adapter."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
        try:
            self._pass_on()
        finally:
            self._adapter.close()


class PointClient(Protocol):
    """The part of a client that keeps points in a SOW topic: `amps.client.Client` and HAClient have it."""

    def publish(self, topic: str, data: bytes, *, timeout: Timeout = ...) -> int:
        """Publish a record."""

    def publish_flush(self, *, timeout: Timeout = ...) -> None:
        """Wait until the server has what was published."""

    def sow(self, topic: str, filter: str | None = None, *, timeout: Timeout = ...) -> Any:
        """Return the records that match."""

    def sow_delete(self, topic: str, *, filter: str | None = None, timeout: Timeout = ...) -> Any:
        """Delete the records that match."""


class SOWRecoveryPointAdapter:
    """Keeps recovery points in a SOW topic of a server: one JSON record for each client name and sub id.

    - client: a connected client with message type json, used for nothing else. It must not be the client whose
      bookmark store has this adapter: updates happen while that client holds its lock.
    - tracked_client_name: the name of the client whose points these are.
    - topic: its key must be the two fields, by default `/clientName` and `/subId`.
    - client_name_field, sub_id_field, bookmark_field: names of the record's fields.
    - timeout: seconds that a call may take; None = no limit. `close` waits as long for what was published.

    A server without SOW topics refuses `load`, with InvalidTopicException; the servers of this project have none yet.
    The client stays open; its owner closes it. client.md §7, §19.7.
    """

    def __init__(
        self,
        client: PointClient,
        tracked_client_name: str,
        *,
        topic: str = "/ADMIN/bookmark_store",
        client_name_field: str = "clientName",
        sub_id_field: str = "subId",
        bookmark_field: str = "bookmark",
        timeout: Timeout = 5.0,
    ) -> None:
        self._client = client
        self._name = tracked_client_name
        self._topic = topic
        self._fields = (client_name_field, sub_id_field, bookmark_field)
        self._timeout = timeout
        self._encode = JsonCodec().encode

    def load(self) -> Iterable[RecoveryPoint]:
        """Return the points of the tracked client. StoreException for a record that is not one."""
        points = []
        for message in self._client.sow(self._topic, self._filter(None), timeout=self._timeout):
            if message.command != "sow":
                continue
            try:
                record = json_loads(message.data)
                point = RecoveryPoint(record[self._fields[1]], record[self._fields[2]])
            except (ValueError, TypeError, LookupError) as error:
                raise StoreException(f"a record of {self._topic} is no recovery point: {error!r}") from error
            if not isinstance(point.sub_id, str) or not isinstance(point.bookmark, str):
                raise StoreException(f"a record of {self._topic} is no recovery point: {point}")
            points.append(point)
        return points

    def update(self, point: RecoveryPoint) -> None:
        """Publish the point of a subscription. Waits for no answer."""
        record = dict(zip(self._fields, (self._name, *point), strict=True))
        self._client.publish(self._topic, self._encode(record), timeout=self._timeout)

    def purge(self, sub_id: str | None = None) -> None:
        """Delete the record of one subscription, or all of the tracked client."""
        self._client.sow_delete(self._topic, filter=self._filter(sub_id), timeout=self._timeout)

    def prune(self) -> None:
        """No effect: the topic keeps one record for each subscription."""

    def close(self) -> None:
        """Wait until the server has all points. StoreException if it does not answer in time."""
        try:
            self._client.publish_flush(timeout=self._timeout)
        except AMPSException as error:
            raise StoreException(f"the last recovery points may not be saved: {error}") from error

    def _filter(self, sub_id: str | None) -> str:
        condition = f"/{self._fields[0]} = {_quoted(self._name)}"
        return condition if sub_id is None else f"{condition} AND /{self._fields[1]} = {_quoted(sub_id)}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
