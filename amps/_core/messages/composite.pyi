from collections.abc import Iterable, Sequence

from amps._core.values.documents import Documents
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

class CompositeDocuments(Documents):
    def __init__(
        self,
        parts: Iterable[Documents | None],
        have_deltas: Iterable[bool],
        have_select_lists: Iterable[bool],
    ) -> None: ...
