"""The engine's state: the connection, waiting tickets, routes, and frames to send.

It is separate from the rules that change it (`inbound.py` for received messages, `engine.py` for calls),
because both need it. Sending is here too: which frames are sent at once and which wait for a logon or a
replay.
"""

import math
from collections.abc import Callable

from amps.client.enums import AckType, ConnectionState
from amps.client.errors import AMPSException, DisconnectedException, StoreException, UsageException
from amps.client.protocol.acknowledger import QueueAcknowledger
from amps.client.protocol.command import FRAME_OVERHEAD_BYTES, Command, TransactionCommand, numbered_frame
from amps.client.protocol.engine_types import (
    ClientStats,
    Close,
    Deliver,
    EngineConfig,
    Event,
    LastChance,
    Phase,
    RecoveryFailed,
    Route,
    RouteKind,
    State,
    Ticket,
    TicketFailed,
)
from amps.client.protocol.framing import encode_frame
from amps.client.protocol.message import Message
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore, frames_of
from amps.client.protocol.subscriptions import MemorySubscriptionManager, SubscriptionManager
from amps.client.protocol.traffic import COMPILED, FrameReader, Outbox
from amps.client.uri import ConnectionUri

SEQUENCE_DIGITS = 20
_SEQUENCED = frozenset(("publish", "delta_publish", "sow_delete"))
_LOGGED_ON = frozenset((Phase.LOGGED_ON, Phase.REPLAYING, Phase.RESUBSCRIBING, Phase.READY))
_READY = Phase.READY
_ENTERED = frozenset((Phase.RESUBSCRIBING, Phase.READY))
MAX_DEFERRED_BYTES = 2**20
"""The limit for frames that wait for the end of a recovery."""


class EngineState:
    """State and sending; see the module docstring of `engine` for the invariants."""

    def __init__(
        self,
        config: EngineConfig,
        publish_store: PublishStore | None,
        bookmark_store: BookmarkStore | None,
        subscriptions: SubscriptionManager | None,
    ) -> None:
        self.config = config
        self.outbox = Outbox(config.max_message_bytes)
        self.outbox.numbered = publish_store is not None
        self.outbox.log = frames_of(publish_store)
        self.recovers = False
        """Whether subscriptions and waiting commands survive a lost connection, until `give_up`."""
        self._phase = Phase.DISCONNECTED
        self.stats = ClientStats()
        self.server_version: str | None = None
        self.dismissal: DisconnectedException | None = None
        """Why the server closes, or has closed, the connection; `reason` is the server's text."""
        self.lost_by: AMPSException | None = None
        """The error that ended the last connection; None if the application closed it."""
        self.watcher: Callable[[ConnectionState | None], None] | None = None
        """Called with each connection state when it is reached, and with None when a recovery needs a decision."""
        self._publish_store = publish_store
        self._bookmark_store = bookmark_store
        self._manager: SubscriptionManager = subscriptions or MemorySubscriptionManager()
        self._globals: set[str] = set()
        self._uri: ConnectionUri | None = None
        self._reader = self._new_reader()
        self._deferred: list[bytes | Ticket] = []
        self._deferred_bytes = 0
        self._events: list[Event] = []
        self._tickets: dict[str, Ticket] = {}
        self._subscriptions: dict[str, Route] = {}
        self._queries: dict[str, Route] = {}
        self._commands: dict[str, Route] = {}
        self._fast: dict[bytes, Route] = {}  # by the bytes of `sids` in a header; never replaced
        self._abandoned: dict[str, None] = {}
        self._ids = 0
        self._logon: Ticket | None = None
        self._challenges = 0
        self._logged_on_before = False
        self._replay_at = 0
        self._numbering = False
        """Whether a frame is being stored and sent; afterwards, whether that was interrupted."""
        self._placed = 0
        """The last number that was placed in the output of this connection, unless the outbox itself numbers."""
        self._resubscribing: dict[str, Ticket] = {}
        self._refusals: tuple[RecoveryFailed, ...] = ()
        self._silent_since = 0.0
        self._next_beat: float | None = None
        self._silence_s: float | None = None
        self._acks = QueueAcknowledger()
        self._last_sequence = 0  # the highest one that the server has told, or a transaction has taken

    def _new_reader(self) -> FrameReader:
        return FrameReader(self.config.max_message_bytes, Message, Deliver)

    @property
    def phase(self) -> Phase:
        """The phase of the connection."""
        return self._phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._phase = phase
        self.outbox.ready = phase is Phase.READY

    @property
    def logged_on(self) -> bool:
        """Whether a logon has succeeded on this connection."""
        return self.phase in _LOGGED_ON

    @property
    def connected(self) -> bool:
        """Whether there is a usable connection."""
        return self.phase not in (Phase.DISCONNECTED, Phase.CLOSED)

    @property
    def unsent_count(self) -> int:
        """How many commands that nobody waits for were accepted, and wait for the end of a recovery."""
        return sum(isinstance(item, bytes) for item in self._deferred)

    def _break_off(self, error: AMPSException) -> None:
        """Note that the connection is unusable; the front end closes it."""
        self.phase = Phase.CLOSED
        self.lost_by = error
        self._events.append(Close(error))

    def _announce(self, state: ConnectionState) -> None:
        self._events.append(State(state))
        if self.watcher is not None:
            self.watcher(state)

    # Sending

    def _new_id(self) -> str:
        self._ids += 1
        return str(self._ids)

    def _append(self, frame: bytes) -> None:
        self.outbox.add(frame)

    @property
    def _sends(self) -> bool:
        """Whether a command of the application is sent at once."""
        return self.phase is Phase.READY or (self.phase is Phase.CONNECTED and not self.recovers)

    @property
    def _nothing_entered(self) -> bool:
        """Whether no subscription can have been entered on this connection."""
        return self.recovers and self.phase not in _ENTERED

    def _send(self, frame: bytes) -> None:
        if self._sends:
            self._append(frame)
            return
        self._deferred.append(frame)
        self._deferred_bytes += len(frame)

    def check_connected(self, command: str) -> None:
        """Raise DisconnectedException if a command that nobody waits for cannot be accepted now.

        Before the logon of an engine that `recovers`, only a publish store may keep one: nobody knows whether that
        connection is ever used. A bounded amount may wait for the end of a recovery.
        """
        if self.recovers and self._numbers(command):
            if self.connected or self._logged_on_before:
                return  # the store keeps it for the next connection
        elif self.connected:
            if self.recovers and (not self.logged_on or self._deferred_bytes > MAX_DEFERRED_BYTES):
                raise DisconnectedException(f"{command}: the connection is being recovered")
            return
        if self.lost_by is not None:
            raise DisconnectedException(
                f"{command}: not connected: {self.lost_by}",
                reason=self.lost_by.reason,
                message=self.lost_by.message,
            )
        if self.recovers:
            raise DisconnectedException(f"{command}: not connected: the client is still connecting")
        raise DisconnectedException(
            f"{command}: not connected; call open() first, or use the client in a `with`"
        )

    def _numbers(self, command: str) -> bool:
        """Whether the publish store numbers and keeps this command."""
        return self._publish_store is not None and command in _SEQUENCED

    def _check_numbered(self, command: str) -> None:
        if self.recovers:
            if not self._logged_on_before:
                raise DisconnectedException(
                    f"{command}: a publish store takes messages after the first logon, whose answer has the last"
                    " sequence"
                )
        elif not self.logged_on:
            raise UsageException(
                f"{command} with a publish store needs a logon first: its answer has the last sequence"
            )

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self.config.max_message_bytes:
            limit = self.config.max_message_bytes
            raise ValueError(f"a message of {size_bytes} bytes is over max_message_size ({limit} bytes)")

    def _send_command(self, command: Command) -> int:
        """Encode and send a command. One that changes stored state is numbered by the store; return its number."""
        if not self._numbers(command.command):
            frame = command.encode()
            self._check_size(len(frame) - 4)
            self._send(frame)
            return 0
        self._check_numbered(command.command)
        command.ack_type |= AckType.PERSISTED
        command.fix_delay()
        return self._send_numbered(*command.numbered_parts())

    def _send_numbered(self, start: bytes, body: bytes) -> int:
        """Store and send a frame; `start` is its header up to the number. Return its number.

        An interrupt, as that of Ctrl-C, may come after the store has taken the frame. `_numbering` then stays set, and
        the frame is sent before anything else: the store would otherwise hold a message that this connection never
        sends. In the extension module, no interrupt comes between the number and the place in the output; and
        `Outbox.publish`, which knows nothing of `_numbering`, may have sent what follows.
        """
        store = self._publish_store
        assert store is not None
        self._check_size(len(start) + SEQUENCE_DIGITS + 1 + len(body))
        if self._phase is not _READY:
            return store.append(start, body)  # the replay sends it
        log = self.outbox.log
        if log is not None and COMPILED:
            # Number and place in the output are one step, for interrupts as for `Outbox.publish` of other threads.
            return self._add_numbered(start, body)
        if self._numbering:
            self._send_interrupted()
        if log is not None:
            self._placed = log.next_number - 1
        self._numbering = True
        try:
            if log is not None:
                sequence = self._add_numbered(start, body)
            else:
                sequence = store.append(start, body)
                self.outbox.add(numbered_frame(start, sequence, body))
        except Exception:
            self._numbering = False  # refused: the store has not taken it
            raise
        self._placed = sequence
        self._numbering = False
        return sequence

    def _add_numbered(self, start: bytes, body: bytes) -> int:
        """Number, store and send a frame by `outbox.log`, the store's own; the store makes room when it is asked."""
        while not (sequence := self.outbox.add_numbered(start, body)):
            self._publish_store.make_room(len(start) + len(body) + FRAME_OVERHEAD_BYTES)  # type: ignore[union-attr]
        return sequence

    def _send_interrupted(self) -> None:
        """Send what the store has taken from a call that was interrupted.

        If the interrupt came when the frame was in the output already, it is sent twice; the server drops the second by
        its number.
        """
        store, outbox = self._publish_store, self.outbox
        assert store is not None
        if self.phase is Phase.READY:  # else a replay sends it
            for sequence in range(self._placed + 1, store.highest_unpersisted() + 1):
                store.replay_single(lambda frame, _sequence: outbox.add(frame), sequence)
                self._placed = sequence
        self._numbering = False

    def _send_unsubscribe(self, sub_id: str | None, query_id: str | None) -> None:
        if self.connected and (sub_id or query_id) and not self._nothing_entered:
            self._send(Command("unsubscribe", sub_id=sub_id, query_id=query_id).encode())

    def flush_acks(self) -> None:
        """Send the queue acknowledgements of all unsent batches; keep them while sending is impossible."""
        if self._sends:
            self._send_acks(self._acks.take_all())

    def _send_acks(self, commands: list[Command]) -> None:
        if self._sends:
            self._emit_acks(commands)
        else:
            self._acks.put_back(commands)

    def _emit_acks(self, commands: list[Command]) -> None:
        """Send queue acknowledgements; a publish store numbers them. Those that it cannot store are kept."""
        for at, command in enumerate(commands):
            try:
                if self._publish_store is not None:
                    self._send_command(command)
                else:
                    self._append(command.encode())
            except StoreException:
                self._acks.put_back(commands[at:])
                return
            self.stats.acks_sent += 1

    def _number_transaction(self, command: TransactionCommand) -> None:
        """Give a transaction the next sequences of this client. Raises UsageException."""
        if self._publish_store is not None:
            raise UsageException(
                "a transaction cannot be kept by a publish store: use a client without one for transactions"
            )
        if not self._logged_on_before:
            raise UsageException("a transaction needs a logon first: its answer has the last sequence")
        command.sequence = self._last_sequence + 1
        self._last_sequence += 1 + command.publishes

    # Heartbeats

    def start_heartbeat(self, now: float) -> None:
        """Start, change or (interval None) stop heartbeats according to the configuration."""
        interval_s = self.config.heartbeat_s
        if interval_s is None:
            if self._next_beat is not None:
                self._append(encode_frame({"cmd": "heartbeat", "opts": "stop"}))
            self._next_beat = self._silence_s = None
            return
        self._append(encode_frame({"cmd": "heartbeat", "opts": f"start,{math.ceil(interval_s)}"}))
        self._next_beat = now + interval_s
        self._silence_s = self.config.silence_s
        self._silent_since = now
        self._announce(ConnectionState.HEARTBEAT_INITIATED)

    def _beat(self) -> None:
        self._append(encode_frame({"cmd": "heartbeat", "opts": "beat"}))

    # Tickets and routes

    def _fail(self, ticket: Ticket, error: AMPSException) -> None:
        ticket.done = True
        ticket.error = error
        self._tickets.pop(ticket.command_id, None)
        if ticket.route is not None and not ticket.replaces:
            self._drop(ticket.route)
        self._events.append(TicketFailed(ticket, error))

    def _last_chance(self, message: Message) -> None:
        self.stats.last_chance += 1
        self._events.append(LastChance(message))

    def _register(self, route: Route, command: Command) -> None:
        if route.kind is RouteKind.SUBSCRIPTION and route.sub_id is not None:
            self._subscriptions[route.sub_id] = route
            self._quicken(route)
        if route.query_id is not None:
            self._queries[route.query_id] = route
        if route.kind is not RouteKind.COMMAND or route.outstanding:
            route.command_ids.append(str(command.command_id))
            self._commands[str(command.command_id)] = route

    def _drop(self, route: Route) -> None:
        if route.closed:
            return
        route.closed = True
        if route.sub_id is not None and self._subscriptions.get(route.sub_id) is route:
            del self._subscriptions[route.sub_id]
            self._fast.pop(route.sub_id.encode(), None)
            self._manager.unsubscribe(route.sub_id)
            if route.bookmarked and self._bookmark_store is not None:
                self._bookmark_store.released(route.sub_id)
        self._forget_query(route)
        for command_id in route.command_ids:
            self._commands.pop(command_id, None)

    def _forget_query(self, route: Route) -> None:
        if route.query_id is not None and self._queries.get(route.query_id) is route:
            del self._queries[route.query_id]

    def routes(self) -> list[Route]:
        """Return all open routes."""
        tables = (self._subscriptions, self._queries, self._commands)
        return list({id(route): route for table in tables for route in table.values()}.values())

    def _quicken(self, route: Route) -> None:
        """Enable the fast path for a subscription whose messages can be routed by the subscription id alone."""
        sub_id = route.sub_id or ""
        # Ids that a header would escape, or a list would split, are not eligible for the fast path.
        plain = sub_id.isascii() and sub_id.isprintable() and not any(c in sub_id for c in '",\\')
        if plain and route.remaining is None and not route.bookmarked and "publish" not in self._globals:
            self._fast[sub_id.encode()] = route
        else:
            self._fast.pop(sub_id.encode(), None)
