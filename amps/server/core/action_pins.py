"""What actions on queues ask of the core: where a new one begins, and which journals they still need.

A new action begins where the log ends when the instance starts with it: it is not told of what was before. That is
written down before anything is added, so that nothing is missed if everything dies a moment later
(`begin_action_positions`).

An action on a message that has left its queue reads the removal in the log and the message, which may lie far before.
While the message is in its queue, `ActionPins` keeps its journal; when it has left, the journal is kept until actions
have come to where the log was then: what they need of it they have read. So the oldest message of the queues is noted,
with the place of the log at that time, and counts when the actions have passed this place; then the next one is.
"""

import time
from collections.abc import Callable
from pathlib import Path

from amps.config import ServerConfig
from amps.config.queue_events import queue_events
from amps.journal.action_positions import (
    ActionPositionsDamaged,
    read_action_positions,
    write_action_positions,
)
from amps.journal.disk import Disk
from amps.journal.names import action_positions_path
from amps.server.action_progress import ActionProgress

LOOK_INTERVAL_S = 0.25


def begin_action_positions(
    config: ServerConfig, directory: Path, disk: Disk, position: int, report: Callable[[str, str], None]
) -> None:
    """Note where new actions on queues begin: at this log position, where the log ends. Raises OSError.

    What is known of others stays, unless the log has begun anew since; what is not configured any more is forgotten.
    """
    events = queue_events(config)
    path = action_positions_path(directory, config.name)
    if not events and not path.exists():
        return
    try:
        known = read_action_positions(path)
    except ActionPositionsDamaged as problem:
        report("29-0010", f"{problem}; actions on queues go on at the end of the log")
        known = {}
    wanted = {event.key: min(known.get(event.key, position), position) for event in events}
    if wanted != known:
        write_action_positions(disk, path, wanted)


def watched_queues(config: ServerConfig) -> list[int]:
    """Numbers of the queues that actions watch."""
    watched = {(event.queue, event.message_type) for event in queue_events(config)}
    return [
        number for number, queue in enumerate(config.queues) if (queue.name, queue.message_type) in watched
    ]


class ActionPins:
    """A blocker of JournalRetention. `look` is called by the core between turns, `oldest_journal` by any thread."""

    def __init__(
        self,
        oldest: Callable[[], int],
        progress: ActionProgress,
        number_at: Callable[[int], int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`oldest`: log position of the oldest message in the queues that are watched, a large number if there is none.
        `number_at`: the journal of a log position.
        """
        self._oldest = oldest
        self._progress = progress
        self._number_at = number_at
        self._now_s = now_s
        self._look_at_s = 0.0
        self._safe = 0
        self._noted: tuple[int, int] | None = None  # oldest message, and where the log was then

    def look(self, written: int) -> None:
        """Once in a while: note what the queues hold. All that has left them is in the log before `written`."""
        now_s = self._now_s()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_INTERVAL_S
        if self._noted is not None and self._progress.position >= self._noted[1]:
            self._safe, self._noted = self._noted[0], None
        if self._noted is None:
            self._noted = min(self._oldest(), written), written

    def oldest_journal(self) -> int:
        """The oldest journal that actions need."""
        return self._number_at(self._safe)
