from collections.abc import Iterable

from amps._core.values.documents import Documents
from amps._core.values.fields import Extractor, FieldSet, MessageBuilder

class JsonExtractor(Extractor):
    def __init__(self, early_termination: bool = True) -> None: ...

def tokens_of(text: bytes, fields: FieldSet, plain: bool) -> list[int]: ...

class JsonBuilder(MessageBuilder):
    def __init__(self, paths: Iterable[tuple[bytes, ...]], early_termination: bool = True) -> None: ...

class JsonDocuments(Documents):
    def __init__(self, early_termination: bool = True) -> None: ...
