"""Types of the extractor for BSON; see scan_bson.pyx."""

from amps._core.scan_nested import NestedExtractor

class BsonExtractor(NestedExtractor): ...
