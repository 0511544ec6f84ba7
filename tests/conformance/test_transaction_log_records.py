"""Fields of a journal's records that are not delivered: transaction_log.md §3.

Read with the package's own reader; `tests/unit` compares that with the layout in docs/files.md.
"""

import itertools

from amps._core.journal.reader import LogCursor, LogDirectory
from tests.support.peers import Peers
from tests.support.server import StartServer


def test_transaction_log_3_records_carry_undelivered_fields(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §3, docs/files.md: expiration, SOW key, and the durable watermark when they were written."""
    server = start_server(log_topics=("t1",))
    publisher = peers.logged_on(server)
    for sequence, fields in enumerate(({"e": 60, "k": "key"}, {"e": 0}, {}), start=1):
        publisher.publish("t1", b"x", s=sequence, a="persisted", **fields)
        publisher.flush("persisted")
    prefix = f"{server.journal_directory}/{server.options.name}."
    directory = LogDirectory(prefix, ".journal", lambda topic, message_type: topic)
    cursor = LogCursor(directory, 0, 0, True)
    records = [cursor.step(10 * 2**20) for _ in range(3)]
    assert [record.expiration_s for record in records] == [60, 0, None]
    assert [record.sow_key for record in records] == [b"key", b"", b""]
    for before, after in itertools.pairwise(records):
        assert before.position + before.length <= after.durable_position <= after.position
