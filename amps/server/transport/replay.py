"""Replays: serving bookmark subscriptions at their own speed.

A bookmark subscription begins with a tailer of its own. It reads as fast as its connection accepts output, up to the
durable watermark; while the connection's output waits, it does not read. At the watermark it joins the durable group,
whose tailer stands at the same place: no gap, no duplicate. When a connection of the durable group stops reading, its
subscriptions leave the group and continue as replays. A subscription with `live` joins the live group instead.

Subscriptions that were paused at the same place and are resumed by one command share one replay. Their messages are
sent in the order of the log, each once, with the ids of all its subscriptions. A ReplayTailer handles a range, a rate,
conflation and a limit on the number of messages. A subscription that these restrict permanently never joins a group.

With destinations of replication, a fully durable subscription is a replay for ever. When it has come to the end of the
log, it waits at each message that a sync destination lacks. Each has its own place, because a subscription that is held
must not hold up the subscriptions to other topics.

In journals with a topic index a replay steps from one record that it may need to the next (topic_indexes.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from amps._core.delivery.delivery import (
    REPLAY_ENDED,
    REPLAY_REACHED,
    REPLAY_UNFINISHED,
    Conflation,
    Group,
    JournalTailer,
    Pace,
    ReplayTailer,
    TopicRoutes,
)
from amps._core.delivery.output import PACED
from amps._core.journal.reader import LogCursor, LogUnreadable
from amps._core.journal.search import read
from amps._core.wire.persisted import Destinations
from amps._core.wire.topics import TopicEntry
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.transport.options import Rate
from amps.server.transport.read_window import ReadWindow
from amps.server.transport.session import Subscription
from amps.server.transport.start_search import Start
from amps.server.transport.subscriptions import NO_ROUTES, enter_routes
from amps.server.transport.topic_indexes import Stepping, TopicIndexes


@dataclass(slots=True)
class Clocks:
    """The times of a turn. `settled_us`: every record behind log position `settled_at` has a later time."""

    now_ns: int  # of the instance's clock that never goes back
    unix_ns: int
    settled_us: int = 0
    settled_at: int = 0
    beat_ns: int = 0  # of the system's monotonic clock, as heartbeats of processes are


class Replay:
    """Subscriptions of one connection, usually a single one, served by one tailer."""

    LOG_BYTES_PER_TURN = 1 << 20
    OUTPUT_BYTES_PER_TURN = 512 << 10

    def __init__(
        self,
        members: list[Subscription],
        start: Start,
        evaluations: EvaluationContexts,
        indexes: TopicIndexes | None,
        destinations: Destinations | None = None,
    ) -> None:
        """Several members must have the same terms, which may include a rate only. `indexes` None: no journal has a
        topic index. `destinations` None: there is no replication.
        """
        self.members = members
        self.connection = members[0].connection
        self.paused = False
        self.ticket = 0  # of its newest entry in Feeds; entries with older tickets are void
        self.held_by: int | None = None
        """The token of its wait for a destination (persisted_waits.py)."""
        self.wakes_at_ns = 0  # latest monotonic time of the next run; 0 = none
        self._window = ReadWindow()
        self._evaluations = evaluations
        self.group = Group(self._routes)
        self._terms = make_tailer(members[0], start, self.group, evaluations, destinations)
        self.tailer: JournalTailer = self._terms or JournalTailer(start.cursor, self.group, *start.bookmark)
        self._stepping = None if indexes is None else Stepping(self.tailer, start.bounds, indexes)

    def _routes(self, entry: TopicEntry, since: int, current: TopicRoutes | None) -> TopicRoutes:
        members = [member for member in self.members if member.matches(entry)]
        if not members:
            return NO_ROUTES
        routes = TopicRoutes(entry, self._evaluations.of_type(entry.message_type))
        for member in members:
            documents = self._evaluations.documents_of(entry.message_type)
            enter_routes(routes, member.flags(entry) | PACED, member, member, self, documents)
        return routes

    @property
    def last_bookmark(self) -> tuple[int, int]:
        """Bookmark of a message up to which everything has been delivered."""
        if self._terms is not None:
            return self._terms.safe_bookmark
        return self.tailer.last_publisher_id, self.tailer.last_sequence

    @property
    def live(self) -> bool:
        """Whether it also reads records that are not durable yet."""
        return self.members[0].options.live

    @property
    def may_join(self) -> bool:
        """Whether its members may join the live or durable group when they have caught up."""
        if self._terms is None:
            return True
        if self._terms.destinations is not None:
            return False
        bounds = self._terms.bounds
        return not self.members[0].has_own_terms and (bounds is None or (bounds.begun and not bounds.has_end))

    @property
    def may_combine(self) -> bool:
        """Whether it can be combined with other replays at the same place."""
        terms = self._terms
        return terms is None or (
            terms.bounds is None
            and terms.destinations is None
            and terms.conflation is None
            and self.members[0].messages_max is None
        )

    @property
    def rate(self) -> Rate | None:
        """Its limit of speed, if it has one."""
        return self.members[0].options.rate

    @property
    def ends_at_us(self) -> int | None:
        """UNIX time, in microseconds, at which its range ends; None if no time ends it."""
        bounds = None if self._terms is None else self._terms.bounds
        return bounds.end_us if bounds is not None and bounds.has_end and bounds.end_us else None

    @property
    def has_end(self) -> bool:
        """Whether its range has an end."""
        bounds = None if self._terms is None else self._terms.bounds
        return bounds is not None and bounds.has_end

    @property
    def due_ns(self) -> int:
        """Monotonic time at which it may continue, after a run that returned REPLAY_DUE_LATER."""
        assert self._terms is not None
        assert self._terms.pace is not None
        return self._terms.pace.due_ns

    @property
    def awaited(self) -> tuple[int, int, int]:
        """The message at which a run that returned REPLAY_HELD ended: publisher, log position behind it, and the
        destinations that are waited for.
        """
        assert self._terms is not None
        return self._terms.awaited

    @property
    def held_until_ns(self) -> int | None:
        """UNIX time at which a conflated message is due; None if none is held."""
        conflation = None if self._terms is None else self._terms.conflation
        return None if conflation is None else conflation.due_ns

    def work_ahead(self, limit: int, now_ns: int) -> Callable[[], None] | None:
        """Work for a thread that may block, to be done before the next run: usually a read from the disk. None: no
        work.

        If the thread meets LogUnreadable, call `was_unreadable`. Raises LogUnreadable if the replay cannot continue.
        """
        if self._stepping is not None:
            work = self._stepping.work_ahead(limit)
            if work is not None or self.tailer.chooses or self.tailer.steps_ahead:
                return work
        cursor = self.tailer.cursor
        missing = self._window.missing(cursor, limit, now_ns, self.LOG_BYTES_PER_TURN)
        return None if missing is None else partial(read, cursor.file, *missing)

    def was_unreadable(self, problem: LogUnreadable) -> None:
        """Note that the last `work_ahead` failed. Records before the unreadable place are still delivered."""
        if self._stepping is not None:
            self._stepping.was_unreadable(problem)
        self._window.was_unreadable(problem)

    def place(self) -> Start:
        """The start of another replay that continues from here."""
        self._settle()
        cursor = LogCursor(self.tailer.cursor.directory_of(), *self.tailer.cursor.place(), True)
        bookmark = self.tailer.last_publisher_id, self.tailer.last_sequence
        return Start(cursor, bookmark, None if self._terms is None else self._terms.bounds)

    def _settle(self) -> None:
        """Determine the bookmark of the last record before the current place."""
        if self._stepping is not None:
            self._stepping.settle()

    def leave(self, member: Subscription) -> None:
        """Remove a member."""
        self.members.remove(member)
        if self.members:
            self.group.changed()
        else:
            # The group refers to this replay: breaking the cycle releases the journal at once, not at a collection.
            del self.tailer, self.group
            self._terms = self._stepping = None

    def release_held(self) -> None:
        """Send all messages that conflation holds: the subscription gets other terms."""
        if self._terms is not None:
            self._terms.release_all(self.connection.output)

    def resume(self) -> None:
        """Continue after a pause; the elapsed time does not count for the rate."""
        self.paused = False
        if self._terms is not None and self._terms.pace is not None:
            self._terms.pace.begin()

    def client_is_behind(self, behind: bool) -> None:
        """Set whether the client reads its output, for a conflation interval that adapts to it."""
        if self._terms is not None and self._terms.conflation is not None:
            self._terms.conflation.adapt(behind)

    def run(self, limit: int, clocks: Clocks) -> int:
        """Deliver up to `limit`, within the bounds of a turn. Returns a constant of `amps._core.delivery.delivery`.

        Reads only records that `work_ahead` has found in memory. Raises LogDamaged where the journal is damaged.
        """
        if self._stepping is not None and self._stepping.choose():
            return REPLAY_UNFINISHED
        while True:
            due = min((m.completed_at for m in self.members if m.completed_at is not None), default=None)
            stop = limit if due is None else min(limit, due)
            state = self._advance(stop, clocks)
            if state == REPLAY_REACHED and self.tailer.position >= limit:
                self._end_history()
            if state in (REPLAY_REACHED, REPLAY_ENDED):
                self._settle()
            if state == REPLAY_ENDED:
                self._complete(None)
            elif state == REPLAY_REACHED and due is not None and limit >= due:
                self._complete(due)
                continue
            return state

    def _end_history(self) -> None:
        """Hold back what comes after the end of the log, for a fully durable subscription that gets there first."""
        if self._terms is not None and self._terms.destinations is not None:
            member = self.members[0]
            if member.held_from is None:
                member.held_from = self.tailer.position
                self._terms.hold_from(member.held_from)

    def _advance(self, stop: int, clocks: Clocks) -> int:
        output = self.connection.output
        if self._terms is None:
            reached = self.tailer.run(stop, self.LOG_BYTES_PER_TURN, output, self.OUTPUT_BYTES_PER_TURN)
            return REPLAY_REACHED if reached else REPLAY_UNFINISHED
        state = self._terms.run_on_terms(
            stop,
            self.LOG_BYTES_PER_TURN,
            output,
            self.OUTPUT_BYTES_PER_TURN,
            clocks.now_ns,
            clocks.unix_ns,
        )
        bounds, position = self._terms.bounds, self._terms.position
        if state == REPLAY_REACHED and bounds is not None:
            settled_us = clocks.settled_us if position >= clocks.settled_at else 0
            if bounds.is_over(position, settled_us):
                state = self._terms.flush(output, self.OUTPUT_BYTES_PER_TURN, clocks.now_ns)
                return REPLAY_ENDED if state == REPLAY_REACHED else state
        return state

    def _complete(self, reached: int | None) -> None:
        """Send the `completed` acknowledgements that are due at a place; None: all, because the range has ended."""
        for member in self.members:
            due = member.completions
            while due and (reached is None or due[0][0] <= reached):
                self.connection.send_completed(member, due.pop(0)[1], self.last_bookmark)


def make_tailer(
    subscription: Subscription,
    start: Start,
    group: Group,
    evaluations: EvaluationContexts,
    destinations: Destinations | None,
) -> ReplayTailer | None:
    """Make a tailer for the terms of a subscription; None if it has none."""
    options = subscription.options
    waits_for = destinations if options.fully_durable else None
    if (
        start.bounds is None
        and options.rate is None
        and options.conflating is None
        and subscription.messages_max is None
        and waits_for is None
    ):
        return None
    pace = conflation = None
    if options.rate is not None:
        gap_ns = 0 if options.rate.gap_max_s is None else max(1, int(options.rate.gap_max_s * 1e9))
        pace = Pace(options.rate.kind.value, options.rate.value, gap_ns)
    if options.conflating is not None:
        evaluation = evaluations.of_type(subscription.connection.message_type)
        conflation = Conflation(evaluation, options.conflating.paths, options.conflating.interval_s)
    return ReplayTailer(
        start.cursor,
        group,
        *start.bookmark,
        start.bounds,
        pace,
        conflation,
        subscription.messages_max,
        waits_for,
        subscription.held_from,
    )
