"""The state of one client's session and of its subscriptions: what every part of a transport knows of a client.

Everything below sockets and commands works on a `Session`; `connection.py` makes one out of a socket. This module
imports none of its users, so that imports between them point one way.

The life of a session: CONNECTED, LOGGING_ON while authentication and the core answer, READY, CLOSED.

A Subscription is one entry of one session. Where it stands:
    LIVE     in the live group: ordinary subscriptions, and bookmark subscriptions with `live` after their replay
    DURABLE  in the durable group: bookmark subscriptions that have caught up
    REPLAY   with a tailer of its own, or one that it shares with few others (replay.py)
    QUEUE    in no group: it is to queues only, whose messages the core hands out (queues.py)
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from amps._core.delivery.delivery import LiveConflation
from amps._core.delivery.output import WANT_BOOKMARK, WANT_TIMESTAMP, OutputBuffer
from amps._core.expressions.machine import Filter
from amps._core.wire.framing import build_header, encode_frame
from amps._core.wire.ingress import Ingress, LeaseTable
from amps._core.wire.topics import TopicEntry
from amps.config import TransportConfig
from amps.journal.bookmark_text import format_bookmark
from amps.server.eventlog import EventLog
from amps.server.security import SwitchableAuthenticator, SwitchableEntitlement
from amps.server.transport.options import Options, RateKind
from amps.server.transport.publisher_acks import PublisherAcks


class Phase(enum.Enum):
    """Where a session is in its life."""

    CONNECTED = "connected"
    LOGGING_ON = "logging on"
    READY = "ready"
    CLOSED = "closed"


class Place(enum.Enum):
    """Which tailer serves a subscription."""

    LIVE = "live"
    DURABLE = "durable"
    REPLAY = "replay"
    QUEUE = "queue"


class UnderWay(Protocol):
    """A command that is being carried out (command.py)."""

    def cancel(self) -> None:
        """The session is closed: it never goes on."""


class OutputPool(Protocol):
    """Bounds what may wait for the clients of a listener (slow_clients.py)."""

    def check(self, connection: "Session") -> None:
        """Look at a client that does not keep up."""

    def forget(self, connection: "Session") -> None:
        """A client has caught up, or has left."""


@dataclass(slots=True)
class Listener:
    """One configured transport, as connections see it."""

    name: str
    config: TransportConfig
    message_type: str | None
    authenticator: SwitchableAuthenticator
    entitlement: SwitchableEntitlement
    pool: OutputPool

    @property
    def uri_scheme(self) -> str:
        """What connection strings of its clients begin with (protocol.md §17)."""
        if self.config.file_name is not None:
            return "unix"
        return "tcp" if self.config.tls is None else "tcps"


class Session(ABC):
    """One client of a worker. `listener`: by which it came. `trace`: what it is answered is logged."""

    slot: int
    """By which the core knows it, together with the serial number."""
    serial: int
    name: str
    """Of the connection."""
    ingress: Ingress
    output: OutputBuffer
    acks: PublisherAcks
    """The conflated acknowledgements of what it publishes."""
    last_input_s: float
    last_output_s: float

    def __init__(self, listener: Listener, log: EventLog, trace: bool) -> None:
        self.listener = listener
        self.phase = Phase.CONNECTED
        self.log = log
        self.trace = trace

    def begin(
        self, slot: int, serial: int, name: str, ingress: Ingress, output: OutputBuffer, now_s: float
    ) -> None:
        """The connection is made."""
        self.slot, self.serial = slot, serial
        self.name = name
        self.ingress = ingress
        self.output = output
        self.acks = PublisherAcks(ingress, self, 1.0)
        self.client_name = ""
        self.identity = ""
        self.message_type = ""
        self.client_version = ""
        self.correlation_id = ""
        self.address = ""
        self.publisher_id = 0
        self.subscriptions: dict[str, Subscription] = {}
        self.leases: LeaseTable | None = None  # what it was given of queues; none yet
        self.under_way: set[UnderWay] = set()
        self.writable = True
        self.held = False
        self.last_input_s = self.last_output_s = now_s
        self._permissions: dict[tuple[str, str], bool] = {}

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def shown_name(self) -> str:
        """What log messages call the client: the connection's name until the logon."""
        return self.client_name or self.name

    # --- input --------------------------------------------------------------------------------------------

    @abstractmethod
    def hold(self) -> None:
        """Read nothing more for now."""

    @abstractmethod
    def release(self) -> None:
        """Go on reading, first what was received already."""

    @abstractmethod
    def declare_topic(self, name: str) -> bool:
        """Make a topic known to the core. False: the ring is full, input is held."""

    @abstractmethod
    def protocol_violation(self, detail: str) -> None:
        """Something that is no command: the documented answer is to disconnect (protocol.md §3)."""

    # --- output -------------------------------------------------------------------------------------------

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Append one frame to the output."""
        if self.phase is not Phase.CLOSED:
            self.output.append(encode_frame(header, body))

    def acknowledge(
        self, kind: str, command_id: str | None, failure: str | None = None, **extra: Any
    ) -> None:
        """Send one acknowledgement; `failure` is the reason of one."""
        header: dict[str, Any] = {"cmd": "ack", "cmd_id": command_id, "ack_type": kind}
        header["status"] = "failure" if failure is not None else "success"
        header["reason"] = failure
        header.update(extra)
        self.send(header)
        if self.trace:
            self.log.log("17-0002", client=self.shown_name, data=build_header(header))

    def persisted(self, sequence: int, reason: str | None) -> None:
        """A persisted acknowledgement for this publisher, conflated: without a command id."""
        bookmark = f"{self.publisher_id}|{sequence}|"
        self.acknowledge("persisted", None, reason, seq=sequence, bookmark=bookmark)

    def send_completed(
        self, subscription: "Subscription", command_id: str | None, bookmark: tuple[int, int]
    ) -> None:
        """The replay of a subscription has reached the point where that command arrived."""
        self.acknowledge(
            "completed",
            command_id,
            sub_id=subscription.sub_id,
            bookmark=format_bookmark(*bookmark),
        )

    @property
    @abstractmethod
    def unsent_bytes(self) -> int:
        """Output that waits for the client and came whatever its pace is: it counts against the memory limits."""

    @abstractmethod
    def unsent_age_s(self, now_s: float) -> float:
        """How long messages have waited for the client; 0 while it keeps up, or sets the pace itself."""

    @property
    def has_live_subscriptions(self) -> bool:
        """Whether messages come whatever the client's pace is."""
        return any(
            subscription.place is Place.LIVE or subscription.queues
            for subscription in self.subscriptions.values()
        )

    # --- logon --------------------------------------------------------------------------------------------

    def logging_on(self, client_name: str) -> None:
        """Credentials are accepted; the core is being asked for the name."""
        self.phase = Phase.LOGGING_ON
        self.client_name = client_name

    @abstractmethod
    def ready(self, derived_id: int, user: bytes, interval_s: float) -> None:
        """Logged on. `user`: the identity as it stands inside the quotes of a header."""

    # --- permissions --------------------------------------------------------------------------------------

    def may(self, permission: str, topic: str) -> bool:
        """Whether this client may read or write a topic; cached."""
        if self.listener.entitlement.allows_all:
            return True
        key = (permission, topic)
        answer = self._permissions.get(key)
        if answer is None:
            answer = self._permissions[key] = self.listener.entitlement.allows(
                self.identity, permission, topic
            )
            if not answer:
                self.log.log(
                    "25-0002",
                    client=self.shown_name,
                    user=self.identity,
                    permission=permission,
                    resource=topic,
                )
        return answer

    def forget_permissions(self) -> None:
        """Ask for every permission anew, when it is next needed; subscriptions stay as they are."""
        self._permissions.clear()
        self.ingress.forget_permissions()

    # --- the end ------------------------------------------------------------------------------------------

    @abstractmethod
    def close(self, reason: str | None) -> None:
        """End the connection from our side; what was already put out is still sent."""

    @abstractmethod
    def dismiss(self, reason: str, detail: str) -> None:
        """End the connection from our side at once, and tell the client why: one of the stable reasons, and words."""

    @abstractmethod
    def abort(self, reason: str | None) -> None:
        """End the connection at once, dropping its output."""


@dataclass(slots=True, eq=False)
class Subscription:
    """One subscription. `predicate`, a function of `topic`, is None for a literal topic.

    `permitted`: False after a replacement by a topic that the client may not read; it gets nothing then.
    `bookmark`: None for an ordinary one; a replacement without a bookmark has that of what it replaces.
    `messages_max`: how many messages it gets at most (header `top_n`). `completions`: `completed` acknowledgements
    that are due, in the order of the log: at which log position, and for which command. `queues`: those that it gets
    messages of, besides what its place says. `queue_number`: by which the core knows it; None: it never had queues.
    `number`: by which those who look at the instance know it, through all replacements. `options_text`: of what was
    asked for, that which says what it is.
    """

    connection: Session
    sub_id: str
    topic: str
    predicate: Callable[[str], bool] | None
    options: Options
    bookmark: str | None = None
    send_ids: bool = True
    permitted: bool = True
    place: Place = Place.LIVE
    filter: Filter | None = None
    membership: "Membership | None" = None
    messages_max: int | None = None
    completions: list[tuple[int, str | None]] = field(default_factory=list)
    paused: bool = False
    # periodic persisted acknowledgements of bookmark subscriptions
    wants_persisted: bool = False
    persisted_sent: tuple[int, int] = (0, 0)
    queues: tuple[int, ...] = ()
    queue_number: int | None = None
    number: int = 0
    options_text: str = ""
    conflation: LiveConflation | None = None
    """What holds its messages back in the live group; that is its own only as long as it is a member there."""

    def matches(self, entry: TopicEntry) -> bool:
        """Whether it gets messages of that topic."""
        named = entry.name == self.topic if self.predicate is None else self.predicate(entry.name)
        return named and self.takes(entry)

    def takes(self, entry: TopicEntry) -> bool:
        """Whether it gets messages of a topic whose name matches: type, permission; recorded topics only, if by
        bookmark; if not, none of a topic that is a queue (queues.md §1.6).
        """
        if self.bookmark is None and entry.is_own_topic:
            return False
        if entry.message_type != self.connection.message_type or (
            self.bookmark is not None and not entry.logged
        ):
            return False
        # A literal topic was checked when the command came.
        return self.permitted and (self.predicate is None or self.connection.may("read", entry.name))

    def flags(self, entry: TopicEntry) -> int:
        """Route flags for that topic."""
        bookmark = entry.logged and (self.options.bookmark or self.bookmark is not None)
        return (WANT_BOOKMARK if bookmark else 0) | (WANT_TIMESTAMP if self.options.timestamp else 0)

    @property
    def may_pause(self) -> bool:
        """Whether it can be paused: by bookmark, and not served before messages are durable."""
        return self.bookmark is not None and not self.options.live

    @property
    def has_own_terms(self) -> bool:
        """Whether it never joins those who have caught up: it is held back, conflated or counted there, too."""
        rate = self.options.rate
        return (
            (rate is not None and rate.kind is not RateKind.SPEED)
            or self.options.conflating is not None
            or self.messages_max is not None
        )

    @property
    def completed_at(self) -> int | None:
        """Log position at which its next `completed` acknowledgement is due; None: no one is."""
        return self.completions[0][0] if self.completions else None

    def become(self, other: "Subscription") -> None:
        """Take over topic and options of a replacing command. Place and acknowledgements that are due stay."""
        self.topic = other.topic
        self.predicate = other.predicate
        self.options = other.options
        self.options_text = other.options_text
        self.bookmark = other.bookmark
        self.send_ids = other.send_ids
        self.permitted = other.permitted
        self.filter = other.filter
        self.messages_max = other.messages_max
        self.paused = other.paused
        self.queues = other.queues
        self.wants_persisted |= other.wants_persisted


@dataclass(slots=True, eq=False)
class Membership:
    """One stay of a subscription in a set. Who is replaced comes back with another one."""

    subscription: Subscription
    topic: str
