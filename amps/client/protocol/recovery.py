"""What survives a lost connection, and how it is restored on the next one (client.md §9.1, §19.10).

After each logon the messages of the publish store are sent again. An engine with `recovers` does more. Its
subscriptions, waiting commands and unsent queue acknowledgements survive the loss of a connection. After the next
logon the front end calls `recover`. The engine then sends, in this order: the start of heartbeats, the messages of the
publish store, the queue acknowledgements left over, the subscriptions, and last the commands that wait.

Invariants:
- Until READY, stored messages are sent by the replay's cursor only. So order of numbers is order on the wire, and
  nothing new is sent before the messages of the store.
- A subscription keeps its route. Messages that the new server sends again are known to the bookmark store.
- A command is sent again only if nothing can tell whether the server has processed it, and sending it again does no
  harm. A command that the store numbers is sent again by the replay, under its old number.
"""

from amps.client.enums import NOW, AckType, ConnectionState
from amps.client.errors import AMPSException, DisconnectedException, RetryOperationException
from amps.client.protocol.command import Command
from amps.client.protocol.engine_state import EngineState
from amps.client.protocol.engine_types import (
    Phase,
    RecoveryFailed,
    Route,
    RouteKind,
    StreamEnd,
    Ticket,
    TicketDone,
)
from amps.client.protocol.message import Message
from amps.client.protocol.outbound import prepare
from amps.client.protocol.resuming import as_entered, pauses, resumed, starts_paused

REPLAY_CHUNK_BYTES = 2**20


class Recovery(EngineState):
    """The loss of a connection and the recovery on the next one."""

    @property
    def ready(self) -> bool:
        """Whether recovery has finished: commands are sent at once."""
        return self.phase is Phase.READY

    @property
    def recovery_progress(self) -> tuple[int, int]:
        """Changes whenever a recovery makes progress; front ends limit the time without any."""
        return self._replay_at, len(self._resubscribing)

    # Loss

    def connection_lost(self, now: float, error: AMPSException | None) -> None:
        """Note that the transport is gone. `error` is the reason, None if the application closed the connection.

        Waiting tickets fail and routes end, unless the engine `recovers`.
        """
        if self.phase is Phase.DISCONNECTED:
            return
        self.phase = Phase.DISCONNECTED
        self.lost_by = error
        self.outbox.clear()
        self._next_beat = self._silence_s = None
        self._abandoned.clear()
        self._announce(ConnectionState.DISCONNECTED)
        reason = error or DisconnectedException("the connection was closed")
        if self._logon is not None:
            self._fail(self._logon, reason)
            self._logon = None
        self._resubscribing.clear()
        self._refusals = ()
        if self.recovers:
            self._cut_off(reason)
        else:
            self._end_all(reason, error)

    def give_up(self, error: AMPSException | None) -> None:
        """End recovering, because no server can be reached, or (None) because the application wants no connection.

        Without a connection, waiting tickets fail and routes end at once; else when the connection is closed.
        """
        self.recovers = False
        if self.phase is Phase.DISCONNECTED:
            if error is not None:
                self.lost_by = error
            self._end_all(error or DisconnectedException("the client was disconnected"), error)

    def _end_all(self, reason: AMPSException, error: AMPSException | None) -> None:
        routes = self.routes()
        for ticket in list(self._tickets.values()):
            self._fail(ticket, reason)
        for route in routes:
            self._drop(route)
            self._events.append(StreamEnd(route, error))
        self._deferred, self._deferred_bytes = [], 0

    def _cut_off(self, reason: AMPSException) -> None:
        """Keep what the next connection restores; end the rest."""
        again: list[bytes | Ticket] = []
        for ticket in list(self._tickets.values()):
            if ticket.resubscribes:
                del self._tickets[ticket.command_id]
            elif ticket.command == "unsubscribe":
                self._settle(ticket, None)  # the subscription ended with the connection
            elif self._is_repeatable(ticket):
                if ticket.sent and not ticket.sequence:
                    ticket.sent = False
                    again.append(ticket)
            else:
                self._fail(ticket, _cut_off_error(ticket, reason))
        self._deferred = again + self._deferred
        waiting = {id(ticket.route) for ticket in self._tickets.values()}
        for route in self.routes():
            if not self._is_accepted(route) and id(route) not in waiting:
                self._drop(route)
                self._events.append(StreamEnd(route, reason))
            for command_id in route.command_ids:
                self._commands.pop(command_id, None)
            route.command_ids.clear()

    def _is_repeatable(self, ticket: Ticket) -> bool:
        if not self.config.retry:
            return False
        if self._publish_store is not None or not ticket.sent:
            return True
        # A flush vouches for the publishes before it, and they may be lost. A publish sent again may be there twice.
        return ticket.command not in ("flush", "publish", "delta_publish")

    def _is_accepted(self, route: Route) -> bool:
        return route.accepted and route.resubscribe and self._subscriptions.get(route.sub_id or "") is route

    # Recovery

    def recover(self, now: float) -> None:
        """Restore everything on a connection that is logged on.

        Ends with State(RESUBSCRIBED); a subscription that the server refuses is a RecoveryFailed event. No effect if
        that connection has been lost since its logon.
        """
        if self.phase is not Phase.LOGGED_ON:
            return
        store = self._publish_store
        self.phase = Phase.REPLAYING
        if self.config.heartbeat_s is not None:
            self.start_heartbeat(now)
        if self.recovers and store is not None:
            for ticket in [ticket for ticket in self._tickets.values() if ticket.sequence]:
                if ticket.sequence <= store.last_persisted():
                    text = f"{ticket.command}: the server has processed it, but the answer was lost"
                    self._fail(ticket, RetryOperationException(text, command_id=ticket.command_id))
            self._emit_acks(self._acks.take_all())  # numbered after the messages in the store
        self._replay_at = store.lowest_unpersisted() if store is not None else 0
        if self._replay_at == 0:
            self._replay_done()

    def _feed_replay(self) -> None:
        """Send messages of the publish store, one chunk; when all are sent, go on with the recovery."""
        store, outbox = self._publish_store, self.outbox
        if store is not None:
            # Acknowledgements may have discarded the message at the cursor: continue with the lowest one kept.
            at, last = max(self._replay_at, store.lowest_unpersisted()), store.highest_unpersisted()
            while at <= last and outbox.pending_bytes < REPLAY_CHUNK_BYTES:
                store.replay_single(lambda frame, sequence: outbox.add(frame), at)
                at += 1
            self._replay_at = at
            if at <= last:
                return
        if self.phase is Phase.REPLAYING:
            self._replay_done()
        elif not self._resubscribing:
            self._ready()

    @property
    def _replay_waits(self) -> bool:
        store = self._publish_store
        return store is not None and store.highest_unpersisted() >= max(self._replay_at, 1)

    def _replay_done(self) -> None:
        if self._publish_store is not None:
            self._announce(ConnectionState.PUBLISH_REPLAYED)
        if not self.recovers:
            self._ready()
            return
        self._emit_acks(self._acks.take_all())
        self.phase = Phase.RESUBSCRIBING
        for command in self._manager.commands():
            route = self._subscriptions.get(command.sub_id or "")
            if route is not None and self._is_accepted(route):
                self._resubscribe(command, route)
        self._resubscription_advanced()

    def _resubscribe(self, entered: Command, route: Route, repeated: int = 0) -> None:
        """Enter a subscription again. `repeated`: how many of its messages will be duplicates that do not count."""
        command = resumed(entered, route, self._bookmark_store)
        remaining = route.remaining
        if remaining is not None:
            command.top_n = remaining + repeated
        command.command_id = command.command_id or self._new_id()
        ticket = Ticket(command.command_id, command.command, AckType.PROCESSED, route, request=entered)
        ticket.sub_id, ticket.query_id, ticket.resubscribes = route.sub_id, command.query_id, True
        self._prepare(command, route, None)
        route.remaining = remaining
        self._tickets[ticket.command_id] = self._resubscribing[ticket.command_id] = ticket
        self._register(route, command)
        self._append(command.encode())

    def _continue_replay(self, route: Route) -> bool:
        """Ask for the rest of a limited replay that has ended early, because duplicates counted to its limit."""
        at_limit = route.limit is not None and route.passed >= route.limit
        if not (self.recovers and at_limit and route.repeats and route.remaining):
            return False
        entered = [command for command in self._manager.commands() if command.sub_id == route.sub_id]
        if not entered or not self._is_accepted(route):
            return False
        self._append(Command("unsubscribe", sub_id=route.sub_id).encode())
        self._resubscribe(entered[0], route, route.repeats)
        return True

    def _on_resubscribe_ack(self, ticket: Ticket, error: AMPSException | None) -> None:
        del self._tickets[ticket.command_id]
        route = ticket.route
        if error is not None and route is not None and ticket.request is not None and not route.closed:
            if self.phase is Phase.RESUBSCRIBING:
                self._refusals = (*self._refusals, RecoveryFailed(ticket, ticket.request, error))
                self._events.append(self._refusals[-1])
                if self.watcher is not None:
                    self.watcher(None)
                return
            self._drop(route)
            self._events.append(StreamEnd(route, error))
        self._resubscribing.pop(ticket.command_id, None)
        self._resubscription_advanced()

    @property
    def refusal(self) -> RecoveryFailed | None:
        """A refused subscription about which the front end has to decide; None if there is none. Needs no lock."""
        refusals = self._refusals
        return refusals[0] if refusals else None

    def leave_out(self, failed: RecoveryFailed) -> None:
        """Go on with a recovery without a subscription that the server refused; its route ends with the error."""
        ticket = failed.ticket
        if self._resubscribing.get(ticket.command_id) is not ticket:
            return  # that connection is lost
        del self._resubscribing[ticket.command_id]
        self._refusals = tuple(refused for refused in self._refusals if refused.ticket is not ticket)
        if ticket.route is not None and not ticket.route.closed:
            self._drop(ticket.route)
            self._events.append(StreamEnd(ticket.route, failed.error))
        self._resubscription_advanced()

    def _resubscription_advanced(self) -> None:
        if self.phase is Phase.RESUBSCRIBING and not self._resubscribing and not self._replay_waits:
            self._ready()

    def _ready(self) -> None:
        if self._publish_store is not None:
            self._numbering = False
            self._placed = max(self._replay_at - 1, self._publish_store.last_persisted())
        self._phase = Phase.READY  # the outbox is not ready yet: publishes of other threads follow what has waited
        if self.recovers:
            self._announce(ConnectionState.RESUBSCRIBED)
        self.flush_acks()
        deferred, self._deferred, self._deferred_bytes = self._deferred, [], 0
        for item in deferred:
            if isinstance(item, bytes):
                self._append(item)
            elif not item.done:
                self._transmit(item)
        self.phase = Phase.READY

    # Commands that wait

    def _complete(self, ticket: Ticket, awaited: AckType | None) -> tuple[Command, AckType]:
        """Return the ticket's command as it is sent now, and what it waits for; prepare its route."""
        request, route = ticket.request, ticket.route
        assert request is not None
        command = request.copy()
        waits_for = self._prepare(command, route, awaited)
        ticket.sub_id, ticket.query_id = command.sub_id, command.query_id
        return command, waits_for

    def _prepare(self, command: Command, route: Route | None, awaited: AckType | None) -> AckType:
        """Complete a command and its route; return what it waits for."""
        waits_for = prepare(
            command,
            route,
            batch_size=self.config.batch_size,
            bookmarks=self._bookmark_store,
            awaited=awaited,
        )
        if route is not None:
            if self._publish_store is not None:
                route.outstanding &= ~AckType.PERSISTED  # conflated: this command gets no persisted ack
            route.limit, route.passed, route.repeats = command.top_n, 0, 0
            if self.recovers and route.bookmarked and command.bookmark == NOW and command.command == "subscribe":
                command.ack_type |= AckType.COMPLETED  # its bookmark is where the subscription begins
        return waits_for

    def _transmit(self, ticket: Ticket) -> None:
        """Send a command that has waited."""
        route = ticket.route
        if route is not None and route.closed:
            self._settle(ticket, None)  # its subscription was ended meanwhile
            return
        command, _ = self._complete(ticket, ticket.awaited)
        if route is not None:
            self._register(route, command)
        ticket.sent = True
        self._append(command.encode())

    def _settle(self, ticket: Ticket, ack: Message | None) -> None:
        """Note that a ticket has its answer, or (None) needs none any more."""
        self._tickets.pop(ticket.command_id, None)
        ticket.done = True
        ticket.ack = ack
        self._events.append(TicketDone(ticket, ack))

    def _accepted(self, ticket: Ticket) -> None:
        """Note what a command that the server has accepted changes about subscriptions."""
        request, route = ticket.request, ticket.route
        if request is None:
            return
        if route is None:
            pausing = pauses(request)
            if pausing is not None:
                for name in (request.sub_id or "").split(","):
                    subscription = self._subscriptions.get(name.strip())
                    if subscription is not None:
                        subscription.paused = pausing
        elif route.kind is RouteKind.SUBSCRIPTION and route.sub_id is not None and not route.closed:
            route.accepted = True
            route.paused = starts_paused(request)
            if route.resubscribe:
                self._manager.subscribe(route.sub_id, as_entered(request))


def _cut_off_error(ticket: Ticket, reason: AMPSException) -> AMPSException:
    return RetryOperationException(
        f"{ticket.command}: the connection was lost before the answer: {reason}",
        reason=reason.reason,
        command_id=ticket.command_id,
        message=reason.message,
    )
