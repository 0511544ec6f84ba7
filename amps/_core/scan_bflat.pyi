"""Types of the extractor for BFlat; see scan_bflat.pyx."""

from amps._core.fields import Extractor

class BflatExtractor(Extractor): ...
