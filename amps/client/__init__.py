"""The client library: connect to a server, publish, subscribe, query.

    from amps.client import Client, MemoryPublishStore

    store = MemoryPublishStore()
    with Client("orders-feed", "tcp://localhost:9007/amps/json", publish_store=store) as client:
        client.publish("orders", {"id": 1})
        client.publish_flush()

The names below are the public ones. The sub-packages, each importing only those after it:

- `workers`: `Worker`, which processes the messages of queues in threads, tasks or processes.
- `aio`: the asyncio front end; its public names are in `amps.aio`.
- `blocking`: the blocking front end, `Client` and `HAClient`, with its threads and sockets.
- `frontend`: what all front ends share.
- `stores`: the state that survives a reconnect.
- `protocol`: the engine, which has all rules of the protocol and no input or output.
- `servers`: the choice of a server and authentication. `payloads`: codecs of bodies.

Times are in seconds. What may not live here: the server, its configuration and its message types, which are never
imported. The engine opens no socket, starts no thread and reads no clock.
"""

from amps.client.blocking.client import Client
from amps.client.blocking.ha import HAClient
from amps.client.blocking.streams import MessageStream
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
    TransactionRefusedException,
    TransportTypeException,
    UnknownException,
    UsageException,
)
from amps.client.frontend.transactions import Transaction
from amps.client.payloads.codecs import Codec
from amps.client.payloads.composite import CompositeMessageBuilder, CompositeMessageParser
from amps.client.payloads.fix import FIXBuilder, FIXShredder, NVFIXBuilder, NVFIXShredder
from amps.client.payloads.models import DecodeError
from amps.client.payloads.tables import TableError, to_arrow, to_pandas
from amps.client.protocol.command import Command
from amps.client.protocol.delays import Moment
from amps.client.protocol.engine_types import ClientStats
from amps.client.protocol.message import Handler, Message
from amps.client.protocol.options import PublishArgs, QueryArgs, SubscribeArgs
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore
from amps.client.protocol.subscriptions import MemorySubscriptionManager, SubscriptionManager
from amps.client.servers.auth import Authenticator, DefaultAuthenticator
from amps.client.servers.choosers import ConnectionInfo, DefaultServerChooser, ServerChooser
from amps.client.servers.delays import DelayStrategy, ExponentialDelayStrategy, FixedDelayStrategy
from amps.client.stores import (
    ConflatingRecoveryPointAdapter,
    FileBookmarkStore,
    FilePublishStore,
    HybridPublishStore,
    MemoryBookmarkStore,
    MemoryPublishStore,
    RecoveryPoint,
    RecoveryPointAdapter,
    RingBookmarkStore,
    SOWRecoveryPointAdapter,
)
from amps.client.workers.outcomes import Failure
from amps.client.workers.settings import Rejected, WorkerStats
from amps.client.workers.worker import Worker

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
    "CompositeMessageBuilder",
    "CompositeMessageParser",
    "ConflatingRecoveryPointAdapter",
    "ConnectionException",
    "ConnectionInfo",
    "ConnectionRefusedException",
    "ConnectionState",
    "Data",
    "DecodeError",
    "DefaultAuthenticator",
    "DefaultServerChooser",
    "DelayStrategy",
    "DisconnectedException",
    "DuplicateLogonException",
    "ExponentialDelayStrategy",
    "FIXBuilder",
    "FIXShredder",
    "Failure",
    "FileBookmarkStore",
    "FilePublishStore",
    "FixedDelayStrategy",
    "HAClient",
    "Handler",
    "HybridPublishStore",
    "InvalidBookmarkException",
    "InvalidOptionsException",
    "InvalidOrderByException",
    "InvalidSubIdException",
    "InvalidTopicException",
    "InvalidTransportOptionsException",
    "InvalidUriException",
    "LogonRequiredException",
    "MemoryBookmarkStore",
    "MemoryPublishStore",
    "MemorySubscriptionManager",
    "Message",
    "MessageStream",
    "MessageTypeException",
    "MissingFieldsException",
    "Moment",
    "NVFIXBuilder",
    "NVFIXShredder",
    "NameInUseException",
    "NotEntitledException",
    "PublishArgs",
    "PublishException",
    "PublishStore",
    "PublishStoreGapException",
    "QueryArgs",
    "RecoveryPoint",
    "RecoveryPointAdapter",
    "Rejected",
    "RetryOperationException",
    "RingBookmarkStore",
    "SOWRecoveryPointAdapter",
    "ServerChooser",
    "StoreCorruptException",
    "StoreException",
    "StoreFullException",
    "StreamException",
    "SubscribeArgs",
    "SubscriptionAlreadyExistsException",
    "SubscriptionManager",
    "TableError",
    "TimedOutException",
    "Timeout",
    "Transaction",
    "TransactionRefusedException",
    "TransportTypeException",
    "UnknownException",
    "UsageException",
    "Worker",
    "WorkerStats",
    "to_arrow",
    "to_pandas",
]
