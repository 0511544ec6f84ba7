"""Messages as handlers and streams get them.

A Message is a view of one received payload: immutable, independent of every buffer, safe to keep. Its
header is parsed when somebody first asks for a field, its body is cut out when somebody first asks for
it: a handler that reads `data` of a common message never pays for the header.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

from amps._core.wire.framing import parse_header
from amps.client.codecs import codec_for, convert, json_loads
from amps.client.enums import AckType

T = TypeVar("T")

_COMMANDS = {"p": "publish", "d": "delta_publish"}
_CONTENT = frozenset(("publish", "sow", "oof"))


def body_offset(payload: bytes) -> int:
    """Where the header ends, if that can be told without parsing it; else -1.

    The first closing brace ends the header unless it stands inside a string: with an even number of quotes
    and no escapes before it, it does not.
    """
    brace = payload.find(b"}")
    if brace < 0 or payload.count(b'"', 0, brace) & 1 or payload.find(b"\\", 0, brace) >= 0:
        return -1
    return brace + 1


class MessageRoute(Protocol):
    """What a message knows of the route by which it came."""

    owner: Any
    """The client that takes acknowledgements, and whose codec is used."""
    sub_id: str | None
    max_backlog: int | None


class Message:
    """One message from the server. Fields the message does not carry are None."""

    __slots__ = (
        "_body_at",
        "_body_end",
        "_command",
        "_header",
        "_payload",
        "_route",
        "_store_seq",
        "_sub_id",
    )

    def __init__(self, payload: bytes, route: MessageRoute | None = None, command: str | None = None) -> None:
        self._payload = payload
        self._route = route
        self._command = command
        self._header: dict[str, Any] | None = None
        self._body_at = -1
        self._body_end: int | None = None
        self._sub_id: str | None = None
        self._store_seq = 0

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
        store_seq: int = 0,
    ) -> Self:
        """A message whose header has been parsed already."""
        self = cls(payload, route)
        self._header = header
        self._body_at = body_at
        self._body_end = body_end
        self._sub_id = sub_id
        self._store_seq = store_seq
        return self

    def _fields(self) -> dict[str, Any]:
        header = self._header
        if header is None:
            header, self._body_at = parse_header(self._payload)
            self._header = header
        return header

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

    def _start(self) -> int:
        at = self._body_at
        if at < 0:
            at = body_offset(self._payload)
            if at < 0:
                self._fields()
                at = self._body_at
            self._body_at = at
        return at

    @property
    def data(self) -> bytes:
        """The body."""
        return self._payload[self._start() : self._body_end]

    @property
    def view(self) -> memoryview:
        """The body without a copy."""
        return memoryview(self._payload)[self._start() : self._body_end]

    @property
    def text(self) -> str:
        """The body as UTF-8 text; UnicodeDecodeError if it is none."""
        return str(self.view, "utf-8")

    def json(self) -> Any:
        """The body parsed as JSON."""
        return json_loads(self.view)

    def decode(self, type: type[T] | Any = Any) -> T | Any:
        """The body through the connection's codec; converted to `type` if one is given."""
        route = self._route
        codec = route.owner.codec if route is not None and route.owner is not None else codec_for(None)
        return convert(codec.decode(self.data), type)

    # Header

    @property
    def header(self) -> Mapping[str, str | int]:
        """All header fields by their long names; `cmd` is spelled out."""
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
    def topic(self) -> str | None:
        """The topic it was published to."""
        return self._text("topic")

    @property
    def command_id(self) -> str | None:
        """The command that this answers."""
        return self._text("cmd_id")

    @property
    def sub_id(self) -> str | None:
        """The subscription this copy of the message is for."""
        if self._sub_id is not None:
            return self._sub_id
        route = self._route
        if route is not None and route.sub_id is not None and self.command != "ack":
            return route.sub_id
        return self._text("sub_id")

    @property
    def sub_ids(self) -> tuple[str, ...]:
        """Every subscription of the connection that the message matched."""
        listed = self._text("sids") or self._text("sub_id")
        return tuple(listed.split(",")) if listed else ()

    @property
    def query_id(self) -> str | None:
        """The query this is a result of."""
        return self._text("query_id")

    @property
    def bookmark(self) -> str | None:
        """Where the message stands in the log."""
        return self._text("bookmark")

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
        """What is wrong, in words, if this acknowledgement refuses a command."""
        return self._text("detail")

    @property
    def position(self) -> int | None:
        """Which character of the filter, counted from 0, is wrong."""
        return self._number("position")

    @property
    def timestamp(self) -> str | None:
        """ISO-8601 time at which the server processed the message, if the subscription asked for it."""
        return self._text("timestamp")

    @property
    def lease_period(self) -> str | None:
        """ISO-8601 time at which the lease of a queue message ends; `0` if it has no end, or there is no lease (at most
        once). None: the message needs no acknowledgement.
        """
        return self._text("leaseperiod")

    @property
    def correlation_id(self) -> str | None:
        """What its publisher sent along."""
        return self._text("correlation_id")

    @property
    def user_id(self) -> str | None:
        """Who published it."""
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
        """Which acknowledgement this is."""
        return AckType.parse(self._text("ack_type") or "")

    @property
    def sequence(self) -> int | None:
        """The publisher's number of the message."""
        return self._number("seq")

    @property
    def expiration(self) -> int | None:
        """Seconds the message lives; 0 = for ever."""
        return self._number("expiration")

    @property
    def batch_size(self) -> int | None:
        """How many records came together."""
        return self._number("batch_size")

    @property
    def group_sequence(self) -> int | None:
        """The number of a batch in the result of a query."""
        return self._number("gseq")

    @property
    def matches(self) -> int | None:
        """Of a stats acknowledgement: records that matched."""
        return self._number("matches")

    @property
    def topic_matches(self) -> int | None:
        """Of a stats acknowledgement: records in the topics, whatever the filter."""
        return self._number("topic_matches")

    @property
    def records_returned(self) -> int | None:
        """Of a stats acknowledgement."""
        return self._number("records_returned")

    @property
    def records_inserted(self) -> int | None:
        """Of a stats acknowledgement."""
        return self._number("records_inserted")

    @property
    def records_updated(self) -> int | None:
        """Of a stats acknowledgement."""
        return self._number("records_updated")

    @property
    def records_deleted(self) -> int | None:
        """Of a stats acknowledgement."""
        return self._number("records_deleted")

    @property
    def store_seq(self) -> int:
        """The number the bookmark store gave this message; 0 = none."""
        return self._store_seq

    # Actions

    def ack(self, options: str = "") -> None:
        """Acknowledge a queue message; nothing happens on any other. Never waits."""
        if self._route is not None and self._route.owner is not None:
            self._route.owner.ack(self, options=options)

    def discard(self) -> None:
        """Tell the bookmark store that this message is done with; nothing happens without a store number."""
        if self._store_seq and self._route is not None and self._route.owner is not None:
            self._route.owner.discard(self)

    def to_dict(self) -> dict[str, Any]:
        """Header fields by long name, and the body as `data`."""
        return {**self.header, "data": self.data}


Handler = Callable[[Message], object]
"""Any callable that takes a message; its result is ignored."""
