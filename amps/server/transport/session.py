"""The state of a client's session and of its subscriptions, which all parts of a transport use.

All modules except those for sockets and commands work on a `Session`; `connection.py` makes one for a socket. This
module imports none of its users, so that imports between them point one way.

The life of a session: CONNECTED, LOGGING_ON while authentication and the core answer, READY, CLOSED.

A Subscription is an entry of a session. Its place is one of:
    LIVE     in the live group: ordinary subscriptions, and bookmark subscriptions with `live` after their replay
    DURABLE  in the durable group: bookmark subscriptions that have caught up
    REPLAY   served by a tailer of its own, or one shared by a few subscriptions (replay.py)
    QUEUE    in no group: it is to queues only, whose messages the core assigns (queues.py)
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from amps._core.delivery.delivery import LiveConflation
from amps._core.delivery.output import (
    WANT_BOOKMARK,
    WANT_DELTA,
    WANT_NO_EMPTIES,
    WANT_OUT_OF_FOCUS,
    WANT_SOW_KEY,
    WANT_TIMESTAMP,
    OutputBuffer,
)
from amps._core.expressions.machine import Filter
from amps._core.wire.framing import build_header, encode_frame
from amps._core.wire.ingress import Ingress, LeaseTable
from amps._core.wire.topics import TopicEntry
from amps.config import TransportConfig
from amps.journal.bookmark_text import format_bookmark
from amps.server.eventlog import EventLog
from amps.server.security import SwitchableAuthenticator, SwitchableEntitlement
from amps.server.transport.bookmark_trail import BookmarkTrail
from amps.server.transport.options import Options, RateKind
from amps.server.transport.publisher_acks import PublisherAcks


class Phase(enum.Enum):
    """The phase of a session's life."""

    CONNECTED = "connected"
    LOGGING_ON = "logging on"
    READY = "ready"
    CLOSED = "closed"


class Place(enum.Enum):
    """The kind of tailer that serves a subscription."""

    LIVE = "live"
    DURABLE = "durable"
    REPLAY = "replay"
    QUEUE = "queue"


class UnderWay(Protocol):
    """A command that is being carried out (command.py)."""

    def cancel(self) -> None:
        """End the command without continuing it: the session is closed."""


class TransactionAnswers(Protocol):
    """The answers to the transactions of one connection (transacting.py)."""

    def advance(self, consumed: int, written: int, durable: int) -> bool:
        """Send the answers that may be sent. False: no transaction waits any more.

        consumed: ring position up to which the core has read, and all its answers have been taken. written: log
        position of everything that it has read. durable: log position.
        """

    @property
    def awaits_durable(self) -> bool:
        """Whether an answer waits for the durable watermark."""


class Page(Protocol):
    """The page of a subscription (pages.py)."""

    @property
    def row_count(self) -> int:
        """How many records are on the page now."""

    def open(self, subscription: "Subscription") -> None:
        """Let the subscription get the changes of the page from now on."""

    def close(self) -> None:
        """Let it get them no more."""


class CancellableQuery(Protocol):
    """A query whose result is being sent (sow_queries.py)."""

    @property
    def sub_id(self) -> str | None:
        """The id of the subscription that begins with it."""

    def cancel(self) -> None:
        """End the result early."""


class OutputPool(Protocol):
    """Limits the output that may wait for the clients of a listener (slow_clients.py)."""

    def check(self, connection: "Session") -> None:
        """Check a client that does not keep up."""

    def forget(self, connection: "Session") -> None:
        """Remove a client that has caught up or disconnected."""


@dataclass(slots=True)
class Listener:
    """One configured transport, as connections use it."""

    name: str
    config: TransportConfig
    message_type: str | None
    authenticator: SwitchableAuthenticator
    entitlement: SwitchableEntitlement
    pool: OutputPool

    @property
    def uri_scheme(self) -> str:
        """The scheme of its clients' connection strings (protocol.md §17)."""
        if self.config.file_name is not None:
            return "unix"
        return "tcp" if self.config.tls is None else "tcps"


class Session(ABC):
    """One client of a worker. `listener`: the transport it connected to. `trace`: answers to it are logged."""

    slot: int
    """The core identifies the session by slot and serial number."""
    serial: int
    name: str
    """Name of the connection."""
    ingress: Ingress
    output: OutputBuffer
    acks: PublisherAcks
    """The conflated acknowledgements of its publishes."""
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
        """Set the initial state, when the connection is made."""
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
        self.derived_id = 0  # of its messages without a sequence
        self.logged_sequence = 0  # the last sequence that the core knew at the logon
        self.subscriptions: dict[str, Subscription] = {}
        self.leases: LeaseTable | None = None  # the queue messages that it holds; None: it has had none
        self.under_way: set[UnderWay] = set()
        self.writable = True
        self.held = False
        self.results: OutputBuffer | None = None
        self.queries: dict[str, CancellableQuery] = {}
        self._await_results: list[Callable[[], None]] = []
        self.last_input_s = self.last_output_s = now_s
        self._permissions: dict[tuple[str, str], bool] = {}

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def shown_name(self) -> str:
        """The client's name in log messages: the connection's name until the logon."""
        return self.client_name or self.name

    # --- input --------------------------------------------------------------------------------------------

    @abstractmethod
    def hold(self) -> None:
        """Stop reading from the client for now."""

    @abstractmethod
    def release(self) -> None:
        """Resume input, beginning with bytes that were received already."""

    @abstractmethod
    def declare_topic(self, name: str) -> bool:
        """Declare a topic to the core. False: the ring is full, and input is held."""

    @abstractmethod
    def protocol_violation(self, detail: str) -> None:
        """Disconnect the client, as documented for input that is not a command (protocol.md §3)."""

    # --- output -------------------------------------------------------------------------------------------

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Append one frame to the output."""
        if self.phase is not Phase.CLOSED:
            self.output.append(encode_frame(header, body))

    def send_frames(self, frames: bytes | bytearray) -> None:
        """Append whole frames to the output."""
        if self.phase is not Phase.CLOSED:
            self.output.append(frames)

    # The result of a query goes out in front of all other output, which is *held* meanwhile: `results` is the output of
    # the result, None while there is none. `writable` is False while output is held, so that nothing reads ahead.

    @abstractmethod
    def begin_result(self) -> None:
        """Begin to hold all output but that of a result. Output from before is sent first."""

    @abstractmethod
    def flush_result(self) -> None:
        """Pass the output of the result on, and check the output that is held for it."""

    @abstractmethod
    def end_result(self) -> None:
        """Let the held output follow the result."""

    @property
    @abstractmethod
    def takes_results(self) -> bool:
        """Whether the client keeps up with the output of the result."""

    def when_no_result(self, then: Callable[[], None]) -> None:
        """Call `then` when no result is being sent: at once, or when it is complete."""
        if self.results is None:
            then()
        else:
            self._await_results.append(then)

    def send_result(self, header: Mapping[str, Any]) -> None:
        """Append one frame without a body to the output of the result."""
        if self.results is not None:
            self.results.append(encode_frame(header))

    def acknowledge(
        self,
        kind: str,
        command_id: str | None,
        failure: str | None = None,
        **extra: Any,
    ) -> None:
        """Send one acknowledgement. `failure`: the reason of a failure; None: success."""
        header = self._acknowledgement(kind, command_id, failure, extra)
        self.send(header)

    def acknowledge_in_result(self, kind: str, command_id: str | None, **extra: Any) -> None:
        """Send a success as part of the result that is being sent."""
        self.send_result(self._acknowledgement(kind, command_id, None, extra))

    def _acknowledgement(
        self, kind: str, command_id: str | None, failure: str | None, extra: dict[str, Any]
    ) -> dict[str, Any]:
        header: dict[str, Any] = {"cmd": "ack", "cmd_id": command_id, "ack_type": kind}
        header["status"] = "failure" if failure is not None else "success"
        header["reason"] = failure
        header.update(extra)
        if self.trace:
            self.log.log("17-0002", client=self.shown_name, data=build_header(header))
        return header

    def persisted(self, sequence: int, reason: str | None) -> None:
        """Send a conflated persisted acknowledgement for this publisher, without a command id."""
        bookmark = f"{self.publisher_id}|{sequence}|"
        self.acknowledge("persisted", None, reason, seq=sequence, bookmark=bookmark)

    def send_completed(
        self, subscription: "Subscription", command_id: str | None, bookmark: tuple[int, int]
    ) -> None:
        """Send `completed`: the replay of a subscription has reached the point where that command arrived."""
        self.acknowledge(
            "completed",
            command_id,
            sub_id=subscription.sub_id,
            bookmark=format_bookmark(*bookmark),
        )

    @property
    @abstractmethod
    def unsent_bytes(self) -> int:
        """The waiting output that counts against the memory limits: all but messages of replays."""

    @abstractmethod
    def unsent_age_s(self, now_s: float) -> float:
        """How long messages have waited for the client. 0 while it keeps up, or has no live subscriptions."""

    @property
    def has_live_subscriptions(self) -> bool:
        """Whether the client gets messages regardless of how fast it reads."""
        return any(
            subscription.place is Place.LIVE or subscription.queues
            for subscription in self.subscriptions.values()
        )

    # --- logon --------------------------------------------------------------------------------------------

    def logging_on(self, client_name: str) -> None:
        """Enter the phase LOGGING_ON: credentials are accepted, and the name is requested from the core."""
        self.phase = Phase.LOGGING_ON
        self.client_name = client_name

    @abstractmethod
    def ready(self, derived_id: int, user: bytes, interval_s: float) -> None:
        """Enter the phase READY after a logon. `user`: the identity as it stands inside the quotes of a header."""

    # --- permissions --------------------------------------------------------------------------------------

    def may(self, permission: str, topic: str) -> bool:
        """Whether this client may read or write a topic. The answer is cached."""
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
        """Drop the cached permissions, so that they are checked again on the next use. Subscriptions stay."""
        self._permissions.clear()
        self.ingress.forget_permissions()

    # --- the end ------------------------------------------------------------------------------------------

    @abstractmethod
    def close(self, reason: str | None) -> None:
        """End the connection from the server's side. Output that was appended before is still sent."""

    @abstractmethod
    def dismiss(self, reason: str, detail: str) -> None:
        """End the connection from the server's side and send the client a stable reason and a detail text."""

    @abstractmethod
    def abort(self, reason: str | None) -> None:
        """End the connection at once, dropping its output."""


@dataclass(slots=True, eq=False)
class Subscription:
    """One subscription. `predicate`, a function of `topic`, is None for a literal topic.

    `permitted`: False after a replacement by a topic that the client may not read; it gets no messages then.
    `bookmark`: None for an ordinary subscription; a replacement without a bookmark keeps the bookmark of the replaced
    subscription. `messages_max`: the largest number of messages (header `top_n`). `completions`: `completed`
    acknowledgements that are due, in the order of the log: log position and command id. `queues`: the queues whose
    messages it gets, in addition to those of its place. `queue_number`: its number in the core; None: it never had
    queues. `queried`: it began with a query, which returned what matched then. `number`: its number
    in the administration interface, the same through all replacements. `options_text`: those of its options that
    describe it.
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
    trail: BookmarkTrail | None = None
    """Where it was, with destinations of replication."""
    held_from: int | None = None
    """Log position at which its history ended, if it is fully durable: later messages wait for destinations."""
    queues: tuple[int, ...] = ()
    queue_number: int | None = None
    queried: bool = False
    number: int = 0
    options_text: str = ""
    conflation: LiveConflation | None = None
    """Holds its messages in the live group; set only while it is a member there."""
    page: "Page | None" = None
    """Of a paginated subscription."""
    result_terms: frozenset[str] = frozenset()
    """Which of `top_n`, `skip_n` and `orderby` its query has."""

    def matches(self, entry: TopicEntry) -> bool:
        """Whether it gets messages of a topic."""
        named = entry.name == self.topic if self.predicate is None else self.predicate(entry.name)
        return named and self.takes(entry)

    def takes(self, entry: TopicEntry) -> bool:
        """Whether it gets messages of a topic whose name matches. Message type and permission must match. A bookmark
        subscription gets recorded topics only; another one gets no messages of a topic that is a queue (queues.md
        §1.6).
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
        """Route flags for a topic."""
        bookmark = entry.logged and (self.options.bookmark or self.bookmark is not None)
        flags = (WANT_BOOKMARK if bookmark else 0) | (WANT_TIMESTAMP if self.options.timestamp else 0)
        return flags if entry.sow is None else flags | self._state_flags(entry)

    def _state_flags(self, entry: TopicEntry) -> int:
        """Route flags for a SOW topic. Bookmark subscriptions read history, which has no focus and no deltas (D9)."""
        options = self.options
        flags = 0 if options.no_sowkey else WANT_SOW_KEY
        if self.bookmark is not None or not self._is_conflated_by_key(entry):
            return flags
        flags |= WANT_OUT_OF_FOCUS if options.oof else 0
        flags |= WANT_DELTA if options.delta else 0
        return flags | (WANT_NO_EMPTIES if options.no_empties else 0)

    def _is_conflated_by_key(self, entry: TopicEntry) -> bool:
        """Whether conflation, if any, is by the records of a SOW topic. Different records under one key have neither
        focus nor differences.
        """
        conflating = self.options.conflating
        if conflating is None or conflating.paths is None:
            return True
        return entry.sow is not None and set(conflating.paths) == set(entry.sow.keys.fields.paths)

    @property
    def is_paginated(self) -> bool:
        """Whether only the records on its page exist for it."""
        return "skip_n" in self.result_terms and not self.queues

    @property
    def may_pause(self) -> bool:
        """Whether it can be paused: it has a bookmark, and gets messages only when they are durable."""
        return self.bookmark is not None and not self.options.live

    @property
    def has_own_terms(self) -> bool:
        """Whether it never joins a shared group, because its rate, conflation or limit applies to all its messages."""
        rate = self.options.rate
        return (
            (rate is not None and rate.kind is not RateKind.SPEED)
            or self.options.conflating is not None
            or self.messages_max is not None
        )

    @property
    def completed_at(self) -> int | None:
        """Log position at which its next `completed` acknowledgement is due; None: none is due."""
        return self.completions[0][0] if self.completions else None

    def become(self, other: "Subscription") -> None:
        """Take over topic and options of a replacing command. Place and pending acknowledgements stay."""
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
        self.queried = other.queried
        self.page = other.page
        self.result_terms = other.result_terms
        self.wants_persisted |= other.wants_persisted


@dataclass(slots=True, eq=False)
class Membership:
    """The time from adding a subscription to a set to its removal. A replaced subscription gets a new membership."""

    subscription: Subscription
    topic: str
