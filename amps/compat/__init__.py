"""The documented names and units over `amps.client`, for applications written to the documented API (client.md §19.12).

    import amps.compat as AMPS

    client = AMPS.Client("orders-view")
    client.connect("tcp://localhost:9007/amps/json")
    client.logon()
    for message in client.subscribe("orders", "/side = 'buy'"):
        print(message.get_data())

What differs from `amps.client`:

- Times are in milliseconds, 0 = no limit, which is the default. Heartbeats are in seconds.
- A handler is the first argument. The other arguments have the documented order, and may be given by name.
- Messages and commands have getters and setters; absent texts are "", absent numbers 0. All names exist in camelCase.
- Streams are unbounded, include the markers of groups and requested acknowledgements, and are never resumed.
- Stores keep files in the format of this project.

New applications use `amps.client`, which is faster and typed. Clients of one package do not take messages of the other.
"""

from amps.client import (
    ConflatingRecoveryPointAdapter,
    DefaultAuthenticator,
    RecoveryPoint,
    SOWRecoveryPointAdapter,
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
from amps.compat.client import Client, ssl_init
from amps.compat.commands import Command
from amps.compat.constants import ConnectionStateListener, Reason
from amps.compat.ha import HAClient
from amps.compat.handlers import CMessageHandler
from amps.compat.messages import Message
from amps.compat.payloads import (
    CompositeMessageBuilder,
    CompositeMessageParser,
    FIXBuilder,
    FIXShredder,
    NVFIXBuilder,
    NVFIXShredder,
)
from amps.compat.servers import DefaultServerChooser, ExponentialDelayStrategy, FixedDelayStrategy
from amps.compat.stores import (
    HybridPublishStore,
    LoggedBookmarkStore,
    MemoryBookmarkStore,
    MemoryPublishStore,
    MMapBookmarkStore,
    PublishStore,
    RingBookmarkStore,
)
from amps.compat.streams import MessageStream

__all__ = [
    "AMPSException",
    "AlreadyConnected",
    "AlreadyConnectedException",
    "AuthenticationError",
    "AuthenticationException",
    "BadFilter",
    "BadFilterException",
    "BadRegexTopic",
    "BadRegexTopicException",
    "BadSowKeyException",
    "CMessageHandler",
    "Client",
    "Command",
    "CommandException",
    "CompositeMessageBuilder",
    "CompositeMessageParser",
    "ConflatingRecoveryPointAdapter",
    "ConnectionException",
    "ConnectionRefusedException",
    "ConnectionStateListener",
    "DefaultAuthenticator",
    "DefaultServerChooser",
    "DisconnectedException",
    "DuplicateLogonException",
    "ExponentialDelayStrategy",
    "FIXBuilder",
    "FIXShredder",
    "FixedDelayStrategy",
    "HAClient",
    "HybridPublishStore",
    "InvalidBookmarkException",
    "InvalidOptionsException",
    "InvalidOrderByException",
    "InvalidSubIdException",
    "InvalidTopicException",
    "InvalidTransportOptionsException",
    "InvalidUriException",
    "LoggedBookmarkStore",
    "LogonRequiredException",
    "MMapBookmarkStore",
    "MemoryBookmarkStore",
    "MemoryPublishStore",
    "Message",
    "MessageStream",
    "MessageTypeException",
    "MissingFieldsException",
    "NVFIXBuilder",
    "NVFIXShredder",
    "NameInUseException",
    "NotEntitledException",
    "PublishException",
    "PublishStore",
    "PublishStoreGapException",
    "Reason",
    "RecoveryPoint",
    "RetryOperationException",
    "RingBookmarkStore",
    "SOWRecoveryPointAdapter",
    "StoreCorruptException",
    "StoreException",
    "StoreFullException",
    "StreamException",
    "SubscriptionAlreadyExistsException",
    "TimedOutException",
    "TransactionRefusedException",
    "TransportTypeException",
    "UnknownException",
    "UsageException",
    "ssl_init",
]
