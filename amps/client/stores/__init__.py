"""Publish stores and bookmark stores: the state that a client keeps so that no message is lost or processed twice.

`publish` has the interface of a publish store and the one in memory, `bookmark` the interface of a bookmark store. The
engine calls a publish store with the engine lock held, so no call may wait. What may not live here: rules of the
protocol (`amps.client.engine`) and sockets. The server is never imported.
"""

from amps.client.stores.bookmark import BookmarkStore
from amps.client.stores.publish import MemoryPublishStore, PublishStore

__all__ = ["BookmarkStore", "MemoryPublishStore", "PublishStore"]
