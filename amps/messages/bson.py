"""BSON: nested documents, arrays and typed values."""

from collections.abc import Iterable

from amps._core.messages.bson import BsonBuilder, BsonDocuments, BsonExtractor
from amps.messages.base import MessageType


class BsonType(MessageType):
    """The module bson."""

    has_deltas = True
    has_select_lists = True

    def extractor(self) -> BsonExtractor:
        return BsonExtractor()

    def builder(self, paths: Iterable[tuple[bytes, ...]]) -> BsonBuilder:
        return BsonBuilder(paths)

    def documents(self) -> BsonDocuments:
        return BsonDocuments()
