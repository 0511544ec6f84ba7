from collections.abc import Iterable

from amps._core.values.documents import Documents
from amps._core.values.fields import MessageBuilder, NestedExtractor

class BsonExtractor(NestedExtractor): ...

class BsonBuilder(MessageBuilder):
    def __init__(self, paths: Iterable[tuple[bytes, ...]]) -> None: ...

class BsonDocuments(Documents): ...
