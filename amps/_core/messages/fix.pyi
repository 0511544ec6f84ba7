from collections.abc import Iterable

from amps._core.values.documents import Documents
from amps._core.values.fields import Extractor, MessageBuilder

class FixExtractor(Extractor):
    def __init__(self, field_separator: int = 1, numeric_tags: bool = True) -> None: ...

class FixBuilder(MessageBuilder):
    def __init__(
        self, paths: Iterable[tuple[bytes, ...]], field_separator: int = 1, numeric_tags: bool = True
    ) -> None: ...

class FixDocuments(Documents):
    def __init__(self, field_separator: int = 1) -> None: ...
