"""Types of what the extractors of nested binary formats share; see scan_nested.pyx."""

from amps._core.fields import Extractor

class NestedExtractor(Extractor): ...
