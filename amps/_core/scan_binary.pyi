"""Types of messages without fields; see scan_binary.pyx."""

from amps._core.fields import Extractor

class BinaryExtractor(Extractor): ...
