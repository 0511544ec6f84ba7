"""What a configuration means, once read: immutable, typed, with every default already applied.

The rest of the server sees only these classes. Nothing here knows about XML, files or findings, and nothing
here computes: a value that needs computing (a memory limit taken from the host, a rounded journal size) was
computed by `amps.config.build`. Mappings inside are plain dicts; treat them as read-only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amps.config.findings import Finding
from amps.config.model_queues import QueueConfig
from amps.expressions import SHIPPED, Functions
from amps.messages import TypeSettings, standard_settings

OptionValue = str | list[str]


@dataclass(frozen=True, slots=True)
class ModuleUse:
    """One use of a module: which built-in implementation, with which options.

    `module` is the name of the implementation (`amps-default-authentication-module`,
    `libamps_simple_access_entitlement`), already resolved through `Modules`; `name` is what the
    configuration calls it, for log messages. `options` maps an option's element name to its text, or to the
    list of texts when the option was given more than once. Options at the use override those at the module.
    """

    module: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS of one listening transport."""

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
    None for `amps-unix`, where `file_name` is the socket's path. A limit that is None follows the instance;
    setting `message_memory_limit_bytes` gives the transport a memory pool of its own. `authentication` and
    `entitlement` are None when the instance's apply.
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
    def address(self) -> str:
        """The address as a person would write it."""
        if self.file_name is not None:
            return str(self.file_name)
        if self.host is None:
            return str(self.port)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LoggedTopic:
    """What the transaction log records: a topic name or pattern, in one message type.

    `filter` is an expression; a message that it does not match is not recorded.
    """

    name: str
    message_type: str
    filter: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionLogConfig:
    """The transaction log. `journal_size_bytes` is a whole number of mebibytes, at least ten.

    `journal_cache_bytes` limits the content of compressed journals in memory, over all processes;
    `inactive_client_ack_expiration_s` None: publishers are never forgotten.
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
    """Where log records go and which ones.

    `levels` holds exactly the levels that are written (`Level` and `Levels` combined); ids that match
    `include_ids` are written whatever their level, ids that match `exclude_ids` never. `file_name` is a mask
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

    Variables in the texts are put in when the step runs. `place` is file and line, for log messages.
    """

    module: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    place: str = ""


@dataclass(frozen=True, slots=True)
class ActionConfig:
    """What happens (`steps`: `Do` and `If` in the order of the file) whenever one of `events` does."""

    events: tuple[ActionModule, ...]
    steps: tuple[ActionModule, ...]
    place: str = ""


@dataclass(frozen=True, slots=True)
class AdminConfig:
    """The administration interface over HTTP.

    `transport` is its address and its security; host None means this host's loopback addresses. `challenge`: how
    credentials are asked for. `anonymous_paths`: an expression; what matches needs no credentials and no permission.
    `allowed_origins`: an expression for the origins of other web pages that may read; None: none may. `allowed_hosts`:
    names that the interface is called by, besides the usual ones; `*.` before one stands for all that end like this.
    `trusted_origins`: whose pages may do what the interface's own pages may.
    """

    transport: TransportConfig
    challenge: str | None = None
    anonymous_paths: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    allowed_origins: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    trusted_origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FreeSpaceThreshold:
    """How much of a file system shall be free: a share of it, 0 to 1, or a number of bytes. The other one is None."""

    share: float | None = None
    size_bytes: int | None = None

    def bytes_of(self, file_system_bytes: int) -> int:
        """What that is of a file system of this size."""
        if self.share is not None:
            return int(self.share * file_system_bytes)
        return self.size_bytes or 0

    def __str__(self) -> str:
        """As a person would write it."""
        if self.share is not None:
            return f"{self.share * 100:g} %"
        return f"{(self.size_bytes or 0) / 2**20:,.0f} MiB"


DEFAULT_FREE_SPACE = FreeSpaceThreshold(share=0.1)


@dataclass(frozen=True, slots=True)
class TuningConfig:
    """Knobs whose effect may change between versions. `transport_workers` None: from the CPU count.

    `topic_index`: full journals get a topic index each, and replays use them. `free_space_warning`: with less room than
    that for journals there is a warning; None: never.
    """

    transport_workers: int | None = None
    topic_index: bool = False
    free_space_warning: FreeSpaceThreshold | None = DEFAULT_FREE_SPACE


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One instance. `authentication` and `entitlement` None mean the default modules without options.

    `message_types` are all there are, by name: the standard ones and those declared, in an order in which each
    can be made of earlier ones. `functions` are what expressions may call. `queues` are in the order of the file: a
    queue's place among them is its number everywhere.
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
    actions: tuple[ActionConfig, ...] = ()
    admin: AdminConfig | None = None

    @property
    def has_services(self) -> bool:
        """Whether there is anything for the services process to do."""
        return bool(self.actions) or self.admin is not None


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration that may be started, and what there is to tell about it.

    `expanded_text` is the text with variables and includes resolved: what `--dump-config` prints and what
    the server shows of itself, however the files change later.
    """

    config: ServerConfig
    findings: tuple[Finding, ...]
    expanded_text: str
    path: str
