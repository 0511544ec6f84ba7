"""The message type binary: bytes whose content is never read."""

from amps._core.messages.struct import BinaryExtractor
from amps._core.values.fields import Extractor
from amps.messages.base import MessageType


class BinaryType(MessageType):
    def extractor(self) -> Extractor:
        return BinaryExtractor()
