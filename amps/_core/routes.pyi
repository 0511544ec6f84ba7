"""Types of the routes of a topic; see routes.pyx."""

from collections.abc import Hashable, KeysView

from amps._core.filter_set import Filter, FilterBench
from amps._core.live_conflation import LiveConflation
from amps._core.outlet import Outlet
from amps._core.topic_table import TopicEntry

class Member: ...

class Receiver:
    def __init__(self, key: Hashable, outlet: Outlet, conflation: LiveConflation | None = None) -> None: ...

class TopicRoutes:
    def __init__(self, entry: TopicEntry | None = None, bench: FilterBench | None = None) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: Hashable) -> bool: ...
    @property
    def entry(self) -> TopicEntry | None: ...
    @property
    def keys(self) -> KeysView[Hashable]: ...
    def add(
        self,
        key: Hashable,
        receiver_key: Hashable,
        outlet: Outlet,
        sub_id: bytes | None,
        flags: int,
        filter_: Filter | None = None,
        conflation: LiveConflation | None = None,
    ) -> None: ...
    def remove(self, key: Hashable) -> None: ...
