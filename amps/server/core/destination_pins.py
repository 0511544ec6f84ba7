"""The journals that destinations of replication hold: those that are not acknowledged by each of them.

A destination is to get every message that it takes, also an async one, and one that is not reachable (replication.md
§1, §13). So a journal stays until the acknowledged position of each destination is behind it. The replication process
writes these positions on the control page; until it has done so after a start, all journals stay.
"""

from collections.abc import Callable, Sequence

from amps._core.shm.memory import NO_JOURNAL, ControlPage


class DestinationPins:
    """Which journals the destinations need. Any thread may ask."""

    def __init__(self, control: ControlPage, labels: Sequence[str], number_at: Callable[[int], int]) -> None:
        """labels: those of the destinations, in their order. number_at(position): the journal with a log position."""
        self._control = control
        self._labels = labels
        self._number_at = number_at

    def _numbers(self) -> list[int]:
        return [self._number_at(self._control.destination(index)[1]) for index in range(len(self._labels))]

    def oldest_journal(self) -> int:
        """The number of the oldest journal that a destination needs; NO_JOURNAL if there is no destination."""
        return min(self._numbers(), default=NO_JOURNAL)

    def explain(self, number: int) -> str | None:
        """Which destinations need a full journal, and how many full journals each of them holds; None: none does."""
        current = int(self._control.watermarks()[3])
        held = [
            f"{label} holds {current - first}"
            for label, first in zip(self._labels, self._numbers(), strict=True)
            if first <= number
        ]
        return ", ".join(held) or None
