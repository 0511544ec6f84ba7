"""Publish stores and bookmark stores: what a client keeps so that nothing is lost or seen twice."""

from amps.client.stores.bookmark import BookmarkStore
from amps.client.stores.publish import MemoryPublishStore, PublishStore

__all__ = ["BookmarkStore", "MemoryPublishStore", "PublishStore"]
