"""Types of the extractor for JSON; see scan_json.pyx."""

from amps._core.fields import Extractor, FieldSet

class JsonExtractor(Extractor):
    def __init__(self, early_termination: bool = True) -> None: ...

def tokens_of(text: bytes, fields: FieldSet, plain: bool) -> list[int]: ...
