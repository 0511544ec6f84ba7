"""Publish stores and bookmark stores: the state that a client keeps so that no message is lost or processed twice.

`publish` has the store in memory, `publish_file` the one in files, `publish_hybrid` the one in both; `segments` is the
format of the files. The engine calls a publish store with the engine lock held, so no call may wait. `bookmark` has the
algorithm of all bookmark stores and the store in memory, `bookmark_file` and `bookmark_ring` those in files, of which
`bookmark_log` has the format. `recovery` has recovery points and their adapters. What may not live here: the interfaces
and the rules of the protocol (`amps.client.protocol`) and sockets.
"""

from amps.client.stores.bookmark import MemoryBookmarkStore
from amps.client.stores.bookmark_file import FileBookmarkStore
from amps.client.stores.bookmark_ring import RingBookmarkStore
from amps.client.stores.publish import MemoryPublishStore
from amps.client.stores.publish_file import FilePublishStore
from amps.client.stores.publish_hybrid import HybridPublishStore
from amps.client.stores.recovery import (
    ConflatingRecoveryPointAdapter,
    RecoveryPoint,
    RecoveryPointAdapter,
    SOWRecoveryPointAdapter,
)

__all__ = [
    "ConflatingRecoveryPointAdapter",
    "FileBookmarkStore",
    "FilePublishStore",
    "HybridPublishStore",
    "MemoryBookmarkStore",
    "MemoryPublishStore",
    "RecoveryPoint",
    "RecoveryPointAdapter",
    "RingBookmarkStore",
    "SOWRecoveryPointAdapter",
]
