"""Types of the extractor for JSON; see scan_json.pyx."""

from amps._core.fields import Extractor

class JsonExtractor(Extractor):
    def __init__(self, early_termination: bool = True) -> None: ...

def structure_of(text: bytes, plain: bool) -> list[int]: ...
