"""Publish stores and bookmark stores: the state that a client keeps so that no message is lost or processed twice."""

from amps.client.stores.bookmark import BookmarkStore
from amps.client.stores.publish import MemoryPublishStore, PublishStore

__all__ = ["BookmarkStore", "MemoryPublishStore", "PublishStore"]
