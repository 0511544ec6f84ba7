"""SOW topics of a configuration as each process needs them: the keys, the rules for publishes, the paths of files.

Core, transports and services make these objects for themselves, since they have state. They agree because they are made
from the same configuration.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from amps._core.sow.shaping import KeyMaker
from amps._core.values.documents import Documents
from amps._core.wire.topics import SowRules
from amps.config import ServerConfig
from amps.config.model_sow import SLAB_OVERHEAD_BYTES, SowTopicConfig
from amps.config.sow_topics import SowTopics
from amps.expressions import parse_field
from amps.messages import MessageType
from amps.server.runtime import Runtime

NS_PER_S = 1_000_000_000


def key_maker(config: SowTopicConfig, kind: MessageType) -> KeyMaker:
    """What makes the keys of a topic, of that message type."""
    domain = (config.key_domain or config.name).encode("utf-8", "surrogatepass")
    paths = [parse_field(text) for text in config.keys]
    return KeyMaker(domain, paths, kind.extractor() if paths else None)


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

    def rules(topic: str, message_type: str) -> SowRules | None:
        found = topics.find(topic, message_type)
        if found is None:
            return None
        kind = types[message_type]
        lifetime_s = found.expiration if isinstance(found.expiration, float) else 0.0
        return SowRules(
            key_maker(found, kind),
            documents_of(kind),
            not found.keys,
            found.slab_size_bytes - SLAB_OVERHEAD_BYTES,
            round(lifetime_s * NS_PER_S),
            found.number,
        )

    return rules
