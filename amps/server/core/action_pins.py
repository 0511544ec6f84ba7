"""The core's support for actions on queues: where a new action begins, and which journals the actions still need.

A new action begins at the end of the log when the instance starts with it: it does not see earlier events. The
positions are written before any record is added, so that no event is missed if the machine fails a moment later
(`begin_action_positions`).

An action on a message that has left its queue reads the removal in the log and the message, which may be far before it.
While the message is in its queue, `ActionPins` keeps its journal. When it has left, the journal is kept until the
actions have passed the end of the log at that time: then they have read the message. So the oldest message of the
queues is noted together with the end of the log at that time. It takes effect when the actions have passed this
position; then the next message is noted.
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
from amps.server.eventlog import Report

LOOK_INTERVAL_S = 0.25


def begin_action_positions(
    config: ServerConfig, directory: Path, disk: Disk, position: int, report: Report
) -> None:
    """Write the positions at which new actions on queues begin: this log position, the end of the log. Raises OSError.

    Positions of known actions stay, unless the log has begun anew since. Actions that are no longer configured are
    removed.
    """
    events = queue_events(config)
    path = action_positions_path(directory, config.name)
    if not events and not path.exists():
        return
    try:
        known = read_action_positions(path)
    except ActionPositionsDamaged as problem:
        report("29-0010", text=f"{problem}; actions on queues continue at the end of the log")
        known = {}
    wanted = {event.key: min(known.get(event.key, position), position) for event in events}
    if wanted != known:
        write_action_positions(disk, path, wanted)


def watched_queues(config: ServerConfig) -> list[int]:
    """Numbers of the queues whose events trigger actions."""
    watched = {(event.queue, event.message_type) for event in queue_events(config)}
    return [
        number for number, queue in enumerate(config.queues) if (queue.name, queue.message_type) in watched
    ]


class ActionPins:
    """A blocker of JournalRetention. The core calls `look` between turns; any thread may call `oldest_journal`."""

    def __init__(
        self,
        oldest: Callable[[], int],
        progress: ActionProgress,
        number_at: Callable[[int], int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`oldest`: log position of the oldest message in the watched queues, a large number if there is none.
        `number_at`: the journal of a log position.
        """
        self._oldest = oldest
        self._progress = progress
        self._number_at = number_at
        self._now_s = now_s
        self._look_at_s = 0.0
        self._safe = 0
        self._noted: tuple[int, int] | None = None  # oldest message, and the end of the log at that time

    def look(self, written: int) -> None:
        """Note the oldest message of the queues, at intervals. Removals of earlier messages are in the log before
        `written`.
        """
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
