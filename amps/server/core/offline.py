"""Writing the last sequences of publishers to `clients.ack` while no server runs, before journals are removed.

The caller holds the directory's lock.
"""

from pathlib import Path
from typing import Any

from amps.journal.clients_ack import ClientsAck, write_clients_ack
from amps.journal.disk import Disk
from amps.journal.listing import list_journals
from amps.journal.names import clients_ack_path
from amps.server.core.older import OlderJournals, RecoveryRefused, usable_clients_ack


def write_publishers(directory: Path, archive: Path | None, instance_name: str) -> None:
    """Make `clients.ack` cover all full journals. Raises OSError, LogDamaged, ValueError."""
    entries = list_journals(directory, archive, instance_name)
    full = [entry for entry in entries if entry.full]
    if not full:
        return
    headers = [entry.header for entry in entries]

    def report(record_id: str, /, **values: Any) -> None:
        """Ignore reports: unusable files are made again here."""

    end = entries[-1].end_position
    older = OlderJournals(Disk(), directory, archive, instance_name, report)
    older.clients = usable_clients_ack(directory, instance_name, headers, end, report) or ClientsAck()
    last = full[-1]
    if older.clients.position >= last.end_position:
        return
    try:
        for entry in full:
            older.add(entry.header, entry.place)
    except RecoveryRefused as refused:
        raise ValueError(str(refused)) from refused
    clients = older.clients
    clients.covers(last.header)
    write_clients_ack(Disk(), clients_ack_path(directory, instance_name), clients)
