"""Paginated subscriptions: from a checked command to a subscription that has its page (sow.md §§11, 1.2).

The list of the page is made or joined, and filled (pages.py). Then the subscription is entered in the live feed. The
records that are on its page at this place are the result of its query, and the changes of the page follow.

A replacement keeps the topic. It has a page again; its filter, order and options may be others. Its query returns the
records that were not on the page before. With `oof`, out-of-focus messages follow for those that have left the page.
"""

from collections.abc import Sequence
from functools import partial

from amps._core.delivery.results import StateScan
from amps._core.expressions.machine import Filter
from amps._core.wire.framing import build_header
from amps._core.wire.topics import TopicEntry
from amps.server.shared.sow_state import Snapshot
from amps.server.transport.answering import Header, text_of
from amps.server.transport.command import Command
from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure, not_supported_yet
from amps.server.transport.feeds import Feeds
from amps.server.transport.options import tokenize
from amps.server.transport.ordering import HELD_BYTES_MAX, ROW_BYTES, ResultTooLarge, Row
from amps.server.transport.pages import PageTerms, SubscribedPage, refuse_too_large
from amps.server.transport.past_states import MomentSearch
from amps.server.transport.queue_queries import ROWS_ALL
from amps.server.transport.session import Session, Subscription
from amps.server.transport.sow_queries import SowQuery, Terms

ROWS_MAX = HELD_BYTES_MAX // ROW_BYTES
"""The most records on a page when a subscription begins: they are put in order in memory."""
TERMS = ("top_n", "skip_n", "orderby")


class PageRows:
    """The records of a page, which are read in any order, in the order of the page."""

    def __init__(self, keys: Sequence[int]) -> None:
        self._places = {key: place for place, key in enumerate(keys)}
        self._rows: list[tuple[int, Row]] = []
        self._held_bytes = 0
        self._sent = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Add records. Raises ResultTooLarge."""
        for row in rows:
            self._rows.append((self._places[row.txid], row))
            self._held_bytes += ROW_BYTES + len(row.payload) + len(row.correlation_id)
        if self._held_bytes > HELD_BYTES_MAX:
            raise ResultTooLarge

    def finish(self) -> None:
        """Prepare the output: all records have been added."""
        self._rows.sort()

    def take(self, rows_max: int, bytes_max: int) -> list[Row]:
        """The next records, up to about the limits. An empty list: there are no more."""
        rows: list[Row] = []
        while self._sent < len(self._rows) and len(rows) < rows_max and bytes_max > 0:
            rows.append(self._rows[self._sent][1])
            bytes_max -= len(rows[-1].payload)
            self._sent += 1
        return rows


class PageQuery(SowQuery):
    """The query of a paginated subscription: records whose keys are known when it begins."""

    def __init__(self, connection: Session, worker: WorkerContext, header: Header, terms: Terms) -> None:
        super().__init__(connection, worker, header, terms)
        self._keys: Sequence[int] = ()
        self._left_keys: Sequence[int] = ()
        self._match_count = 0

    def show_page(self, page: SubscribedPage, before: SubscribedPage | None) -> None:
        """Set the records: those of a page that has just been opened, without those of the page that it replaces."""
        was = set() if before is None else set(before.keys)
        is_ = set(page.keys)
        self._keys = [key for key in page.keys if key not in was]
        self._left_keys = [] if before is None else [key for key in before.keys if key not in is_]
        self._match_count = page.match_count
        page.keys = []

    @property
    def entry(self) -> TopicEntry:
        """The topic."""
        return self._worker.topics.entry(self.terms.targets[0].name, self._connection.message_type)

    def begin(self, filter_: Filter | None, txid: int, past: MomentSearch | None = None) -> None:
        """See SowQuery."""
        select = self.terms.options.select
        kind = self._connection.message_type
        self._documents = None if select is None else self._worker.feeds.documents_of(kind)
        self._frames = self._new_frames(0, ROWS_ALL)
        self._ordering = PageRows(self._keys)
        entry, [reader] = self.entry, self._readers
        self._scans.append(StateScan(reader, entry, None, txid, self._keys))
        self._scanned.append([entry])
        if self._left_keys and self.terms.options.oof:
            frames = self._left_frames = self._new_left_frames()
            fields = {"cmd": "oof", "topic": entry.name, "sids": self.sub_id, "reason": "match"}
            scan = StateScan(reader, entry, None, txid, self._left_keys, frames)
            self._left.append((build_header(fields)[:-1], scan))

    def _counts(self) -> tuple[int, int]:
        return self._readers[0].table.live, self._match_count


def terms_given(header: Header, text: str) -> frozenset[str]:
    """Which of TERMS a command has. `text`: its options. Raises CommandFailure."""
    command = text_of(header, "cmd")
    if not command.startswith("sow_and"):
        return frozenset()
    found = tokenize(text, command)
    return frozenset(name for name in TERMS if name in found or text_of(header, name))


def check_replacement(existing: Subscription | None, subscription: Subscription) -> None:
    """Check what a subscription must have again that replaces one (sow.md §1.2). Raises CommandFailure."""
    if existing is None or existing.queues:
        return
    missing = sorted(existing.result_terms - subscription.result_terms)
    if missing:
        raise CommandFailure("invalid options", f"a replacement needs {', '.join(missing)} again")
    if existing.page is None and subscription.is_paginated:
        raise CommandFailure("invalid options", "replace does not make a subscription paginated: subscribe anew")
    if existing.page is not None and existing.topic != subscription.topic:
        raise CommandFailure("invalid topic", "a paginated subscription keeps its topic: subscribe anew")


def check_page(subscription: Subscription, terms: Terms, header: Header) -> None:
    """Check the terms of a subscription, if it is a paginated one. Raises CommandFailure."""
    if not subscription.is_paginated:
        return
    if subscription.predicate is not None:
        raise CommandFailure("invalid topic", "a page is of one topic, not of an expression")
    if len(terms.targets) != 1 or terms.queues or subscription.bookmark is not None:
        raise CommandFailure("invalid topic", "a page is of one SOW topic")
    if terms.targets[0].predicate is not None:
        raise not_supported_yet("pagination", "of a topic that a Pattern keeps with others")
    if header.get("sow_keys"):
        raise CommandFailure("invalid options", "sow_keys with a page: use a filter")


async def carry_out_page(
    command: Command, worker: WorkerContext, connection: Session, subscription: Subscription, query: PageQuery
) -> None:
    """Make the subscription, and send its page. Raises CommandFailure."""
    feeds = worker.feeds
    if subscription.filter is not None and not subscription.filter.deterministic:
        raise CommandFailure("bad filter", "of a page, it may not depend on the time of its evaluation")
    await command.consumed()
    await command.until(connection.when_no_result)
    terms = PageTerms(query.entry, query.terms.order, query.terms.skip, query.terms.limit)
    page: SubscribedPage = await command.wait(partial(feeds.obtain_page, subscription, terms))
    try:
        await command.until(partial(feeds.pages.when_filled, worker.scans, page, connection))
        if page.is_too_large:
            raise refuse_too_large()
        existing = connection.subscriptions.get(subscription.sub_id)
        for one in (page, None if existing is None else existing.page):
            if one is not None and one.row_count > ROWS_MAX:
                raise CommandFailure("result too large", f"a page may begin, or be replaced, with {ROWS_MAX} records")
        subscription.page = page
        with feeds.states.snapshot() as snapshot:
            before = await _enter(command, feeds, existing, subscription, snapshot)
            connection.begin_result()
            try:
                query.sub_id = subscription.sub_id
                query.show_page(page, before)
                await query.run(command, None, snapshot.txid, subscription.sub_id)
            except CommandFailure:
                if existing is None:
                    feeds.remove(subscription)
                raise
            finally:
                connection.end_result()
    finally:
        feeds.pages.gives_up(worker.scans, page, connection)
        current = connection.subscriptions.get(subscription.sub_id)
        if current is None or current.page is not page:
            feeds.let_go(page)


async def _enter(
    command: Command,
    feeds: Feeds,
    existing: Subscription | None,
    subscription: Subscription,
    snapshot: Snapshot,
) -> SubscribedPage | None:
    """Enter the subscription, and set the snapshot to that place. Returns the page that it had before."""
    before = None
    if existing is not None and isinstance(existing.page, SubscribedPage):
        before = existing.page
        before.keep_keys()
        await command.wait(
            partial(feeds.replace_page, existing, subscription, partial(setattr, snapshot, "txid"))
        )
    else:
        await command.until(
            lambda over: setattr(snapshot, "txid", feeds.enter_live(subscription, over))
        )
    return before
