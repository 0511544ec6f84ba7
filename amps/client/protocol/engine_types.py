"""The values that pass between the protocol engine and a front end: phases, routes, tickets, events.

A *route* is the destination of messages with an id; a *ticket* stands for a command that waits for an answer;
*events* are the engine's results, in order of occurrence. Front ends store their own objects in
`Route.owner`, `Route.sink` and `Ticket.waiter`; the engine never reads them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from amps.client.enums import AckType, ConnectionState
from amps.client.errors import AMPSException
from amps.client.protocol.command import Command
from amps.client.protocol.message import Message
from amps.client.protocol.traffic import AckBatch


class Phase(Enum):
    """The phase of a connection."""

    DISCONNECTED = auto()
    """No connection."""
    CONNECTED = auto()
    """Connected, no logon sent: commands are sent at once (a server may log on implicitly)."""
    LOGGING_ON = auto()
    """A logon is under way; other commands wait until it is acknowledged."""
    LOGGED_ON = auto()
    """Logged on; commands wait until the front end calls `recover`."""
    REPLAYING = auto()
    """Logged on; the messages of the publish store are sent again first, later commands wait for their end."""
    RESUBSCRIBING = auto()
    """The subscriptions of the lost connection are entered again; other commands wait until all are accepted."""
    READY = auto()
    """Logged on; everything is sent at once."""
    CLOSED = auto()
    """The byte stream is unusable; the front end has received a Close event."""


class RouteKind(Enum):
    """The purpose of a route."""

    SUBSCRIPTION = auto()
    QUERY = auto()
    COMMAND = auto()


@dataclass(slots=True)
class Ticket:
    """A command and the answer it waits for. `ack` stays None if the answer became needless: see `done`."""

    command_id: str
    command: str
    awaited: AckType
    route: "Route | None" = None
    sub_id: str | None = None
    query_id: str | None = None
    replaces: bool = False
    request: Command | None = None
    """The command as the application gave it, with its ids: it is sent again after a lost connection."""
    sent: bool = False
    sequence: int = 0
    """The number that the publish store gave the command; 0 = none."""
    resubscribes: bool = False
    """Whether the engine itself sends this command, to enter a subscription again."""
    done: bool = False
    ack: Message | None = None
    error: AMPSException | None = None
    challenge: tuple[str, str] | None = None
    waiter: Any = None


@dataclass(slots=True, eq=False)
class Route:
    """The destination of the messages of one subscription, query or command."""

    kind: RouteKind
    owner: Any = None
    sink: Any = None
    handler: Callable[[Message], object] | None = None
    sub_id: str | None = None
    query_id: str | None = None
    command_id: str | None = None
    command_ids: list[str] = field(default_factory=list)
    topic: str | None = None
    asked: AckType = AckType.NONE
    outstanding: AckType = AckType.NONE
    resubscribe: bool = True
    auto_ack: bool = False
    ends_after_replay: bool = False
    ends_after_group: bool = False
    group_ended: bool = False
    remaining: int | None = None
    limit: int | None = None
    """The number of messages that was requested when the subscription was last entered."""
    passed: int = 0
    """The number of messages that have arrived since then, duplicates included."""
    repeats: int = 0
    """The number of duplicates among them."""
    max_backlog: int | None = None
    bookmarked: bool = False
    began_at: str | None = None
    """The bookmark at which a subscription entered at NOW began; None if the server has not told it."""
    ack_batch: AckBatch | None = None
    """The batch to which messages add themselves; see `QueueAcknowledger`."""
    accepted: bool = False
    paused: bool = False
    closed: bool = False
    cancelled: bool = False

    @property
    def id(self) -> str | None:
        """The id by which the application refers to this route."""
        return self.sub_id or self.query_id or self.command_id


@dataclass(slots=True)
class Deliver:
    """Messages for one route, in order; consecutive ones are combined, so that they are handled together."""

    route: Route
    messages: list[Message]


@dataclass(slots=True)
class TicketDone:
    """The awaited acknowledgement was received."""

    ticket: Ticket
    ack: Message | None


@dataclass(slots=True)
class TicketFailed:
    """The command was refused, or the connection was lost before the answer."""

    ticket: Ticket
    error: AMPSException


@dataclass(slots=True)
class StreamEnd:
    """The route gets no more messages; `error` is the reason if the end was not expected."""

    route: Route
    error: AMPSException | None


@dataclass(slots=True)
class Global:
    """A message of a type that has a global handler; normal routing follows."""

    message: Message


@dataclass(slots=True)
class LastChance:
    """A message without a route."""

    message: Message


@dataclass(slots=True)
class Duplicate:
    """A message the bookmark store has seen."""

    message: Message


@dataclass(slots=True)
class FailedWrite:
    """A publish or delete was refused. `message` is the stored command if there is one, else the ack."""

    message: Message
    reason: str
    ack: Message


@dataclass(slots=True)
class Retry:
    """The server answered a logon with a challenge."""

    ticket: Ticket
    username: str
    password: str


@dataclass(slots=True)
class State:
    """The connection state changed."""

    state: ConnectionState


@dataclass(slots=True)
class RecoveryFailed:
    """The server refused to enter a subscription again.

    The front end calls `leave_out` to go on without the subscription, or closes the connection.
    """

    ticket: Ticket
    command: Command
    error: AMPSException


@dataclass(slots=True)
class Close:
    """The connection is unusable: the front end closes it."""

    error: AMPSException


Event = (
    Deliver
    | TicketDone
    | TicketFailed
    | StreamEnd
    | Global
    | LastChance
    | Duplicate
    | FailedWrite
    | Retry
    | State
    | RecoveryFailed
    | Close
)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The settings that the engine's rules use. Front ends replace the whole object when a setting changes."""

    client_name: str
    version: str = ""
    heartbeat_s: float | None = None
    heartbeat_timeout_s: float | None = None
    ack_batch_size: int = 0
    ack_timeout_s: float | None = None
    batch_size: int = 10
    max_message_bytes: int = 200 * 2**20
    correlation_id: str | None = None
    retry: bool = True
    """Whether a waiting command that a lost connection cuts off is sent again on the next connection."""

    @property
    def silence_s(self) -> float | None:
        """Seconds without any data after which the server counts as lost; None = no limit."""
        if self.heartbeat_s is None:
            return None
        return self.heartbeat_timeout_s if self.heartbeat_timeout_s is not None else 2 * self.heartbeat_s

    @property
    def effective_ack_timeout_s(self) -> float | None:
        """Seconds after which a partial batch of queue acknowledgements is sent; None = only when full or flushed."""
        if self.ack_timeout_s is not None:
            return self.ack_timeout_s or None
        return 1.0 if self.ack_batch_size > 1 else None


@dataclass(slots=True)
class ClientStats:
    """Counters since the client was made."""

    messages_in: int = 0
    """Messages received, of all kinds."""
    messages_out: int = 0
    """Commands sent."""
    bytes_in: int = 0
    """Bytes received."""
    bytes_out: int = 0
    """Bytes sent."""
    content_in: int = 0
    """Messages received that carry a record."""
    duplicates_dropped: int = 0
    """Messages that the bookmark store had already seen."""
    last_chance: int = 0
    """Messages without a route."""
    handler_errors: int = 0
    """Exceptions of handlers and listeners."""
    failed_writes: int = 0
    """Publishes and deletes that the server refused."""
    reconnects: int = 0
    """Logons after the first."""
    acks_sent: int = 0
    """Queue acknowledgements sent; one may be for several messages."""
    unpersisted: int = 0
    """Messages in the publish store now."""
