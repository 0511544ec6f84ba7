"""The rows of a topic in the log, and the check that each expected row is there once."""

import json
from collections import defaultdict
from typing import NamedTuple

from amps.client import EPOCH, AckType, Client


class LoggedRow(NamedTuple):
    """One message of the log."""

    publisher_id: str
    sequence: int
    topic: str
    data: bytes


def logged_rows(uri: str, topic: str) -> list[LoggedRow]:
    """All messages in the log of a topic or topic expression, in order."""
    rows: list[LoggedRow] = []
    with (
        Client(None, uri) as client,
        client.bookmark_subscribe(topic, EPOCH, ack_type=AckType.COMPLETED, control=True) as stream,
    ):
        while True:
            message = stream.get(20)
            assert message is not None, "the replay does not end"
            if message.command == "ack":
                return rows
            publisher_id, sequence = (message.bookmark or "").split("|")[:2]
            rows.append(LoggedRow(publisher_id, int(sequence), message.topic or "", message.data))


def check_rows(uri: str, topic: str, rows_of: dict[int, int]) -> list[LoggedRow]:
    """The log holds for each `p` the rows with `n` from 0 to the given number, once and in order, and nothing else."""
    rows = logged_rows(uri, topic)
    places: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        fields = json.loads(row.data)
        places[fields["p"]].append(fields["n"])
    assert {p: len(found) for p, found in places.items()} == rows_of
    for p, found in places.items():
        assert found == list(range(rows_of[p])), f"partition {p} is out of order"
    numbers: dict[str, int] = {}
    for row in rows:
        assert row.sequence > numbers.get(row.publisher_id, 0)
        numbers[row.publisher_id] = row.sequence
    return rows
