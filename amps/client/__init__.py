"""The client library: connect to a server, publish, subscribe, query.

    from amps.client import Client, MemoryPublishStore

    store = MemoryPublishStore()
    with Client("orders-feed", "tcp://localhost:9007/amps/json", publish_store=store) as client:
        client.publish("orders", {"id": 1})
        client.publish_flush()

The names below are the public ones. Internally, `engine` is the protocol without input or output, `sync` is the
blocking front end on it, and `stores` keeps the state that survives a reconnect. Times are in seconds.

What may not live here: the server, its configuration and its message types, which are never imported. Rules of the
protocol are only in `engine` and the modules that it combines (`engine_state`, `inbound`, `outbound`). These open no
socket, start no thread and read no clock. Sockets are in `transport`, threads and locks in `runtime` and `sending`.
"""

from amps.client.auth import Authenticator, DefaultAuthenticator
from amps.client.codecs import Codec
from amps.client.command import Command
from amps.client.engine_types import ClientStats
from amps.client.enums import (
    DEFAULT,
    EPOCH,
    MOST_RECENT,
    NOW,
    AckType,
    Bookmark,
    ConnectionState,
    Data,
    Timeout,
)
from amps.client.errors import (
    AlreadyConnected,
    AlreadyConnectedException,
    AMPSException,
    AuthenticationError,
    AuthenticationException,
    BadFilter,
    BadFilterException,
    BadRegexTopic,
    BadRegexTopicException,
    BadSowKeyException,
    CommandException,
    ConnectionException,
    ConnectionRefusedException,
    DisconnectedException,
    DuplicateLogonException,
    InvalidBookmarkException,
    InvalidOptionsException,
    InvalidOrderByException,
    InvalidSubIdException,
    InvalidTopicException,
    InvalidTransportOptionsException,
    InvalidUriException,
    LogonRequiredException,
    MessageTypeException,
    MissingFieldsException,
    NameInUseException,
    NotEntitledException,
    PublishException,
    PublishStoreGapException,
    RetryOperationException,
    StoreCorruptException,
    StoreException,
    StoreFullException,
    StreamException,
    SubscriptionAlreadyExistsException,
    TimedOutException,
    TransportTypeException,
    UnknownException,
    UsageException,
)
from amps.client.message import Handler, Message
from amps.client.options import QueryArgs, SubscribeArgs
from amps.client.stores import BookmarkStore, MemoryPublishStore, PublishStore
from amps.client.streams import MessageStream
from amps.client.sync import Client

__all__ = [
    "DEFAULT",
    "EPOCH",
    "MOST_RECENT",
    "NOW",
    "AMPSException",
    "AckType",
    "AlreadyConnected",
    "AlreadyConnectedException",
    "AuthenticationError",
    "AuthenticationException",
    "Authenticator",
    "BadFilter",
    "BadFilterException",
    "BadRegexTopic",
    "BadRegexTopicException",
    "BadSowKeyException",
    "Bookmark",
    "BookmarkStore",
    "Client",
    "ClientStats",
    "Codec",
    "Command",
    "CommandException",
    "ConnectionException",
    "ConnectionRefusedException",
    "ConnectionState",
    "Data",
    "DefaultAuthenticator",
    "DisconnectedException",
    "DuplicateLogonException",
    "Handler",
    "InvalidBookmarkException",
    "InvalidOptionsException",
    "InvalidOrderByException",
    "InvalidSubIdException",
    "InvalidTopicException",
    "InvalidTransportOptionsException",
    "InvalidUriException",
    "LogonRequiredException",
    "MemoryPublishStore",
    "Message",
    "MessageStream",
    "MessageTypeException",
    "MissingFieldsException",
    "NameInUseException",
    "NotEntitledException",
    "PublishException",
    "PublishStore",
    "PublishStoreGapException",
    "QueryArgs",
    "RetryOperationException",
    "StoreCorruptException",
    "StoreException",
    "StoreFullException",
    "StreamException",
    "SubscribeArgs",
    "SubscriptionAlreadyExistsException",
    "TimedOutException",
    "Timeout",
    "TransportTypeException",
    "UnknownException",
    "UsageException",
]
