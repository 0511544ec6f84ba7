"""`<instance>.actions`: the log positions up to which actions on messages of queues have done their work.

The numbers of published messages in the log are more exact (amps/server/services/queue_follower.py). This file is for
actions that never published, for steps that are not in the log, and for the position at which reading begins. So it is
written when an action is new, and later at intervals, with durable positions only. It may lag behind the actions, but
it is never ahead of them. Under its name it is always complete, or it does not exist.

It is JSON: `{"version": 1, "positions": [[module, message type, queue, log position], …]}`.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from amps.journal.disk import Disk, whole_file

VERSION = 1
Key = tuple[str, str, str]
"""Module of the event, message type, queue."""


class ActionPositionsDamaged(ValueError):
    """The file cannot be used; the text gives the reason."""


def read_action_positions(path: Path) -> dict[Key, int]:
    """The positions; none if there is no file. Raises ActionPositionsDamaged, OSError."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        content = json.loads(text)
        if content["version"] != VERSION:
            raise ActionPositionsDamaged(f"{path} is of version {content['version']}, not {VERSION}")
        return {_key(row): _position(row) for row in content["positions"]}
    except (ValueError, TypeError, LookupError) as problem:
        raise ActionPositionsDamaged(f"{path} cannot be read: {problem}") from problem


def _key(row: list[object]) -> Key:
    module, message_type, queue, _ = row
    if not (isinstance(module, str) and isinstance(message_type, str) and isinstance(queue, str)):
        raise ValueError("module, message type and queue of an event must be texts")
    return module, message_type, queue


def _position(row: list[object]) -> int:
    position = row[3]
    if not isinstance(position, int) or position < 0:
        raise ValueError(f"{position!r} is no log position")
    return position


def write_action_positions(disk: Disk, path: Path, positions: Mapping[Key, int]) -> None:
    """Replace the file. Raises OSError."""
    rows = [[*key, position] for key, position in positions.items()]
    data = json.dumps({"version": VERSION, "positions": rows}).encode()
    with whole_file(disk, path) as descriptor:
        disk.write(descriptor, memoryview(data), 0)
