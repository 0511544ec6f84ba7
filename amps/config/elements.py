"""Every element of a configuration: instance, transports, logging, transaction log, tuning.

The tables define the accepted elements. An element with `later` is known and refused with
`not supported yet: …`; an element with `unused` is accepted with a warning, `has no effect: …`. Elements of whole
features that do not exist yet (views, conflated topics) are in `amps.config.elements_later`. SOW topics, message
queues, replication, actions and administration have separate modules.
"""

from amps.config.actions import ACTIONS
from amps.config.admin import ADMIN
from amps.config.elements_later import DERIVED_TOPICS
from amps.config.elements_queues import QUEUE_DELIVERY_FLUSH_INTERVAL_S, QUEUES
from amps.config.elements_replication import REPLICATION, read_destination_count
from amps.config.elements_sow import SOW_TOPICS
from amps.config.model import DEFAULT_FREE_SPACE, FreeSpaceThreshold
from amps.config.readers import (
    list_of,
    one_of,
    read_byte,
    read_id_pattern,
    read_path_or_disabled,
    read_text,
)
from amps.config.schema import Block, Leaf, Options, Synonym
from amps.config.units import (
    read_address,
    read_boolean,
    read_count,
    read_file_mode,
    read_fraction,
    read_interval,
    read_rotation_threshold,
    read_size,
    read_size_or_fraction,
    read_version,
    shown,
)

JOURNAL_SIZE_MIN_BYTES = 10_000_000
"""`JournalSize` as written; the file itself is rounded up to whole mebibytes."""

PARAMETERS_MAX = 255
"""Maximum number of arguments that an expression can pass to a function."""

LEVELS = ("developer", "trace", "stats", "info", "warning", "error", "critical", "emergency")
TLS_PROTOCOLS = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
DEFAULT_TLS_PROTOCOLS = ("TLSv1.1", "TLSv1.2", "TLSv1.3")

_NO_OFFLINING = "a slow client's messages are not kept on disk; it is disconnected at the memory limits"
_NO_WEBSOCKET = "there is no websocket protocol, which it belongs to"
_NO_MINIDUMPS = "there are no minidumps; failures are in the log"

_read_level = one_of(*LEVELS, "none", synonyms={"debug": "info"})


def _read_parameter_count(text: str) -> int | None:
    if not text:
        return None
    count = read_count(text)
    if count > PARAMETERS_MAX:
        raise ValueError(
            f"{shown(text)} is above the maximum of {PARAMETERS_MAX}; write {PARAMETERS_MAX} or less"
        )
    return count


def _read_free_space(text: str) -> FreeSpaceThreshold | None:
    if text.lower() == "disabled":
        return None
    try:
        amount = read_size_or_fraction(text)
    except ValueError as error:
        raise ValueError(f"{error}, or disabled") from None
    if isinstance(amount, float):
        return FreeSpaceThreshold(share=amount)
    return FreeSpaceThreshold(size_bytes=amount)


MODULE_USE = Block({"Module": Leaf(read_text, required=True), "Options": Options()})

SLOW_CLIENT_RETIRED = dict.fromkeys(
    (
        "SlowClientDisconnect",
        "SlowClientOfflining",
        "SlowClientOffline",
        "SlowClientAgeLimit",
        "ClientBufferThreshold",
        "ClientOffline",
        "ClientOfflineDirectory",
        "ClientOfflineThreshold",
        "ClientOfflineFileThreshold",
    ),
    "use MessageMemoryLimit, ClientMaxCapacity and ClientMessageAgeLimit",
)

TRANSPORT = Block(
    {
        "Name": Leaf(read_text, required=True),
        "Type": Leaf(
            one_of("tcp", "tcps", "amps-unix", "amps-replication", "amps-replication-secure"),
            required=True,
        ),
        "Protocol": Leaf(read_text, default="amps"),
        "InetAddr": Leaf(read_address),
        "MessageType": Leaf(read_text),
        "InitialState": Leaf(one_of("enabled", "disabled"), default="enabled"),
        "Authentication": MODULE_USE,
        "Entitlement": MODULE_USE,
        "MessageMemoryLimit": Leaf(read_size, at_least=(1, "1 byte")),
        "MessageDiskLimit": Leaf(read_size, unused=_NO_OFFLINING),
        "MessageDiskPath": Leaf(read_text, unused=_NO_OFFLINING),
        "ClientMessageAgeLimit": Leaf(read_interval),
        "ClientMaxCapacity": Leaf(read_fraction),
        "TransportFilter": Block(
            {"Module": Leaf(read_text, required=True), "Options": Options()},
            repeatable=True,
            later="transport filters",
        ),
        "Certificate": Leaf(read_text),
        "PrivateKey": Leaf(read_text),
        "Ciphers": Leaf(read_text),
        "SecureSocketProtocols": Leaf(list_of(one_of(*TLS_PROTOCOLS), " "), default=DEFAULT_TLS_PROTOCOLS),
        "VerifyClient": Leaf(read_boolean, default=False),
        "CAFile": Leaf(read_text),
        "CAPath": Leaf(read_text),
        "FileName": Leaf(read_text),
        "FileMask": Leaf(read_file_mode),
        "PerMessageDeflate": Leaf(read_text, unused=_NO_WEBSOCKET),
        "HTTPHeader": Leaf(read_text, repeatable=True, unused=_NO_WEBSOCKET),
        "ReuseAddr": Leaf(read_text, may_be_empty=True, note="has no effect: addresses are always reused"),
    },
    repeatable=True,
    retired=SLOW_CLIENT_RETIRED,
)

LOG_TARGET = Block(
    {
        "Protocol": Leaf(one_of("stdout", "stderr", "file", "gzip", "syslog"), required=True),
        "Level": Leaf(_read_level),
        "Levels": Leaf(list_of(_read_level), default=()),
        "IncludeErrors": Leaf(list_of(read_id_pattern), default=(), may_be_empty=True),
        "ExcludeErrors": Leaf(list_of(read_id_pattern), default=(), may_be_empty=True),
        "FileName": Leaf(read_text),
        "RotationThreshold": Leaf(read_rotation_threshold, at_least=(1, "1 byte")),
        "Ident": Leaf(read_text),
        "Options": Leaf(
            list_of(one_of("LOG_CONS", "LOG_NDELAY", "LOG_NOWAIT", "LOG_ODELAY", "LOG_PERROR", "LOG_PID")),
            default=(),
            may_be_empty=True,
        ),
        "Facility": Leaf(
            one_of("LOG_USER", *(f"LOG_LOCAL{number}" for number in range(8))),
            default="LOG_USER",
        ),
    },
    repeatable=True,
)

TRANSACTION_LOG = Block(
    {
        "JournalDirectory": Leaf(read_text, required=True),
        "JournalArchiveDirectory": Leaf(read_text),
        "PreallocatedJournalFiles": Leaf(
            read_count, default=2, at_least=(1, "1"), at_most=(10_000, "10000"), clamp=True
        ),
        "JournalSize": Leaf(
            read_size,
            default=2**30,
            at_least=(JOURNAL_SIZE_MIN_BYTES, "10MB"),
            at_most=(2**40, "1TB"),
            clamp=True,
        ),
        "MinJournalSize": Synonym("JournalSize"),
        "FlushInterval": Leaf(
            read_interval, default=0.1, at_least=(1e-6, "1us"), at_most=(1.0, "1000ms"), clamp=True
        ),
        "O_DIRECT": Leaf(
            read_boolean,
            default=True,
            note="journals are written through the page cache and synced with fdatasync before anything is "
            "acknowledged, so that both settings are equally durable; enabled: what is durable and read by all leaves "
            "the page cache, disabled: it stays as long as the system has no other use for the memory",
        ),
        "InactiveClientAckExpiration": Leaf(read_interval),
        "CompressedJournalCacheMemoryLimit": Leaf(read_size),
        "Topic": Block(
            {
                "Name": Leaf(read_text, required=True),
                "MessageType": Leaf(read_text, required=True),
                "Filter": Leaf(str),
            },
            repeatable=True,
        ),
    }
)

_LEGACY_SEPARATOR = "has no effect: only the legacy protocols use this separator"

MODULES = Block(
    {
        "Module": Block(
            {
                "Name": Leaf(read_text, required=True),
                "Library": Leaf(read_text, required=True),
                "Options": Options(),
            },
            repeatable=True,
        )
    }
)

USER_DEFINED_FUNCTIONS = Block(
    {
        "Function": Block(
            {
                "Name": Leaf(read_text, required=True),
                "Module": Leaf(read_text, required=True),
                "Symbol": Leaf(read_text, required=True),
                "ParameterCount": Leaf(_read_parameter_count, may_be_empty=True),
            },
            repeatable=True,
        )
    }
)

MESSAGE_TYPES = Block(
    {
        "MessageType": Block(
            {
                "Name": Leaf(read_text, required=True),
                "Module": Leaf(read_text),
                "AMPSVersionCompliance": Leaf(
                    one_of("2", "4", "5"),
                    note="has no effect: it chooses FIX tags for the topic /AMPS/SOWStats, which is not published yet",
                ),
                "Options": Options(later="modules for custom message types, and their options"),
                "FieldSeparator": Leaf(read_byte, default=1),
                "HeaderSeparator": Leaf(read_byte, note=_LEGACY_SEPARATOR),
                "MessageSeparator": Leaf(read_byte, note=_LEGACY_SEPARATOR),
                "EarlyTerminationOptimization": Leaf(read_boolean, default=True),
                "MessageType": Leaf(read_text, repeatable=True),
                "ProtoPath": Leaf(read_text, repeatable=True),
                "ProtoFile": Leaf(read_text),
                "Type": Leaf(read_text),
                "Field": Leaf(read_text, repeatable=True),
            },
            repeatable=True,
        )
    }
)

_PROTOCOL_OPTIONS = {
    "AccessControlAllowOrigin": Leaf(read_text, unused=_NO_WEBSOCKET),
    "WWWAuthenticate": Leaf(read_text, unused=_NO_WEBSOCKET),
    "TrustedAdmin": Leaf(read_boolean, unused=_NO_WEBSOCKET),
    "HTTPHeader": Leaf(read_text, repeatable=True, unused=_NO_WEBSOCKET),
}

PROTOCOLS = Block(
    {
        "Protocol": Block(
            {
                "Name": Leaf(read_text, required=True),
                "Module": Leaf(read_text, required=True),
                **_PROTOCOL_OPTIONS,
                "Options": Block(_PROTOCOL_OPTIONS),
            },
            repeatable=True,
        )
    }
)

TUNING = Block(
    {
        "NUMA": Block(
            {
                "Enabled": Leaf(
                    read_boolean,
                    default=False,
                    unused="threads are not bound to NUMA nodes; bind the service instead",
                )
            }
        ),
        "Replication": Block({"MinSyncDestinations": Leaf(read_destination_count)}),
        "Queue": Block(
            {
                "QueueDeliveryFlushInterval": Leaf(
                    read_interval,
                    default=QUEUE_DELIVERY_FLUSH_INTERVAL_S,
                    at_least=(1e-6, "1us"),
                    unused="deliveries are not delayed; all that are due are sent together, at once",
                )
            }
        ),
        "Admin": Block(
            {
                "Statistics": Block(
                    {
                        "Indexing": Block(
                            {
                                "Enabled": Leaf(
                                    read_boolean,
                                    default=False,
                                    unused="there is no statistics database to index",
                                )
                            }
                        )
                    }
                )
            }
        ),
        "TransactionLog": Block(
            {
                "FreeSpaceWarning": Leaf(_read_free_space, default=DEFAULT_FREE_SPACE),
                "TopicIndex": Block({"Enabled": Leaf(read_boolean, default=False)}),
            }
        ),
        "Transport": Block({"Workers": Leaf(read_count, at_least=(1, "1"), at_most=(63, "63"))}),
    }
)

_OWN_TLS = "has no effect: the libraries of this server's own runtime are used"
_LIBRARY = Block({"Library": Leaf(read_text, note=_OWN_TLS)})
EXTERNALS = Block({"SSL": _LIBRARY, "Crypto": _LIBRARY, "Curl": _LIBRARY})

ROOT = Block(
    {
        "Name": Leaf(read_text, required=True),
        "Group": Leaf(read_text),
        "ProcessName": Leaf(read_text),
        "Description": Leaf(read_text, may_be_empty=True),
        "Environment": Leaf(read_text, may_be_empty=True),
        "SuggestedMinimumVersion": Leaf(read_version),
        "RequiredMinimumVersion": Leaf(read_version),
        "ConfigIncludeCommentDefault": Leaf(read_boolean, default=False),
        "ConfigCycleDetectionThreshold": Leaf(read_size, at_least=(1, "1 byte")),
        "ConfigValidation": Leaf(
            one_of("enabled", "disabled", synonyms={"true": "enabled", "false": "disabled"})
        ),
        "RegexTopicSupport": Leaf(read_boolean, default=True),
        "SOWStatsInterval": Leaf(read_interval, unused="there is no topic /AMPS/SOWStats to publish the counts to"),
        "SOWStatisticsInterval": Synonym("SOWStatsInterval"),
        "MessageMemoryLimit": Leaf(read_size, at_least=(1, "1 byte")),
        "MessageDiskLimit": Leaf(read_size, unused=_NO_OFFLINING),
        "MessageDiskPath": Leaf(read_text, unused=_NO_OFFLINING),
        "ClientMessageAgeLimit": Leaf(read_interval),
        "ClientMaxCapacity": Leaf(read_fraction, default=0.5),
        "MiniDumpDirectory": Leaf(read_path_or_disabled, default="disabled", unused=_NO_MINIDUMPS),
        "MiniDumpFileMask": Leaf(read_file_mode, unused=_NO_MINIDUMPS),
        "Authentication": MODULE_USE,
        "Entitlement": MODULE_USE,
        "Authenticator": MODULE_USE,
        "Modules": MODULES,
        "UserDefinedFunctions": USER_DEFINED_FUNCTIONS,
        "MessageTypes": MESSAGE_TYPES,
        "Protocols": PROTOCOLS,
        "Transports": Block({"Transport": TRANSPORT}),
        "Admin": ADMIN,
        "Logging": Block({"Target": LOG_TARGET}),
        "SOW": Block({**SOW_TOPICS, **DERIVED_TOPICS, **QUEUES}),
        "TransactionLog": TRANSACTION_LOG,
        "Replication": REPLICATION,
        "Actions": ACTIONS,
        "Tuning": TUNING,
        "Externals": EXTERNALS,
    },
    retired=SLOW_CLIENT_RETIRED,
)
