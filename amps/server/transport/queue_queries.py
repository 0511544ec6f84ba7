"""Queries of queues: returning waiting messages without leasing them (queues.md §14.1, D-17; protocol.md §9.1, §12.3).

A query returns the messages that a consumer could be given. They are in the order of the log, queue after queue, or in
the requested order over all queues. They are read in turns of the worker; a message that enters or leaves meanwhile may
be returned or not. The key of a message is its transaction id.

A query has two parts, each of which is a lookup of its own. The first finds and sorts the messages, if an order is
requested; after it the query cannot fail. The second sends the messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any

from amps._core.expressions.machine import Filter
from amps._core.queues.sender import QueueSearch
from amps.journal.layout import iso8601
from amps.server.transport.answering import Header, tell_counts, text_of, wanted_acks
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure
from amps.server.transport.options import Options, option_text, page_options
from amps.server.transport.ordering import Ordering, ResultTooLarge, Row, parse_order
from amps.server.transport.queue_searches import LOG_BYTES_PER_STEP, QueueSearches
from amps.server.transport.session import Session

ROWS_ALL = (1 << 64) - 1
LOG_BYTES_PER_ORDERED_STEP = LOG_BYTES_PER_STEP // 4
"""The limit with an order, because reading the sort fields takes time as well."""
NS_PER_MS = 1_000_000
ROWS_PER_STEP = 256
"""Number of sorted records that are sent at once."""


@dataclass(slots=True)
class _Answer:
    """The frames with the records of the result."""

    connection: Session
    query_id: str | None
    batch_size: int
    timestamp: bool
    frames: int = 0
    returned: int = 0
    waiting: list[Row] = field(default_factory=list)
    topic: str = ""

    def add(self, topic: str, rows: Sequence[Row]) -> None:
        """Add records of a queue. A frame contains records of one queue only."""
        if topic != self.topic:
            self.flush()
            self.topic = topic
        self.waiting += rows
        while len(self.waiting) >= self.batch_size:
            self._send(self.waiting[: self.batch_size])
            del self.waiting[: self.batch_size]

    def flush(self) -> None:
        """Send the records of an incomplete frame."""
        if self.waiting:
            self._send(self.waiting)
            self.waiting = []

    def _send(self, batch: Sequence[Row]) -> None:
        self.frames += 1
        self.returned += len(batch)
        header: Header = {"cmd": "sow", "topic": self.topic, "query_id": self.query_id}
        if self.timestamp:
            header["timestamp"] = iso8601(batch[0].timestamp_ns)
        header |= {"batch_size": len(batch), "gseq": self.frames}
        self.connection.send(header, b"".join(self._laid_out(row) for row in batch))

    def _laid_out(self, row: Row) -> bytes:
        """A record with a header of its own. A correlation id is stored escaped, as in a header."""
        shown = b'"x":"%b",' % row.correlation_id if row.correlation_id else b""
        if self.timestamp:
            shown += b'"ts":"%b",' % iso8601(row.timestamp_ns).encode()
        last = b',"not_before":%d' % (row.deliver_at_ns // NS_PER_MS) if row.deliver_at_ns else b""
        return b'{"k":"%d",%b"l":%d%b}%b' % (row.txid, shown, len(row.payload), last, row.payload)


class QueueQuery(QueueSearches):
    """A query, in steps. A Search of searches.py."""

    def __init__(
        self,
        connection: Session,
        worker: WorkerContext,
        header: Header,
        queues: Sequence[int],
        page: tuple[int, int],
        ordering: Ordering | None,
        options: Options,
        keys: frozenset[int] | None,
    ) -> None:
        """`page`: the number of records to skip, and the largest number to return. `ordering`: sorts the records; None:
        they stay in the order of the log. `keys`: transaction ids of the requested records; None: all.
        """
        super().__init__(
            worker.queues.filters,
            queues,
            None,
            shows=True,
            keys=keys,
            bytes_per_step=LOG_BYTES_PER_STEP if ordering is None else LOG_BYTES_PER_ORDERED_STEP,
        )
        self._worker = worker
        self._header = header
        self._skip, self._limit = page
        self._ordering = ordering
        self._shows_answer = False
        self._sub_id: Header = {}
        query_id = header.get("query_id") or header.get("cmd_id")
        self._answer = _Answer(connection, query_id, header.get("batch_size") or 1, options.timestamp)
        self._too_large = False

    def start(self, filter_: Filter | None, limit: int) -> None:
        """Begin the first part. `limit`: log position up to which the journal is written."""
        self._filter = filter_
        worker = self._worker
        for queue in self._queues:
            worker.runtime.queue_statistics.count_query(worker.index, queue)
        self.begin(limit)

    def check(self) -> None:
        """Check the result of the first part. Raises CommandFailure if it is too large."""
        if self._too_large:
            raise CommandFailure(
                "result too large", "to be sorted: request a page, or use a filter"
            )

    def show(self, sub_id: str | None = None, granted: str | None = None) -> None:
        """Begin the second part. `sub_id`: of the subscription made by the same command, and `granted`: its options."""
        self._shows_answer = True
        if sub_id is not None:
            self._sub_id = {"sub_id": sub_id}
            self._answer.query_id = self._answer.query_id or sub_id
        if self._ordering is not None:
            self._ordering.finish()
        if "processed" in wanted_acks(self._header):
            self._acknowledge("processed", **({} if granted is None else {"opts": granted}))
        self._answer.connection.send({"cmd": "group_begin", "query_id": self._answer.query_id})

    def step(self) -> bool:
        """Continue for about a millisecond. Raises LogDamaged, PagesMissing."""
        if self._ordering is None:
            return not self._shows_answer or super().step()
        if not self._shows_answer:
            try:
                return super().step()
            except ResultTooLarge:
                self._too_large = True
                return True
        rows = self._ordering.take(ROWS_PER_STEP, LOG_BYTES_PER_STEP)
        skipped = min(self._skip, len(rows))
        self._skip -= skipped
        for queue, of_queue in groupby(rows[skipped:], attrgetter("queue")):
            self._answer.add(self._filters.entry(queue).name, list(of_queue))
        return not rows

    def prepare(self, search: QueueSearch) -> None:
        """Prepare the search of the next queue."""
        if self._ordering is None:
            matched = sum(each.matched for each in self.done)
            shown = self._answer.returned + len(self._answer.waiting)
            search.show(max(0, self._skip - matched), self._limit - shown)

    def went_on(self, queue: int, search: QueueSearch, ended: bool) -> None:
        """Handle the records found in a step."""
        rows = [Row(queue, *row) for row in search.take_rows()]
        if self._ordering is None:
            self._answer.add(self._filters.entry(queue).name, rows)
        else:
            self._ordering.add(rows)

    def end(self) -> None:
        """Send the end of the result: all records have been sent."""
        self._answer.flush()
        self._answer.connection.send({"cmd": "group_end", "query_id": self._answer.query_id})
        if "completed" in wanted_acks(self._header):
            self._acknowledge("completed")
        tell_counts(
            self._answer.connection,
            self._worker,
            self._header,
            self._answer.connection.acknowledge,
            **self._ids,
            topic_matches=self.compared,
            matches=sum(search.matched for search in self.done),
            records_returned=self._answer.returned,
        )

    @property
    def _ids(self) -> Header:
        return {**self._sub_id, "query_id": self._header.get("query_id")}

    def _acknowledge(self, kind: str, **more: Any) -> None:
        self._answer.connection.acknowledge(kind, self._header.get("cmd_id"), **self._ids, **more)


def _keys_of(header: Header) -> frozenset[int] | None:
    """The keys in the header `sow_keys`. Words that cannot be a key match no record."""
    texts = text_of(header, "sow_keys")
    if not texts:
        return None
    words = (word.strip() for word in texts.split(","))
    return frozenset(int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 20)


def page_of(header: Header) -> tuple[int, int]:
    """How many records a query skips, and how many it returns at most. Raises CommandFailure."""
    skip, limit = page_options(option_text(header), text_of(header, "cmd"))
    if limit is None:
        limit = header.get("top_n")
    if limit is None:
        limit = ROWS_ALL
    elif not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise CommandFailure("invalid options", f"top_n is {limit!r}")
    return skip, min(limit, ROWS_ALL)


def make_query(
    connection: Session, worker: WorkerContext, header: Header, queues: Sequence[int], options: Options
) -> QueueQuery:
    """Make the query of a command, checking the headers for queues. Raises CommandFailure."""
    fields = parse_order(text_of(header, "orderby"))
    skip, limit = page_of(header)
    names = worker.queues.names
    readable = [number for number in queues if connection.may("read", names.queues[number].name)]
    if not readable and [names.queues[number].name for number in queues] == [text_of(header, "topic")]:
        raise CommandFailure("not entitled", f"to read {text_of(header, 'topic')!r}")
    ordering = None
    if fields:
        extractor = worker.queues.filters.extractor(connection.message_type)
        ordering = Ordering(fields, extractor, min(skip + limit, ROWS_ALL) if limit else 0)
    return QueueQuery(
        connection, worker, header, readable, (skip, limit), ordering, options, _keys_of(header)
    )
