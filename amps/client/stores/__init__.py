"""Publish stores and bookmark stores: the state that a client keeps so that no message is lost or processed twice.

`publish` has the store in memory, `publish_file` the one in files, `publish_hybrid` the one in both; `segments` is the
format of the files. The engine calls a publish store with the engine lock held, so no call may wait. What
may not live here: the interfaces and the rules of the protocol (`amps.client.protocol`) and sockets.
"""

from amps.client.stores.bookmark import MemoryBookmarkStore
from amps.client.stores.publish import MemoryPublishStore
from amps.client.stores.publish_file import FilePublishStore
from amps.client.stores.publish_hybrid import HybridPublishStore

__all__ = ["FilePublishStore", "HybridPublishStore", "MemoryBookmarkStore", "MemoryPublishStore"]
