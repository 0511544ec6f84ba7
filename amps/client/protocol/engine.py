"""The protocol engine: every rule of the client's side of the protocol, and no input or output.

Received bytes and clock readings are the input; bytes to send (`outgoing`) and `events` are the output. The
engine opens no connection, starts no thread, never waits and takes no lock. A front end calls it under its
own lock, writes the chunks of `outgoing` in their order, and handles the events in theirs. Because time
is an argument, a test can simulate a day of heartbeats in a millisecond. The rules for received
messages are in `inbound`.

Invariants:
- Order of sequence numbers is order on the wire. While the publish store is replayed after a logon, new
  publishes are only stored (the replay sends them) and all other commands wait for the end of the replay.
- Nothing is sent between a logon and its acknowledgement.
- A route is registered before its command is sent. A dropped route gets no more messages: messages that still
  arrive for it are reported as LastChance.
"""

from dataclasses import replace

from amps.client.enums import AckType, ConnectionState
from amps.client.errors import (
    TimedOutException,
    UsageException,
    exception_for,
)
from amps.client.protocol.command import Command, PublishTemplate, TransactionCommand, check_text
from amps.client.protocol.engine_state import SEQUENCE_DIGITS
from amps.client.protocol.engine_types import (
    EngineConfig,
    Event,
    Phase,
    Route,
    StreamEnd,
    Ticket,
)
from amps.client.protocol.framing import encode_frame
from amps.client.protocol.inbound import Inbound
from amps.client.protocol.options import join_options
from amps.client.protocol.outbound import awaited_by
from amps.client.protocol.resuming import is_recent
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore
from amps.client.protocol.subscriptions import SubscriptionManager
from amps.client.uri import ConnectionUri
from amps.journal.written_points import points_text

ABANDONED_REMEMBERED = 1000

_READY = Phase.READY


class Engine(Inbound):
    """One client's protocol state; it survives reconnects."""

    def __init__(
        self,
        config: EngineConfig,
        publish_store: PublishStore | None = None,
        bookmark_store: BookmarkStore | None = None,
        subscriptions: SubscriptionManager | None = None,
    ) -> None:
        super().__init__(config, publish_store, bookmark_store, subscriptions)

    # Connection

    def connection_made(self, now: float, uri: ConnectionUri) -> None:
        """Note that a transport is connected; nothing is sent yet."""
        self.phase = Phase.CONNECTED
        self._uri = uri
        self._reader = self._new_reader()
        self._silent_since = now
        self.dismissal = self.lost_by = None
        self._announce(ConnectionState.CONNECTED)

    def deadline(self) -> float | None:
        """The time at which `tick` has work to do; None = nothing is planned."""
        moments = [when for when in (self._next_beat, self._acks.deadline) if when is not None]
        return min(moments) if moments else None

    def silence_deadline(self) -> float | None:
        """The time at which the server counts as lost unless data is received before; None = never."""
        return None if self._silence_s is None else self._silent_since + self._silence_s

    def reading_again(self, now: float) -> None:
        """Note that the front end reads again: the time it spent delivering events is not silence of the server."""
        self._silent_since = now

    def tick(self, now: float, *, reading: bool = False) -> None:
        """Run the timed work that is due. `reading`: the front end has just found no data to receive."""
        if self._next_beat is not None and now >= self._next_beat:
            self._beat()
            self._next_beat = max(self._next_beat + (self.config.heartbeat_s or 0), now)
        if self._acks.deadline is not None and now >= self._acks.deadline:
            self._acks.deadline = None
            self.flush_acks()
        silence = self.silence_deadline()
        if reading and silence is not None and now >= silence:
            self._silence_s = self._next_beat = None
            silent_s = now - self._silent_since
            self._break_off(TimedOutException(f"nothing received from the server for {silent_s:.1f} s"))

    def outgoing(self) -> list[bytes]:
        """Return the bytes to send, in order; the caller must write all of them."""
        if self.phase is Phase.REPLAYING or self.phase is Phase.RESUBSCRIBING:
            self._feed_replay()
        elif self._numbering:
            self._send_interrupted()
        return self.outbox.take()

    @property
    def has_outgoing(self) -> bool:
        """Whether `outgoing` would return any bytes."""
        if self.outbox.pending_bytes or self._numbering or self.phase is Phase.REPLAYING:
            return True
        return self.phase is Phase.RESUBSCRIBING and (not self._resubscribing or self._replay_waits)

    def events(self) -> list[Event]:
        """Return the events since the last call, in order."""
        events = self._events
        self._events = []
        return events

    @property
    def has_events(self) -> bool:
        """Whether `events` would return any event."""
        return bool(self._events)

    # Logon

    def logon(
        self,
        now: float,
        username: str | None,
        password: str | None,
        options: str,
        ticket: Ticket | None = None,
    ) -> Ticket:
        """Send a logon. When it answers a challenge, `ticket` is the ticket of the first logon."""
        if not self.connected:
            self.check_connected("logon")
        if self.phase is Phase.LOGGING_ON and ticket is None:
            raise UsageException("a logon is under way on this connection")
        for name, value in (("user name", username), ("password", password)):
            if value is not None:
                check_text(name, value)
        uri = self._uri
        command_id = self._new_id()
        if ticket is None:
            ticket = Ticket(command_id, "logon", AckType.PROCESSED)
            self._challenges = 0
        else:
            ticket.command_id = command_id
            ticket.challenge = None
        self._tickets[command_id] = self._logon = ticket
        self._append(
            encode_frame(
                {
                    "cmd": "logon",
                    "cmd_id": command_id,
                    "client_name": self.config.client_name,
                    "ack_type": "processed",
                    "message_type": uri.message_type if uri is not None else None,
                    "user_id": username,
                    "password": password,
                    "version": self.config.version or None,
                    "correlation_id": self.config.correlation_id,
                    "opts": join_options(options, "pretty=true" if uri is not None and uri.pretty else "")
                    or None,
                }
            )
        )
        if not self.logged_on:  # a second logon, which the server will refuse, does not delay other commands
            self.phase = Phase.LOGGING_ON
        return ticket

    # Commands

    def execute(
        self,
        command: Command,
        route: Route | None,
        now: float,
        *,
        resubscribe: bool = True,
        awaited: AckType | None = None,
    ) -> Ticket:
        """Send a command.

        `awaited` overrides which acknowledgement settles the ticket; with AckType.NONE it is settled at once.
        """
        waits = bool(awaited_by(command) if awaited is None else awaited)
        # A command that somebody waits for may wait for the next server, too. The store keeps those that it numbers.
        patient = self.recovers and waits and not self._numbers(command.command)
        if not patient or not (self.config.retry or command.command == "unsubscribe"):
            self.check_connected(command.command)
        command = command.copy()
        command.validate()
        if isinstance(command, TransactionCommand):
            self._number_transaction(command)
        if command.command_id is None:
            command.command_id = self._new_id()
        if command.bookmark is not None and not is_recent(command):
            command.bookmark = points_text(command.bookmark)  # an age counts from now, also if it is sent later
        replaces = False
        if route is not None and command.sub_id is not None:
            active = self._subscriptions.get(command.sub_id)
            replaces = active is route
            if active is not None and not replaces:
                raise exception_for("subscription already exists", f"{command.command} as {command.sub_id!r}")
        ticket = Ticket(command.command_id, command.command, AckType.NONE, route, replaces=replaces)
        ticket.request = command
        completed, ticket.awaited = self._complete(ticket, awaited)
        command.sub_id, command.query_id = completed.sub_id, completed.query_id
        if patient and not self._sends:
            self._check_size(len(completed.encode()) - 4)
            self._deferred.append(ticket)
        else:
            ticket.sequence = self._send_command(completed)
            ticket.sent = True
        if command.command == "unsubscribe":
            self._end_routes(command)
        if route is not None:
            route.resubscribe = resubscribe
            self._register(route, completed)
        if not ticket.awaited:
            ticket.done = True
        elif command.command == "unsubscribe" and self._nothing_entered:
            self._forget_deferred(ticket)
            self._settle(ticket, None)
        else:
            self._tickets[ticket.command_id] = ticket
        return ticket

    def send(self, command: Command, now: float) -> str:
        """Send a command without a ticket or a route; return its command id."""
        return self.execute(command, None, now, awaited=AckType.NONE).command_id

    def publish(self, command: Command, now: float) -> int:
        """Send a publish or delta_publish command; return its sequence number, 0 without a store."""
        self.check_connected(command.command)
        command = command.copy()
        command.validate()
        return self._send_command(command)

    def publish_body(self, template: PublishTemplate, body: bytes) -> int:
        """Send one body with a prebuilt header; `Outbox.publish` does it where nothing has to be decided."""
        size_bytes = len(template.sequenced) + SEQUENCE_DIGITS + len(body)
        if size_bytes > self.config.max_message_bytes:
            self._check_size(size_bytes)
        if self.phase is not _READY:
            self.check_connected(template.command)
        if self._publish_store is None:
            self._publish_plain(template.header, body)
            return 0
        if self.phase is not _READY:
            self._check_numbered(template.command)
        return self._send_numbered(template.sequenced, body)

    def _publish_plain(self, header: bytes, body: bytes) -> None:
        length = (len(header) + len(body)).to_bytes(4, "big")
        if self.phase is not _READY:
            self._send(b"%b%b%b" % (length, header, body))
        else:
            self.outbox.add_parts(length + header, body)

    def abandon(self, ticket: Ticket, now: float) -> None:
        """Give up waiting for a ticket: cancel the subscription or query it started and ignore its late answer."""
        if ticket.done:
            return
        ticket.done = True
        self._tickets.pop(ticket.command_id, None)
        if not ticket.sent:
            self._forget_deferred(ticket)
        self._abandoned[ticket.command_id] = None
        if len(self._abandoned) > ABANDONED_REMEMBERED:
            del self._abandoned[next(iter(self._abandoned))]
        if ticket.route is not None:
            self._cancel_route(ticket.route)
        if ticket is self._logon:
            self._logon = None
        elif ticket.command != "unsubscribe" and ticket.sent:
            self._send_unsubscribe(ticket.sub_id, ticket.query_id)

    def _forget_deferred(self, ticket: Ticket) -> None:
        self._deferred = [item for item in self._deferred if item is not ticket]

    def cancel(self, route: Route) -> None:
        """End a subscription or running query without waiting for the answer."""
        if route.closed:
            return
        self._cancel_route(route)
        self._send_unsubscribe(route.sub_id, None if route.group_ended else route.query_id)

    def _cancel_route(self, route: Route) -> None:
        route.cancelled = True
        self._drop(route)
        self._events.append(StreamEnd(route, None))

    def _end_routes(self, command: Command) -> None:
        sub_ids = [name.strip() for name in (command.sub_id or "").split(",")]
        query_ids = [name.strip() for name in (command.query_id or "").split(",")]
        routes = [self._subscriptions.get(name) for name in sub_ids] + [
            self._queries.get(q) for q in query_ids
        ]
        if "all" in sub_ids:
            routes += list(self._subscriptions.values())
        for route in routes:
            if route is not None and not route.closed:
                self._cancel_route(route)

    def route_of(self, sub_id: str) -> Route | None:
        """The route of an active subscription."""
        return self._subscriptions.get(sub_id)

    # Queue acknowledgements and global handlers

    def ack(self, topic: str, bookmark: str, options: str, sub_id: str | None, now: float) -> None:
        """Acknowledge queue messages, in batches unless there are options."""
        route = self._subscriptions.get(sub_id) if sub_id is not None else None
        timeout_s = self.config.effective_ack_timeout_s
        self._send_acks(
            self._acks.add(topic, bookmark, options, route, now, self.config.ack_batch_size, timeout_s)
        )

    def set_ack_batch_size(self, size: int) -> None:
        """Change the number of queue acknowledgements in a batch."""
        self.config = replace(self.config, ack_batch_size=size)
        self._acks.review()

    def set_global(self, command: str, wanted: bool) -> None:
        """Start or stop reporting messages of this type also as Global events."""
        (self._globals.add if wanted else self._globals.discard)(command)
        for route in self._subscriptions.values():
            self._quicken(route)
