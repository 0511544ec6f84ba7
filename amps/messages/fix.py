"""FIX and NVFIX: flat messages of `tag=value` pairs. Tags of FIX are numbers, those of NVFIX names."""

from collections.abc import Iterable, Mapping

from amps._core.messages.fix import FixBuilder, FixDocuments, FixExtractor
from amps.messages.base import MessageType
from amps.messages.settings import TypeSettings


class NvfixType(MessageType):
    """The module nvfix."""

    has_deltas = True
    has_select_lists = True

    numeric_tags = False
    _not_separators = frozenset(b"=")

    def __init__(self, settings: TypeSettings, known: Mapping[str, MessageType]) -> None:
        super().__init__(settings, known)
        separator = settings.field_separator
        if not 0 <= separator <= 255:
            raise ValueError(f"FieldSeparator {separator} is not a byte: give a number from 0 to 255")
        if separator in self._not_separators:
            raise ValueError(
                f"FieldSeparator {separator} ({chr(separator)!r}) may be part of every field: give another"
            )

    def extractor(self) -> FixExtractor:
        return FixExtractor(self.settings.field_separator, self.numeric_tags)

    def builder(self, paths: Iterable[tuple[bytes, ...]]) -> FixBuilder:
        return FixBuilder(paths, self.settings.field_separator, self.numeric_tags)

    def documents(self) -> FixDocuments:
        return FixDocuments(self.settings.field_separator)


class FixType(NvfixType):
    """The module fix."""

    numeric_tags = True
    _not_separators = frozenset(b"=0123456789")
