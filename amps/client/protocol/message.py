"""Messages as handlers and streams receive them.

A Message is a view of one received payload: immutable, independent of every buffer, safe to keep. A field is decoded
when it is read. The fields that most handlers read (`data`, `view`, `topic`, `bookmark`) and `ack` are in the base
class, which the extension module provides; all others need the parsed header.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar, Unpack, overload

from amps.client.enums import DEFAULT, AckType, Data, Timeout
from amps.client.payloads.codecs import codec_for, decode_body, json_loads
from amps.client.protocol.options import PublishArgs
from amps.client.protocol.traffic import AckBatch, ReceivedMessage

T = TypeVar("T")

_COMMANDS = {"p": "publish", "d": "delta_publish"}
_CONTENT = frozenset(("publish", "sow", "oof"))


class MessageRoute(Protocol):
    """The part of a route that its messages use."""

    owner: Any
    """The client that receives acknowledgements and whose codec is used."""
    sub_id: str | None
    max_backlog: int | None
    ack_batch: AckBatch | None


class MessageTransaction(Protocol):
    """The interface of a transaction (`amps.client.frontend.transactions`)."""

    def publish(
        self,
        topic: str,
        data: Data | object = b"",
        **fields: Unpack[PublishArgs],
    ) -> None:
        """Add a publish."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: Any) -> None: ...


class Message(ReceivedMessage):
    """One message from the server. A field that the message lacks is None."""

    __slots__ = ()

    @classmethod
    def parsed(
        cls,
        payload: bytes,
        header: dict[str, Any],
        body_at: int,
        *,
        body_end: int | None = None,
        route: MessageRoute | None = None,
        sub_id: str | None = None,
    ) -> Self:
        """Create a message whose header has already been parsed."""
        self = cls(payload, route)
        self._header = header
        self._body_at = body_at
        if body_end is not None:
            self._body_end = body_end
        self._sub_id = sub_id
        return self

    def __repr__(self) -> str:
        told = {name: value for name, value in self.header.items() if name != "password"}
        return f"Message({told}, {len(self.view)} bytes)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        self.ack("" if kind is None else "cancel")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        self.ack("" if kind is None else "cancel")

    # Body

    @property
    def text(self) -> str:
        """The body as text. Raises UnicodeDecodeError if it is not valid UTF-8."""
        return str(self.view, "utf-8")

    def json(self) -> Any:
        """The body parsed as JSON."""
        return json_loads(self.view)

    @overload
    def decode(self) -> Any: ...
    @overload
    def decode(self, type: type[T]) -> T: ...
    @overload
    def decode(self, type: Any) -> Any: ...
    def decode(self, type: Any = Any) -> Any:
        """Decode the body with the connection's codec; convert the result to `type` if one is given.

        `type`: a dataclass, TypedDict, NamedTuple, msgspec.Struct or pydantic model, or a list, union or the like of
        them. Raises ValueError for a malformed body, DecodeError with the path of the wrong value for one that does not
        fit the type.
        """
        route = self._route
        codec = route.owner.codec if route is not None and route.owner is not None else codec_for(None)
        return decode_body(codec, self.data, type)

    # Header

    @property
    def header(self) -> Mapping[str, str | int]:
        """All header fields by their long names; the value of `cmd` is the long name of the command."""
        fields = dict(self._fields())
        fields["cmd"] = self.command
        return MappingProxyType(fields)

    @property
    def command(self) -> str:
        """`publish`, `sow`, `oof`, `ack`, `group_begin`, `group_end` or `heartbeat`."""
        command = self._command
        if command is None:
            word = str(self._fields().get("cmd", ""))
            command = self._command = _COMMANDS.get(word, word)
        return command

    @property
    def is_content(self) -> bool:
        """Whether the message carries a record: publish, sow or oof."""
        return self.command in _CONTENT

    def _text(self, name: str) -> str | None:
        value = self._fields().get(name)
        return value if value is None or isinstance(value, str) else str(value)

    def _number(self, name: str) -> int | None:
        value = self._fields().get(name)
        return None if value is None else int(value)

    @property
    def command_id(self) -> str | None:
        """The id of the command that this message answers."""
        return self._text("cmd_id")

    @property
    def sub_id(self) -> str | None:
        """The id of the subscription to which this copy of the message belongs."""
        if self._sub_id is not None:
            return self._sub_id
        route: MessageRoute | None = self._route
        if route is not None and route.sub_id is not None and self.command != "ack":
            return route.sub_id
        return self._text("sub_id")

    @property
    def sub_ids(self) -> tuple[str, ...]:
        """The ids of all subscriptions of the connection that the message matched."""
        listed = self._text("sids") or self._text("sub_id")
        return tuple(listed.split(",")) if listed else ()

    @property
    def query_id(self) -> str | None:
        """The id of the query to whose result the message belongs."""
        return self._text("query_id")

    @property
    def sow_key(self) -> str | None:
        """The record's key."""
        return self._text("sow_key")

    @property
    def status(self) -> str | None:
        """`success`, `failure` or `retry`."""
        return self._text("status")

    @property
    def reason(self) -> str | None:
        """Why a command failed, or a record went out of focus."""
        return self._text("reason")

    @property
    def detail(self) -> str | None:
        """A description of the error, if this acknowledgement refuses a command."""
        return self._text("detail")

    @property
    def position(self) -> int | None:
        """The index, counted from 0, of the wrong character of the filter."""
        return self._number("position")

    @property
    def timestamp(self) -> str | None:
        """ISO-8601 time at which the server processed the message, if the subscription requested it."""
        return self._text("timestamp")

    @property
    def lease_period(self) -> str | None:
        """ISO-8601 time at which the lease of a queue message ends; `0` if it has no end, or there is no lease (at most
        once). None: the message needs no acknowledgement.
        """
        return self._text("leaseperiod")

    @property
    def correlation_id(self) -> str | None:
        """The correlation id that the publisher set."""
        return self._text("correlation_id")

    @property
    def user_id(self) -> str | None:
        """The user who published the message."""
        return self._text("user_id")

    @property
    def client_name(self) -> str | None:
        """The name in a logon acknowledgement."""
        return self._text("client_name")

    @property
    def version(self) -> str | None:
        """The version of the server, in a logon acknowledgement."""
        return self._text("version")

    @property
    def options(self) -> str | None:
        """Options as the server applied them, comma-separated."""
        return self._text("opts")

    @property
    def ack_type(self) -> AckType:
        """The type of this acknowledgement."""
        return AckType.parse(self._text("ack_type") or "")

    @property
    def sequence(self) -> int | None:
        """The publisher's number of the message."""
        return self._number("seq")

    @property
    def expiration(self) -> int | None:
        """Seconds until the message expires; 0 = never."""
        return self._number("expiration")

    @property
    def not_before(self) -> float | None:
        """The UNIX time in seconds before which queues do not deliver the message; None: it has no delay
        (queue_guarantees.md §1).
        """
        time_ms = self._number("not_before")
        return None if time_ms is None else time_ms / 1000

    @property
    def batch_size(self) -> int | None:
        """The number of records in the same batch."""
        return self._number("batch_size")

    @property
    def group_sequence(self) -> int | None:
        """The number of a batch in the result of a query."""
        return self._number("gseq")

    @property
    def matches(self) -> int | None:
        """The number of records that matched; in a stats acknowledgement."""
        return self._number("matches")

    @property
    def topic_matches(self) -> int | None:
        """The number of records in the topics, regardless of the filter; in a stats acknowledgement."""
        return self._number("topic_matches")

    @property
    def records_returned(self) -> int | None:
        """The number of records returned; in a stats acknowledgement."""
        return self._number("records_returned")

    @property
    def records_inserted(self) -> int | None:
        """The number of records inserted; in a stats acknowledgement."""
        return self._number("records_inserted")

    @property
    def records_updated(self) -> int | None:
        """The number of records updated; in a stats acknowledgement."""
        return self._number("records_updated")

    @property
    def records_deleted(self) -> int | None:
        """The number of records deleted; in a stats acknowledgement."""
        return self._number("records_deleted")

    @property
    def store_seq(self) -> int:
        """The number that the bookmark store gave this message; 0 = none."""
        return self._store_seq

    # Actions

    def discard(self) -> None:
        """Mark this message as processed in the bookmark store; no effect without a store number."""
        if self._store_seq and self._route is not None and self._route.owner is not None:
            self._route.owner.discard(self)

    def transaction(self, *others: "Message", timeout: Timeout = DEFAULT) -> "MessageTransaction":
        """A transaction that acknowledges this message and publishes, all or nothing, for a `with` block.

            with message.transaction() as transaction:
                transaction.publish("results", result)

        Leaving the block waits, at most `timeout` seconds, until both are persisted. `others`: further messages of the
        same queue. An `async with` block for clients of asyncio. Raises ValueError for a message that no client has
        received. See `amps.client.Transaction` and docs/spec/queue_guarantees.md §4.
        """
        if self._route is None or self._route.owner is None:
            raise ValueError("a transaction needs a message that a client has received")
        made: MessageTransaction = self._route.owner.transaction(self, *others, timeout=timeout)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the header fields by their long names, and the body as `data`."""
        return {**self.header, "data": self.data}


Handler = Callable[[Message], object]
"""Any callable that takes a message; its result is ignored."""
