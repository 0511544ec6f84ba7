"""The resources below `/amps/instance` (operations.md §5.7, transaction_log.md §14)."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amps._core.values.value import publisher_id
from amps.config import LoadedConfig, TransactionLogConfig
from amps.journal.free_space import FreeSpace, free_space
from amps.journal.names import COMPRESSED_SUFFIX, JOURNAL_SUFFIX
from amps.server.admin.formats import format_time_ns
from amps.server.admin.queues import QueueView
from amps.server.admin.replication import ReplicationView
from amps.server.admin.sow_topics import SowView, joined
from amps.server.admin.subscriptions import subscriptions_node
from amps.server.admin.tree import Collection, Dynamic, Group, Leaf, Node, Refused
from amps.server.services.core_requests import CoreRefused, CoreRequests
from amps.server.services.transport_requests import TransportRequests
from amps.server.write_statistics import Distribution, WriteStatistics
from amps.version import VERSION


def instance_node(
    loaded: LoadedConfig,
    core: CoreRequests,
    transports: TransportRequests,
    writes: WriteStatistics,
    queues: QueueView | None,
    replication: ReplicationView | None,
    states: SowView | None,
) -> Group:
    """The node of the instance. Its properties are fixed while it runs; values of core and transports are requested
    each time.
    """
    config = loaded.config
    fixed = {
        "name": config.name,
        "name_hash": str(publisher_id(config.name)),
        "version": VERSION,
        "description": config.description or "",
        "environment": config.environment or "",
        "config_path": loaded.path,
        "cwd": os.getcwd(),
        "pid": str(os.getppid()),
        "user_id": str(os.getuid()),
    }
    children: dict[str, Node] = {name: _fixed(value) for name, value in fixed.items()}
    children["config.xml"] = Leaf(lambda: loaded.expanded_text, "application/xml")
    settings = config.transaction_log
    if settings is not None:

        async def transaction_log() -> Group:
            return log_node(await known_journals(core), writes, await _room(settings))

        children["transaction_log"] = Dynamic(transaction_log)
    children["subscriptions"] = subscriptions_node(transports, core, queues is not None)
    if queues is not None:
        children["queues"] = queues.queues_node()
    parts = [*([states.node()] if states is not None else []), *([queues.sow_node()] if queues is not None else [])]
    if parts:
        children["sow"] = joined(parts)
    if replication is not None:
        children["ready"] = replication.ready_node()
        if replication.has_destinations:
            children["replication"] = replication.instance_node()
    return Group(dict(sorted(children.items())))


def _fixed(value: str) -> Leaf:
    return Leaf(lambda: value)


async def known_journals(core: CoreRequests) -> list[dict[str, Any]]:
    """The journals known to the core. Raises Refused."""
    try:
        return await core.journals()
    except CoreRefused as refusal:
        raise Refused(500, str(refusal)) from None


def journal_id(journal: dict[str, Any]) -> str:
    """The id of a journal in the interface: the name of its file."""
    return Path(str(journal["path"])).name


async def _room(settings: TransactionLogConfig) -> FreeSpace | None:
    """The free space for journals; None if it is unknown. A thread reads it, because the device may be slow."""
    try:
        return await asyncio.to_thread(free_space, settings.journal_directory)
    except OSError:
        return None


def journal_collection(
    journals: list[dict[str, Any]], member: Callable[[dict[str, Any]], Group]
) -> Collection:
    """Journals by id. Compressing changes the file's name; the journal is still found under its first name."""
    first_names = {}
    for journal in journals:
        name = journal_id(journal)
        if name.endswith(COMPRESSED_SUFFIX):
            first_names[name.removesuffix(COMPRESSED_SUFFIX) + JOURNAL_SUFFIX] = name
    return Collection(
        "journal", {journal_id(journal): member(journal) for journal in journals}, aliases=first_names
    )


def log_node(journals: list[dict[str, Any]], writes: WriteStatistics, room: FreeSpace | None) -> Group:
    """The node of the transaction log. The values of its file system have the names documented for disks."""
    earliest = [journal["min_timestamp_ns"] for journal in journals if journal.get("min_timestamp_ns")]
    latest = [journal["max_timestamp_ns"] for journal in journals if journal.get("max_timestamp_ns")]
    return Group(
        {
            "file_system_free_bytes": _fixed("" if room is None else str(room.free_bytes)),
            "file_system_free_percent": _fixed("" if room is None else f"{room.percent:.2f}"),
            "journals": journal_collection(journals, _journal),
            "max_timestamp": _fixed(format_time_ns(max(latest, default=0))),
            "min_timestamp": _fixed(format_time_ns(min(earliest, default=0))),
            "write_latency": _distribution(writes.latency()),
            "write_size": _distribution(writes.size()),
        }
    )


def _distribution(values: Distribution) -> Group:
    return Group(
        {
            "histogram": _fixed(values.histogram()),
            "maximum": _fixed(str(values.maximum)),
            "minimum": _fixed(str(values.minimum)),
        }
    )


def _journal(journal: dict[str, Any]) -> Group:
    return Group(
        {
            "file_name": _fixed(str(journal["path"])),
            "is_archived": _fixed("true" if journal.get("archived") else "false"),
            "is_compressed": _fixed("true" if journal.get("compressed") else "false"),
            "max_timestamp": _fixed(format_time_ns(journal.get("max_timestamp_ns") or 0)),
            "min_timestamp": _fixed(format_time_ns(journal.get("min_timestamp_ns") or 0)),
        }
    )
