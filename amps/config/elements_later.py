"""Elements of features that are known but not built: views, conflated topics.

They are described completely, so that a whole file can be checked. To build a feature, first
remove its mark here. Until then each use is refused, with name and line.
"""

from amps.config.elements_sow import FIELDS, HASH_INDEX
from amps.config.readers import one_of, read_text
from amps.config.schema import Block, Leaf, Options, Synonym
from amps.config.units import read_boolean, read_interval

_TEXT = Leaf(read_text)
_REQUIRED = Leaf(read_text, required=True)
_VIEW = Block(
    {
        "Name": _REQUIRED,
        "Topic": Synonym("Name"),
        "MessageType": _REQUIRED,
        "UnderlyingTopic": Options(required=True),  # a topic name, or Join elements
        "Projection": Block(FIELDS.children, required=True),
        "Grouping": Block(FIELDS.children, required=True),
        "Filter": _TEXT,
        "KeyDomain": _TEXT,
        "HashIndex": HASH_INDEX,
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
        "HashIndex": HASH_INDEX,
        "Enrichment": FIELDS,
        "TopicFormat": _TEXT,
    },
    repeatable=True,
    later="conflated topics",
)

DERIVED_TOPICS: dict[str, Block | Synonym] = {
    "View": _VIEW,
    "ViewDefinition": Synonym("View"),
    "ConflatedTopic": _CONFLATED_TOPIC,
    "ReplicaDefinition": Synonym("ConflatedTopic"),
}
