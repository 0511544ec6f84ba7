"""The highly available client of the documented API: an `amps.client.HAClient` inside (client.md §9, §19.12)."""

from collections.abc import Callable
from typing import Any, Self

from amps.client import AMPSException, UsageException
from amps.client import Command as _Command
from amps.client import ConnectionInfo as _ConnectionInfo
from amps.client import HAClient as _HAClient
from amps.compat.client import Client
from amps.compat.names import seconds, with_twins
from amps.compat.servers import ExponentialDelayStrategy, FixedDelayStrategy, InSeconds
from amps.compat.stores import MemoryBookmarkStore, MemoryPublishStore, MMapBookmarkStore, PublishStore

DEFAULT_TIMEOUT_MS = 10_000


@with_twins
class HAClient(Client):
    """A client that reconnects to one of the servers of its chooser, and restores subscriptions and publishes.

    MessageStreams and plain queries end with their connection.
    """

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._arguments["resume_streams"] = False
        self._timeout_ms: float = DEFAULT_TIMEOUT_MS
        self._chooser: Any = None
        self._strategy: Any = ExponentialDelayStrategy()

    @classmethod
    def create_memory_backed(cls, name: str = "") -> Self:
        """Make a client with stores in memory, for publishes and for bookmarks."""
        client = cls(name)
        client.set_publish_store(MemoryPublishStore())
        client.set_bookmark_store(MemoryBookmarkStore())
        return client

    @classmethod
    def create_file_backed(cls, publish_log: str, bookmark_log: str, name: str = "") -> Self:
        """Make a client with stores in files, for publishes and for bookmarks. A publish store needs the name."""
        client = cls(name)
        client.set_publish_store(PublishStore(publish_log))
        client.set_bookmark_store(MMapBookmarkStore(bookmark_log))
        return client

    def _make(self) -> _HAClient:
        if self._chooser is None:
            raise UsageException("an HAClient needs a server chooser: call set_server_chooser")
        return _HAClient(
            self._name,
            self._chooser,
            delay_strategy=InSeconds(self._strategy),
            attempt_timeout=seconds(self._timeout_ms),
            **self._arguments,
        )

    @property
    def _ha_client(self) -> _HAClient:
        client = self._client
        assert isinstance(client, _HAClient)
        return client

    def connect(self, uri: str) -> None:
        """Not for this client. Raises UsageException."""
        raise UsageException("an HAClient connects and logs on in one step: call connect_and_logon()")

    def logon(self, timeout: float = 0, authenticator: Any = None, options: str | None = None) -> None:
        """Not for this client. Raises UsageException."""
        raise UsageException("an HAClient connects and logs on in one step: call connect_and_logon()")

    def connect_and_logon(self) -> None:
        """Connect to a server and log on; return when all is restored. Raises if chooser or delay strategy give up."""
        self._ha_client.connect_and_logon(timeout=None)

    def disconnected(self) -> bool:
        """Whether there is no connection."""
        return self._made is None or not self._made.connected

    def get_connection_info(self) -> _ConnectionInfo:
        """The server in use or tried last, the number of attempts, and the last error."""
        return self._ha_client.connection_info

    def set_server_chooser(self, chooser: Any) -> None:
        """Set the chooser, which has the methods of DefaultServerChooser."""
        self._chooser = chooser
        if self._made is not None:
            self._ha_client.server_chooser = chooser

    def get_server_chooser(self) -> Any:
        """The chooser, None before one is set."""
        return self._chooser

    def set_timeout(self, timeout: float) -> None:
        """Milliseconds for one attempt to connect, log on and restore subscriptions; 0 = no limit."""
        limit = seconds(timeout)
        self._timeout_ms = timeout
        if self._made is not None:
            self._ha_client.attempt_timeout = limit

    def get_timeout(self) -> float:
        """Milliseconds for one attempt; 0 = no limit."""
        return self._timeout_ms

    def set_reconnect_delay(self, delay: float) -> None:
        """Wait so many milliseconds before each further attempt."""
        self.set_reconnect_delay_strategy(FixedDelayStrategy(delay))

    def set_reconnect_delay_strategy(self, strategy: Any) -> None:
        """Set the delay strategy, which counts in milliseconds."""
        self._strategy = strategy
        if self._made is not None:
            self._ha_client.delay_strategy = InSeconds(strategy)

    def get_reconnect_delay_strategy(self) -> Any:
        """The delay strategy."""
        return self._strategy

    def set_logon_options(self, options: str) -> None:
        """Options of the logon. Before `connect_and_logon`."""
        self._set_argument("set_logon_options", "logon_options", options.rstrip(","))

    def get_logon_options(self) -> str:
        """Options of the logon."""
        return str(self._arguments.get("logon_options", ""))

    def set_retry_on_disconnect(self, enabled: bool) -> None:
        """Whether commands that a disconnect cuts off are sent again. Before `connect_and_logon`."""
        self._set_argument("set_retry_on_disconnect", "retry_on_disconnect", bool(enabled))

    def get_retry_on_disconnect(self) -> bool:
        """Whether commands that a disconnect cuts off are sent again."""
        return bool(self._arguments.get("retry_on_disconnect", True))

    def set_failed_resubscribe_handler(self, handler: Callable[[_Command, str, Exception], object]) -> None:
        """Set `handler(command, requested_acks, exception)` for subscriptions that a new server refuses.

        True drops the subscription; otherwise the server counts as failed. Before `connect_and_logon`.
        """

        def accept(command: _Command, error: AMPSException) -> bool:
            return bool(handler(command, str(command.ack_type), error))

        self._set_argument("set_failed_resubscribe_handler", "failed_resubscribe_handler", accept)

    def set_disconnect_handler(self, handler: Callable[[Self], object] | None) -> None:
        """Not for this client, which reconnects by itself. Raises UsageException."""
        raise UsageException("an HAClient reconnects by itself: use add_connection_state_listener to watch it")
