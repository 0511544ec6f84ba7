"""The messages of the event log that a part of the server reports, for tests without a log process."""

from typing import Any

from amps.server.eventlog.catalogue import CATALOGUE, fill


class Reports(list[tuple[str, str]]):
    """The reported messages, as (id, text). It is a `Report` itself."""

    def __call__(self, record_id: str, /, **values: Any) -> None:
        self.append((record_id, fill(CATALOGUE[record_id].template, values)))

    @property
    def ids(self) -> list[str]:
        return [record_id for record_id, _ in self]
