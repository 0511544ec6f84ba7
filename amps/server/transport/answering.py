"""The acknowledgements that a command requests, and the answer to a command that is refused.

All commands share these functions: reading a header's fields, finding the requested acknowledgements, and answering a
command that cannot be carried out, which is always logged.
"""

from collections.abc import Callable
from typing import Any

from amps.server.transport.context import WorkerContext
from amps.server.transport.failures import CommandFailure
from amps.server.transport.session import Session

Header = dict[str, Any]

SUBSCRIBE_COMMANDS = ("subscribe", "delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe")
BATCH_SIZE_MAX = 10_000
UNCOUNTED_MODULES = ("binary", "composite-local", "composite-global")
"""Message types without `stats` acknowledgements (protocol.md §1, D32)."""
NOTHING_QUERIED = {"topic_matches": 0, "matches": 0, "records_returned": 0}


def wanted_acks(header: Header) -> set[str]:
    """The acknowledgement types that a command requests; unknown words and `none` request nothing (D30)."""
    text = header.get("ack_type", "")
    words = {word.strip() for word in str(text).split(",")}
    return words & {"received", "processed", "persisted", "completed", "stats"}


def text_of(header: Header, name: str) -> str:
    """A header field as text, empty if absent."""
    value = header.get(name)
    return "" if value is None else str(value)


def check_batch_size(header: Header) -> None:
    """Raise CommandFailure for a batch size out of bounds."""
    size = header.get("batch_size")
    if size is not None and (not isinstance(size, int) or not 1 <= size <= BATCH_SIZE_MAX):
        raise CommandFailure("invalid options", f"batch size {size}")


def tell_counts(
    connection: Session,
    worker: WorkerContext,
    header: Header,
    acknowledge: Callable[..., None],
    **ids_and_counts: Any,
) -> None:
    """Send the `stats` acknowledgement of a command, if it is requested and the message type has them (D32).
    `acknowledge`: sends it, as Session.acknowledge.
    """
    settings = worker.config.message_types[connection.message_type]
    if "stats" in wanted_acks(header) and settings.module not in UNCOUNTED_MODULES:
        acknowledge("stats", header.get("cmd_id"), **ids_and_counts)


def refuse(connection: Session, header: Header, failure: CommandFailure) -> None:
    """Answer a command with a failure, and log it."""
    command_id = header.get("cmd_id")
    wanted = wanted_acks(header)
    connection.log.log(
        "02-0030", client=connection.shown_name, command=text_of(header, "cmd"), reason=str(failure)
    )
    if "received" in wanted and command_id is not None:
        connection.acknowledge("received", command_id)
    extra: Header = dict(failure.fields)
    if text_of(header, "cmd") in SUBSCRIBE_COMMANDS:
        extra["sub_id"] = failure.sub_id or header.get("sub_id") or command_id
    if header.get("query_id"):
        extra["query_id"] = header["query_id"]
    if "processed" in wanted:
        connection.acknowledge("processed", command_id, failure.reason, **extra)
    elif "persisted" in wanted and text_of(header, "cmd") == "sow_delete":
        connection.acknowledge("persisted", command_id, failure.reason, **extra)
