"""BFlat: a flat sequence of typed values and arrays."""

from collections.abc import Iterable

from amps._core.messages.bflat import BflatBuilder, BflatDocuments, BflatExtractor
from amps.messages.base import MessageType


class BflatType(MessageType):
    """The module bflat."""

    has_deltas = True
    has_select_lists = True

    def extractor(self) -> BflatExtractor:
        return BflatExtractor()

    def builder(self, paths: Iterable[tuple[bytes, ...]]) -> BflatBuilder:
        return BflatBuilder(paths)

    def documents(self) -> BflatDocuments:
        return BflatDocuments()
