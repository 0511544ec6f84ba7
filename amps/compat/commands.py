"""Commands with getters and times in milliseconds (client.md §3.6)."""

from datetime import datetime
from typing import Any, Self

from amps.client import DEFAULT
from amps.client import Command as _Command
from amps.compat.names import body, milliseconds, seconds, text, with_twins


@with_twins
class Command(_Command):
    """One command: `Command("subscribe").set_topic("orders").set_filter("/id > 1")`. Setters return the command.

    Times are in milliseconds, the expiration in seconds. Delays are an extension (client.md §19.14).
    """

    def __init__(self, command: str = "", topic: str | None = None) -> None:
        super().__init__(command, topic)

    def set_timeout(self, value: float | None) -> Self:
        """Milliseconds to wait for the acknowledgement; 0 = no limit."""
        self.timeout = seconds(value)
        return self

    def get_timeout(self) -> int:
        """Milliseconds; 0 = no limit."""
        return 0 if self.timeout is DEFAULT else milliseconds(self.timeout)

    def set_options(self, value: str | None) -> Self:
        """Options, comma-separated; `Message.Options` has helpers."""
        self.options = value or ""
        return self

    def set_topic(self, value: str | bytes | None) -> Self:
        """The topic."""
        self.topic = None if value is None else text(value)
        return self

    def set_data(self, value: Any) -> Self:
        """The body; text may be the result of `Message.get_data`."""
        self.data = body(value)
        return self

    def set_command(self, value: str) -> Self:
        """The type of the command, such as `Message.Command.SOW`."""
        self.command = value
        return self

    def get_command(self) -> str:
        """The type of the command."""
        return self.command

    def get_command_id(self) -> str:
        """The id of the command; "" until one is set."""
        return self.command_id or ""

    def get_topic(self) -> str:
        """The topic."""
        return self.topic or ""

    def get_filter(self) -> str:
        """The filter."""
        return self.filter or ""

    def get_options(self) -> str:
        """The options."""
        return self.options

    def get_order_by(self) -> str:
        """The order of the result."""
        return self.order_by or ""

    def get_sub_id(self) -> str:
        """The id of the subscription."""
        return self.sub_id or ""

    def get_query_id(self) -> str:
        """The id of the query."""
        return self.query_id or ""

    def get_bookmark(self) -> Any:
        """The bookmark."""
        return self.bookmark or ""

    def get_sow_key(self) -> str:
        """The key of the record."""
        return self.sow_key or ""

    def get_sow_keys(self) -> str:
        """The keys of records."""
        return self.sow_keys or ""

    def get_correlation_id(self) -> str:
        """The correlation id."""
        return self.correlation_id or ""

    def get_expiration(self) -> int:
        """Seconds until the message expires."""
        return self.expiration or 0

    def set_delay(self, value: float | None) -> Self:
        """Milliseconds during which no queue delivers the message; None = no delay (queue_guarantees.md §1)."""
        self.delay = None if value is None else value / 1000
        return self

    def set_not_before(self, value: float | datetime | None) -> Self:
        """The time before which no queue delivers the message: UNIX milliseconds, or a `datetime` with a time zone."""
        self.not_before = value if value is None or isinstance(value, datetime) else value / 1000
        return self

    def get_batch_size(self) -> int:
        """The number of records in a batch."""
        return self.batch_size or 0

    def get_top_n(self) -> int:
        """The maximum number of records."""
        return self.top_n or 0

    def get_sequence(self) -> int:
        """The sequence number."""
        return self.sequence or 0

    def get_ack_type(self) -> str:
        """The types of acknowledgements that are requested, comma-separated."""
        return str(self.ack_type)

    def get_data(self) -> Any:
        """The body."""
        return self.data
