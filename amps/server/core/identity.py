"""`<instance>.identity`: which instance, and which log, other instances replicate with (replication.md §24.2, §24.10).

The file is a JSON object. `uuid` is made once. `epoch` is made whenever a log begins without journals: what other
instances know about an earlier log of this instance does not hold for the new one. Transaction ids of another epoch are
void, and acknowledged positions with them; a path with another epoch is not that of this log.

The core keeps the file before it serves, so the replication process finds it. That process renews the epoch when
another instance has transaction ids that this log has lost. If the file is lost, both are made again: the next
resynchronization of each link compares more, and no message is lost.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from amps.journal.disk import Disk, whole_file
from amps.journal.names import identity_path
from amps.server.eventlog import Report

FILE_BYTES_MAX = 4096
EPOCH_BYTES = 8
UUID_BYTES = 16


class LogIdentity(NamedTuple):
    """The identity of an instance and of its present log: texts of hexadecimal digits and hyphens."""

    uuid: str
    epoch: str


def hop(name: str, group: str, epoch: str) -> str:
    """The line of an instance in the path of a record (docs/replication.md)."""
    return f"{name}\t{group}\t{epoch}"


def read_identity(directory: Path, instance_name: str) -> LogIdentity:
    """Read the file. Raises OSError; ValueError if it has other contents."""
    path = identity_path(directory, instance_name)
    with path.open("rb") as file:
        try:
            content = json.loads(file.read(FILE_BYTES_MAX))
            found = LogIdentity(content["uuid"], content["epoch"])
        except (ValueError, LookupError, TypeError, RecursionError) as problem:
            raise ValueError(f"{path}: it is no JSON object with uuid and epoch") from problem
    for text in found:
        if not isinstance(text, str) or not 1 <= len(text) <= 64 or not text.replace("-", "").isalnum():
            raise ValueError(f"{path}: uuid or epoch is no text of digits")
    return found


def keep_identity(
    disk: Disk,
    directory: Path,
    instance_name: str,
    begins_anew: bool,
    report: Report,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> LogIdentity:
    """Return the identity. Make what is missing; make the epoch if the log begins anew. Raises OSError."""
    path = identity_path(directory, instance_name)
    known: LogIdentity | None = None
    try:
        known = read_identity(directory, instance_name)
    except FileNotFoundError:
        pass
    except ValueError as problem:
        report("1D-0026", reason=problem)
    if known is not None and not begins_anew:
        return known
    uuid = known.uuid if known is not None else _uuid(random_bytes(UUID_BYTES))
    return _write(disk, path, LogIdentity(uuid, random_bytes(EPOCH_BYTES).hex()))


def renew_epoch(
    directory: Path,
    instance_name: str,
    disk: Disk | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> str:
    """Give the log a new epoch, durably, and return it. Raises OSError; ValueError if the file is damaged."""
    known = read_identity(directory, instance_name)
    made = LogIdentity(known.uuid, random_bytes(EPOCH_BYTES).hex())
    return _write(disk or Disk(), identity_path(directory, instance_name), made).epoch


def _write(disk: Disk, path: Path, identity: LogIdentity) -> LogIdentity:
    with whole_file(disk, path) as descriptor:
        disk.write(descriptor, memoryview(json.dumps(identity._asdict()).encode() + b"\n"), 0)
    return identity


def _uuid(data: bytes) -> str:
    text = data.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
