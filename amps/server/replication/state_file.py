"""`<Name>.destinations`: what a restart knows about the destinations (docs/replication.md, "Identity").

A JSON object with the uuid and the epoch of this instance's log, and for each destination, by its label: name and epoch
of the instance there, the acknowledged log position and transaction id, and what goes there before it. The file is
replaced as a whole. It may be old, or be lost: then a resynchronization takes longer, and the core keeps more journals
meanwhile. It never says more than was acknowledged. A file of another log is ignored.
"""

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from amps.journal.disk import FILE_MODE

_WORD_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SavedDestination:
    """The state of one destination. Empty texts: it was never connected."""

    peer_name: str = ""
    peer_group: str = ""
    peer_uuid: str = ""
    peer_epoch: str = ""
    acked_position: int = 0
    acked_txid: int = 0
    going_txid: int | None = None
    """No record before the position that goes there has a higher transaction id. None: not known."""
    rules: str = ""
    """By which rules it was decided what goes there: a digest of them."""


def destinations_path(directory: Path, name: str) -> Path:
    """The file of an instance in its journal directory."""
    return directory / f"{name}.destinations"


def read_destinations(path: Path, uuid: str, epoch: str) -> tuple[dict[str, SavedDestination], str | None]:
    """The saved destinations by label, and why the file cannot be used, if it is there and cannot."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, RecursionError) as problem:
        return {}, str(problem)
    try:
        if (content["uuid"], content["epoch"]) != (uuid, epoch):
            return {}, None
        found: dict[str, SavedDestination] = {}
        for label, values in content["destinations"].items():
            saved = SavedDestination(**values)
            texts = (saved.peer_name, saved.peer_group, saved.peer_uuid, saved.peer_epoch, saved.rules)
            words = [saved.acked_position, saved.acked_txid]
            if saved.going_txid is not None:
                words.append(saved.going_txid)
            if not all(isinstance(text, str) for text in texts) or not all(
                type(word) is int and 0 <= word <= _WORD_MAX for word in words
            ):
                raise TypeError(f"the values of {label!r} have wrong types")
            found[label] = saved
    except (KeyError, TypeError, AttributeError) as problem:
        return {}, f"its content is not that of such a file: {problem!r}"
    return found, None


def write_destinations(path: Path, uuid: str, epoch: str, destinations: dict[str, SavedDestination]) -> None:
    """Replace the file. Raises OSError; then the earlier file is as it was."""
    content = {
        "uuid": uuid,
        "epoch": epoch,
        "destinations": {label: asdict(saved) for label, saved in destinations.items()},
    }
    data = json.dumps(content, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")
    new = path.with_name(path.name + ".new")
    try:
        # Not synced: a file that a power failure has torn is ignored, and a sync would hold up the links.
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        with open(descriptor, "wb") as file:
            file.write(data)
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
