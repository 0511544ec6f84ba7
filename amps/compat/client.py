"""The client of the documented API: an `amps.client.Client` under its names, orders and units (client.md §3, §19.12).

The client inside is made when it is first needed, usually by `connect`. Before that, calls such as `set_publish_store`
change its constructor's arguments; after that, those that can still change take effect at once. The settings of
handlers are kept and applied to it in their order.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

from amps.client import DEFAULT, AckType, Data, StoreFullException, UsageException
from amps.client import Authenticator as _Authenticator
from amps.client import Client as _Client
from amps.client import Command as _Command
from amps.client import ConnectionState as _State
from amps.client import Message as _Message
from amps.client.frontend.settings import default_client_name
from amps.compat.constants import Bookmarks
from amps.compat.handlers import Handler, wrapped, wrapped_failed_write, wrapped_or_none
from amps.compat.messages import Message
from amps.compat.names import body, bound, seconds, text, with_twins
from amps.compat.stores import released
from amps.compat.streams import MessageStream

_SUBSCRIBE = ("topic", "filter", "options", "timeout", "sub_id")
_BOOKMARK_SUBSCRIBE = ("topic", "bookmark", "sub_id", "filter", "options", "timeout")
_SOW = ("topic", "filter", "order_by", "bookmark", "batch_size", "top_n", "options", "timeout")
_SOW_AND_SUBSCRIBE = (*_SOW, "oof_enabled")
_SOW_AND_DELTA_SUBSCRIBE = (*_SOW_AND_SUBSCRIBE, "send_empties")
_FULL_PAUSE_S = 0.01
"""The pause after a resize handler has refused more room, so that one which returns at once takes no processor."""

Result = MessageStream | str
T = TypeVar("T")


@with_twins
class Client:
    """A connection to a server, with the names and units of the documented API.

    Times are in milliseconds, 0 = no limit, which is the default; heartbeats are in seconds. Calls that take a handler
    take it first and return the id of the subscription or query. Without a handler they return a MessageStream.
    """

    Bookmarks = Bookmarks
    """Places where a replay begins."""

    def __init__(self, name: str = "") -> None:
        self._name = name or default_client_name()
        # Waiting calls have no limit, streams no bound, as documented.
        self._arguments: dict[str, Any] = {"timeout": None, "max_depth": 0}
        self._setup: list[Callable[[_Client], object]] = []
        self._made: _Client | None = None
        self._making = threading.Lock()
        self._http_headers: list[str] = []
        self._max_depth = 0
        self._auto_ack = False
        self._ack_batch_size = 0
        self._ack_timeout_ms: float | None = None
        self._timer_s = 0.0
        self._stores: list[Any] = []
        """The stores to close with the client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}: {self._made!r}>"

    # The client inside

    def _make(self) -> _Client:
        return _Client(self._name, **self._arguments)

    @property
    def _client(self) -> _Client:
        client = self._made
        if client is None:
            with self._making:
                client = self._made
                if client is None:
                    client = self._make()
                    for setting in self._setup:
                        setting(client)
                    self._made = client
        return client

    def _set_argument(self, what: str, name: str, value: Any) -> None:
        """Set an argument of the constructor of the client inside."""
        if self._made is not None:
            raise UsageException(f"{what} must be called before the client connects")
        self._arguments[name] = value

    def _set(self, setting: Callable[[_Client], object]) -> None:
        """Apply a setting to the client inside, now or when it is made."""
        if self._made is None:
            self._setup.append(setting)
        else:
            setting(self._made)

    # Connection

    def get_name(self) -> str:
        """The client name."""
        return self._name

    def get_uri(self) -> str:
        """The connection string; "" before `connect`."""
        return (self._made.uri or "") if self._made is not None else ""

    def connect(self, uri: str) -> None:
        """Open the connection; `logon` comes next."""
        self._client.connect(uri)

    def logon(
        self, timeout: float = 0, authenticator: _Authenticator | None = None, options: str | None = None
    ) -> None:
        """Log on; the default authenticator sends the password of the connection string."""
        stripped = options.rstrip(",") if options is not None else None
        self._client.logon(authenticator=authenticator, options=stripped, timeout=seconds(timeout))

    def disconnect(self) -> None:
        """Close the connection; the disconnect handler is not called. The client may connect again."""
        if self._made is not None:
            self._made.disconnect()

    def close(self) -> None:
        """Disconnect, end all streams, and close the stores; a client that was connected cannot be used again.

        Stores in memory keep what they hold. Raises StoreException if a store cannot write its files.
        """
        client = self._made
        if client is not None:
            client.close()
            if client.state != _State.SHUTDOWN:  # a handler runs: the receive thread ends the connection after it
                client.add_connection_state_listener(self._release_stores_after)
        self._release_stores_after(_State.SHUTDOWN if client is None else client.state)

    def _release_stores_after(self, state: _State) -> None:
        if state == _State.SHUTDOWN:
            with self._making:
                stores, self._stores = self._stores, []
            for store in stores:
                released(store)

    def get_server_version(self) -> str:
        """The version of the server, after logon."""
        return (self._made.server_version or "") if self._made is not None else ""

    def set_logon_correlation_data(self, data: str | None) -> None:
        """A text of Base64 characters that the server shows in its logs and statistics. Before `connect`."""
        self._set_argument("set_logon_correlation_data", "logon_correlation", data)

    def get_logon_correlation_data(self) -> str:
        """The text set by `set_logon_correlation_data`."""
        return self._arguments.get("logon_correlation") or ""

    def add_http_preflight_header(self, header: str, value: str | None = None) -> None:
        """Add a line, or a name and a value, to the request that `http_preflight=true` sends. Before `connect`."""
        line = header if value is None else f"{header}: {value}"
        self.set_http_preflight_headers([*self._http_headers, line])

    def set_http_preflight_headers(self, headers: Iterable[str]) -> None:
        """Replace the lines of that request. Before `connect`."""
        lines = list(headers)
        self._set_argument("set_http_preflight_headers", "http_headers", lines)
        self._http_headers = lines

    def clear_http_preflight_headers(self) -> None:
        """Remove the lines of that request. Before `connect`."""
        self.set_http_preflight_headers([])

    def set_heartbeat(self, interval: float, timeout: float = 0) -> None:
        """Exchange heartbeats every `interval` seconds; the connection is lost after `timeout` seconds of silence,
        by default twice the interval.
        """
        self._set(lambda client: client.set_heartbeat(interval or None, timeout or None))

    # Stores

    def _set_store(self, what: str, name: str, store: Any) -> None:
        former = self._arguments.get(name)
        self._set_argument(what, name, store)
        self._stores = [kept for kept in self._stores if kept is not former] + ([] if store is None else [store])

    def set_publish_store(self, store: Any) -> None:
        """Set the publish store. Before `connect`."""
        self._set_store("set_publish_store", "publish_store", store)

    def get_publish_store(self) -> Any:
        """The publish store, None without one."""
        return self._arguments.get("publish_store")

    def set_bookmark_store(self, store: Any) -> None:
        """Set the bookmark store. Before `connect`."""
        self._set_store("set_bookmark_store", "bookmark_store", store)

    def get_bookmark_store(self) -> Any:
        """The bookmark store, None without one."""
        return self._made.bookmark_store if self._made is not None else self._arguments.get("bookmark_store")

    def get_unpersisted_count(self) -> int:
        """The number of messages in the publish store that are not persisted."""
        store = self.get_publish_store()
        return int(store.unpersisted_count()) if store is not None else 0

    def discard(self, message: Message | str, bookmark_seq_no: int = 0) -> None:
        """Mark a message, or a subscription id and a number, as processed in the bookmark store."""
        self._client.discard(message._message if isinstance(message, Message) else message, bookmark_seq_no)

    def get_most_recent(self, sub_id: str) -> str:
        """The bookmark from which the subscription would be resumed; "" if the store knows none."""
        return self._client.get_most_recent(sub_id) or ""

    # Publishing

    def _with_room(self, act: Callable[[], T]) -> T:
        """Publish; while the store is full, ask its resize handler for more room."""
        while True:
            try:
                return act()
            except StoreFullException:
                store = self.get_publish_store()
                handler = getattr(store, "resize_handler", None)
                if handler is None:
                    raise
                size = 2 * store.max_bytes
                if handler(store, size):
                    store.set_limit(size)
                else:
                    time.sleep(_FULL_PAUSE_S)

    def publish(self, topic: str | bytes, data: Data | object = b"", expiration: int | None = None) -> int:
        """Publish a message; return its sequence number, 0 without a publish store."""
        if expiration is None:
            return self._with_room(lambda: self._client.publish(text(topic), body(data)))
        return self._with_room(lambda: self._client.publish(text(topic), body(data), expiration=expiration))

    def delta_publish(self, topic: str | bytes, data: Data | object = b"", expiration: int | None = None) -> int:
        """Publish changes to a record; return the sequence number, 0 without a publish store."""
        return self._with_room(lambda: self._client.delta_publish(text(topic), body(data), expiration=expiration))

    def publish_flush(self, timeout: float = 0, ack_type: AckType | str | None = None) -> None:
        """Wait until everything published before is persisted; without a store, until it is processed."""
        if self._client.publish_store is None and ack_type is not None:
            self.flush(timeout, ack_type)
        else:
            self._client.publish_flush(timeout=seconds(timeout))

    def flush(self, timeout: float = 0, ack_type: AckType | str = AckType.COMPLETED) -> None:
        """Wait until the server has acknowledged everything sent before."""
        self._client.flush(AckType.parse(ack_type), timeout=seconds(timeout))

    # Commands

    def execute(self, command: _Command) -> MessageStream:
        """Send a command; return its messages as a stream, with markers of groups and requested acknowledgements."""
        stream = MessageStream(self._client.execute(command, control=True))
        return stream.max_depth(self._max_depth) if self._max_depth else stream

    def execute_async(self, command: _Command, handler: Handler | None = None) -> str:
        """Send a command whose messages go to the handler; return its id."""
        return self._with_room(lambda: self._client.execute_async(command, wrapped_or_none(handler)))

    def execute_async_no_resubscribe(self, command: _Command, handler: Handler | None = None) -> str:
        """Like `execute_async`, for a subscription that ends with the connection."""
        return self._client.execute_async_no_resubscribe(command, wrapped_or_none(handler))

    def allocate_message(self) -> Message:
        """Return an empty message for `send`."""
        return Message()

    def send(self, message: Message, handler: Handler | None = None, timeout: float = 0) -> str:
        """Send the command that a message describes; return its id. Its results go to the handler, if there is one."""
        command = message.to_command()
        if handler is None:
            return self._client.send(command)
        return self._client.execute_async(command, wrapped(handler), timeout=seconds(timeout))

    def _start(self, name: str, values: dict[str, Any], *tokens: str) -> Result:
        """Send a subscription or query with the arguments of a named method."""
        options = ",".join(part for part in (*tokens, (values.get("options") or "").rstrip(",")) if part)
        fields: dict[str, Any] = {key: values[key] for key in _FIELDS if values.get(key)}
        limit = values.get("timeout")
        command = _Command(
            name, values.get("topic"), options=options, timeout=DEFAULT if limit is None else seconds(limit), **fields
        )
        handler = values.get("handler")
        if handler is None:
            return self.execute(command)
        return self._client.execute_async(command, wrapped(handler))

    def subscribe(self, *arguments: Any, **named: Any) -> Result:
        """subscribe([handler], topic, filter, options, timeout, sub_id): subscribe to a topic."""
        return self._start("subscribe", bound("subscribe", _SUBSCRIBE, arguments, named))

    def delta_subscribe(self, *arguments: Any, **named: Any) -> Result:
        """delta_subscribe([handler], topic, filter, options, timeout, sub_id): subscribe to changed fields."""
        return self._start("delta_subscribe", bound("delta_subscribe", _SUBSCRIBE, arguments, named))

    def bookmark_subscribe(self, *arguments: Any, **named: Any) -> Result:
        """bookmark_subscribe([handler], topic, bookmark, sub_id, filter, options, timeout): replay from a bookmark."""
        values = bound("bookmark_subscribe", _BOOKMARK_SUBSCRIBE, arguments, named)
        if not values.get("bookmark"):
            raise TypeError("bookmark_subscribe() needs a bookmark, such as Client.Bookmarks.MOST_RECENT")
        return self._start("subscribe", values)

    def sow(self, *arguments: Any, **named: Any) -> Result:
        """sow([handler], topic, filter, order_by, bookmark, batch_size, top_n, options, timeout): query records."""
        return self._start("sow", bound("sow", _SOW, arguments, named))

    def sow_and_subscribe(self, *arguments: Any, **named: Any) -> Result:
        """sow_and_subscribe([handler], …, oof_enabled=False): query, then subscribe; arguments as for `sow`."""
        values = bound("sow_and_subscribe", _SOW_AND_SUBSCRIBE, arguments, named)
        return self._start("sow_and_subscribe", values, "oof" if values.get("oof_enabled") else "")

    def sow_and_delta_subscribe(self, *arguments: Any, **named: Any) -> Result:
        """sow_and_delta_subscribe([handler], …, oof_enabled=False, send_empties=True); arguments as for `sow`."""
        values = bound("sow_and_delta_subscribe", _SOW_AND_DELTA_SUBSCRIBE, arguments, named)
        tokens = ("oof" if values.get("oof_enabled") else "", "" if values.get("send_empties", True) else "no_empties")
        return self._start("sow_and_delta_subscribe", values, *tokens)

    def sow_delete(self, *arguments: Any, **named: Any) -> Message | str:
        """sow_delete([handler], topic, filter, options, timeout): delete records; return the `stats` acknowledgement.

        With a handler, the acknowledgement goes to it, and the id of the command is returned.
        """
        return self._delete(bound("sow_delete", ("topic", "filter", "options", "timeout"), arguments, named), "filter")

    def sow_delete_by_keys(self, *arguments: Any, **named: Any) -> Message | str:
        """sow_delete_by_keys([handler], topic, keys, options, timeout): delete records by their keys."""
        names = ("topic", "keys", "options", "timeout")
        return self._delete(bound("sow_delete_by_keys", names, arguments, named), "keys")

    def sow_delete_by_data(self, *arguments: Any, **named: Any) -> Message | str:
        """sow_delete_by_data([handler], topic, data, options, timeout): delete the record that data would update."""
        names = ("topic", "data", "options", "timeout")
        return self._delete(bound("sow_delete_by_data", names, arguments, named), "data")

    def _delete(self, values: dict[str, Any], selector: str) -> Message | str:
        if values.get(selector) is None:
            raise TypeError(f"a delete needs {selector}")
        chosen = values[selector]
        if selector == "keys" and isinstance(chosen, str):
            chosen = chosen.split(",")
        ack = self._client.sow_delete(
            values["topic"],
            options=(values.get("options") or "").rstrip(","),
            timeout=seconds(values.get("timeout", 0)),
            **{selector: chosen},
        )
        handler = values.get("handler")
        if handler is None:
            return Message(ack)
        handler(Message(ack))
        return ack.command_id or ""

    def unsubscribe(self, sub_id: str = "") -> None:
        """End a subscription, several in a list with commas, or all."""
        self._client.unsubscribe(*(sub_id.split(",") if sub_id and sub_id != "all" else ()))

    # Queues

    def ack(self, target: Message | str, *arguments: str) -> None:
        """ack(message, [options]) or ack(topic, bookmark, [options]): acknowledge messages of a queue."""
        if isinstance(target, Message):
            options = arguments[0] if arguments else ""
            self._client.ack(target._message, options=options.rstrip(","))
        else:
            bookmark, options = (*arguments, "", "")[:2]
            self._client.ack(target, bookmark, options.rstrip(","))

    def flush_acks(self) -> None:
        """Send the acknowledgements of all unsent batches."""
        self._client.flush_acks()

    def set_auto_ack(self, enabled: bool) -> None:
        """Acknowledge queue messages when a handler returns, or the next message is read."""
        self._auto_ack = bool(enabled)
        self._set(lambda client: setattr(client, "auto_ack", bool(enabled)))

    def get_auto_ack(self) -> bool:
        """Whether queue messages are acknowledged automatically."""
        return self._auto_ack

    def set_ack_batch_size(self, size: int) -> None:
        """The number of acknowledgements sent at once. Above 1, a partial batch is sent after a second."""
        self._ack_batch_size = size
        self._set(lambda client: setattr(client, "ack_batch_size", size))

    def get_ack_batch_size(self) -> int:
        """The number of acknowledgements sent at once."""
        return self._ack_batch_size

    def set_ack_timeout(self, timeout: float) -> None:
        """Milliseconds after which a partial batch is sent; 0 = never."""
        self._ack_timeout_ms = timeout
        self._set(lambda client: setattr(client, "ack_timeout", timeout / 1000))

    def get_ack_timeout(self) -> float:
        """Milliseconds after which a partial batch is sent; 0 = never."""
        default_ms = 1000 if self._ack_batch_size > 1 else 0
        return default_ms if self._ack_timeout_ms is None else self._ack_timeout_ms

    # Streams and timers

    def set_default_max_depth(self, depth: int) -> None:
        """Bound the buffers of later streams; 0 = no bound."""
        self._max_depth = depth

    def get_default_max_depth(self) -> int:
        """The bound of the buffers of streams; 0 = none."""
        return self._max_depth

    def start_timer(self) -> None:
        """Start measuring time."""
        self._timer_s = time.monotonic()

    def stop_timer(self, handler: Handler) -> None:
        """Call the handler with a message like a `stats` acknowledgement, whose body is the time in milliseconds."""
        elapsed_ms = round((time.monotonic() - self._timer_s) * 1000)
        handler(Message(_Message(b'{"c":"ack","a":"stats","status":"success"}%d' % elapsed_ms)))

    # Handlers; None removes one

    def set_exception_listener(self, listener: Callable[[BaseException], object] | None) -> None:
        """Set the function that is called with exceptions of handlers; without it they are logged."""
        self._set(lambda client: client.set_exception_listener(listener))

    def set_last_chance_message_handler(self, handler: Handler | None) -> None:
        """Set the handler of messages without another one."""
        self._set(lambda client: client.set_last_chance_handler(wrapped_or_none(handler)))

    set_unhandled_message_handler = set_last_chance_message_handler
    """The older name of `set_last_chance_message_handler`."""

    def set_duplicate_message_handler(self, handler: Handler | None) -> None:
        """Set the handler of messages that the bookmark store has already seen."""
        self._set(lambda client: client.set_duplicate_handler(wrapped_or_none(handler)))

    def set_failed_write_handler(self, handler: Callable[[Message, str], object] | None) -> None:
        """Set `handler(message, reason)` for publishes and deletes that the server refuses."""
        self._set(lambda client: client.set_failed_write_handler(wrapped_failed_write(handler)))

    def set_global_command_type_message_handler(self, command: str, handler: Handler | None) -> None:
        """Set the handler of all messages of a type, such as "ack"; they are also delivered normally."""
        self._set(lambda client: client.set_global_handler(command, wrapped_or_none(handler)))

    def set_transport_filter(self, function: Callable[[bytes, bool], object] | None) -> None:
        """Set `function(data, outgoing)` for all bytes that are sent and received."""
        self._set(lambda client: client.set_transport_filter(function))

    def set_thread_created_callback(self, function: Callable[[], object] | None) -> None:
        """Set a function that each new receive thread calls first."""
        self._set(lambda client: client.set_receive_started_callback(function))

    def set_disconnect_handler(self, handler: Callable[[Self], object] | None) -> None:
        """Set `handler(client)` for the loss of the connection; it may connect and log on again."""
        call = None if handler is None else lambda client, error: handler(self)
        self._set(lambda client: client.set_disconnect_handler(call))

    def add_connection_state_listener(self, listener: Callable[[_State], object]) -> None:
        """Add a function that is called with each connection state; ConnectionStateListener has the states."""
        self._set(lambda client: client.add_connection_state_listener(listener))

    def remove_connection_state_listener(self, listener: Callable[[_State], object]) -> None:
        """Remove a connection state listener."""
        self._set(lambda client: client.remove_connection_state_listener(listener))

    def clear_connection_state_listeners(self) -> None:
        """Remove all connection state listeners."""
        self._set(lambda client: client.clear_connection_state_listeners())


_FIELDS = ("filter", "order_by", "bookmark", "batch_size", "top_n", "sub_id")


def ssl_init(path: str | None = None) -> None:
    """No effect: TLS is part of Python. `tcps` connections verify the server with the system's certificates."""
