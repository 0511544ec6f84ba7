"""Types of the extractor for MessagePack; see scan_msgpack.pyx."""

from amps._core.scan_nested import NestedExtractor

class MsgpackExtractor(NestedExtractor): ...
