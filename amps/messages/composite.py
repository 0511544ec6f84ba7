"""Composite types: messages whose parts are messages of other types (expressions.md §12.6).

composite-local keeps the parts separate: the first step of a path is the number of a part. composite-global merges the
parts into one set of paths. Its fields cannot be written, because a path does not identify a part.
"""

from collections.abc import Iterable, Mapping

from amps._core.messages.composite import CompositeBuilder, CompositeDocuments, CompositeExtractor
from amps.messages.base import MessageType
from amps.messages.settings import TypeSettings


class CompositeGlobalType(MessageType):
    """The module composite-global."""

    _merged = True

    def __init__(self, settings: TypeSettings, known: Mapping[str, MessageType]) -> None:
        super().__init__(settings, known)
        for name in settings.parts:
            if name not in known:
                raise ValueError(f"the type of a part, {name}, is not known; declare it before {self.name}")
        if not settings.parts:
            raise ValueError(f"the composite type {self.name} has no parts; add MessageType elements")
        self._parts = tuple(known[name] for name in settings.parts)

    def extractor(self) -> CompositeExtractor:
        return CompositeExtractor([part.extractor() for part in self._parts], self._merged)


class CompositeLocalType(CompositeGlobalType):
    """The module composite-local."""

    has_deltas = True
    has_select_lists = True
    _merged = False

    def builder(self, paths: Iterable[tuple[bytes, ...]]) -> CompositeBuilder:
        paths = tuple(paths)
        places: list[list[int]] = [[] for _ in self._parts]
        numbers = {b"%d" % number: number for number in range(len(self._parts))}
        for place, path in enumerate(paths):
            number = numbers.get(path[0])
            if number is None or len(path) == 1:
                written = b"/".join((b"", *path)).decode(errors="replace")
                last = len(self._parts) - 1
                raise ValueError(
                    f"{written} is in no part of {self.name}: give /n/field with n from 0 to {last}"
                )
            places[number].append(place)
        builders = [
            part.builder([paths[place][1:] for place in of_part]) if of_part else None
            for part, of_part in zip(self._parts, places, strict=True)
        ]
        return CompositeBuilder(paths, builders, places)

    def documents(self) -> CompositeDocuments:
        return CompositeDocuments(
            [part.documents() if part.has_deltas or part.has_select_lists else None for part in self._parts],
            [part.has_deltas for part in self._parts],
            [part.has_select_lists for part in self._parts],
        )
