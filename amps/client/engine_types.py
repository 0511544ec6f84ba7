"""The values that pass between the protocol engine and a front end: phases, routes, tickets, events.

A *route* says where messages with an id go; a *ticket* stands for a command that waits for an answer;
*events* are what the engine has found out, in order of occurrence. Front ends hang their own things on
`Route.owner`, `Route.sink` and `Ticket.waiter`; the engine never looks at them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from amps.client.enums import AckType, ConnectionState
from amps.client.errors import AMPSException
from amps.client.message import Message


class Phase(Enum):
    """Where a connection stands."""

    DISCONNECTED = auto()
    """No connection."""
    CONNECTED = auto()
    """Connected, no logon sent: commands go out as they are (a server may log on implicitly)."""
    LOGGING_ON = auto()
    """A logon is under way; other commands wait behind it on the wire."""
    REPLAYING = auto()
    """Logged on; the publish store's messages are being sent again, later commands wait behind them."""
    READY = auto()
    """Logged on, everything goes out at once."""
    CLOSED = auto()
    """The byte stream is unusable; the front end has been told to close the connection."""


class RouteKind(Enum):
    """What a route was made for."""

    SUBSCRIPTION = auto()
    QUERY = auto()
    COMMAND = auto()


@dataclass(slots=True)
class Ticket:
    """A command and the answer it waits for."""

    command_id: str
    command: str
    awaited: AckType
    route: "Route | None" = None
    sub_id: str | None = None
    query_id: str | None = None
    replaces: bool = False
    done: bool = False
    ack: Message | None = None
    error: AMPSException | None = None
    challenge: tuple[str, str] | None = None
    waiter: Any = None


@dataclass(slots=True, eq=False)
class Route:
    """Where messages of one subscription, query or command go."""

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
    max_backlog: int | None = None
    bookmarked: bool = False
    unsent_acks: int = 0
    closed: bool = False
    cancelled: bool = False

    @property
    def id(self) -> str | None:
        """The id the application knows this route by."""
        return self.sub_id or self.query_id or self.command_id


@dataclass(slots=True)
class Deliver:
    """Messages for one route, in order; neighbours are gathered, so that they are handled in one go."""

    route: Route
    messages: list[Message]


@dataclass(slots=True)
class TicketDone:
    """The awaited acknowledgement came."""

    ticket: Ticket
    ack: Message | None


@dataclass(slots=True)
class TicketFailed:
    """The command was refused, or the connection went away first."""

    ticket: Ticket
    error: AMPSException


@dataclass(slots=True)
class StreamEnd:
    """Nothing more will come for this route; `error` says why if that was not expected."""

    route: Route
    error: AMPSException | None


@dataclass(slots=True)
class Global:
    """A message of a type that has a global handler; normal routing follows."""

    message: Message


@dataclass(slots=True)
class LastChance:
    """A message nobody else took."""

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
    | Close
)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the rules need to know. Front ends replace it as a whole when a setting changes."""

    client_name: str
    version: str = ""
    heartbeat_s: float | None = None
    heartbeat_timeout_s: float | None = None
    ack_batch_size: int = 0
    ack_timeout_s: float | None = None
    batch_size: int = 10
    max_message_bytes: int = 200 * 2**20
    correlation_id: str | None = None

    @property
    def silence_s(self) -> float | None:
        """How long the server may say nothing at all; None = for ever."""
        if self.heartbeat_s is None:
            return None
        return self.heartbeat_timeout_s if self.heartbeat_timeout_s is not None else 2 * self.heartbeat_s

    @property
    def effective_ack_timeout_s(self) -> float | None:
        """When a partial batch of queue acknowledgements goes out; None = only when it is full or flushed."""
        if self.ack_timeout_s is not None:
            return self.ack_timeout_s or None
        return 1.0 if self.ack_batch_size > 1 else None


@dataclass(slots=True)
class ClientStats:
    """Counters since the client was made."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    content_in: int = 0
    duplicates_dropped: int = 0
    last_chance: int = 0
    handler_errors: int = 0
    failed_writes: int = 0
    reconnects: int = 0
    acks_sent: int = 0
    unpersisted: int = 0
