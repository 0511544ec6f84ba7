"""XML: texts of elements, attributes under their names with an @; repeated elements are several values at one path."""

from collections.abc import Iterable

from amps._core.messages.xml import XmlBuilder, XmlDocuments, XmlExtractor
from amps.messages.base import MessageType


class XmlType(MessageType):
    """The module xml."""

    has_deltas = True
    has_select_lists = True

    def extractor(self) -> XmlExtractor:
        return XmlExtractor()

    def builder(self, paths: Iterable[tuple[bytes, ...]]) -> XmlBuilder:
        return XmlBuilder(paths)

    def documents(self) -> XmlDocuments:
        return XmlDocuments()
