"""The pages of paginated subscriptions (sow.md §§11, 1.2, D19; amps/_core/delivery/pages.pyx).

One ordered list of the matching records serves all subscriptions of a worker with the same topic, filter and order. The
first of them has it made: the live tailer keeps it up to date from its place on, while a scan fills it with the state
at that place (scans.py). When it is full, subscriptions are shown their pages: each begins at a place of the tailer,
with the records that are on its page there. The list ends with its last subscription.

Lists take memory: all of a worker together at most the limit of the instance for messages (`MessageMemoryLimit`). A
list for which there is no more memory is refused, and one that grows beyond the limit ends: its clients are
disconnected, because they would miss changes.

Invariants: a page belongs to one subscription, or to the command that makes one. While it exists, its list does. The
list of an open page is filled.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from amps._core.delivery.delivery import Group
from amps._core.delivery.pages import PageList, TopicPages, Window
from amps._core.delivery.results import SCAN_DONE, SCAN_MISSING, StateScan
from amps._core.expressions.machine import Filter, FilterSet
from amps._core.sow.ranking import Ranking, SortKeys
from amps._core.wire.topics import TopicEntry
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.shared.journal_view import PagesMissing
from amps.server.shared.sow_state import Snapshot, SowStates
from amps.server.transport.failures import CommandFailure
from amps.server.transport.ordering import OrderField
from amps.server.transport.scans import Scans
from amps.server.transport.session import Phase, Session, Subscription

TOO_LARGE = "result too large"
TOO_LARGE_DETAIL = "the ordered records of paginated subscriptions need more memory than MessageMemoryLimit"
LOOK_S = 1.0
"""How often the memory of all lists is added up."""


@dataclass(frozen=True, slots=True)
class PageTerms:
    """Which page of which list a subscription shows."""

    entry: TopicEntry
    order: Sequence[OrderField]
    skip: int
    top: int


@dataclass(slots=True, eq=False)
class KeptList:
    """One list, and those who use it. `fill`: None when it is filled. `waiting`: those who wait for that, the first of
    which has it done.
    """

    key: tuple[int, Filter | None, tuple[OrderField, ...]]
    entry: TopicEntry
    pages: PageList
    fill: "Fill | None"
    users: int = 0
    shown: "dict[SubscribedPage, Subscription]" = field(default_factory=dict)
    waiting: deque[tuple[Session, Callable[[], None]]] = field(default_factory=deque)
    has_ended: bool = False

    @property
    def memory_bytes(self) -> int:
        """The memory of the list."""
        return self.pages.ranking.records.memory_bytes


class Fill:
    """The scan that fills a list: a Run of scans.py."""

    def __init__(self, scan: StateScan, snapshot: Snapshot) -> None:
        self._scan = scan
        self._snapshot = snapshot
        self._ended = False

    def step(self, written: int, until_ns: int) -> int:
        """See scans.py."""
        if self._ended:
            return SCAN_DONE
        state = self._scan.run(written, until_ns)
        if state == SCAN_MISSING:
            raise PagesMissing(*self._scan.missing)
        if state == SCAN_DONE:
            self.end()
        return state

    def end(self) -> None:
        """Read no more, and release the snapshot."""
        self._ended = True
        self._snapshot.end()


class SubscribedPage:
    """The page of one subscription."""

    def __init__(self, owner: "Pages", kept: KeptList, terms: PageTerms) -> None:
        self._owner = owner
        self._kept = kept
        self._window: Window | None = None
        self._closed = False
        self.terms = terms
        self.keys: list[int] = []
        """The keys on the page when it was opened; when it was closed, after `keep_keys`."""
        self.match_count = 0
        """How many records the list had when the page was opened."""
        self._keeps_keys = False

    @property
    def kept(self) -> KeptList:
        """Its list."""
        return self._kept

    @property
    def is_too_large(self) -> bool:
        """Whether there is no memory for the list."""
        return self._kept.has_ended or self._kept.pages.ranking.too_large

    @property
    def row_count(self) -> int:
        """How many records are on the page now."""
        return max(0, min(self.terms.top, len(self._kept.pages.ranking.records) - self.terms.skip))

    def open(self, subscription: Subscription) -> None:
        """Let the subscription get the changes of the page from now on."""
        terms, connection = self.terms, subscription.connection
        entry = terms.entry
        shown_id = None
        if subscription.send_ids:
            shown_id = json.dumps(subscription.sub_id, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")
        flags = subscription.flags(entry)
        unrecorded = flags if entry.unrecorded is None else subscription.flags(entry.unrecorded)
        self._window = Window(
            entry,
            connection.output,
            shown_id,
            unrecorded,
            flags,
            terms.skip,
            terms.top,
            subscription.conflation,
            subscription.options.select,
        )
        self._kept.pages.open(self._window)
        self._kept.shown[self] = subscription
        self.keys = self._now()
        self.match_count = len(self._kept.pages.ranking.records)

    def keep_keys(self) -> None:
        """Set `keys` when the page is closed."""
        self._keeps_keys = True

    def close(self) -> None:
        """Let it get them no more, and give the list back."""
        if self._closed:
            return
        self._closed = True
        self.keys = self._now() if self._keeps_keys else []
        if self._window is not None:
            self._kept.pages.close(self._window)
            del self._kept.shown[self]
        self._owner.leave(self._kept)

    def _now(self) -> list[int]:
        return self._kept.pages.ranking.records.keys(self.terms.skip, self.terms.top)


class Pages:
    """The lists of one worker."""

    def __init__(
        self,
        group: Group,
        evaluations: EvaluationContexts,
        states: SowStates,
        bytes_max: int,
        schedule: Callable[[], None],
    ) -> None:
        """`group`: of the live tailer. `bytes_max`: memory for all lists. `schedule` requests a turn of the worker."""
        self._group = group
        self._evaluations = evaluations
        self._states = states
        self._bytes_max = bytes_max
        self._schedule = schedule
        self._lists: dict[tuple[int, Filter | None, tuple[OrderField, ...]], KeptList] = {}
        self._topics: dict[int, TopicPages] = {}
        self._grown: list[KeptList] = []
        self._next_look_s = 0.0

    @property
    def memory_bytes(self) -> int:
        """The memory of all lists."""
        return sum(kept.memory_bytes for kept in self._lists.values())

    def statistics(self) -> list[dict[str, int | str]]:
        """What the administration interface shows of each list (sow.md §22)."""
        return [
            {
                "topic": kept.entry.name,
                "message_type": kept.entry.message_type,
                "memory_bytes": kept.memory_bytes,
                "subscription_count": len(kept.shown),
            }
            for kept in self._lists.values()
        ]

    def obtain(self, subscription: Subscription, terms: PageTerms, txid: int) -> SubscribedPage:
        """Make a page at the place of the live tailer, at that transaction id. Its list may have to be filled."""
        entry, filter_ = terms.entry, subscription.filter
        key = entry.number, filter_, tuple(terms.order)
        kept = self._lists.get(key)
        if kept is None:
            kept = self._lists[key] = self._begin(key, terms, filter_, txid)
        kept.users += 1
        return SubscribedPage(self, kept, terms)

    def _begin(
        self,
        key: tuple[int, Filter | None, tuple[OrderField, ...]],
        terms: PageTerms,
        filter_: Filter | None,
        txid: int,
    ) -> KeptList:
        entry = terms.entry
        assert entry.sow is not None
        reader = self._states.reader(entry.sow.number)
        evaluation = self._evaluations.of_type(entry.message_type)
        fields = [(one.path, one.descending, one.as_text) for one in terms.order]
        left = max(0, self._bytes_max - self.memory_bytes)
        ranking = Ranking(SortKeys(evaluation.extractor, fields), left)
        filters = None
        if filter_ is not None:
            filters = FilterSet(evaluation)
            filters.add(filter_, None)
        scan = StateScan(reader, entry, filters, txid, ranking=ranking)
        fill = Fill(scan, self._states.snapshot_at(txid))
        kept = KeptList(key, entry, PageList(ranking, filter_, self._has_grown), fill)
        topic = self._topics.get(entry.number)
        if topic is None:
            topic = self._topics[entry.number] = TopicPages(entry, reader, evaluation)
            self._follow(entry, topic)
        topic.add(kept.pages)
        return kept

    def _follow(self, entry: TopicEntry, topic: TopicPages | None) -> None:
        self._group.follow(entry.number, topic)
        if entry.unrecorded is not None:
            self._group.follow(entry.unrecorded.number, topic)

    def when_filled(self, scans: Scans, page: SubscribedPage, connection: Session, then: Callable[[], None]) -> None:
        """Call `then` when the list of a page is filled, or has ended: at once or later."""
        kept = page.kept
        if kept.fill is None or kept.has_ended:
            then()
            return
        kept.waiting.append((connection, then))
        if len(kept.waiting) == 1:
            self._go_on(scans, kept)

    def gives_up(self, scans: Scans, page: SubscribedPage, connection: Session) -> None:
        """A connection that may wait for a list has ended: another one goes on with the scan."""
        kept = page.kept
        if kept.waiting:
            first = kept.waiting[0][0]
            kept.waiting = deque(waiter for waiter in kept.waiting if waiter[0] is not connection)
            if first is connection and kept.waiting:
                self._go_on(scans, kept)

    def _go_on(self, scans: Scans, kept: KeptList) -> None:
        """Let the first of those who wait have the list filled."""
        assert kept.fill is not None
        scans.begin(kept.fill, kept.waiting[0][0], lambda: self._filled(kept))

    def _filled(self, kept: KeptList) -> None:
        kept.fill = None
        if not kept.pages.ranking.too_large:
            kept.pages.ranking.filled()
        waiting, kept.waiting = kept.waiting, deque()
        for connection, then in waiting:
            if connection.phase is not Phase.CLOSED:
                then()

    def leave(self, kept: KeptList) -> None:
        """A page of a list is closed."""
        kept.users -= 1
        if kept.users == 0:
            self._end(kept)

    def _end(self, kept: KeptList) -> None:
        if kept.has_ended:
            return
        kept.has_ended = True
        if kept.fill is not None:
            kept.fill.end()
        del self._lists[kept.key]
        topic = self._topics[kept.entry.number]
        topic.remove(kept.pages)
        if not len(topic):
            del self._topics[kept.entry.number]
            self._follow(kept.entry, None)

    # --- memory -----------------------------------------------------------------------------------------------

    def _has_grown(self, pages: PageList) -> None:
        self._grown += [kept for kept in self._lists.values() if kept.pages is pages]
        self._schedule()

    def run(self) -> bool:
        """End lists that have become too large. True: some have ended. Called in each turn."""
        if not self._lists:
            return False
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_S
            if self.memory_bytes > self._bytes_max:
                self._grown.append(max(self._lists.values(), key=lambda kept: kept.memory_bytes))
        grown, self._grown = self._grown, []
        for kept in grown:
            self._end(kept)
            for subscription in list(kept.shown.values()):
                subscription.connection.dismiss(TOO_LARGE, TOO_LARGE_DETAIL)
        return bool(grown)


def refuse_too_large() -> CommandFailure:
    """The failure of a subscription for whose list there is no memory."""
    return CommandFailure(TOO_LARGE, TOO_LARGE_DETAIL)
