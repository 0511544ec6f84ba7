"""Types of the extractor for XML; see scan_xml.pyx."""

from amps._core.fields import Extractor

class XmlExtractor(Extractor): ...
