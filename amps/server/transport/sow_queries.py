"""Queries of SOW topics, alone and with a subscription (sow.md §§8, 10, 11; protocol.md §9).

A query returns a *snapshot*: the state before one transaction id, whatever changes meanwhile. Its result goes out in
front of all other output of the connection, which is held until the result is complete (session.py). So the result has
a place in the order of the client's messages: a subscription that begins with it is entered in the live feed at the
very transaction id of the snapshot, and its messages follow the result.

Several topics are read in the order of the configuration; queues that the same expression matches come after them
(queue_queries.py). With an order, the records are found and sorted first: until then the query can fail. Without an
order, they go straight from the mapped log into the output (amps/_core/delivery/results.pyx). The client's pace limits
both.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol

from amps._core.delivery.results import SCAN_DONE, SCAN_FULL, SCAN_MISSING, SCAN_MORE, ResultFrames, StateScan
from amps._core.expressions.machine import Filter, FilterSet
from amps._core.queues.sender import QueueSearch
from amps._core.sow.table import StateReader
from amps._core.values.documents import Documents
from amps._core.wire.framing import build_header
from amps._core.wire.topics import TopicEntry
from amps.config.model_sow import SowTopicConfig
from amps.server.shared.journal_view import PagesMissing
from amps.server.topics import topic_predicate
from amps.server.transport.answering import Header, tell_counts, text_of, wanted_acks
from amps.server.transport.bookmarks import BookmarkRange
from amps.server.transport.command import Command
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure
from amps.server.transport.options import Options, option_text, tokenize
from amps.server.transport.ordering import OrderField, Ordering, ResultTooLarge, Row, parse_order
from amps.server.transport.past_states import MomentSearch, parse_moment
from amps.server.transport.queue_queries import ROWS_ALL, ROWS_PER_STEP, page_of
from amps.server.transport.queue_searches import LOG_BYTES_PER_STEP, QueueSearches
from amps.server.transport.session import Session, Subscription

FILE_UNREADABLE = "the state of a SOW topic cannot be read"


@dataclass(slots=True)
class Target:
    """A SOW topic of a command. `predicate`: which of the logical topics of a topic with `Pattern` it concerns; None:
    there is no Pattern, and the topic's name is `name`. `is_logged`: the journal records the topic.
    """

    config: SowTopicConfig
    name: str
    predicate: Callable[[str], bool] | None
    is_logged: bool

    def entries(self, worker: WorkerContext) -> list[TopicEntry | None]:
        """The topics whose records are read, by their numbers in slots; None: records of that topic are left out. To be
        called after the watermarks of the snapshot were read. Raises CommandFailure.
        """
        kind, states = self.config.message_type, worker.feeds.states
        if self.predicate is None:
            return [worker.topics.entry(self.name, kind)]
        try:
            names = states.logical_topics(self.config.number)
        except (OSError, ValueError) as problem:
            raise CommandFailure("invalid topic", f"{FILE_UNREADABLE}: {problem}") from problem
        # Another configuration may have kept a topic here that has a definition of its own now.
        return [
            worker.topics.entry(name, kind)
            if self.predicate(name) and states.names.find(name, kind) is self.config
            else None
            for name in names
        ]


@dataclass(slots=True)
class Terms:
    """What a query asks for, as far as its headers say it."""

    targets: Sequence[Target]
    queues: Sequence[int]
    skip: int
    limit: int
    order: Sequence[OrderField]
    is_ordered: bool
    options: Options
    queue_keys: frozenset[int] | None = None
    moment: BookmarkRange | None = None
    beginnings: dict[str, bytes] = field(default_factory=dict)


def targets_of(
    connection: Session, worker: WorkerContext, header: Header, topics: Sequence[SowTopicConfig], permission: str
) -> list[Target]:
    """The topics of a command that the client may use. Raises CommandFailure if the only one is not permitted."""
    topic = text_of(header, "topic")
    literal = "non_regex_topic" in tokenize(option_text(header), text_of(header, "cmd"))
    predicate = topic_predicate(topic, worker.config.regex_topic_support and not literal)
    found = []
    for config in topics:
        if not connection.may(permission, config.name):
            if predicate is None:
                raise CommandFailure("not entitled", f"to {permission} {topic!r}")
            continue
        of_pattern = None if config.pattern is None else predicate or topic.__eq__
        is_logged = worker.has_journal and worker.matcher.is_logged(config.name, config.message_type)
        found.append(Target(config, topic if predicate is None else config.name, of_pattern, is_logged))
    return found


def check_select(worker: WorkerContext, message_type: str, options: Options) -> None:
    """Refuse a select list on messages that cannot be sent in part (sow.md §18). Raises CommandFailure."""
    if options.select is not None and worker.feeds.documents_of(message_type) is None:
        raise CommandFailure(
            "invalid options", f"select: messages of type {message_type} are sent as a whole only"
        )


def listed_keys(header: Header) -> list[str]:
    """The words of the header `sow_keys`; empty: there is no such header. An empty list of keys has one empty word."""
    texts = text_of(header, "sow_keys")
    return [word.strip() for word in texts.split(",")] if texts else []


def keys_of(header: Header, entries: Sequence[TopicEntry | None]) -> list[int] | None:
    """The keys in the header `sow_keys`, of some topics with the same definition. Words that cannot be a key match no
    record.
    """
    words = listed_keys(header)
    if not words:
        return None
    rules = [entry.sow for entry in entries if entry is not None and entry.sow is not None]
    if any(each.given_keys for each in rules):
        names = [word.encode("utf-8", "surrogatepass") for word in words]
        return [each.keys.text_key(name) for each in rules for name in names]
    numbers = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 20]
    return [number for number in numbers if number < 1 << 64]


def terms_of(
    connection: Session,
    worker: WorkerContext,
    header: Header,
    topics: Sequence[SowTopicConfig],
    queues: Sequence[int],
    options: Options,
) -> Terms:
    """Check the headers of a query. Raises CommandFailure."""
    check_select(worker, connection.message_type, options)
    order = parse_order(text_of(header, "orderby"))
    skip, limit = page_of(header)
    names = worker.queues.names
    found = tokenize(option_text(header), text_of(header, "cmd"))
    if skip and topic_predicate(text_of(header, "topic"), "non_regex_topic" not in found) is not None and topics:
        raise CommandFailure("invalid options", "skip_n with a topic expression: pages are of one topic")
    bookmark = header.get("bookmark")
    asks_past = bookmark is not None and text_of(header, "cmd") == "sow"
    return Terms(
        targets_of(connection, worker, header, topics, "read"),
        [number for number in queues if connection.may("read", names.queues[number].name)],
        skip,
        limit,
        order,
        bool(order) or "skip_n" in found,
        options,
        _queue_keys(header),
        parse_moment(str(bookmark)) if asks_past else None,
    )


def _queue_keys(header: Header) -> frozenset[int] | None:
    words = listed_keys(header)
    if not words:
        return None
    return frozenset(int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 20)


class _QueueRows(QueueSearches):
    """The queues of a query that concerns SOW topics, too."""

    def __init__(self, query: "SowQuery", *arguments: Any, keys: frozenset[int] | None) -> None:
        super().__init__(*arguments, shows=True, keys=keys)
        self._query = query

    def went_on(self, queue: int, search: QueueSearch, ended: bool) -> None:
        """Hand the records of a step over."""
        name = self._filters.entry(queue).name
        self._query.add_rows(name, [Row(queue, *row) for row in search.take_rows()])


class SortedRows(Protocol):
    """What puts the rows of a result in order."""

    def add(self, rows: Sequence[Row]) -> None:
        """Add records. Raises ResultTooLarge."""

    def finish(self) -> None:
        """Prepare the output: all records have been added."""

    def take(self, rows_max: int, bytes_max: int) -> list[Row]:
        """The next records in the order, up to about the limits. An empty list: there are no more."""


class SowQuery:
    """The result of a query, in steps: a Run of scans.py, twice if it is ordered."""

    def __init__(self, connection: Session, worker: WorkerContext, header: Header, terms: Terms) -> None:
        """Raises CommandFailure if the state of a topic cannot be read."""
        self.terms = terms
        self._connection = connection
        self._worker = worker
        self._header = header
        self._query_id: str | None = header.get("query_id") or header.get("cmd_id")
        self._sub_id: Header = {}
        self._filter: Filter | None = None
        self._txid = 0
        self._counts_all = "stats" in wanted_acks(header)
        self._ordering: SortedRows | None = None
        self._names: list[str] = []  # of the topics of collected rows
        self._frames: ResultFrames | None = None
        self._scans: list[StateScan] = []
        self._scanned: list[list[TopicEntry | None]] = []  # of each scan: the topics by their numbers
        self._documents: Documents | None = None
        self._queues: _QueueRows | None = None
        self._done: list[StateScan] = []
        self._shows = False
        self._too_large = False
        self.cancelled = False
        self._before: Subscription | None = None
        self._left: list[tuple[bytes, StateScan]] = []  # records that left: the beginning of their messages
        self._left_frames: ResultFrames | None = None
        self._ended = False
        self.sub_id: str | None = None
        states = worker.feeds.states
        try:
            self._readers = [states.reader(target.config.number) for target in terms.targets]
        except OSError as problem:
            raise CommandFailure("invalid topic", f"{FILE_UNREADABLE}: {problem}") from problem

    def cancel(self) -> None:
        """End the result early: the client does not want the rest."""
        self.cancelled = True

    def replaces(self, existing: Subscription) -> None:
        """The subscription of the query replaces one, whose records are not returned again (sow.md §1.2)."""
        if existing.queried:
            self._before = copy.copy(existing)

    def _txid_of(self, target: Target, reader: StateReader, past: MomentSearch | None) -> int:
        """The transaction id of the snapshot of a topic. Raises CommandFailure if it cannot be read."""
        if past is None or not target.is_logged:
            return self._txid
        wanted = past.result()
        if wanted is None:
            return self._txid
        begin = reader.table.begin_txid
        if wanted and (begin is None or wanted < begin or past.is_lost):
            raise CommandFailure(
                "invalid bookmark",
                f"the log does not go back so far: the state of {target.config.name!r} at that moment is not known",
            )
        return min(wanted, self._txid)

    def begin(self, filter_: Filter | None, txid: int, past: MomentSearch | None = None) -> None:
        """Begin the first part, for the snapshot at a transaction id, or, of topics in the log, at a moment that was
        searched for. The connection's result has begun. Raises CommandFailure if the log does not go back so far.
        """
        terms, worker, connection = self.terms, self._worker, self._connection
        self._filter = filter_
        self._txid = txid
        limit = min(terms.limit, ROWS_ALL)
        of_targets = [target.entries(worker) for target in terms.targets]
        select = terms.options.select
        self._documents = None if select is None else worker.feeds.documents_of(connection.message_type)
        self._frames = self._new_frames(terms.skip, limit)
        filters = self._alone(filter_)
        before = self._before
        known = self._alone(None if before is None else before.filter)
        if terms.is_ordered:
            extractor = worker.queues.filters.extractor(connection.message_type)
            wanted = min(terms.skip + limit, ROWS_ALL) if limit else 0
            self._ordering = Ordering(terms.order, extractor, wanted, numeric_texts=True)
        for target, entries, reader in zip(terms.targets, of_targets, self._readers, strict=True):
            txid_of_topic = self._txid_of(target, reader, past)
            if txid_of_topic == 0:
                continue  # it is the state before the log: there are no records
            keys = keys_of(self._header, entries)
            for is_known in (False, True):
                if is_known and (before is None or before.filter is None):
                    continue  # all these records are known
                chosen = [
                    entry
                    if entry is not None and is_known == (before is not None and before.matches(entry))
                    else None
                    for entry in entries
                ]
                first = next((entry for entry in chosen if entry is not None), None)
                if first is None:
                    continue
                self._scans.append(
                    StateScan(
                        reader,
                        first,
                        filters,
                        txid_of_topic,
                        keys,
                        None if terms.is_ordered else self._frames,
                        self._counts_all,
                        excluded=known if is_known else None,
                        logical=None if target.predicate is None else self._with_beginnings(chosen),
                    )
                )
                self._scanned.append(chosen)
        self._scans.reverse()
        if before is not None and terms.options.oof:
            self._find_left(before, known, filters)
        for number in {target.config.number for target in terms.targets}:
            worker.runtime.sow_statistics.count_query(worker.index, number)
        if terms.queues:
            self._queues = _QueueRows(
                self, worker.queues.filters, terms.queues, filter_, keys=terms.queue_keys
            )
            for queue in terms.queues:
                worker.runtime.queue_statistics.count_query(worker.index, queue)
            self._queues.begin(worker.core.view.journal_written)

    def _with_beginnings(self, entries: Sequence[TopicEntry | None]) -> list[tuple[TopicEntry, bytes] | None]:
        return [None if entry is None else (entry, self._beginning(entry.name)) for entry in entries]

    def _beginning(self, name: str) -> bytes:
        """The beginning of the header of frames with records of a topic."""
        beginning = self.terms.beginnings.get(name)
        if beginning is None:
            fields = {"cmd": "sow", "topic": name, "query_id": self._query_id}
            beginning = self.terms.beginnings[name] = build_header(fields)[:-1]
        return beginning

    def _new_frames(self, skip: int, limit: int) -> ResultFrames:
        """Frames for the records of the result."""
        options, connection = self.terms.options, self._connection
        assert connection.results is not None
        return ResultFrames(
            connection.results,
            self._header.get("batch_size") or 1,
            not options.no_sowkey,
            options.timestamp,
            self._documents,
            options.select,
            skip_count=skip,
            row_limit=limit,
        )

    def _new_left_frames(self) -> ResultFrames:
        """Frames for the records that leave a subscription when it is replaced."""
        options, connection = self.terms.options, self._connection
        assert connection.results is not None
        return ResultFrames(
            connection.results,
            1,
            not options.no_sowkey,
            options.timestamp,
            self._documents,
            options.select,
            apart=True,
        )

    def _alone(self, filter_: Filter | None) -> FilterSet | None:
        if filter_ is None:
            return None
        return self._worker.queues.filters.filters_with(filter_, self._connection.message_type)

    def _find_left(self, before: Subscription, known: FilterSet | None, filters: FilterSet | None) -> None:
        """Prepare to send `oof` for the records that matched the replaced subscription, and do not match this one."""
        worker, connection = self._worker, self._connection
        states = worker.feeds.states
        self._left_frames = self._new_left_frames()
        names = {entry.name for entries in self._scanned for entry in entries if entry is not None}
        topics = states.names.matching(
            before.topic, connection.message_type, regex_allowed=not before.options.non_regex_topic
        )
        for config in topics:
            predicate = None if config.pattern is None else before.predicate or before.topic.__eq__
            target = Target(config, config.name, predicate, False)
            entries = target.entries(worker)
            for stays in (False, True):
                if stays and filters is None:
                    continue  # all these records match
                chosen = [
                    entry
                    if entry is not None and before.matches(entry) and stays == (entry.name in names)
                    else None
                    for entry in entries
                ]
                first = next((entry for entry in chosen if entry is not None), None)
                if first is None:
                    continue
                left = [
                    None if entry is None else (entry, _left_beginning(entry.name, before.sub_id)) for entry in chosen
                ]
                scan = StateScan(
                    states.reader(config.number),
                    first,
                    known,
                    self._txid,
                    frames=self._left_frames,
                    excluded=filters if stays else None,
                    logical=None if predicate is None else left,
                )
                self._left.append((_left_beginning(first.name, before.sub_id), scan))

    def show(self, sub_id: str | None = None) -> None:
        """Begin the second part: the query cannot fail any more. `sub_id`: of the subscription of the same command.
        Raises CommandFailure if the result is too large to be sorted.
        """
        if self._too_large:
            raise CommandFailure("result too large", "to be sorted: request a page, or use a filter")
        connection = self._connection
        self._shows = True
        if sub_id is not None:
            self._sub_id = {"sub_id": sub_id}
            self._query_id = self._query_id or sub_id
        if self._ordering is not None:
            self._ordering.finish()
        if "processed" in wanted_acks(self._header):
            self._acknowledge("processed")
        connection.send_result({"cmd": "group_begin", "query_id": self._query_id})

    # --- steps ------------------------------------------------------------------------------------------------

    def step(self, written: int, until_ns: int) -> int:
        """See scans.py."""
        if self.cancelled or (not self._shows and self._ordering is None):
            return SCAN_DONE
        if self._ended:
            return self._send_left(written, until_ns)
        if self._shows and self._ordering is not None:
            return self._send_rows(self._ordering, until_ns)
        try:
            return self._scan(written, until_ns)
        except ResultTooLarge:
            self._too_large = True
            return SCAN_DONE

    def _send_left(self, written: int, until_ns: int) -> int:
        """Send `oof` for the records that have left the subscription."""
        assert self._left_frames is not None
        while self._left:
            beginning, scan = self._left[-1]
            self._left_frames.begin_topic(beginning)
            state = scan.run(written, until_ns)
            if state == SCAN_MISSING:
                raise PagesMissing(*scan.missing)
            if state != SCAN_DONE:
                return state
            self._left.pop()
        return SCAN_DONE

    def _scan(self, written: int, until_ns: int) -> int:
        """Read the topics, then the queues."""
        while self._scans:
            scan = self._scans[-1]
            self._begin_topic(scan)
            state = scan.run(written, until_ns)
            if self._ordering is not None:
                self._collect(scan)
            if state == SCAN_MISSING:
                raise PagesMissing(*scan.missing)
            if state != SCAN_DONE:
                return state
            self._done.append(self._scans.pop())
            if time.monotonic_ns() >= until_ns:
                return SCAN_MORE
        if self._queues is None or self._queues.step():
            return SCAN_DONE
        return SCAN_MORE

    def _begin_topic(self, scan: StateScan) -> None:
        first = next(entry for entry in self._scanned[len(self._done)] if entry is not None)
        if self._ordering is None:
            self._topic(first.name)

    def _topic(self, name: str) -> None:
        """Let the next rows be of a topic."""
        assert self._frames is not None
        self._frames.begin_topic(self._beginning(name))

    def _number(self, name: str) -> int:
        """The number of a topic among those of collected rows."""
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    def _collect(self, scan: StateScan) -> None:
        """Sort the rows of a step."""
        assert self._ordering is not None
        entries = self._scanned[len(self._done)]
        rows = []
        for topic, key, text, timestamp_ns, correlation_id, payload in scan.take_rows():
            entry = entries[topic]
            assert entry is not None
            number = self._number(entry.name)
            rows.append(Row(number, key, timestamp_ns, correlation_id, 0, payload, text))
        self._ordering.add(rows)

    def add_rows(self, name: str, rows: list[Row]) -> None:
        """Add records of a queue."""
        if self._ordering is not None:
            number = self._number(name)
            self._ordering.add([row._replace(queue=number) for row in rows])
            return
        self._topic(name)
        for row in rows:
            self._put(row)

    def _put(self, row: Row) -> None:
        assert self._frames is not None
        key = row.key or str(row.txid).encode()
        self._frames.add(key, row.correlation_id, row.timestamp_ns, row.deliver_at_ns, row.payload)

    def _send_rows(self, ordering: SortedRows, until_ns: int) -> int:
        """Send sorted rows."""
        while True:
            rows = ordering.take(ROWS_PER_STEP, LOG_BYTES_PER_STEP)
            for number, of_topic in groupby(rows, attrgetter("queue")):
                self._topic(self._names[number])
                for row in of_topic:
                    self._put(row)
            if not rows:
                return SCAN_DONE
            results = self._connection.results
            if results is not None and results.pending_bytes >= LOG_BYTES_PER_STEP:
                return SCAN_FULL
            if time.monotonic_ns() >= until_ns:
                return SCAN_MORE

    # --- the end ----------------------------------------------------------------------------------------------

    def end_group(self) -> None:
        """Send the end of the group."""
        assert self._frames is not None
        self._frames.flush()
        self._connection.send_result({"cmd": "group_end", "query_id": self._query_id})
        self._ended = True

    def end(self) -> None:
        """Send the acknowledgements of the end."""
        connection, frames = self._connection, self._frames
        assert frames is not None
        if self.cancelled:
            return
        if "completed" in wanted_acks(self._header):
            self._acknowledge("completed")
        topic_matches, matches = self._counts()
        tell_counts(
            connection,
            self._worker,
            self._header,
            connection.acknowledge_in_result,
            **self._ids,
            topic_matches=topic_matches,
            matches=matches,
            records_returned=frames.returned,
        )

    def _counts(self) -> tuple[int, int]:
        """How many records there are, and how many of them match."""
        queues = self._queues
        compared = sum(scan.compared for scan in self._done) + (queues.compared if queues else 0)
        matched = sum(scan.matched for scan in self._done)
        return compared, matched + (sum(search.matched for search in queues.done) if queues else 0)

    @property
    def _ids(self) -> Header:
        return {**self._sub_id, "query_id": self._header.get("query_id")}

    def _acknowledge(self, kind: str) -> None:
        self._connection.acknowledge_in_result(kind, self._header.get("cmd_id"), **self._ids)

    # --- all of it --------------------------------------------------------------------------------------------

    async def run(
        self,
        command: Command,
        filter_: Filter | None,
        txid: int,
        sub_id: str | None = None,
        past: MomentSearch | None = None,
    ) -> None:
        """Send the result for the snapshot at a transaction id, as part of a command; see `begin`. The connection's
        result has begun; the caller ends it. Raises CommandFailure.
        """
        connection, scans = self._connection, self._worker.scans
        name = self._query_id or sub_id or ""
        connection.queries[name] = self
        self.sub_id = sub_id
        try:
            self.begin(filter_, txid, past)
            command.release()
            if self._ordering is not None:
                await command.until(partial(scans.begin, self, connection))
            self.show(sub_id)
            await command.until(partial(scans.begin, self, connection))
            self.end_group()
            if self._left:
                await command.until(partial(scans.begin, self, connection))
            self.end()
        finally:
            if connection.queries.get(name) is self:
                del connection.queries[name]


def _left_beginning(name: str, sub_id: str) -> bytes:
    """The beginning of the header of an out-of-focus message for a replaced subscription."""
    return build_header({"cmd": "oof", "topic": name, "sids": sub_id, "reason": "match"})[:-1]


async def answer_alone(command: Command, worker: WorkerContext, connection: Session, query: SowQuery) -> None:
    """Carry out the command `sow`. Raises CommandFailure."""
    text = text_of(command.header, "filter")
    filter_ = await command.filter(text) if text else None
    await command.consumed()
    await command.until(connection.when_no_result)
    states = worker.feeds.states
    with states.snapshot() as snapshot:
        worker.core.view.read()
        snapshot.txid = worker.core.view.next_txid
        past: MomentSearch | None = None
        moment, journal = query.terms.moment, worker.feeds.journal
        if moment is not None and journal is not None and any(target.is_logged for target in query.terms.targets):
            past = MomentSearch(journal, moment)
            await command.looked_up(lambda _: past)
        connection.begin_result()
        try:
            await query.run(command, filter_, snapshot.txid, past=past)
        finally:
            connection.end_result()
