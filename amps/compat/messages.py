"""Messages with getters: absent texts are "" and absent numbers 0 (client.md §4)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from amps.client import AckType
from amps.client import Command as _Command
from amps.client import Message as _Message
from amps.compat.constants import AckTypes, CommandType, Options
from amps.compat.names import body, with_twins

_NOTHING = _Message(b"{}")


def _text(attribute: str, meaning: str) -> Any:
    def get(self: "Message") -> str:
        value = self._field(attribute)
        return "" if value is None else str(value)

    return _described(get, "get", attribute, meaning)


def _number(attribute: str, meaning: str) -> Any:
    def get(self: "Message") -> int:
        return int(self._field(attribute) or 0)

    return _described(get, "get", attribute, meaning)


def _setter(attribute: str, meaning: str) -> Any:
    def set_(self: "Message", value: Any) -> "Message":
        self._own[attribute] = value
        return self

    return _described(set_, "set", attribute, f"Set {meaning[:1].lower()}{meaning[1:]}")


def _described(function: Any, verb: str, attribute: str, meaning: str) -> Any:
    function.__name__ = f"{verb}_{attribute}"
    function.__qualname__ = f"Message.{verb}_{attribute}"
    function.__doc__ = meaning
    return function


def _with_fields(cls: type) -> Any:
    """Give the class a getter and a setter for each field."""
    for kind, fields in ((_text, _TEXTS), (_number, _NUMBERS)):
        for attribute, meaning in fields.items():
            setattr(cls, f"get_{attribute}", kind(attribute, meaning))
            setattr(cls, f"set_{attribute}", _setter(attribute, meaning))
    return cls


_TEXTS = {
    "command": "The type of the message: `publish`, `sow`, `oof`, `ack`, `group_begin` or `group_end`.",
    "command_id": "The id of the command.",
    "sub_id": "The id of the subscription to which the message was delivered.",
    "query_id": "The id of the query.",
    "topic": "The topic.",
    "filter": "The filter of a command.",
    "options": "The options, comma-separated.",
    "order_by": "The order of a query's result.",
    "bookmark": "The bookmark of the message in the log.",
    "sow_key": "The key of the record.",
    "sow_keys": "The keys that a command selects.",
    "ack_type": "The type of the acknowledgement, or the types that a command requests.",
    "status": "`success`, `failure` or `retry`.",
    "reason": "Why a command failed, or why a record went out of focus.",
    "user_id": "The user who published the message.",
    "client_name": "The name in a logon acknowledgement.",
    "correlation_id": "The correlation id of the publisher.",
    "version": "The version of the server, in a logon acknowledgement.",
    "password": "The password in a challenge.",
    "timestamp": "The ISO-8601 time at which the server processed the message.",
    "lease_period": "The ISO-8601 time at which the lease of a queue message ends.",
}
_NUMBERS = {
    "sequence": "The publisher's number of the message.",
    "expiration": "Seconds until the message expires.",
    "batch_size": "The number of records in a batch.",
    "top_n": "The maximum number of records.",
    "message_length": "The number of bytes of the body.",
    "group_sequence_number": "The number of a batch in the result of a query.",
    "bookmark_seq_no": "The position in the bookmark store; 0 = none.",
    "matches": "The number of records that matched.",
    "topic_matches": "The number of records in the topics.",
    "records_returned": "The number of records returned.",
    "records_inserted": "The number of records inserted.",
    "records_updated": "The number of records updated.",
    "records_deleted": "The number of records deleted.",
}
_OTHER_NAMES = {"group_sequence_number": "group_sequence", "bookmark_seq_no": "store_seq"}
_COMMAND_FIELDS = (
    "topic", "filter", "order_by", "options", "sub_id", "query_id", "command_id", "bookmark", "sow_key", "sow_keys",
    "correlation_id", "expiration", "batch_size", "top_n", "sequence", "ack_type", "data",
)  # fmt: skip


@with_twins
@_with_fields
class Message:
    """A message that was received, or, from `Client.allocate_message`, one to send.

    For each field there are `get_<field>` and `set_<field>`, and twins in camelCase. A received message may be kept.
    """

    Command = CommandType
    """Types of commands and messages."""
    AckType = AckTypes
    """Types of acknowledgements."""
    Options = Options
    """Options of commands."""

    def __init__(self, message: _Message | None = None) -> None:
        self._message = _NOTHING if message is None else message
        self._own: dict[str, Any] = {}

    if TYPE_CHECKING:  # the getters and setters that the decorators make

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def __repr__(self) -> str:
        return f"<{self._message!r}{f', changed: {self._own}' if self._own else ''}>"

    def _field(self, attribute: str) -> Any:
        if attribute in self._own:
            return self._own[attribute]
        if attribute == "ack_type":
            return str(self._message.ack_type)
        if attribute == "message_length":
            return len(self._message.view)
        found = getattr(self._message, _OTHER_NAMES.get(attribute, attribute), None)
        return self._message.header.get(attribute) if found is None else found

    def get_sub_ids(self) -> str:
        """The ids of all subscriptions of the connection that the message matched, comma-separated."""
        return ",".join(self._message.sub_ids)

    def get_not_before(self) -> int:
        """The UNIX time in milliseconds before which queues do not deliver the message; 0: it has no delay.

        The documented API has no delays: they are an extension (client.md §19.14).
        """
        return int(self._message.header.get("not_before", 0))

    def get_data(self) -> str:
        """The body as text. Bytes that are not UTF-8 become surrogates, as in Python's names of files.

        `set_data` and `publish` make the same bytes of such a text. `get_data_raw` returns the bytes.
        """
        return self.get_data_raw().decode("utf-8", "surrogateescape")

    def get_data_raw(self) -> bytes:
        """The body as bytes."""
        data = self._own.get("data")
        if data is None:
            return self._message.data
        return bytes(body(data))

    def set_data(self, value: str | bytes) -> Self:
        """Set the body."""
        self._own["data"] = value
        return self

    def ack(self, options: str = "") -> None:
        """Acknowledge a queue message; no effect on other messages."""
        self._message.ack(options.rstrip(","))

    def copy(self) -> "Message":
        """An independent message with the same content."""
        other = Message(self._message)
        other._own = dict(self._own)
        return other

    def reset(self) -> None:
        """Remove all fields."""
        self._message = _NOTHING
        self._own = {}

    def to_command(self) -> _Command:
        """Return the command that the fields that were set describe."""
        fields = {name: self._own[name] for name in _COMMAND_FIELDS if name in self._own}
        if "data" in fields:
            fields["data"] = body(fields["data"])
        if "ack_type" in fields:
            fields["ack_type"] = AckType.parse(fields["ack_type"])
        return _Command(str(self._own.get("command", "")), **fields)
