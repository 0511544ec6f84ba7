"""Types of the extractor for composite messages; see scan_composite.pyx."""

from collections.abc import Iterable

from amps._core.fields import Extractor

class CompositeExtractor(Extractor):
    def __init__(self, parts: Iterable[Extractor], merged: bool) -> None: ...
    def messages_cut_short(self) -> int: ...
