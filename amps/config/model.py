"""The classes of a configuration: immutable, typed, with every default already applied.

The rest of the server uses only these classes. They do not depend on XML, files or findings, and they
compute no defaults: `amps.config.build` computes values such as a memory limit taken from the host or a rounded
journal size. Mappings inside are plain dicts; treat them as read-only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amps.config.findings import Finding
from amps.config.model_base import ModuleUse
from amps.config.model_queues import QueueConfig
from amps.config.model_replication import DestinationConfig
from amps.config.model_sow import SowTopicConfig
from amps.expressions import SHIPPED, Functions
from amps.messages import TypeSettings, standard_settings

REPLICATION_TYPES = ("amps-replication", "amps-replication-secure")
"""The types of the transport that accepts other instances."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The TLS settings of one listening transport."""

    certificate: Path
    private_key: Path
    ciphers: str | None = None
    protocols: tuple[str, ...] = ("TLSv1.1", "TLSv1.2", "TLSv1.3")
    verify_client: bool = False
    ca_file: Path | None = None
    ca_path: Path | None = None


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """One listening socket and the rules for the connections it accepts.

    `host` None means every address of the host, IPv4 and IPv6; `port` 0 lets the system choose. Both are
    None for `amps-unix`, where `file_name` is the socket's path. If a limit is None, the instance's applies;
    with `message_memory_limit_bytes` the transport has a separate memory pool. If `authentication` or
    `entitlement` is None, the instance's applies.
    """

    name: str
    type: str
    protocol: str = "amps"
    message_type: str | None = None
    host: str | None = None
    port: int | None = None
    file_name: Path | None = None
    file_mask: int | None = None
    enabled: bool = True
    tls: TlsConfig | None = None
    authentication: ModuleUse | None = None
    entitlement: ModuleUse | None = None
    message_memory_limit_bytes: int | None = None
    client_max_capacity: float | None = None
    client_message_age_limit_s: float | None = None

    @property
    def is_replication(self) -> bool:
        """Whether it accepts other instances, and no applications."""
        return self.type in REPLICATION_TYPES

    @property
    def address(self) -> str:
        """The address in its usual written form."""
        if self.file_name is not None:
            return str(self.file_name)
        if self.host is None:
            return str(self.port)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LoggedTopic:
    """Topics that the transaction log records: a topic name or pattern, in one message type.

    `filter` is an expression; a message that does not match it is not recorded.
    """

    name: str
    message_type: str
    filter: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionLogConfig:
    """The transaction log. `journal_size_bytes` is a whole number of mebibytes, at least ten.

    `journal_cache_bytes` limits the content of compressed journals in memory, over all processes.
    If `inactive_client_ack_expiration_s` is None, the state of publishers is never removed.
    """

    journal_directory: Path
    journal_archive_directory: Path | None = None
    preallocated_journal_files: int = 2
    journal_size_bytes: int = 2**30
    flush_interval_s: float = 0.1
    o_direct: bool = True
    inactive_client_ack_expiration_s: float | None = None
    journal_cache_bytes: int = 2**30
    topics: tuple[LoggedTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class LogTargetConfig:
    """A target for records of the event log, and the selection of records.

    `levels` has exactly the levels that are written (`Level` and `Levels` combined). Ids that match
    `include_ids` are written at any level, ids that match `exclude_ids` never. `file_name` is a mask
    with strftime tokens and `%n`, the rotation counter.
    """

    protocol: str
    levels: frozenset[str] = frozenset()
    include_ids: tuple[str, ...] = ()
    exclude_ids: tuple[str, ...] = ()
    file_name: str | None = None
    rotation_threshold_bytes: int | None = None
    ident: str | None = None
    syslog_options: tuple[str, ...] = ()
    facility: str = "LOG_USER"


@dataclass(frozen=True, slots=True)
class ActionModule:
    """One `On`, `Do` or `If`: a module by its proper name and the texts of its options.

    Variables in the texts are replaced when the step runs. `place` is file and line, for log messages.
    """

    module: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    place: str = ""


@dataclass(frozen=True, slots=True)
class ActionConfig:
    """An action: its `steps` (`Do` and `If` in the order of the file) run whenever one of `events` occurs."""

    events: tuple[ActionModule, ...]
    steps: tuple[ActionModule, ...]
    place: str = ""


@dataclass(frozen=True, slots=True)
class AdminConfig:
    """The administration interface over HTTP.

    `transport` has its address and its security; host None means this host's loopback addresses. `challenge` is the
    challenge for credentials. `anonymous_paths` is an expression; matching paths need no credentials and no permission.
    `allowed_origins` is an expression for the origins of other web pages that may read; None: no origin may.
    `allowed_hosts` are names of the interface besides the usual ones; `*.` before a name matches all names with this
    ending. `trusted_origins` are origins whose pages have the rights of the interface's own pages. `external_address`:
    the address that other instances show for this one; None: that of `transport`.
    """

    transport: TransportConfig
    challenge: str | None = None
    anonymous_paths: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    allowed_origins: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    trusted_origins: tuple[str, ...] = ()
    external_address: str | None = None


@dataclass(frozen=True, slots=True)
class FreeSpaceThreshold:
    """The required free space of a file system: a share of it, 0 to 1, or a number of bytes. One of the two is None."""

    share: float | None = None
    size_bytes: int | None = None

    def bytes_of(self, file_system_bytes: int) -> int:
        """Return the threshold in bytes for a file system of this size."""
        if self.share is not None:
            return int(self.share * file_system_bytes)
        return self.size_bytes or 0

    def __str__(self) -> str:
        """Return the threshold in its usual written form."""
        if self.share is not None:
            return f"{self.share * 100:g} %"
        return f"{(self.size_bytes or 0) / 2**20:,.0f} MiB"


DEFAULT_FREE_SPACE = FreeSpaceThreshold(share=0.1)


@dataclass(frozen=True, slots=True)
class TuningConfig:
    """Tuning settings, whose effect may change between versions. `transport_workers` None: from the CPU count.

    `topic_index`: each full journal gets a topic index, and replays use it. `free_space_warning`: the free space for
    journals below which the server warns; None: no warning.
    """

    transport_workers: int | None = None
    topic_index: bool = False
    free_space_warning: FreeSpaceThreshold | None = DEFAULT_FREE_SPACE


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One instance. `authentication` and `entitlement` None mean the default modules without options.

    `message_types` has all types by name, standard and declared ones, in an order in which each type depends only on
    earlier ones. `functions` are the functions that expressions may call. `queues` are in the order of the file: a
    queue's place among them is its number everywhere, as with `sow_topics`. `replication_transport` accepts connections
    of other instances. `authenticator` has the credentials for outgoing connections. `min_sync_destinations`: actions
    do not downgrade below that number of destinations in sync mode.
    """

    name: str
    group: str
    process_name: str | None = None
    description: str | None = None
    environment: str | None = None
    transports: tuple[TransportConfig, ...] = ()
    transaction_log: TransactionLogConfig | None = None
    logging: tuple[LogTargetConfig, ...] = ()
    authentication: ModuleUse | None = None
    entitlement: ModuleUse | None = None
    regex_topic_support: bool = True
    message_types: Mapping[str, TypeSettings] = field(default_factory=standard_settings)
    functions: Functions = SHIPPED
    message_memory_limit_bytes: int = 2**30
    client_max_capacity: float = 0.5
    client_message_age_limit_s: float | None = None
    tuning: TuningConfig = field(default_factory=TuningConfig)
    queues: tuple[QueueConfig, ...] = ()
    sow_topics: tuple[SowTopicConfig, ...] = ()
    actions: tuple[ActionConfig, ...] = ()
    admin: AdminConfig | None = None
    destinations: tuple[DestinationConfig, ...] = ()
    replication_transport: TransportConfig | None = None
    authenticator: ModuleUse | None = None
    min_sync_destinations: int | None = None

    @property
    def replicates(self) -> bool:
        """Whether the replication process is needed."""
        return bool(self.destinations) or self.replication_transport is not None

    @property
    def has_services(self) -> bool:
        """Whether the services process is needed."""
        return bool(self.actions) or self.admin is not None


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A valid configuration, and the findings about it.

    `expanded_text` is the text with variables and includes resolved. `--dump-config` prints it, and
    the server shows it as its configuration, even if the files change later.
    """

    config: ServerConfig
    findings: tuple[Finding, ...]
    expanded_text: str
    path: str
