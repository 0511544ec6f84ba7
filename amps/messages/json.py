"""JSON: nested objects; arrays and repeated objects are several values at one path."""

from collections.abc import Iterable

from amps._core.messages.json import JsonBuilder, JsonDocuments, JsonExtractor
from amps.messages.base import MessageType


class JsonType(MessageType):
    """The module json."""

    has_deltas = True
    has_select_lists = True

    def extractor(self) -> JsonExtractor:
        return JsonExtractor(self.settings.early_termination)

    def builder(self, paths: Iterable[tuple[bytes, ...]]) -> JsonBuilder:
        return JsonBuilder(paths, self.settings.early_termination)

    def documents(self) -> JsonDocuments:
        return JsonDocuments(self.settings.early_termination)
