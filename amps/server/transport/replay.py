"""Replays: serving one bookmark subscription at its own pace.

A bookmark subscription begins with a tailer of its own. It reads as fast as its connection takes (nothing more is
read while the connection's output waits), up to the durable watermark. When it has reached the watermark it joins the
durable group, whose tailer stands at the same place: no gap, no duplicate. When a connection of the durable group
stops reading, its subscriptions leave it and go on as replays. With `live`, it joins the live group instead.
"""

from amps._core.delivery import Group, JournalTailer
from amps._core.log_reader import LogCursor
from amps._core.routes import TopicRoutes
from amps._core.topic_table import TopicEntry
from amps.server.transport.filters import Benches
from amps.server.transport.subscriptions import NO_ROUTES, Subscription, enter_routes


class Replay:
    """One subscription served by a tailer of its own."""

    LOG_BYTES_PER_TURN = 1 << 20
    OUTPUT_BYTES_PER_TURN = 512 << 10

    def __init__(
        self,
        subscription: Subscription,
        cursor: LogCursor,
        last_bookmark: tuple[int, int],
        completed_at: int | None,
        benches: Benches,
    ) -> None:
        """`completed_at`: log position at which the `completed` acknowledgement is due; None = it was sent."""
        self.subscription = subscription
        self.completed_at = completed_at
        self._benches = benches
        self.group = Group(self._routes)
        self.tailer = JournalTailer(cursor, self.group, *last_bookmark)

    def _routes(self, entry: TopicEntry, since: int, current: TopicRoutes | None) -> TopicRoutes:
        if not self.subscription.matches(entry):
            return NO_ROUTES
        routes = TopicRoutes(entry, self._benches.bench(entry.message_type))
        enter_routes(routes, entry, self.subscription, self, self)
        return routes

    @property
    def last_bookmark(self) -> tuple[int, int]:
        """Bookmark of the last message evaluated."""
        return self.tailer.last_publisher_id, self.tailer.last_sequence

    def run(self, limit: int) -> bool:
        """Deliver up to `limit`, as far as one turn goes. True: the limit is reached.

        Raises LogDamaged where the journal is not what it must be.
        """
        connection = self.subscription.connection
        while True:
            stop = limit if self.completed_at is None else min(limit, self.completed_at)
            reached = self.tailer.run(
                stop, self.LOG_BYTES_PER_TURN, connection.outlet, self.OUTPUT_BYTES_PER_TURN
            )
            if reached and self.completed_at is not None and limit >= self.completed_at:
                self.completed_at = None
                connection.send_completed(self.subscription, self.last_bookmark)
                continue
            return reached
