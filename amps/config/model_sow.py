"""The configuration of SOW topics: immutable, with every default already applied.

A SOW topic remembers the last value of every key (sow.md §2). These classes say how keys are made, where the values are
kept, and how long. They do not change while the instance runs. Expressions are kept as text, because each process
compiles its own; `amps.config.sow` has checked them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from amps.config.model_queues import EPOCH, RecoveryPoint

Durability = Literal["persistent", "transient"]
Expiration = float | Literal["enabled"] | None

SLAB_SIZE_BYTES = 5 * 2**20
SLAB_OVERHEAD_BYTES = 64
"""A record may have the size of a slab less this many bytes (sow.md D25)."""


class History(NamedTuple):
    """How long former values are kept, and how many of them: at most one per `granularity_s` (sow.md §9)."""

    window_s: float
    granularity_s: float


@dataclass(frozen=True, slots=True)
class ChainingConfig:
    """The options of the key generator for chains of messages (sow.md §3.1).

    `primary` and `secondaries` are fields, as texts. With `validation`, a message that shows two chains to be one is an
    error. `file_name` None: the chains are kept in memory only.
    """

    primary: str
    secondaries: tuple[str, ...]
    file_name: Path | None = None
    validation: bool = False


@dataclass(frozen=True, slots=True)
class SowTopicConfig:
    """One SOW topic (sow.md §2.1). Of `keys` and `key_generator` at most one is given; without both, publishers provide
    the keys.

    `keys`, `hash_indexes` and `indexes` are fields, as texts such as `/id`. `key_domain` None: the topic's name is the
    domain; with `pattern`, that of the logical topic. `file_name` (None: `transient`) has no `%n` any more.
    `recovery_point` is epoch, now or a time. `expiration` is None (disabled), `enabled`, or the default lifetime in
    seconds. `expected_keys` 0 means no hint. `preprocessing` and `enrichment` are constructors of fields. With
    `pattern`, an expression, the topics that it matches are kept in this one; `name` is then no topic. `number` is the
    place among `ServerConfig.sow_topics`, `place` file and line.
    """

    name: str
    message_type: str
    keys: tuple[str, ...] = ()
    key_domain: str | None = None
    key_generator: ChainingConfig | None = None
    file_name: Path | None = None
    durability: Durability = "persistent"
    recovery_point: RecoveryPoint = EPOCH
    expiration: Expiration = None
    slab_size_bytes: int = SLAB_SIZE_BYTES
    initial_slab_count: int = 1
    hash_indexes: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[str, ...] = ()
    expected_keys: int = 0
    history: History | None = None
    preprocessing: tuple[str, ...] = ()
    enrichment: tuple[str, ...] = ()
    pattern: str | None = None
    number: int = 0
    place: str = ""
