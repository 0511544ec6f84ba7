"""Who gets what from where: the tailers of one worker, and the subscriptions that they serve.

The live tailer reads journal and transient log for ordinary subscriptions, up to what is written; the durable tailer
reads the journal for bookmark subscriptions that have caught up; every other bookmark subscription is a replay with a
tailer of its own. A subscription changes place only when both tailers stand at the same log position, so that nothing
is missed and nothing comes twice. All tailers stop at the watermarks that the turn has read.
"""

from collections import deque
from collections.abc import Callable, Iterable

from amps._core.delivery import JournalTailer, LiveTailer
from amps._core.log_reader import LogCursor, LogDamaged, LogDirectory
from amps._core.topic_table import TopicTable
from amps.config import ServerConfig
from amps.server.eventlog import EventLog
from amps.server.journal_names import JOURNAL_SUFFIX, journal_prefix
from amps.server.runtime import Runtime
from amps.server.transport.bookmarks import StartPoint, format_bookmark
from amps.server.transport.connection import Connection
from amps.server.transport.core_link import CoreLink
from amps.server.transport.filters import Benches
from amps.server.transport.journal_view import JournalView, StartSearch
from amps.server.transport.replay import Replay
from amps.server.transport.subscriptions import Place, Subscription, SubscriptionSet

LOG_BYTES_PER_TURN = 4 << 20
DURABLE_STEP_BYTES = 256 << 10
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
        self._flush = flush
        self._benches = benches
        self._live = SubscriptionSet(topics, benches, combine=True, live=True)
        self._live_tailer: LiveTailer | None = None
        self._durable = SubscriptionSet(topics, benches, combine=False, live=False)
        self._durable_tailer: JournalTailer | None = None
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
        return self._live_tailer is not None

    @property
    def durable_awaited(self) -> bool:
        """Whether anybody here gets messages when they are durable."""
        return self._durable_tailer is not None or bool(self._replays)

    def forget(self, connection: Connection) -> None:
        """The connection has ended."""
        self._paused_replays.pop(connection, None)

    def run(self) -> bool:
        """One turn. True: there is more to do at once."""
        if self._searches:
            # One step per turn, whoever searches: everybody else is served in between.
            self._search_on(*self._searches.popleft())
        more = bool(self._searches)
        if self._live_tailer is not None:
            more |= not self._run_live(LOG_BYTES_PER_TURN)
        self.release_transient()
        if self._durable_tailer is not None:
            more |= not self._run_durable_in_steps()
        if self._replays:
            more |= self._run_replays()
        return more

    def release_transient(self) -> None:
        """Tell the core up to where the transient log is not needed here any more."""
        view = self._core.view
        tailer = self._live_tailer
        view.set_transient_read(view.transient_written if tailer is None else tailer.transient_position)

    def _run_live(self, bytes_max: int) -> bool:
        assert self._live_tailer is not None
        return self._live_tailer.run(
            self._core.view.journal_written, self._core.view.transient_written, bytes_max
        )

    def _run_durable(self, bytes_max: int) -> bool:
        assert self._durable_tailer is not None
        return self._durable_tailer.run(self._core.view.durable, bytes_max)

    def _run_durable_in_steps(self) -> bool:
        """The durable tailer's turn. Between steps output goes out, so that who does not keep up leaves in time."""
        for _ in range(LOG_BYTES_PER_TURN // DURABLE_STEP_BYTES):
            if self._durable_tailer is None or self._run_durable(DURABLE_STEP_BYTES):
                return True
            self._flush()
        return False

    def _run_replays(self) -> bool:
        more = False
        for _ in range(len(self._replays)):
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
            elif replay.tailer.position <= limit and replay.completed_at is None:
                self._caught_up(replay, live)
            else:
                # It begins beyond what is durable yet: wait for the watermark.
                self._replays.append(replay)
        return more

    def _caught_up(self, replay: Replay, live: bool) -> None:
        """A replay stands at the watermark: its subscription goes to the tailer that stands there too."""
        subscription = replay.subscription
        subscription.replay = None
        if live:
            self._catch_up_live()
            subscription.place = Place.LIVE
            self._live.add(subscription)
        else:
            if self._durable_tailer is None:
                cursor = LogCursor(replay.tailer.cursor.directory_of(), *replay.tailer.cursor.place(), False)
                self._durable_tailer = JournalTailer(cursor, self._durable.group, *replay.last_bookmark)
            else:
                while not self._run_durable(1 << 62):
                    pass
            subscription.place = Place.DURABLE
            self._durable.add(subscription)
        self._log.log("21-0002", client=subscription.connection.shown_name, sub_id=subscription.sub_id)

    def _catch_up_live(self) -> None:
        """Bring the live tailer to this turn's watermarks, making it if nobody needed it before."""
        if self._live_tailer is None:
            self._live_tailer = self._new_live_tailer()
            self._core.view.set_transient_read(self._live_tailer.transient_position)
        else:
            while not self._run_live(1 << 62):
                pass

    def _new_live_tailer(self) -> LiveTailer:
        view = self._core.view
        journal = None
        if self._journal is not None:
            journal = self._journal.cursor_at(view.journal_written, False)
        transient = LogCursor(self._transient, view.transient_number, 0, False)
        transient.skip_to(view.transient_written)
        return LiveTailer(journal, transient, self._live.group)

    # --- subscriptions ----------------------------------------------------------------------------------------

    def enter_live(self, subscription: Subscription) -> None:
        """An ordinary subscription: everything sequenced after this moment."""
        self._core.view.read()
        self._catch_up_live()
        subscription.place = Place.LIVE
        subscription.connection.subscriptions[subscription.sub_id] = subscription
        self._live.add(subscription)

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

    def replace(self, existing: Subscription, replacement: Subscription) -> None:
        """Topic and options change at this point of the order; the place in the log stays (protocol.md §8.2)."""
        self._core.view.read()
        if existing.place is Place.REPLAY:
            existing.become(replacement)
            if existing.replay is not None:
                existing.replay.group.changed()
            return
        if existing.place is Place.LIVE:
            self._catch_up_live()
            members = self._live
        else:
            while not self._run_durable(1 << 62):
                pass
            members = self._durable
        members.remove(existing)
        existing.become(replacement)
        members.add(existing)

    def remove(self, subscription: Subscription) -> None:
        """Nothing more is sent for it."""
        subscription.connection.subscriptions.pop(subscription.sub_id, None)
        subscription.replay = None
        if subscription.place is Place.LIVE:
            self._live.remove(subscription)
            if not self._live:
                self._live_tailer = None
        elif subscription.place is Place.DURABLE:
            self._durable.remove(subscription)
            if not self._durable:
                self._durable_tailer = None

    def stopped_reading(self, connection: Connection) -> None:
        """The client's output is full: its bookmark subscriptions leave the shared tailer and wait as replays."""
        if self._durable_tailer is None:
            return
        for subscription in list(connection.subscriptions.values()):
            if subscription.place is Place.DURABLE:
                tailer = self._durable_tailer
                cursor = LogCursor(tailer.cursor.directory_of(), *tailer.cursor.place(), True)
                bookmark = (tailer.last_publisher_id, tailer.last_sequence)
                replay = Replay(subscription, cursor, bookmark, None, self._benches)
                self._durable.remove(subscription)
                subscription.place = Place.REPLAY
                subscription.replay = replay
                self._paused_replays.setdefault(connection, []).append(replay)
        if not self._durable:
            self._durable_tailer = None

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
        if subscription.replay is not None:
            bookmark = subscription.replay.last_bookmark
        elif subscription.place is Place.DURABLE and self._durable_tailer is not None:
            tailer = self._durable_tailer
            bookmark = (tailer.last_publisher_id, tailer.last_sequence)
        else:
            return
        if bookmark != subscription.persisted_sent and bookmark[0]:
            subscription.persisted_sent = bookmark
            subscription.connection.acknowledge(
                "persisted", None, sub_id=subscription.sub_id, bookmark=format_bookmark(*bookmark)
            )
            self._schedule()
