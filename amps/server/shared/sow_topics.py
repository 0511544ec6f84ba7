"""SOW topics of a configuration as each process needs them: the rules for publishes, the files, the logical topics.

Core, transports and services make these objects for themselves, since they have state. They agree because they are made
from the same configuration.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from amps._core.values.documents import Documents
from amps._core.wire.topics import SowRules
from amps.config import ServerConfig
from amps.config.model_sow import SLAB_OVERHEAD_BYTES, SowTopicConfig
from amps.config.sow_topics import SowTopics
from amps.journal.value_file import name_record, names_path, read_names
from amps.messages import MessageType
from amps.server.runtime import Runtime
from amps.server.shared.sow_shaping import instance_context, key_maker, logical_key_maker, preprocessing_stage

NS_PER_S = 1_000_000_000


def documents_of(kind: MessageType) -> Documents | None:
    """What merges deltas of a message type; None: it has none, and deltas are taken literally (sow.md §14)."""
    try:
        return kind.documents()
    except ValueError:
        return None


def expires(config: SowTopicConfig) -> bool:
    """Whether lifetimes take effect (sow.md §5)."""
    return config.expiration is not None


def value_path(config: SowTopicConfig, runtime: Runtime) -> Path:
    """The topic's value file: for a transient topic in memory."""
    if config.durability == "transient" or config.file_name is None:
        return runtime.sow_values_path(config.number)
    return config.file_name


def make_sow_rules(
    config: ServerConfig, types: Mapping[str, MessageType]
) -> Callable[[str, str], SowRules | None] | None:
    """The rules for publishes by topic and message type, for a TopicTable; None: there are no SOW topics."""
    if not config.sow_topics:
        return None
    topics = SowTopics(config)
    context = instance_context(config)

    def rules(topic: str, message_type: str) -> SowRules | None:
        found = topics.find(topic, message_type)
        if found is None:
            return None
        kind = types[message_type]
        lifetime_s = found.expiration if isinstance(found.expiration, float) else 0.0
        keys = key_maker(found, kind)
        return SowRules(
            keys if found.pattern is None else logical_key_maker(keys, found, topic),
            documents_of(kind),
            gives_keys(found),
            found.slab_size_bytes - SLAB_OVERHEAD_BYTES,
            round(lifetime_s * NS_PER_S),
            found.number,
            preprocessing_stage(found, kind, config.functions, context),
            found.key_generator is not None,
            bool(found.enrichment),
        )

    return rules


def gives_keys(config: SowTopicConfig) -> bool:
    """Whether publishers provide the keys of a topic."""
    return not config.keys and config.key_generator is None


def logical_names_path(config: SowTopicConfig, runtime: Runtime) -> Path:
    """The file with the names of the logical topics of a topic with `Pattern`, in the order of their numbers."""
    return names_path(value_path(config, runtime))


class LogicalNames:
    """The names of the logical topics of a topic with `Pattern`: their numbers stand in slots and value files.

    The core adds names, and syncs the file before a record with the number is written. Others read it again when they
    meet a number that they do not know.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError, ValueError if the file is damaged before its end."""
        self._path = path
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._end = 0
        self.rest: int | None = None
        """Offset of bytes that are no whole name, as far as the file was read; None: there are none."""
        self.read()

    def read(self) -> None:
        """Read names that were added since the last call. A name that is cut off at the end was never used."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            return
        names, taken = read_names(data)
        for name in names:
            self._add(name)
        self._end += taken
        self.rest = self._end if taken < len(data) else None

    def _add(self, name: str) -> None:
        self._numbers[name] = len(self.names)
        self.names.append(name)

    def number(self, name: str) -> int:
        """The number of a name, which is added if it is new. Only the core calls it. Raises OSError."""
        found = self._numbers.get(name)
        if found is not None:
            return found
        record = name_record(name)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            os.ftruncate(descriptor, self._end)
            os.pwrite(descriptor, record, self._end)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        self._end += len(record)
        self._add(name)
        return self._numbers[name]
