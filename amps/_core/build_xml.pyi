"""Types of the builder of XML documents; see build_xml.pyx."""

from collections.abc import Iterable

from amps._core.message_builder import MessageBuilder

class XmlBuilder(MessageBuilder):
    def __init__(self, paths: Iterable[tuple[bytes, ...]]) -> None: ...
