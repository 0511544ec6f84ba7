"""The elements of SOW topics: `Topic` in `SOW` (sow.md §2.1).

`amps.config.sow` checks the rules between these elements and applies the defaults that depend on others.
"""

from amps.config.elements_queues import read_period, read_recovery_point
from amps.config.model_queues import EPOCH, RecoveryPoint
from amps.config.model_sow import SLAB_SIZE_BYTES, Expiration
from amps.config.readers import one_of, read_pattern, read_text
from amps.config.schema import Block, Leaf, Options, Synonym
from amps.config.units import read_count, read_interval, read_size, shown

SLAB_SIZE_MIN_BYTES = 4096
SLAB_SIZE_MAX_BYTES = 2**30
SLABS_MAX = 1024
EXPECTED_KEYS_MAX = 2**31

FIELDS = Block({"Field": Leaf(read_text, required=True, repeatable=True)})
HASH_INDEX = Block({"Key": Leaf(read_text, required=True, repeatable=True)}, repeatable=True)
_OLD_SLABS = Leaf(
    read_text, note="has no effect: since 5.0 SlabSize and InitialSlabCount take its place; remove it"
)


def read_expiration(text: str) -> Expiration:
    """Read `enabled`, `disabled` (None), or a lifetime: an interval above zero, in seconds."""
    word = text.lower()
    if word == "disabled":
        return None
    return "enabled" if word == "enabled" else read_period(text)


def read_sow_recovery_point(text: str) -> RecoveryPoint:
    """Read `epoch`, `now`, or a time in UTC (sow.md D37)."""
    try:
        point = read_recovery_point(text)
    except ValueError:
        point = None
    if point is None or point.kind == "bookmark":
        raise ValueError(
            f"{shown(text)} is no point from which a SOW topic is rebuilt; write epoch, now, or a time in UTC as "
            "YYYYmmddTHHMMSS"
        )
    return point


SOW_TOPIC = Block(
    {
        "Name": Leaf(read_text, required=True),
        "Topic": Synonym("Name"),
        "MessageType": Leaf(read_text, required=True),
        "FileName": Leaf(read_text),
        "Durability": Leaf(one_of("persistent", "transient"), default="persistent"),
        "Duration": Synonym("Durability"),
        "RecoveryPoint": Leaf(read_sow_recovery_point, default=EPOCH),
        "Expiration": Leaf(read_expiration),
        "Key": Leaf(read_text, repeatable=True),
        "KeyDomain": Leaf(read_text),
        "KeyGenerator": Block({"Module": Leaf(read_text, required=True), "Options": Options()}),
        "SlabSize": Leaf(
            read_size,
            default=SLAB_SIZE_BYTES,
            at_least=(SLAB_SIZE_MIN_BYTES, "4kb"),
            at_most=(SLAB_SIZE_MAX_BYTES, "1GB"),
        ),
        "InitialSlabCount": Leaf(read_count, default=1, at_least=(1, "1"), at_most=(SLABS_MAX, "1024")),
        "HashIndex": HASH_INDEX,
        "Index": Options(repeatable=True),  # a field, or an element Key with it (sow.md D31)
        "ExpectedKeyCountHint": Leaf(
            read_count, default=0, at_most=(EXPECTED_KEYS_MAX, str(EXPECTED_KEYS_MAX))
        ),
        "History": Block(
            {"Window": Leaf(read_period, required=True), "Granularity": Leaf(read_interval, required=True)},
            later="History; a topic in the transaction log has former states without it",
        ),
        "Preprocessing": FIELDS,
        "Enrichment": FIELDS,
        "Pattern": Leaf(read_pattern),
        "RecordSize": _OLD_SLABS,
        "IncrementSize": _OLD_SLABS,
        "InitialSize": _OLD_SLABS,
    },
    repeatable=True,
)

SOW_TOPICS: dict[str, Block | Synonym] = {
    "Topic": SOW_TOPIC,
    "TopicDefinition": Synonym("Topic"),
    "TopicMetaData": Synonym("Topic"),  # of releases before 4
}
