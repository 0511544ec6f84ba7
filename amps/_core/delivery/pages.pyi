from collections.abc import Callable

from amps._core.delivery.delivery import LiveConflation, StateFollower
from amps._core.delivery.output import OutputBuffer
from amps._core.expressions.machine import EvaluationContext, Filter
from amps._core.sow.ranking import Ranking
from amps._core.sow.table import StateReader
from amps._core.values.documents import Selection
from amps._core.wire.topics import TopicEntry

class Window:
    def __init__(
        self,
        entry: TopicEntry,
        output: OutputBuffer,
        sub_id: bytes | None,
        flags: int,
        flags_if_recorded: int,
        skip: int,
        top: int,
        conflation: LiveConflation | None = None,
        selection: Selection | None = None,
    ) -> None: ...
    @property
    def skip(self) -> int: ...
    @property
    def top(self) -> int: ...

class PageList:
    def __init__(
        self, ranking: Ranking, filter_: Filter | None, too_large: Callable[[PageList], object]
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def ranking(self) -> Ranking: ...
    @property
    def filter(self) -> Filter | None: ...
    def open(self, window: Window) -> None: ...
    def close(self, window: Window) -> None: ...

class TopicPages(StateFollower):
    def __init__(self, entry: TopicEntry, reader: StateReader, evaluation: EvaluationContext) -> None: ...
    def __len__(self) -> int: ...
    def add(self, pages: PageList) -> None: ...
    def remove(self, pages: PageList) -> None: ...
