"""The message type binary: bytes that nobody looks into."""

from amps._core.messages.struct import BinaryExtractor
from amps._core.values.fields import Extractor
from amps.messages.base import MessageType


class BinaryType(MessageType):
    is_view_type = False
    is_underlying_type = False
    has_deltas = False
    has_enrichment = False
    has_select_lists = False
    has_server_topics = False

    def extractor(self) -> Extractor:
        return BinaryExtractor()
