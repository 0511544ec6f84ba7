from collections.abc import Iterable

from amps._core.values.documents import Documents
from amps._core.values.fields import Extractor, MessageBuilder

class XmlExtractor(Extractor): ...

class XmlBuilder(MessageBuilder):
    def __init__(self, paths: Iterable[tuple[bytes, ...]]) -> None: ...

class XmlDocuments(Documents): ...
