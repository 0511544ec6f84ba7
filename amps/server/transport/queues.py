"""The queues of one worker: announcing subscriptions to the core, and sending the messages that the core assigns.

The core decides which subscription gets which message (queues.md §20). This module announces subscriptions under
numbers of the worker, and sends the deliveries in frames that `amps._core.queues.sender` makes. A subscription exists
here from the core's answer to its announcement on. So a delivery always meets the subscription in the state that it had
when the core decided.

A number lives as long as its subscription, through all replacements, and is never used again. This holds also for a
worker that replaces one that died, because deliveries may still be on their way to the old one. A subscription that is
replaced by one to no queue keeps its number: messages that it holds may still be acknowledged (§5.5).
"""

import time
from collections.abc import Callable, Sequence

from amps._core.delivery.bodies import Bodies
from amps._core.delivery.output import WANT_TIMESTAMP
from amps._core.journal.reader import LogDamaged
from amps._core.queues.sender import NUMBERS_END, QueueReceiver, QueueSender
from amps._core.shm.memory import ControlPage
from amps._core.wire.ingress import LeaseTable
from amps.server.records import KIND_QUEUE_SUBSCRIBE, KIND_QUEUE_UNSUBSCRIBE, control_record
from amps.server.shared.core_link import CoreLink
from amps.server.transport.feeds import Feeds
from amps.server.transport.queue_filters import QueueFilters
from amps.server.transport.session import Session, Subscription
from amps.server.transport.subscriptions import shown_id, shown_text

LOG_BYTES_PER_TURN = 1 << 20
LEASES_MIN = 1024
LEASES_PER_BACKLOG = 4
"""Positions are kept of so many deliveries per message of the backlog: acknowledgements may arrive late."""


class Queues:
    """The queue subscriptions of one worker."""

    def __init__(
        self,
        core: CoreLink,
        control: ControlPage,
        feeds: Feeds,
        filters: QueueFilters,
        schedule: Callable[[], None],
    ) -> None:
        """`schedule` requests a turn of the worker."""
        self.names = filters.names
        self.filters = filters
        self._core = core
        self._documents_of = feeds.documents_of
        self._next_number = time.monotonic_ns() // 1000 % NUMBERS_END
        self._backlogs: dict[Session, dict[int, int]] = {}
        self._entering: dict[int, tuple[Subscription, Callable[[int], None]]] = {}
        self._receivers: dict[int, QueueReceiver] = {}
        self._sender: QueueSender | None = None
        journal = feeds.journal
        if self.names.queues and journal is not None:

            def damaged(owner: object, damage: LogDamaged) -> None:
                connection: Session = owner  # type: ignore[assignment]
                feeds.journal_damaged(connection, damage)

            self._sender = QueueSender(journal.directory, control, feeds.read_ahead.ask, schedule, damaged)
            core.deliveries = self._sender.take

    # --- turns ------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Run one turn: evaluate filters on new messages, send durable ones. True: there is more work to do at once."""
        if self._sender is None:
            return False
        more = self.filters.run()
        return self._sender.run(self._core.view.durable, LOG_BYTES_PER_TURN) or more

    @property
    def has_subscriptions(self) -> bool:
        """Whether a subscription of this worker gets messages of queues."""
        return bool(self._receivers)

    def release_journals(self) -> None:
        """Release journals that are no longer read; to be called from time to time."""
        if self._sender is not None:
            self._sender.release()
        self.filters.release_journals()

    # --- subscriptions ----------------------------------------------------------------------------------------

    def backlog_of(self, subscription: Subscription) -> int:
        """The effective backlog of a subscription, calculated as in the core (queues.md §5.2)."""
        limits = [self.names.queues[queue].max_per_subscription_backlog for queue in subscription.queues]
        return min(subscription.options.max_backlog, *limits)

    def enter(self, subscription: Subscription, then: Callable[[int], None]) -> None:
        """Announce a new or changed subscription to its queues. `then` receives the effective backlog, when the core
        has the subscription and all deliveries for its previous state have been sent.
        """
        connection = subscription.connection
        if subscription.queue_number is None:
            while self._next_number in self._receivers or self._next_number in self._entering:
                self._next_number = (self._next_number + 1) % NUMBERS_END  # after 4 billion
            subscription.queue_number = self._next_number
            self._next_number = (self._next_number + 1) % NUMBERS_END
        number = subscription.queue_number
        self._entering[number] = subscription, then
        filter_id = self.filters.id_of(subscription.filter)
        filter_text = "" if subscription.filter is None else subscription.filter.canonical
        shown = [shown_text(text) for text in (subscription.sub_id, subscription.topic, filter_text)]
        payload = [number, list(subscription.queues), subscription.options.max_backlog, filter_id, shown]
        self._core.push_control(
            control_record(payload, KIND_QUEUE_SUBSCRIBE, connection.slot, connection.serial)
        )

    def entered(self, number: int, effective_backlog: int) -> None:
        """Handle the core's answer `queue_entered`."""
        subscription, then = self._entering.pop(number)
        assert self._sender is not None
        connection = subscription.connection
        names = {queue: self.filters.entry(queue).json_name for queue in subscription.queues}
        receiver = self._receivers.get(number)
        flags = WANT_TIMESTAMP if subscription.options.timestamp else 0
        select = subscription.options.select
        bodies = None if select is None else Bodies(self._documents_of(connection.message_type), select)
        backlogs = self._backlogs.setdefault(connection, {})
        backlogs[number] = effective_backlog
        leases = self._leases_of(connection, sum(backlogs.values()))
        if receiver is None:
            receiver = QueueReceiver(
                number, connection, connection.output, leases, flags, shown_id(subscription), names, bodies
            )
            self._receivers[number] = receiver
            self._sender.add(receiver)
        else:
            receiver.change(flags, shown_id(subscription), names, bodies)
        self._sender.set_queues(number, subscription.queues)
        filters = None
        if subscription.filter is not None:
            filters = self.filters.filters_with(subscription.filter, connection.message_type)
        entries = {queue: self.filters.subject(queue) for queue in subscription.queues}

        def sent() -> None:
            # Earlier barriers are matched against the subscription's previous state.
            receiver.select(filters, entries)
            then(effective_backlog)

        self._sender.when_sent(sent)

    def _leases_of(self, connection: Session, backlog: int) -> LeaseTable:
        leases = connection.leases
        if leases is None:
            leases = connection.leases = LeaseTable()
            connection.ingress.set_leases(leases)
        leases.set_bound(max(LEASES_MIN, LEASES_PER_BACKLOG * backlog))
        return leases

    def end(self, subscription: Subscription) -> None:
        """End a subscription: the core makes the messages that it held available again (queues.md §5.6)."""
        number = subscription.queue_number
        if number is None:
            return
        connection = subscription.connection
        self._core.push_control(
            control_record([number], KIND_QUEUE_UNSUBSCRIBE, connection.slot, connection.serial)
        )
        self._forget([number])
        self._backlogs.get(connection, {}).pop(number, None)

    def forget(self, connection: Session) -> None:
        """Remove the subscriptions of a connection that has ended; the core ends them itself when it is notified."""
        numbers = [*self._backlogs.pop(connection, ())]
        numbers += [
            number for number, (entering, _) in self._entering.items() if entering.connection is connection
        ]
        self._forget(numbers)

    def _forget(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._entering.pop(number, None)
            if self._receivers.pop(number, None) is not None:
                assert self._sender is not None
                self._sender.remove(number)
