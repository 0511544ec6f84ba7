"""The tailers of a worker, and the assignment of subscriptions to them.

The live tailer reads journal and transient log for ordinary subscriptions, up to the written watermark. The durable
tailer reads the journal for bookmark subscriptions that have caught up. Every other bookmark subscription is a replay
with a tailer of its own. A subscription moves between tailers only when both stand at the same log position, so that no
message is missed or sent twice. All tailers stop at the watermarks that the turn has read.

No subscription is brought to a place in a single step, which could be long. A command waits until its tailer is there
(shared_feeds.py), and a replay that has caught up remains a replay until the tailer that it is to join has caught up.

A replay is in one place: in the deque of runnable replays, at the watermark until that moves, in `_unread` while its
client does not read, in `_later` until a certain time, with the threads that read the log from the disk, held until the
destinations of replication have its next message, or paused. The replay's *ticket* marks the newest of its entries;
older entries are skipped. Only runnable replays cost time in a turn.
"""

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from amps._core.delivery.delivery import REPLAY_DUE_LATER, REPLAY_ENDED, REPLAY_HELD, REPLAY_UNFINISHED
from amps._core.journal.reader import LogDamaged, LogDirectory, LogUnreadable
from amps._core.values.documents import Documents
from amps._core.wire.topics import TopicTable
from amps.config import ServerConfig
from amps.journal.bookmark_text import format_bookmark
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime
from amps.server.shared.core_link import CoreLink
from amps.server.shared.journal_pages import JournalPages
from amps.server.shared.journal_view import JournalView, make_journal_view
from amps.server.shared.read_ahead import ReadAhead
from amps.server.transport.bookmark_trail import BookmarkTrail
from amps.server.transport.bookmarks import BookmarkRange
from amps.server.transport.pages import Pages, PageTerms, SubscribedPage
from amps.server.transport.persisted_waits import PersistedWaits
from amps.server.transport.replay import Clocks, Replay
from amps.server.transport.searches import Search, Searches
from amps.server.transport.session import Place, Session, Subscription
from amps.server.transport.settled_time import SettledTime
from amps.server.transport.shared_feeds import DurableFeed, LiveFeed
from amps.server.transport.sow_state import SowStates
from amps.server.transport.start_search import Start, StartSearch
from amps.server.transport.subscriptions import SubscriptionSet
from amps.server.transport.topic_indexes import make_topic_indexes

PERSISTED_INTERVAL_S = 1.0
SETTLING_NS = 20_000_000
REPLAYS_TURN_S = 0.003
"""Time for replays in one turn. Publishers and live subscribers of this worker wait for no longer than this and a step.
"""
LATER_NS_MAX = 60_000_000_000
HELD_LOOKED_AT = 1000
"""Number of held entries of conflated subscriptions at which outdated entries are removed."""


class Feeds:
    """The tailers, replays and searches of one worker."""

    def __init__(
        self,
        config: ServerConfig,
        runtime: Runtime,
        topics: TopicTable,
        core: CoreLink,
        persisted: PersistedWaits,
        log: EventLog,
        evaluations: EvaluationContexts,
        schedule: Callable[[], None],
        flush: Callable[[], None],
        schedule_after: Callable[[float], None],
        call_soon: Callable[[Callable[[], object]], object],
    ) -> None:
        """`schedule` requests a turn of the worker, `schedule_after` one after so many seconds. `flush` passes output
        to the event loop. `call_soon`: of the event loop, from any thread.
        """
        self._core = core
        self._persisted = persisted
        self._log = log
        self._clock = runtime.clock
        self._schedule = schedule
        self._schedule_after = schedule_after
        self._evaluations = evaluations
        members = SubscriptionSet(topics, evaluations, combine=False, live=False)
        self._durable = DurableFeed(members, core, schedule, flush)
        self.journal = make_journal_view(config, runtime, core.index, topics.entry, log)
        self.states = SowStates(
            config, runtime, core, None if self.journal is None else self.journal.directory
        )
        members = SubscriptionSet(
            topics, evaluations, combine=True, live=True, holds=self._expect_due, states=self.states
        )
        self.pages = Pages(members.group, evaluations, self.states, config.message_memory_limit_bytes, schedule)
        floor = self.states.floor if config.sow_topics else None
        self._live = LiveFeed(members, core, schedule, flush, floor)
        self._replay_of: dict[Subscription, Replay] = {}
        self._replays: deque[tuple[Replay, int]] = deque()
        self._at_watermark: list[tuple[Replay, int]] = []
        self._watermark = 0, 0  # the watermark that `_at_watermark` refers to
        self._unread: dict[Session, list[tuple[Replay, int]]] = {}
        self._later: list[tuple[int, int, Replay]] = []  # by monotonic time, ns
        self._number = itertools.count()
        self._held: list[
            tuple[int, int, Subscription]
        ] = []  # conflated, by the time at which the next message is due: UNIX time, ns
        self._held_max = HELD_LOOKED_AT
        self._settled = SettledTime(runtime.control)
        self.read_ahead = ReadAhead(call_soon)
        self._searches = Searches(self.read_ahead, schedule, self.journal_damaged)
        self._next_persisted_s = 0.0
        self._transient = LogDirectory(runtime.transient_prefix, ".log", topics.unrecorded_entry)
        settings = config.transaction_log
        self._pages: JournalPages | None = None
        if self.journal is not None and settings is not None and settings.o_direct:
            self._pages = JournalPages(self.journal, runtime.control, core.index)
        self._topic_indexes = make_topic_indexes(config, runtime, self.journal, log)

    @property
    def has_live(self) -> bool:
        """Whether a subscription of this worker gets messages as soon as they are written."""
        return self._live.tailer is not None

    @property
    def durable_awaited(self) -> bool:
        """Whether a subscription of this worker gets messages when they are durable."""
        return self._durable.tailer is not None or bool(self._replays or self._at_watermark)

    def documents_of(self, message_type: str) -> Documents | None:
        """What merges, compares and reduces messages of a type; None: it has no such operations."""
        return self._evaluations.documents_of(message_type)

    def forget(self, connection: Session) -> None:
        """Remove a connection that has ended."""
        self._unread.pop(connection, None)

    def run(self) -> bool:
        """Run one turn. True: there is more work to do at once."""
        self._searches.run()
        more = bool(self._searches)
        more |= not self._live.run()
        if self.pages.run():
            self._live.end_if_idle()
        if self._held:
            self._send_held()
        self.release_transient()
        more |= not self._durable.run()
        if self._replays or self._later or self._at_watermark:
            more |= self._run_replays()
        return more

    def _expect_due(self, subscription: Subscription) -> None:
        """Note when the message is due that conflation holds for an ordinary subscription."""
        conflation = subscription.conflation
        due_ns = None if conflation is None else conflation.due_ns
        if due_ns is None:
            return
        heapq.heappush(self._held, (due_ns, next(self._number), subscription))
        if len(self._held) > self._held_max:
            # Remove entries of subscriptions that were replaced or have ended: with long intervals they would
            # accumulate.
            self._held = [entry for entry in self._held if _is_expected(entry[2], entry[0])]
            heapq.heapify(self._held)
            self._held_max = 2 * max(HELD_LOOKED_AT, len(self._held))

    def _send_held(self) -> None:
        """Send the messages whose conflation interval has ended, and schedule a turn for the next one."""
        now_ns = self._clock.time_ns()
        while self._held and self._held[0][0] <= now_ns:
            _, _, subscription = heapq.heappop(self._held)
            conflation = subscription.conflation
            if conflation is not None:
                conflation.run(now_ns, not subscription.connection.writable)
                self._expect_due(subscription)
        if self._held:
            self._schedule_after((self._held[0][0] - now_ns) / 1e9)

    def release_transient(self) -> None:
        """Publish up to which position this worker has read the transient log."""
        view = self._core.view
        tailer = self._live.tailer
        view.set_transient_read(view.transient_written if tailer is None else tailer.transient_position)

    def release_journals(self) -> None:
        """Publish which journals this worker does not need any more."""
        self.states.release_journals(time.monotonic())
        if self.journal is not None:
            self.journal.release_unused()
        if self._pages is not None:
            self._pages.look(self._reading())

    def _reading(self) -> Iterator[int]:
        """Log positions at which a reader will continue soon. A waiting replay checks again whether its pages are in
        memory.
        """
        for feed in (self._live, self._durable):
            if (position := feed.position) is not None:
                yield position
        for replay, _ in self._replays:
            if replay.members:  # a replay without members has ended, but is still in the deque
                yield replay.tailer.position

    def _queue(self, replay: Replay) -> None:
        """Make a replay runnable, from the next turn on."""
        replay.ticket += 1
        self._replays.append((replay, replay.ticket))

    def _run_replays(self) -> bool:
        more = False
        until_s = time.monotonic() + REPLAYS_TURN_S
        now_ns = self._clock.monotonic_ns()
        unix_ns = self._clock.time_ns()  # before the clock of heartbeats: see SettledTime
        clocks = Clocks(now_ns, unix_ns, beat_ns=time.monotonic_ns())
        clocks.settled_us, clocks.settled_at = self._settled.look(self._core.view.journal_written)
        watermark = self._core.view.durable, self._core.view.journal_written
        if watermark != self._watermark:
            self._watermark = watermark
            self._replays.extend(self._at_watermark)
            self._at_watermark.clear()
        while self._later and self._later[0][0] <= clocks.now_ns:
            when_ns, _, replay = heapq.heappop(self._later)
            if when_ns == replay.wakes_at_ns:
                replay.wakes_at_ns = 0
                self._queue(replay)
        for _ in range(len(self._replays)):
            if time.monotonic() >= until_s:
                more = True
                break
            replay, ticket = self._replays.popleft()
            if ticket == replay.ticket and replay.members and not replay.paused:
                more |= self._run_replay(replay, ticket, clocks)
        if self._later:
            self._schedule_after((self._later[0][0] - clocks.now_ns) / 1e9)
        return more

    def _run_replay(self, replay: Replay, ticket: int, clocks: Clocks) -> bool:
        """Run one step of a replay. True: there is more work for it at once."""
        connection = replay.connection
        if not connection.writable:
            replay.client_is_behind(True)
            self._unread.setdefault(connection, []).append((replay, ticket))
            return False
        replay.client_is_behind(False)
        limit = self._core.view.journal_written if replay.live else self._core.view.durable
        try:
            work = replay.work_ahead(limit, clocks.now_ns)
            if work is not None:
                self.read_ahead.have_done(work, lambda problem: self._was_read(replay, ticket, problem))
                return False
            state = replay.run(limit, clocks)
        except LogDamaged as damage:
            self.journal_damaged(connection, damage)
            return False
        if not replay.members:
            return False  # its connection ended while it was served
        if state == REPLAY_ENDED:
            for subscription in list(replay.members):
                self._log.log("21-0003", client=connection.shown_name, sub_id=subscription.sub_id)
                self.remove(subscription)
            return False
        if state == REPLAY_DUE_LATER:
            self._run_later(replay, replay.due_ns, clocks)
            return False
        if state == REPLAY_HELD:
            self._wait_for_destination(replay, clocks)
            return False
        if state == REPLAY_UNFINISHED:
            self._replays.append((replay, ticket))
            return True
        # A replay that begins beyond the durable watermark, or has a completion to send, waits for the watermark.
        ahead = replay.tailer.position > limit or any(m.completed_at is not None for m in replay.members)
        if ahead or not replay.may_join:
            self._wait_at_watermark(replay, clocks)
            return False
        if self._joined(replay):
            return False
        self._replays.append((replay, ticket))
        return True

    def _was_read(self, replay: Replay, ticket: int, problem: LogUnreadable | None) -> None:
        if problem is not None and replay.members:
            replay.was_unreadable(problem)
        self._replays.append((replay, ticket))
        self._schedule()

    def _wait_at_watermark(self, replay: Replay, clocks: Clocks) -> None:
        """Let a replay wait until the watermark moves, or until a time at which it has work."""
        replay.ticket += 1
        self._at_watermark.append((replay, replay.ticket))
        held_until_ns, ends_at_us = replay.held_until_ns, replay.ends_at_us
        if held_until_ns is not None:
            wait_ns = held_until_ns - clocks.unix_ns
            self._run_later(replay, clocks.now_ns + wait_ns, clocks)
        if ends_at_us is not None:
            wait_ns = ends_at_us * 1000 - clocks.unix_ns
            if wait_ns < 0:
                self._settled.ask(clocks)
            self._run_later(replay, clocks.now_ns + max(wait_ns, SETTLING_NS), clocks)

    def _wait_for_destination(self, replay: Replay, clocks: Clocks) -> None:
        """Let a replay wait until the destinations have its next message, or until conflation has a message to send."""
        self._end_wait(replay)
        replay.ticket += 1
        ticket = replay.ticket
        publisher_id, position, carriers = replay.awaited

        def go_on() -> None:
            replay.held_by = None
            if ticket == replay.ticket and replay.members:
                self._queue(replay)
                self._schedule()

        replay.held_by = self._persisted.when_acknowledged(
            replay.connection, publisher_id, position, go_on, carriers=carriers
        )
        if replay.held_by is not None and replay.held_until_ns is not None:
            wait_ns = max(replay.held_until_ns - clocks.unix_ns, 0)
            self._run_later(replay, clocks.now_ns + wait_ns, clocks)

    def _end_wait(self, replay: Replay) -> None:
        if replay.held_by is not None:
            self._persisted.give_up(replay.connection, replay.held_by)
            replay.held_by = None

    def _run_later(self, replay: Replay, when_ns: int, clocks: Clocks) -> None:
        """Run a replay at that monotonic time or earlier, wherever it is then. Only the earliest time is noted."""
        # The time is bounded, so that a replay whose client has disconnected is found.
        when_ns = max(1, min(when_ns, clocks.now_ns + LATER_NS_MAX))
        if not 0 < replay.wakes_at_ns <= when_ns:
            replay.wakes_at_ns = when_ns
            heapq.heappush(self._later, (when_ns, next(self._number), replay))

    def _joined(self, replay: Replay) -> bool:
        """Move the members of a replay at the watermark to the shared tailer, if that stands there too. True: moved."""
        feed = self._live if replay.live else self._durable
        if feed.tailer is not None:
            if not feed.is_at_watermark():
                return False
        elif replay.live:
            self._live.begin(self.journal, self._transient)
        else:
            self._durable.begin(replay.tailer)
        for subscription in list(replay.members):
            self._leave_replay(subscription)
            feed.add(subscription)
            self._log.log("21-0002", client=subscription.connection.shown_name, sub_id=subscription.sub_id)
        return True

    # --- subscriptions ----------------------------------------------------------------------------------------

    def enter_live(self, subscription: Subscription, then: Callable[[], None]) -> int:
        """Add an ordinary subscription, for everything sequenced from now on. `then` is called when it is entered.
        Returns the transaction id from which on it gets messages.
        """

        def enter() -> None:
            subscription.connection.subscriptions[subscription.sub_id] = subscription
            self._live.add(subscription)
            then()

        view = self._core.view
        if self._live.tailer is None:
            self._live.hold()
        view.read()
        txid = int(view.next_txid)
        if self._live.tailer is None:
            self._live.begin(self.journal, self._transient)
        self._live.enter(subscription.connection, enter)
        return txid

    def obtain_page(self, subscription: Subscription, terms: PageTerms, then: Callable[[SubscribedPage], None]) -> None:
        """Make the page of a paginated subscription, with everything sequenced until now. `then` gets it; it is shown
        when its list is filled. The caller must let go of it if it gives no subscription this page.
        """

        def obtain() -> None:
            # The tailer is at this transaction id, and holds it.
            then(self.pages.obtain(subscription, terms, txid))

        view = self._core.view
        view.read()
        txid = int(view.next_txid)
        if self._live.tailer is None:
            self._live.begin(self.journal, self._transient)
        self._live.enter(subscription.connection, obtain)

    def replace_page(
        self, existing: Subscription, replacement: Subscription, at: Callable[[int], None], then: Callable[[None], None]
    ) -> None:
        """Change a paginated subscription at this point of the order, and its page. `at` gets the transaction id of the
        first change that it sees on the new page.
        """

        def change() -> None:
            self._live.replace(existing, replacement)
            then(None)

        view = self._core.view
        view.read()
        at(int(view.next_txid))
        self._live.enter(existing.connection, change)

    def let_go(self, page: SubscribedPage) -> None:
        """Give a page back that no subscription has."""
        page.close()
        self._live.end_if_idle()

    def enter_idle(self, subscription: Subscription) -> None:
        """Add a bookmark subscription on an instance without a journal: it exists and gets no messages."""
        subscription.place = Place.REPLAY
        subscription.connection.subscriptions[subscription.sub_id] = subscription

    def enter_nowhere(self, subscription: Subscription) -> None:
        """Add a subscription to queues only, which no tailer serves."""
        subscription.connection.subscriptions[subscription.sub_id] = subscription

    def search(
        self, subscription: Subscription, bookmark: BookmarkRange, then: Callable[[StartSearch], None]
    ) -> None:
        """Find where a bookmark subscription begins: at once, or over several turns if it names many bookmarks."""
        if self.journal is None:
            raise AssertionError("a bookmark subscription without a journal")
        search = StartSearch(self.journal, bookmark, subscription.options.bookmark_not_found)
        self._searches.begin(search, subscription.connection, lambda: then(search))

    def look_up(
        self, make: Callable[[JournalView], Search], connection: Session, then: Callable[[], None]
    ) -> None:
        """Run another lookup in the journal for a connection, if there is a journal; `then` is called after it."""
        if self.journal is None:
            then()
        else:
            self._searches.begin(make(self.journal), connection, then)

    def prepare(self, subscription: Subscription, search: StartSearch) -> Replay:
        """Make the replay that begins at the result of a finished search. Raises CommandFailure, LogDamaged."""
        self._core.view.read()
        replay = self._replay_from(subscription, search.result())
        subscription.persisted_sent = replay.last_bookmark
        subscription.connection.subscriptions[subscription.sub_id] = subscription
        return replay

    def start_replay(self, replay: Replay) -> None:
        """Begin to run a prepared replay."""
        for subscription in replay.members:
            self._log.log(
                "21-0001",
                client=subscription.connection.shown_name,
                sub_id=subscription.sub_id,
                bookmark=format_bookmark(*replay.last_bookmark),
            )
            replay.paused = subscription.paused
        self._queue(replay)
        self._schedule()

    def _replay_from(self, subscription: Subscription, start: Start) -> Replay:
        """Make a replay for a single subscription; the caller has to make it runnable."""
        replay = Replay(
            [subscription], start, self._evaluations, self._topic_indexes, self._persisted.destinations
        )
        subscription.place = Place.REPLAY
        self._replay_of[subscription] = replay
        return replay

    def _leave_replay(self, subscription: Subscription) -> None:
        """Remove a subscription from its replay, if it has one."""
        replay = self._replay_of.pop(subscription, None)
        if replay is not None:
            replay.leave(subscription)
            if not replay.members:
                self._end_wait(replay)

    def _leave_to_replay(self, subscription: Subscription) -> Replay:
        """Move a bookmark subscription from a shared tailer or replay to a replay of its own, at its position."""
        return self._replay_from(subscription, self._leave(subscription))

    def pause(self, subscription: Subscription) -> None:
        """Send no more messages for a bookmark subscription, and keep its place (transaction_log.md §9)."""
        if subscription.paused:
            return
        subscription.paused = True
        replay = self._replay_of.get(subscription)
        if replay is None and subscription.place is Place.REPLAY:
            return  # it never gets messages: there is no journal
        if replay is None or len(replay.members) > 1:
            replay = self._leave_to_replay(subscription)
        replay.paused = True

    def resume(self, subscriptions: Iterable[Subscription]) -> None:
        """Continue paused subscriptions of one connection. Subscriptions at the same place, with the same rate, share a
        replay.
        """
        together: dict[object, list[Subscription]] = {}
        for subscription in subscriptions:
            replay = self._replay_of.get(subscription)
            if not subscription.paused or replay is None:
                continue
            subscription.paused = False
            key = (replay.tailer.position, replay.rate) if replay.may_combine else replay
            together.setdefault(key, []).append(subscription)
        for members in together.values():
            first = self._replay_of[members[0]]
            if len(members) > 1:
                shared = Replay(members, first.place(), self._evaluations, self._topic_indexes)
                for subscription in members:
                    self._leave_replay(subscription)
                    self._replay_of[subscription] = shared
                first = shared
            first.resume()
            self._queue(first)
        self._schedule()

    def replace(
        self,
        existing: Subscription,
        replacement: Subscription,
        found: Start | None,
        completes: bool,
        then: Callable[[Replay | None], None],
    ) -> int:
        """Change a subscription's topic and options at this point of the order (protocol.md §8.2), and its place and
        end as described in subscribing.py. `found`: the start that the replacement's bookmark stands for; None: it has
        no bookmark. `completes`: it has to send a completion at the current end of the log. `then` is called after the
        change, with a replay to be started, or None. Returns the transaction id of the place at which it changes.
        """

        def change() -> None:
            try:
                replay = self._change(existing, replacement, found, completes)
            except LogDamaged as damage:
                self.journal_damaged(existing.connection, damage)
            else:
                then(replay)

        self._core.view.read()
        txid = int(self._core.view.next_txid)
        feed = self._feed_of(existing)
        if feed is None:
            change()
        else:
            feed.enter(existing.connection, change)
        return txid

    def _change(
        self, existing: Subscription, replacement: Subscription, found: Start | None, completes: bool
    ) -> Replay | None:
        # It may have become a replay since the command came.
        feed = self._feed_of(existing)
        stays = replacement.bookmark is None or (
            feed is (self._live if replacement.options.live else self._durable)
            and existing.bookmark is not None
            and (found is None or found.bounds is None)
            and not (replacement.has_own_terms or replacement.paused or completes)
            and not (replacement.options.fully_durable and self._persisted.destinations is not None)
        )
        if feed is not None and stays:
            feed.replace(existing, replacement)
            return None
        if self.journal is None:
            if feed is not None:
                feed.remove(existing)
            existing.become(replacement)
            existing.place = Place.REPLAY
            return None
        start = self._leave(existing)
        if found is not None:
            goes_on = found.now or (
                existing.bookmark is not None and found.cursor.position <= start.cursor.position
            )
            start = Start(start.cursor, start.bookmark, found.bounds) if goes_on else found
            if not goes_on:
                existing.held_from = None
        if not existing.wants_persisted:
            existing.persisted_sent = start.bookmark
        existing.become(replacement)
        replay = self._replay_from(existing, start)
        if not replay.has_end:
            # Completions that were due at the end of the old range.
            written = self._core.written()
            existing.completions = [(min(due, written), of) for due, of in existing.completions]
        return replay

    def _leave(self, subscription: Subscription) -> Start:
        """Remove a subscription from the tailer that serves it, shared or not. Return the tailer's place."""
        replay = self._replay_of.get(subscription)
        if replay is not None:
            replay.release_held()
            start = replay.place()
            self._leave_replay(subscription)
        elif subscription.place is Place.DURABLE:
            start = Start(*self._durable.where())
            self._durable.remove(subscription)
        else:
            assert self.journal is not None
            if subscription.conflation is not None:
                subscription.conflation.send_held()
            start = Start(*self._live.where(self.journal))
            self._live.remove(subscription)
        return start

    def _feed_of(self, subscription: Subscription) -> LiveFeed | DurableFeed | None:
        if subscription.place is Place.LIVE:
            return self._live
        return self._durable if subscription.place is Place.DURABLE else None

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription. No more messages are sent for it."""
        subscription.connection.subscriptions.pop(subscription.sub_id, None)
        self._leave_replay(subscription)
        feed = self._feed_of(subscription)
        if feed is not None:
            feed.remove(subscription)

    def stopped_reading(self, connection: Session) -> None:
        """Handle a full output: the client's bookmark subscriptions leave the shared tailer and wait as replays."""
        for subscription in connection.subscriptions.values():
            if subscription.place is Place.DURABLE:
                replay = self._leave_to_replay(subscription)
                self._unread.setdefault(connection, []).append((replay, replay.ticket))

    def reads_again(self, connection: Session) -> None:
        """Continue the replays of a client that has read its output."""
        self._replays.extend(self._unread.pop(connection, ()))
        self._schedule()

    def journal_damaged(self, connection: Session, damage: LogDamaged) -> None:
        """Disconnect a client whose replay met damage, which it must not skip, and log the damage."""
        self.log_damage(damage)
        connection.dismiss(
            "journal damaged", "this part of the log cannot be read; see the log of the server"
        )

    def log_damage(self, damage: LogDamaged) -> None:
        """Log that a part of the journal cannot be read."""
        self._log.log(
            "1D-0010",
            path=damage.path,
            offset=damage.offset,
            reason=damage.detail + "; run 'amps journal verify'",
        )

    def send_persisted(self, connections: Iterable[Session], now_s: float) -> None:
        """Send the periodic persisted acknowledgements of bookmark subscriptions (protocol.md §5.4, D10)."""
        if now_s < self._next_persisted_s:
            return
        self._next_persisted_s = now_s + PERSISTED_INTERVAL_S
        for connection in connections:
            for subscription in connection.subscriptions.values():
                if subscription.wants_persisted:
                    self._send_persisted_of(subscription)

    def _send_persisted_of(self, subscription: Subscription) -> None:
        bookmark = None
        position: int | None = None
        replay = self._replay_of.get(subscription)
        if replay is not None:
            bookmark, position = replay.last_bookmark, replay.tailer.position
        elif subscription.place is Place.DURABLE:
            bookmark, position = self._durable.last_bookmark, self._durable.position
        destinations = self._persisted.destinations
        if destinations is not None:
            if subscription.trail is None:
                subscription.trail = BookmarkTrail()
            if bookmark is not None and position is not None:
                subscription.trail.note(position, bookmark)
            bookmark = subscription.trail.take(min(destinations.replicated, self._core.durable()))
        if bookmark is not None and bookmark != subscription.persisted_sent and bookmark[0]:
            subscription.persisted_sent = bookmark
            subscription.connection.acknowledge(
                "persisted", None, sub_id=subscription.sub_id, bookmark=format_bookmark(*bookmark)
            )
            self._schedule()


def _is_expected(subscription: Subscription, due_ns: int) -> bool:
    """Whether the next message that a conflated subscription holds is due at `due_ns`."""
    return subscription.conflation is not None and subscription.conflation.due_ns == due_ns
