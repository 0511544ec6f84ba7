"""Types of the extractor for FIX and NVFIX; see scan_fix.pyx."""

from amps._core.fields import Extractor

class FixExtractor(Extractor):
    def __init__(self, field_separator: int = 1, numeric_tags: bool = True) -> None: ...
