"""Queries of queues: seeing what waits there, without taking it (queues.md §14.1, D-17; protocol.md §9.1, §12.3).

What is shown is what a consumer could be given, in the order of the log, queue after queue. It is read in turns of the
worker; what comes or leaves meanwhile may be shown or not. The key of a message is its transaction id.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amps._core.filter_set import Filter
from amps._core.queue_search import QueueSearch
from amps.server.transport.answering import Header, text_of, wanted_acks
from amps.server.transport.failures import CommandFailure, not_supported_yet
from amps.server.transport.options import Options, page_options
from amps.server.transport.queue_searches import QueueSearches

if TYPE_CHECKING:
    from amps.server.transport.connection import Connection

ROWS_ALL = (1 << 64) - 1


@dataclass(slots=True)
class _Answer:
    """The frames that hold records."""

    connection: "Connection"
    query_id: str | None
    batch_size: int
    frames: int = 0
    returned: int = 0
    waiting: list[tuple[int, bytes, bytes]] = field(default_factory=list)

    def add(self, topic: str, rows: Sequence[tuple[int, bytes, bytes]], last: bool) -> None:
        """Records of a queue have come. `last`: there are no more of it."""
        self.waiting += rows
        while len(self.waiting) >= self.batch_size or (last and self.waiting):
            batch, self.waiting = self.waiting[: self.batch_size], self.waiting[self.batch_size :]
            self.frames += 1
            self.returned += len(batch)
            header = {"cmd": "sow", "topic": topic, "query_id": self.query_id, "batch_size": len(batch)}
            self.connection.send({**header, "gseq": self.frames}, b"".join(map(_laid_out, batch)))


def _laid_out(row: tuple[int, bytes, bytes]) -> bytes:
    """A record with a header of its own. A correlation id is kept as it stands in a header."""
    txid, correlation_id, payload = row
    shown = b'"x":"%b",' % correlation_id if correlation_id else b""
    return b'{"k":"%d",%b"l":%d}%b' % (txid, shown, len(payload), payload)


class QueueQuery(QueueSearches):
    """One query, in steps. A Search of searches.py."""

    def __init__(
        self, connection: "Connection", header: Header, queues: Sequence[int], skip: int, limit: int
    ) -> None:
        """`skip`: so many records are passed over, then at most `limit` are shown."""
        super().__init__(connection.worker.queues.filters, queues, None, shows=True)
        self._header = header
        self._skip = skip
        self._limit = limit
        query_id = header.get("query_id") or header.get("cmd_id")
        self._answer = _Answer(connection, query_id, header.get("batch_size") or 1)

    def start(self, filter_: Filter | None, limit: int) -> None:
        """`limit`: log position up to which the journal is written."""
        self._filter = filter_
        worker = self._answer.connection.worker
        for queue in self._queues:
            worker.runtime.queue_statistics.count_query(worker.index, queue)
        self.begin(limit)
        self._answer.connection.send({"cmd": "group_begin", "query_id": self._answer.query_id})

    def prepare(self, search: QueueSearch) -> None:
        """The search of the next queue begins."""
        matched = sum(each.matched for each in self.done)
        search.show(max(0, self._skip - matched), self._limit - self._answer.returned)

    def went_on(self, queue: int, search: QueueSearch, ended: bool) -> None:
        """A step has been taken."""
        name = self._filters.entry(queue).name
        self._answer.add(name, search.take_rows(), ended)

    def end(self) -> None:
        """All records are on their way."""
        connection, header = self._answer.connection, self._header
        sent_id = {"query_id": header.get("query_id")}
        connection.send({"cmd": "group_end", "query_id": self._answer.query_id})
        wanted = wanted_acks(header)
        if "completed" in wanted:
            connection.acknowledge("completed", header.get("cmd_id"), **sent_id)
        if "stats" in wanted:
            connection.acknowledge(
                "stats",
                header.get("cmd_id"),
                **sent_id,
                topic_matches=self.compared,
                matches=sum(search.matched for search in self.done),
                records_returned=self._answer.returned,
            )


def make_query(
    connection: "Connection", header: Header, queues: Sequence[int], options: Options
) -> QueueQuery:
    """Check what concerns queues only. Raises CommandFailure."""
    if header.get("orderby"):
        raise not_supported_yet("queries in an order")
    if header.get("sow_keys"):
        raise not_supported_yet("queries by key")
    if options.timestamp:
        raise not_supported_yet("queries with timestamps")
    skip, limit = page_options(text_of(header, "opts"), "sow")
    if limit is None:
        limit = header.get("top_n")
    if limit is None:
        limit = ROWS_ALL
    elif not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise CommandFailure("invalid options", f"top_n is {limit!r}")
    names = connection.worker.queues.names
    readable = [number for number in queues if connection.may("read", names.queues[number].name)]
    if not readable and [names.queues[number].name for number in queues] == [text_of(header, "topic")]:
        raise CommandFailure("not entitled", f"to read {text_of(header, 'topic')!r}")
    return QueueQuery(connection, header, readable, skip, min(limit, ROWS_ALL))
