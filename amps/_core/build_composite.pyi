"""Types of the builder of composite messages; see build_composite.pyx."""

from collections.abc import Iterable, Sequence

from amps._core.message_builder import MessageBuilder

class CompositeBuilder(MessageBuilder):
    def __init__(
        self,
        paths: Iterable[tuple[bytes, ...]],
        builders: Iterable[MessageBuilder | None],
        places: Iterable[Sequence[int]],
    ) -> None: ...
