"""MessagePack: nested maps, arrays and typed values."""

from collections.abc import Iterable

from amps._core.messages.msgpack import MsgpackBuilder, MsgpackDocuments, MsgpackExtractor
from amps.messages.base import MessageType


class MsgpackType(MessageType):
    """The module msgpack."""

    has_deltas = True
    has_select_lists = True

    def extractor(self) -> MsgpackExtractor:
        return MsgpackExtractor()

    def builder(self, paths: Iterable[tuple[bytes, ...]]) -> MsgpackBuilder:
        return MsgpackBuilder(paths)

    def documents(self) -> MsgpackDocuments:
        return MsgpackDocuments()
