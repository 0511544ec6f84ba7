from collections.abc import Iterable, Sequence

from amps._core.values.fields import Extractor, MessageBuilder

class CompositeExtractor(Extractor):
    def __init__(self, parts: Iterable[Extractor], merged: bool) -> None: ...
    def messages_cut_short(self) -> int: ...

class CompositeBuilder(MessageBuilder):
    def __init__(
        self,
        paths: Iterable[tuple[bytes, ...]],
        builders: Iterable[MessageBuilder | None],
        places: Iterable[Sequence[int]],
    ) -> None: ...
