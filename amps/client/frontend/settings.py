"""The settings of a client, checked once for all front ends."""

import getpass
import logging
import os
import secrets
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from amps.client.enums import DEFAULT, Timeout
from amps.client.errors import InvalidUriException
from amps.client.payloads.codecs import CODEC_NAMES, Codec, codec_for, codec_named
from amps.client.protocol.command import check_base64, check_number, check_seconds, check_text, check_timeout
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import EngineConfig
from amps.client.protocol.options import OnFull, check_buffer
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore, check_stable_name
from amps.client.protocol.subscriptions import SubscriptionManager
from amps.client.servers.auth import Authenticator
from amps.client.uri import ConnectionUri
from amps.version import VERSION

CLIENT_VERSION = f"{VERSION}:python"


def default_client_name() -> str:
    """Return a unique name, for clients that do not continue a sequence in their next run."""
    program = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] else "python"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{program}-{user}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


def positive(name: str, seconds: float | None) -> float | None:
    """Return a time that must be positive; None = none. Raises ValueError, TypeError."""
    if check_seconds(name, seconds) == 0:
        raise ValueError(f"{name} must be positive: {seconds}")
    return seconds


def check_part(name: str, part: object, *methods: str) -> None:
    """Raise TypeError for an object that cannot play a part of a client; None: there is none."""
    missing = [] if part is None else [method for method in methods if not callable(getattr(part, method, None))]
    if missing:
        raise TypeError(f"{name} must be an object with the method {missing[0]}, not {type(part).__name__}")


class ClientSettings:
    """The constructor arguments that all clients have; `amps.client.Client` describes them.

    Raises ValueError and TypeError for values that no connection could use, before anything is opened.
    """

    def __init__(
        self,
        *,
        name: str | None,
        authenticator: Authenticator | None,
        publish_store: PublishStore | None,
        bookmark_store: BookmarkStore | None,
        subscription_manager: SubscriptionManager | None,
        codec: Codec | str | None,
        timeout: Timeout,
        auto_ack: bool,
        heartbeat: float | None,
        heartbeat_timeout: float | None,
        ack_batch_size: int,
        ack_timeout: float | None,
        batch_size: int,
        max_depth: int,
        on_full: OnFull,
        retry_on_disconnect: bool,
        logon_options: str,
        logon_correlation: str | None,
        tls: ssl.SSLContext | None,
        http_headers: Iterable[str] | Mapping[str, str],
        max_message_size: int,
        logger: logging.Logger | None,
    ) -> None:
        if logon_correlation is not None:
            check_base64("logon_correlation", logon_correlation)
        check_text("name", name or "")
        check_text("logon_options", logon_options)
        check_seconds("timeout", timeout)
        check_seconds("ack_timeout", ack_timeout)
        check_part("authenticator", authenticator, "authenticate", "retry", "completed")
        check_part("publish_store", publish_store, "open", "append", "discard_up_to")
        check_part("bookmark_store", bookmark_store, "log", "discard", "get_most_recent")
        check_part("subscription_manager", subscription_manager, "subscribe", "unsubscribe", "commands")
        check_part("codec", None if isinstance(codec, str) else codec, "encode", "decode")
        check_part("tls", tls, "wrap_bio")
        check_part("logger", logger, "warning")
        check_buffer(max_depth, on_full)
        check_number("batch_size", batch_size, least=1)
        check_number("ack_batch_size", ack_batch_size)
        check_number("max_message_size", max_message_size, least=1)
        if isinstance(codec, str) and codec_named(codec) is None:
            raise ValueError(f"there is no codec {codec!r}; there are {', '.join(CODEC_NAMES)}")
        if isinstance(http_headers, str):
            raise TypeError("http_headers must be a mapping or a list of lines, not one str")
        check_stable_name(name, publish_store)
        self.name = name or default_client_name()
        self.authenticator = authenticator
        self.publish_store = publish_store
        self.bookmark_store = bookmark_store
        self.subscription_manager = subscription_manager
        self.codec = codec
        self.timeout = timeout
        """Seconds that calls without a limit of their own wait; may change, as `auto_ack`."""
        self.auto_ack = auto_ack
        self.max_depth = max_depth
        self.on_full: OnFull = on_full
        self.logon_options = logon_options
        self.tls = tls
        self.http_headers: list[str] | dict[str, str] = (
            dict(http_headers) if isinstance(http_headers, Mapping) else list(http_headers)
        )
        self.logger = logger or logging.getLogger("amps.client")
        self.config = EngineConfig(
            client_name=self.name,
            version=CLIENT_VERSION,
            heartbeat_s=positive("heartbeat", heartbeat),
            heartbeat_timeout_s=positive("heartbeat_timeout", heartbeat_timeout),
            ack_batch_size=ack_batch_size,
            ack_timeout_s=ack_timeout,
            batch_size=batch_size,
            max_message_bytes=max_message_size,
            correlation_id=logon_correlation,
            retry=retry_on_disconnect,
        )

    def new_engine(self) -> Engine:
        """Return an engine; the publish store is bound to the client's name. Raises StoreException."""
        if self.publish_store is not None:
            self.publish_store.open(self.name)
        return Engine(self.config, self.publish_store, self.bookmark_store, self.subscription_manager)

    def deadline(self, timeout: Timeout) -> float | None:
        """Return the deadline of a call that begins now, on the monotonic clock; None = no limit."""
        seconds = check_timeout(self.timeout if timeout is DEFAULT else timeout)
        return None if seconds is None else time.monotonic() + seconds

    def unpersisted_count(self) -> int:
        """The number of messages in the publish store, if there is one, that are not persisted."""
        return self.publish_store.unpersisted_count() if self.publish_store is not None else 0

    def warn_of_unpersisted(self) -> None:
        """Warn that a client is closed while the publish store has messages that are not persisted."""
        unpersisted = self.unpersisted_count()
        if unpersisted:
            self.logger.warning(
                "client %s: closed with %d messages not known to be persisted; publish_flush waits",
                self.name, unpersisted,
            )  # fmt: skip

    def encode(self, data: Any, uri: ConnectionUri | None, check_connected: Callable[[str], None]) -> bytes:
        """Return a body as bytes; objects are encoded by the codec, which may depend on the connection."""
        body = body_of(data)
        if body is None:
            if self.codec is None and uri is None:
                check_connected(f"cannot encode {type(data).__name__}")
            body = self.codec_of(uri).encode(data)
        return body

    def codec_of(self, uri: ConnectionUri | None) -> Codec:
        """The codec for bodies: the one given to the client, else the one of the message type."""
        choice = self.codec
        if choice is None:
            choice = uri.message_type if uri is not None else None
        return codec_for(choice) if choice is None or isinstance(choice, str) else choice

    def missing_uri(self) -> InvalidUriException:
        """The error for a client without a connection string."""
        swapped = " (its first argument is the client's name)" if "://" in self.name else ""
        return InvalidUriException(
            f"no connection string: pass uri= to the client{swapped} or to connect"
        )


def body_of(data: Any) -> bytes | None:
    """Return data that needs no codec as bytes; None for an object that a codec must encode."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    return None
