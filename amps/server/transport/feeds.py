"""Who gets what from where: the tailers of one worker, and the subscriptions that they serve.

The live tailer reads journal and transient log for ordinary subscriptions, up to what is written; the durable tailer
reads the journal for bookmark subscriptions that have caught up; every other bookmark subscription is a replay with a
tailer of its own. A subscription changes place only when both tailers stand at the same log position, so that nothing
is missed and nothing comes twice. All tailers stop at the watermarks that the turn has read.

Nobody is brought to a place in one go, however far it is: a command waits until its tailer is there (shared_feeds.py),
and a replay that has caught up stays one while the tailer that it is to join has not.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable

from amps._core.log_reader import LogDamaged, LogDirectory
from amps._core.topic_table import TopicTable
from amps.config import ServerConfig
from amps.journal.names import JOURNAL_SUFFIX, journal_prefix
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime
from amps.server.transport.bookmarks import StartPoint, format_bookmark
from amps.server.transport.connection import Connection
from amps.server.transport.core_link import CoreLink
from amps.server.transport.filters import Benches
from amps.server.transport.journal_view import JournalView, StartSearch
from amps.server.transport.replay import Replay
from amps.server.transport.shared_feeds import TURN_S, DurableFeed, LiveFeed
from amps.server.transport.subscriptions import Place, Subscription, SubscriptionSet

PERSISTED_INTERVAL_S = 1.0


class Feeds:
    """The tailers, replays and searches of one worker."""

    def __init__(
        self,
        config: ServerConfig,
        runtime: Runtime,
        topics: TopicTable,
        core: CoreLink,
        log: EventLog,
        benches: Benches,
        schedule: Callable[[], None],
        flush: Callable[[], None],
    ) -> None:
        """`schedule`: has a turn of the worker soon. `flush`: hands output to the event loop."""
        self._core = core
        self._log = log
        self._schedule = schedule
        self._benches = benches
        members = SubscriptionSet(topics, benches, combine=True, live=True)
        self._live = LiveFeed(members, core, schedule, flush)
        members = SubscriptionSet(topics, benches, combine=False, live=False)
        self._durable = DurableFeed(members, core, schedule, flush)
        self._replays: deque[Replay] = deque()
        self._paused_replays: dict[Connection, list[Replay]] = {}
        self._searches: deque[tuple[StartSearch, Connection, Callable[[StartSearch], None]]] = deque()
        self._next_persisted_s = 0.0
        self._transient = LogDirectory(runtime.transient_prefix, ".log", topics.unrecorded_entry)
        self._journal: JournalView | None = None
        settings = config.transaction_log
        if settings is not None:
            prefix = journal_prefix(settings.journal_directory, config.name)
            directory = LogDirectory(prefix, JOURNAL_SUFFIX, topics.entry)
            self._journal = JournalView(directory, settings.journal_directory, config.name, runtime)

    @property
    def has_live(self) -> bool:
        """Whether anybody here gets messages as soon as they are written."""
        return self._live.tailer is not None

    @property
    def durable_awaited(self) -> bool:
        """Whether anybody here gets messages when they are durable."""
        return self._durable.tailer is not None or bool(self._replays)

    def forget(self, connection: Connection) -> None:
        """The connection has ended."""
        self._paused_replays.pop(connection, None)

    def run(self) -> bool:
        """One turn. True: there is more to do at once."""
        if self._searches:
            # One step per turn, whoever searches: everybody else is served in between.
            self._search_on(*self._searches.popleft())
        more = bool(self._searches)
        more |= not self._live.run()
        self.release_transient()
        more |= not self._durable.run()
        if self._replays:
            more |= self._run_replays()
        return more

    def release_transient(self) -> None:
        """Tell the core up to where the transient log is not needed here any more."""
        view = self._core.view
        tailer = self._live.tailer
        view.set_transient_read(view.transient_written if tailer is None else tailer.transient_position)

    def _run_replays(self) -> bool:
        more = False
        until_s = time.monotonic() + TURN_S
        for _ in range(len(self._replays)):
            if time.monotonic() >= until_s:
                return True
            replay = self._replays.popleft()
            subscription = replay.subscription
            connection = subscription.connection
            if subscription.replay is not replay:
                continue
            if not connection.writable:
                self._paused_replays.setdefault(connection, []).append(replay)
                continue
            live = subscription.options.live
            limit = self._core.view.journal_written if live else self._core.view.durable
            try:
                reached = replay.run(limit)
            except LogDamaged as damage:
                self.journal_damaged(connection, damage)
                continue
            if not reached:
                self._replays.append(replay)
                more = True
            elif replay.tailer.position > limit or replay.completed_at is not None:
                # It begins beyond what is durable yet: wait for the watermark.
                self._replays.append(replay)
            elif not self._joined(replay, live):
                self._replays.append(replay)
                more = True
        return more

    def _joined(self, replay: Replay, live: bool) -> bool:
        """A replay stands at the watermark: its subscription goes to the tailer that stands there too, if it does."""
        subscription = replay.subscription
        feed = self._live if live else self._durable
        if feed.tailer is not None:
            if not feed.is_at_watermark():
                return False
        elif live:
            self._live.begin(self._journal, self._transient)
        else:
            self._durable.begin(replay.tailer)
        subscription.replay = None
        feed.add(subscription)
        self._log.log("21-0002", client=subscription.connection.shown_name, sub_id=subscription.sub_id)
        return True

    # --- subscriptions ----------------------------------------------------------------------------------------

    def enter_live(self, subscription: Subscription, then: Callable[[], None]) -> None:
        """An ordinary subscription: everything sequenced after this moment. `then` is run when it is entered."""

        def enter() -> None:
            subscription.connection.subscriptions[subscription.sub_id] = subscription
            self._live.add(subscription)
            then()

        self._core.view.read()
        if self._live.tailer is None:
            self._live.begin(self._journal, self._transient)
        self._live.enter(subscription.connection, enter)

    def enter_idle(self, subscription: Subscription) -> None:
        """A bookmark subscription on an instance without a journal: it exists and gets nothing."""
        subscription.place = Place.REPLAY
        subscription.connection.subscriptions[subscription.sub_id] = subscription

    def search(
        self, subscription: Subscription, start: StartPoint, then: Callable[[StartSearch], None]
    ) -> None:
        """Find where a bookmark subscription begins: now, or over several turns if it names many bookmarks."""
        if self._journal is None:
            raise AssertionError("a bookmark subscription without a journal")
        search = StartSearch(self._journal, start, subscription.options.bookmark_not_found)
        self._search_on(search, subscription.connection, then)

    def _search_on(
        self, search: StartSearch, connection: Connection, then: Callable[[StartSearch], None]
    ) -> None:
        if connection.phase.value == "closed":
            return
        try:
            finished = search.step()
        except LogDamaged as damage:
            self.journal_damaged(connection, damage)
            return
        if finished:
            then(search)
        else:
            self._searches.append((search, connection, then))
            self._schedule()

    def prepare(self, subscription: Subscription, search: StartSearch) -> Replay:
        """Make the replay that begins where a finished search says. Raises CommandFailure, LogDamaged."""
        self._core.view.read()
        cursor, bookmark = search.result()
        replay = Replay(subscription, cursor, bookmark, None, self._benches)
        subscription.place = Place.REPLAY
        subscription.replay = replay
        subscription.persisted_sent = bookmark
        subscription.connection.subscriptions[subscription.sub_id] = subscription
        return replay

    def start_replay(self, replay: Replay) -> None:
        """Begin to serve a prepared replay."""
        subscription = replay.subscription
        self._log.log(
            "21-0001",
            client=subscription.connection.shown_name,
            sub_id=subscription.sub_id,
            bookmark=format_bookmark(*replay.last_bookmark),
        )
        self._replays.append(replay)
        self._schedule()

    def replace(self, existing: Subscription, replacement: Subscription, then: Callable[[], None]) -> None:
        """Topic and options change at this point of the order; the place in the log stays (protocol.md §8.2). `then`
        is run when they have changed.
        """

        def change() -> None:
            # It may have become a replay meanwhile.
            feed = self._feed_of(existing)
            if feed is not None:
                feed.replace(existing, replacement)
            else:
                existing.become(replacement)
                if existing.replay is not None:
                    existing.replay.group.changed()
            then()

        self._core.view.read()
        feed = self._feed_of(existing)
        if feed is None:
            change()
        else:
            feed.enter(existing.connection, change)

    def _feed_of(self, subscription: Subscription) -> LiveFeed | DurableFeed | None:
        if subscription.place is Place.LIVE:
            return self._live
        return self._durable if subscription.place is Place.DURABLE else None

    def remove(self, subscription: Subscription) -> None:
        """Nothing more is sent for it."""
        subscription.connection.subscriptions.pop(subscription.sub_id, None)
        subscription.replay = None
        feed = self._feed_of(subscription)
        if feed is not None:
            feed.remove(subscription)

    def stopped_reading(self, connection: Connection) -> None:
        """The client's output is full: its bookmark subscriptions leave the shared tailer and wait as replays."""
        for subscription in connection.subscriptions.values():
            if subscription.place is Place.DURABLE:
                replay = Replay(subscription, *self._durable.where(), None, self._benches)
                self._durable.remove(subscription)
                subscription.place = Place.REPLAY
                subscription.replay = replay
                self._paused_replays.setdefault(connection, []).append(replay)

    def reads_again(self, connection: Connection) -> None:
        """The client has taken its output."""
        self._replays.extend(self._paused_replays.pop(connection, ()))
        self._schedule()

    def journal_damaged(self, connection: Connection, damage: LogDamaged) -> None:
        """A replay met damage: it must not skip it, so the client is disconnected and the damage logged."""
        self._log.log(
            "1D-0010",
            path=damage.path,
            offset=damage.offset,
            reason=damage.detail + "; run 'amps journal verify'",
        )
        connection.close("journal damaged")

    def send_persisted(self, connections: Iterable[Connection], now_s: float) -> None:
        """Periodic persisted acknowledgements of bookmark subscriptions (protocol.md §5.4, D10)."""
        if now_s < self._next_persisted_s:
            return
        self._next_persisted_s = now_s + PERSISTED_INTERVAL_S
        for connection in connections:
            for subscription in connection.subscriptions.values():
                if subscription.wants_persisted:
                    self._send_persisted_of(subscription)

    def _send_persisted_of(self, subscription: Subscription) -> None:
        bookmark = None
        if subscription.replay is not None:
            bookmark = subscription.replay.last_bookmark
        elif subscription.place is Place.DURABLE:
            bookmark = self._durable.last_bookmark
        if bookmark is not None and bookmark != subscription.persisted_sent and bookmark[0]:
            subscription.persisted_sent = bookmark
            subscription.connection.acknowledge(
                "persisted", None, sub_id=subscription.sub_id, bookmark=format_bookmark(*bookmark)
            )
            self._schedule()
