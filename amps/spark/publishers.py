"""Names of publishers, which a journal has only as numbers."""

from amps._core.values.value import publisher_id
from amps.journal.clients_ack import ClientsAckDamaged, read_clients_ack
from amps.journal.names import clients_ack_path
from amps.spark.planning import Split


def publisher_names(split: Split) -> dict[int, bytes]:
    """The names of clients that the log tells, by publisher id; none if the file that has them cannot be read."""
    try:
        known = read_clients_ack(clients_ack_path(split.directory, split.instance)).names
    except (OSError, ClientsAckDamaged):
        return {}
    # Of who has never numbered anything the file knows only the id that the server numbered under
    # (transaction_log.md §4.3), and the log the client's own.
    own = {publisher_id(name): name for name in known.values()}
    return {publisher: name.encode("utf-8", "replace") for publisher, name in (known | own).items()}
