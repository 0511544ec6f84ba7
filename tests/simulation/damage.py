"""One changed byte in a copy of the journals.

The damage must be refused at the start, be found by the reader, or be without effect. It must never change what is
read. The world that owns the journals provides the random choice of the byte and the known contents of the log.
"""

import contextlib
import random
import shutil
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from amps._core.journal.reader import LogDamaged
from amps.journal.files import read_header
from amps.journal.listing import list_journals
from amps.journal.names import JournalPlace, find_journals, watermark_path
from amps.journal.watermark import read_watermark
from amps.server.core.older import RecoveryRefused
from tests.simulation.checks import Entry, check_contents, check_order, steps
from tests.simulation.clients import Client
from tests.simulation.disk import SimulatedDisk
from tests.simulation.server import NAME, Server, Settings


def start_on_damaged_copy(
    settings: Settings,
    originals: tuple[Path, Path],
    scratch: Path,
    graves: Path,
    chance: random.Random,
    known: list[Entry],
    read_before: list[Entry],
    clients: Sequence[Client],
    others: AbstractSet[int],
) -> bool:
    """Copy a journal directory and its archive, change a byte, and start on the copy. Return True if the start was
    refused.

    `known`: the messages of this log that subscribers have received so far. `read_before`: the messages of journals
    that may have been removed.
    """
    copies = originals[0].with_name("copy"), originals[0].with_name("copied archive")
    for original, copy in zip(originals, copies, strict=True):
        shutil.copytree(original, copy)
    try:
        journals = list_journals(*copies, NAME)
    except LogDamaged:
        journals = []  # a crash has torn the header of a spare
    refused = False
    if journals:
        first = journals[0].header.start_position
        refused = start_on_damage(
            settings,
            copies,
            scratch,
            graves,
            chance,
            [entry for entry in known if entry.position >= first],
            [entry for entry in read_before if entry.position < first],
            clients,
            others,
        )
    for copy in copies:
        shutil.rmtree(copy)
    return refused


def start_on_damage(
    settings: Settings,
    copies: tuple[Path, Path],
    scratch: Path,
    graves: Path,
    chance: random.Random,
    known: list[Entry],
    removed: list[Entry],
    clients: Sequence[Client],
    others: AbstractSet[int],
) -> bool:
    """Change a byte in `copies`, a journal directory and its archive, and start on it. Return True if the start was
    refused.

    `known`: the messages of this log that subscribers have received so far. `removed`: the messages before its
    beginning.
    """
    places = [place for found in find_journals(*copies, NAME).values() for place in found]
    promised = read_watermark(watermark_path(copies[0], NAME))
    path, offset = _place_of_damage(places, promised, chance)
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << chance.randrange(8)]))
    disk = SimulatedDisk(graves, chance)
    server = Server(settings, *copies, disk, scratch)
    try:
        server.core.open()
    except RecoveryRefused as refused:
        if path.name not in str(refused) and "end at log position" not in str(refused):
            raise AssertionError(f"damage in {path} is not named") from refused
        return True
    else:
        _check_damaged(server, promised, f"{path.name} at {offset}", known, removed, clients, others)
        return False
    finally:
        server.end()
        disk.release()


def _place_of_damage(places: list[JournalPlace], promised: int, chance: random.Random) -> tuple[Path, int]:
    """Return a place anywhere, near the beginning of a file, or just before the end of the promised part of the log."""
    kind = chance.randrange(3)
    if kind == 2:
        position = max(0, promised - chance.randrange(1, 500))
        for place in places:
            with contextlib.suppress(LogDamaged):
                header = read_header(place.path)
                offset = position - header.start_position
                if header.in_use and 0 <= offset < header.size and not place.compressed:
                    return place.path, offset
    path = chance.choice(places).path
    size = path.stat().st_size
    return path, chance.randrange(size if kind == 0 else min(size, 5000))


def _check_damaged(
    server: Server,
    promised: int,
    what: str,
    known: list[Entry],
    removed: list[Entry],
    clients: Sequence[Client],
    others: AbstractSet[int],
) -> None:
    read: list[Entry] = []
    cursor = server.log.cursor()
    whole = False
    with contextlib.suppress(LogDamaged):
        for entry in steps(cursor, server.runtime.control.watermarks()[0]):
            read.append(entry)
        whole = True
    common = min(len(known), len(read))
    assert read[:common] == known[:common], f"damage in {what} changed what is read"
    if whole:
        end = server.runtime.control.watermarks()[0]
        assert end >= promised, f"damage in {what}: the log ends at {end}, {promised} was promised"
        check_order(removed + read)
        own = [entry for entry in removed + read if entry.publisher_id not in others]
        check_contents(own, clients, NAME)
