"""The rules for received messages, in the order in which they apply.

1. Any bytes show that the server is alive. 2. A message of a type with a global handler is reported as a Global
event (routing follows); a heartbeat is answered. 3. Acknowledgements settle tickets, are passed to the publish
store or the bookmark store, and go to the command's route only if the application requested them. 4. Content goes
to every route it names, one message each. 5. Group markers begin and end queries. 6. A message without a route is
reported as LastChance; a message that cannot be parsed ends the connection.
"""

from typing import Any

from amps.client.enums import AckType, ConnectionState
from amps.client.errors import (
    AMPSException,
    AuthenticationException,
    DisconnectedException,
    StoreException,
    StreamException,
    exception_for,
)
from amps.client.protocol.arrivals_python import parse_bookmark
from amps.client.protocol.engine_types import (
    Close,
    Deliver,
    Duplicate,
    FailedWrite,
    Global,
    Phase,
    Retry,
    Route,
    StreamEnd,
    Ticket,
    TicketFailed,
)
from amps.client.protocol.framing import FrameTooLarge, HeaderError, parse_header
from amps.client.protocol.message import Message
from amps.client.protocol.recovery import Recovery
from amps.client.protocol.store_interfaces import PublishStore

MAX_CHALLENGES = 32

_ACK_TYPES = {kind.name.lower(): kind for kind in AckType if kind.name}


class Inbound(Recovery):
    """Processes received bytes and produces events."""

    def receive(self, data: bytes | bytearray | memoryview, now: float) -> None:
        """Process received bytes; they may be split at any place."""
        if not self.connected:
            return
        self._silent_since = now
        try:
            self._reader.feed(data)
            self._receive_frames(now)
        except (FrameTooLarge, HeaderError) as error:
            self._reader.clear()
            self._break_off(StreamException(f"corrupt data from the server: {error}"))

    def _receive_frames(self, now: float) -> None:
        # The reader delivers the publishes for one known subscription by itself.
        reader = self._reader
        frames, content = reader.frames, reader.content
        while (payload := reader.next(self._fast, self._events)) is not None:
            self._on_payload(payload, now)
            if self.phase is Phase.CLOSED:
                break
        self.stats.messages_in += reader.frames - frames
        self.stats.content_in += reader.content - content

    def _on_payload(self, payload: bytes, now: float) -> None:
        fields, body_at = parse_header(payload)
        message = Message.parsed(payload, fields, body_at)
        command = message.command
        if command in self._globals:
            self._events.append(Global(message))
        if command in ("publish", "oof"):
            self.stats.content_in += 1
            self._on_content(message, fields, body_at)
        elif command == "ack":
            self._on_ack(message, fields, now)
        elif command == "sow":
            self._on_records(payload, fields, body_at)
        elif command in ("group_begin", "group_end"):
            self._on_group(message, command == "group_end")
        elif command == "heartbeat":
            self._beat()
        else:
            self._last_chance(message)

    def _deliver(self, route: Route, message: Message) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, Deliver) and last.route is route:
            last.messages.append(message)
        else:
            self._events.append(Deliver(route, [message]))

    # Content

    def _on_content(self, message: Message, fields: dict[str, Any], body_at: int) -> None:
        names = str(fields.get("sids") or fields.get("sub_id") or fields.get("query_id") or "")
        for name in names.split(","):
            route = self._subscriptions.get(name) or self._queries.get(name)
            copy = Message.parsed(message._payload, fields, body_at, route=route, sub_id=name or None)
            if route is None:
                self._last_chance(copy)
            else:
                self._deliver_content(route, name, copy)

    def _deliver_content(self, route: Route, sub_id: str, message: Message) -> None:
        store = self._bookmark_store
        route.passed += 1
        if route.bookmarked and store is not None:
            if store.is_discarded(message):
                route.repeats += 1
                self.stats.duplicates_dropped += 1
                self._events.append(Duplicate(message))
                return
            message._store_seq = store.log(message)
        self._deliver(route, message)
        if route.remaining is not None:
            route.remaining -= 1
            if route.remaining == 0:
                self._finish(route)

    def _on_records(self, payload: bytes, fields: dict[str, Any], body_at: int) -> None:
        query_id = str(fields.get("query_id") or fields.get("sub_id") or fields.get("sids") or "")
        route = self._queries.get(query_id) or self._subscriptions.get(query_id)
        for message in self._split_records(payload, fields, body_at, route):
            self.stats.content_in += 1
            if route is None:
                self._last_chance(message)
            else:
                self._deliver(route, message)

    def _split_records(
        self, payload: bytes, fields: dict[str, Any], at: int, route: Route | None
    ) -> list[Message]:
        """Return the records of a batch, each with the outer header merged with its own."""
        end = len(payload)
        if fields.get("msg_len") == end - at:  # one record whose header is the outer one
            return [Message.parsed(payload, fields, at, route=route)]
        outer = {name: value for name, value in fields.items() if name not in ("batch_size", "msg_len")}
        view = memoryview(payload)
        messages = []
        while at < end:
            own, offset = parse_header(view[at:])
            start = at + offset
            length = own.get("msg_len")
            if not isinstance(length, int) or start + length > end:
                raise HeaderError(
                    f"a sow record of length {length!r} in a frame with {end - start} bytes left"
                )
            at = start + length
            messages.append(Message.parsed(payload, {**outer, **own}, start, body_end=at, route=route))
        return messages

    def _on_group(self, message: Message, end: bool) -> None:
        route = self._queries.get(message.query_id or "")
        if route is None:
            self._last_chance(message)
            return
        self._deliver(
            route, Message.parsed(message._payload, message._fields(), message._body_at, route=route)
        )
        if end:
            route.group_ended = True
            if not route.ends_after_group:
                self._forget_query(route)
            self._end_query(route)

    def _end_query(self, route: Route) -> None:
        if route.ends_after_group and route.group_ended and not route.outstanding:
            self._finish(route)

    def _finish(self, route: Route) -> None:
        """End a route that has received all of its messages."""
        if not route.closed:
            self._drop(route)
            self._events.append(StreamEnd(route, None))

    # Acknowledgements

    def _on_ack(self, message: Message, fields: dict[str, Any], now: float) -> None:
        command_id = fields.get("cmd_id")
        kind = _ACK_TYPES.get(str(fields.get("ack_type", "")).lower(), AckType.NONE)
        ticket = self._tickets.get(command_id) if command_id is not None else None
        if ticket is not None and ticket is self._logon:
            if kind & AckType.PROCESSED:
                self._on_logon_ack(ticket, message, now)
            return
        failed = str(fields.get("status", "")).lower() == "failure"
        if failed and command_id is None and kind & AckType.PROCESSED and "client_name" in fields:
            self._on_dismissal(message)
            return
        route = self._ack_route(fields)
        taken = command_id in self._abandoned
        if ticket is not None:
            self._on_ticket_ack(ticket, message, kind, failed)
            taken = True
        if route is not None and not failed:
            self._note_backlog(route, fields)
        if kind & AckType.PERSISTED and not (ticket is not None and ticket.command == "transaction"):
            taken = self._on_persisted(message, fields, failed, route) or taken
        if route is not None and not route.closed:
            taken = self._on_route_ack(route, message, kind) or taken
        if not taken:
            self._last_chance(message)

    def _on_dismissal(self, message: Message) -> None:
        """Handle the message in which the server gives its reason for closing the connection (docs/messages.md)."""
        why = f": {message.detail}" if message.detail else ""
        text = f"the server closed the connection: {message.reason}{why}"
        self.dismissal = DisconnectedException(text, reason=message.reason, message=message)

    def _ack_route(self, fields: dict[str, Any]) -> Route | None:
        route = self._commands.get(fields.get("cmd_id", ""))
        return route or self._subscriptions.get(fields.get("sub_id", ""))

    def _note_backlog(self, route: Route, fields: dict[str, Any]) -> None:
        for option in str(fields.get("opts", "")).split(","):
            name, _, value = option.partition("=")
            if name.strip() == "max_backlog" and value.strip().isdigit():
                route.max_backlog = int(value)
                self._acks.review()
                if self._acks.unsent(route) >= route.max_backlog:
                    self.flush_acks()  # the replacement's backlog is smaller: no message would arrive before

    def _on_ticket_ack(self, ticket: Ticket, message: Message, kind: AckType, failed: bool) -> None:
        error: AMPSException | None = None
        if failed:
            error = exception_for(
                message.reason, ticket.command, command_id=ticket.command_id, message=message
            )
        if ticket.resubscribes:
            if failed or kind & ticket.awaited:
                self._on_resubscribe_ack(ticket, error)
        elif error is not None:
            self._fail(ticket, error)
        elif kind & ticket.awaited:
            if ticket.route is not None:
                self._note_backlog(ticket.route, message._fields())
            self._accepted(ticket)
            self._settle(ticket, message)

    def _on_route_ack(self, route: Route, message: Message, kind: AckType) -> bool:
        taken = bool(kind & AckType.PROCESSED)
        if kind & route.asked:
            taken = True
            self._deliver(
                route, Message.parsed(message._payload, message._fields(), message._body_at, route=route)
            )
            route.outstanding &= ~kind
        if kind & AckType.COMPLETED and route.ends_after_replay:
            taken = True
            if not self._continue_replay(route):
                self._finish(route)
        elif kind & AckType.COMPLETED and route.bookmarked and self.recovers:
            taken = True
            route.began_at = route.began_at or message.bookmark
        self._end_query(route)
        if route.sub_id is None and route.query_id is None and not route.outstanding:
            self._finish(route)
        return taken

    def _on_persisted(
        self, message: Message, fields: dict[str, Any], failed: bool, route: Route | None
    ) -> bool:
        sub_id = route.sub_id if route is not None else None
        sequence = fields.get("seq")
        if sub_id is not None and sequence is None:
            if self._bookmark_store is not None and not failed and "bookmark" in fields:
                self._bookmark_store.persisted(sub_id, str(fields["bookmark"]))
            return True
        store = self._publish_store
        if failed:
            stored = store.find(sequence) if store is not None and isinstance(sequence, int) else None
            self.stats.failed_writes += 1
            told = Message(stored.encode()[4:]) if stored is not None else message
            self._events.append(FailedWrite(told, message.reason or "", message))
        if store is not None and isinstance(sequence, int):
            if self._tickets:
                self._settle_numbered(sequence, message, failed)
            if sequence > store.last_persisted():
                store.discard_up_to(sequence)
                if self._acks.returned:  # a full store had no room for them
                    self.flush_acks()
            return True
        return failed

    def _settle_numbered(self, sequence: int, message: Message, failed: bool) -> None:
        """Settle the tickets of publishes up to a number: its acknowledgement has no command id if it is conflated."""
        for ticket in [t for t in self._tickets.values() if t.awaited & AckType.PERSISTED]:
            if failed and ticket.sequence == sequence:
                error = exception_for(
                    message.reason, ticket.command, command_id=ticket.command_id, message=message
                )
                self._fail(ticket, error)
            elif 0 < ticket.sequence <= sequence:
                self._settle(ticket, message)

    # Logon

    def _on_logon_ack(self, ticket: Ticket, ack: Message, now: float) -> None:
        del self._tickets[ticket.command_id]
        self._logon = None
        status = (ack.status or "").lower()
        if status == "retry":
            self._on_challenge(ticket, ack)
        elif status != "success":
            what = "logon" if self._uri is None else f"logon to {self._uri.safe_text}"
            error = exception_for(ack.reason, what, command_id=ack.command_id, message=ack)
            self._refuse_logon(ticket, error)
        elif self.logged_on:
            self._settle(ticket, ack)
        else:
            self._on_logged_on(ticket, ack, now)

    def _on_challenge(self, ticket: Ticket, ack: Message) -> None:
        self._challenges += 1
        if self._challenges > MAX_CHALLENGES:
            text = f"the server asked for another password {self._challenges} times"
            self._refuse_logon(ticket, AuthenticationException(text, reason=ack.reason, message=ack))
            return
        fields = ack._fields()
        ticket.challenge = (str(fields.get("user_id", "")), str(fields.get("password", "")))
        self._logon = ticket
        self._events.append(Retry(ticket, *ticket.challenge))

    def _on_logged_on(self, ticket: Ticket, ack: Message, now: float) -> None:
        store = self._publish_store
        persisted = ack.sequence or 0
        key = parse_bookmark(ack.bookmark)
        logged = max(persisted, key[1] if key is not None else 0)
        try:
            if store is not None:
                _take_over(store, persisted, logged)
        except StoreException as error:
            self._refuse_logon(ticket, error)
            self._events.append(Close(error))
            return
        self.server_version = ack.version
        self._last_sequence = max(self._last_sequence, logged)
        self.stats.reconnects += self._logged_on_before
        self._logged_on_before = True
        self.phase = Phase.LOGGED_ON
        self._announce(ConnectionState.LOGGED_ON)
        if not self.recovers:  # else the front end calls it
            self.recover(now)
        self._settle(ticket, ack)

    def _refuse_logon(self, ticket: Ticket, error: AMPSException) -> None:
        ticket.done = True
        ticket.error = error
        if self.phase is Phase.LOGGING_ON:
            self.phase = Phase.CONNECTED
        self._events.append(TicketFailed(ticket, error))


def _take_over(store: PublishStore, persisted: int, logged: int) -> None:
    """Bring a publish store in line with an instance that is logged on to (client.md §8.1, 25.36 of replication.md).

    `persisted`: the last number that the instance and its sync destinations have; `logged`: the last one that the
    instance has. Numbers between them stay in the store, because a failover may still lose them. The instance
    drops whatever comes with a number that it has logged, so new messages need numbers above all of these.

    Raises PublishStoreGapException as `discard_up_to` does, and StoreException for a store that ends before `logged`.
    """
    known = store.last_persisted()
    if persisted >= known or logged < known:  # else the instance has them all, but forgot that others have them
        store.discard_up_to(persisted)
    if logged <= max(persisted, store.highest_unpersisted(), store.last_persisted()):
        return
    if store.unpersisted_count():
        raise StoreException(
            f"the server has logged messages up to {logged} of this client, but the publish store ends at"
            f" {store.highest_unpersisted()}: the store lacks messages that were sent, and new ones would have their"
            " numbers. Log on again when the server's sync destinations have the store's messages, or are downgraded"
        )
    store.discard_up_to(logged)
