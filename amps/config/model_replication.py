"""The configuration of replication: immutable, with every default already applied (replication.md §4, §5)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from amps.config.model_base import ModuleUse

CHECKS = (
    "txlog",
    "replicate",
    "sow",
    "cascade",
    "queue",
    "keys",
    "replicate_filter",
    "queue_passthrough",
    "queue_underlying",
)
"""The checks of both sides' configuration (replication.md §16)."""
MANDATORY_CHECKS = ("queue", "queue_underlying")
DESTINATIONS_MAX = 64
RECONNECT_TIMEOUTS_S = (1.0, 2.0, 5.0, 10.0, 30.0)

Compression = Literal["none", "zlib", "zstd", "lz4"]


@dataclass(frozen=True, slots=True)
class ReplicatedTopic:
    """Topics that are replicated: a name, or a pattern if `is_regex`, in one message type.

    `filter` is an expression; only matching messages are sent. `excluded` are the checks that are skipped.
    """

    name: str
    message_type: str
    is_regex: bool = False
    filter: str | None = None
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The TLS settings of an outgoing connection. `verify`: the peer's certificate is checked with the CA."""

    certificate: Path | None = None
    private_key: Path | None = None
    ciphers: str | None = None
    protocols: tuple[str, ...] = ("TLSv1.1", "TLSv1.2", "TLSv1.3")
    verify: bool = False
    ca_file: Path | None = None
    ca_path: Path | None = None


@dataclass(frozen=True, slots=True)
class DestinationTransport:
    """One way to connect to a destination: equivalent servers that accept the same credentials.

    `addresses` (host, port), in the order of priority; none: never dial. `reconnect_timeouts_s`: the n-th pass over
    the list uses the n-th, the last one repeats. `authenticator` None: the instance's. `authentication` and
    `entitlement` are for a flow that comes back over this connection; None: the instance's.
    """

    name: str
    type: str
    addresses: tuple[tuple[str, int], ...] = ()
    reconnect_timeouts_s: tuple[float, ...] = RECONNECT_TIMEOUTS_S
    authenticator: ModuleUse | None = None
    authentication: ModuleUse | None = None
    entitlement: ModuleUse | None = None
    tls: ClientTls | None = None
    compression: Compression = "none"
    prefers_ipv6: bool = False


@dataclass(frozen=True, slots=True)
class DestinationConfig:
    """One outgoing flow. Its place among the destinations is its number everywhere.

    `label` is its name in logs and statistics: `Name`, else `Group`. `name` and `group` are the texts of the
    configuration, None if absent (decision 25.1). `pass_through` is an expression for the group of the instance that
    sent a message here; None: only messages published here are sent.
    """

    label: str
    name: str | None
    group: str | None
    is_sync: bool
    topics: tuple[ReplicatedTopic, ...]
    transports: tuple[DestinationTransport, ...]
    pass_through: str | None = None
    ack_conflation_s: float = 1.0
    place: str = ""
