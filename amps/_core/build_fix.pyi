"""Types of the builder of FIX and NVFIX messages; see build_fix.pyx."""

from collections.abc import Iterable

from amps._core.message_builder import MessageBuilder

class FixBuilder(MessageBuilder):
    def __init__(
        self, paths: Iterable[tuple[bytes, ...]], field_separator: int = 1, numeric_tags: bool = True
    ) -> None: ...
