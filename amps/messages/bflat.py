"""BFlat: a flat row of typed values and arrays of them."""

from collections.abc import Iterable

from amps._core.build_bflat import BflatBuilder
from amps._core.scan_bflat import BflatExtractor
from amps.messages.base import MessageType


class BflatType(MessageType):
    """The module bflat."""

    def extractor(self) -> BflatExtractor:
        return BflatExtractor()

    def builder(self, paths: Iterable[tuple[bytes, ...]]) -> BflatBuilder:
        return BflatBuilder(paths)
