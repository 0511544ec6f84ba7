"""Elements of features that are known but not built: SOW topics, views, conflated topics.

They are described completely, so that a whole file can be checked. To build a feature, first
remove its mark here. Until then each use is refused, with name and line.
"""

from amps.config.readers import one_of, read_pattern, read_text
from amps.config.schema import Block, Leaf, Options, Synonym
from amps.config.units import read_boolean, read_count, read_interval, read_size

_TEXT = Leaf(read_text)
_REQUIRED = Leaf(read_text, required=True)
_MANY = Leaf(read_text, repeatable=True)
_FIELDS = Block({"Field": Leaf(read_text, required=True, repeatable=True)})
_HASH_INDEX = Block({"Key": Leaf(read_text, required=True, repeatable=True)}, repeatable=True)
_MODULE_USE = Block({"Module": _REQUIRED, "Options": Options()})
_OLD_SLABS = Leaf(read_text, note="has no effect since 5.0: SlabSize and InitialSlabCount took its place")


def _read_expiration(text: str) -> object:
    return text.lower() if text.lower() in ("enabled", "disabled") else read_interval(text)


_SOW_TOPIC = Block(
    {
        "Name": _REQUIRED,
        "Topic": Synonym("Name"),
        "MessageType": _REQUIRED,
        "FileName": _TEXT,
        "Durability": Leaf(one_of("persistent", "transient")),
        "Duration": Synonym("Durability"),
        "RecoveryPoint": _TEXT,
        "Expiration": Leaf(_read_expiration),
        "Key": _MANY,
        "KeyDomain": _TEXT,
        "KeyGenerator": _MODULE_USE,
        "SlabSize": Leaf(read_size, at_most=(2**30, "1GB")),
        "InitialSlabCount": Leaf(read_count, at_most=(1024, "1024")),
        "HashIndex": _HASH_INDEX,
        "Index": _MANY,
        "ExpectedKeyCountHint": Leaf(read_count),
        "History": Block(
            {"Window": Leaf(read_interval, required=True), "Granularity": Leaf(read_interval, required=True)}
        ),
        "Preprocessing": _FIELDS,
        "Enrichment": _FIELDS,
        "Pattern": Leaf(read_pattern),
        "RecordSize": _OLD_SLABS,
        "IncrementSize": _OLD_SLABS,
        "InitialSize": _OLD_SLABS,
    },
    repeatable=True,
    later="SOW topics",
)

_VIEW = Block(
    {
        "Name": _REQUIRED,
        "Topic": Synonym("Name"),
        "MessageType": _REQUIRED,
        "UnderlyingTopic": Options(required=True),  # a topic name, or Join elements
        "Projection": Block(_FIELDS.children, required=True),
        "Grouping": Block(_FIELDS.children, required=True),
        "Filter": _TEXT,
        "KeyDomain": _TEXT,
        "HashIndex": _HASH_INDEX,
        "Conflation": Leaf(one_of("none", "inline")),
        "JoinNullEquivalency": Leaf(read_boolean),
        "FileName": _TEXT,
    },
    repeatable=True,
    later="views",
)

_CONFLATED_TOPIC = Block(
    {
        "Name": _REQUIRED,
        "Topic": Synonym("Name"),
        "UnderlyingTopic": _REQUIRED,
        "MessageType": _REQUIRED,
        "Interval": Leaf(read_interval, at_least=(0.1, "100ms")),
        "Filter": _TEXT,
        "HashIndex": _HASH_INDEX,
        "Enrichment": _FIELDS,
        "TopicFormat": _TEXT,
    },
    repeatable=True,
    later="conflated topics",
)

SOW_TOPICS: dict[str, Block | Synonym] = {
    "Topic": _SOW_TOPIC,
    "TopicDefinition": Synonym("Topic"),
    "TopicMetaData": Synonym("Topic"),  # of releases before 4
    "View": _VIEW,
    "ViewDefinition": Synonym("View"),
    "ConflatedTopic": _CONFLATED_TOPIC,
    "ReplicaDefinition": Synonym("ConflatedTopic"),
}
